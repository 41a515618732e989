r"""The escapes in options whose texts a shell cannot type easily: `\n \r \t \\ \xHH`, as in kcat."""

from __future__ import annotations

import re
from typing import Final

IN_WORDS: Final = r"\n \r \t \\ \xHH"
_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|.?)", re.DOTALL)
_BYTES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}


def byte_of(escape: str) -> bytes:
    """Return the byte of an escape, which is given without its backslash. Raises ValueError, one line."""
    if escape[:1] == "x" and len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    if escape not in _BYTES:
        raise ValueError(rf"there is no escape \{escape}; there are {IN_WORDS}")
    return _BYTES[escape]


def unescape(text: str) -> bytes:
    """Return the bytes of a text with escapes. Raises ValueError, one line, for an unknown escape."""
    data, done = b"", 0
    for match in _ESCAPE.finditer(text):
        data += text[done : match.start()].encode("utf-8", "surrogateescape") + byte_of(match[1])
        done = match.end()
    return data + text[done:].encode("utf-8", "surrogateescape")
