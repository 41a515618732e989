"""PEM text as it is found in files and in server.properties: its blocks, each in the form that OpenSSL reads.

In a properties file a block is often one line, with spaces for the ends of lines. Kafka accepts that, and so does
Ottla.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

MAX_BYTES = 1 << 20
"""Longest key store or trust store that is read."""

_OLD_ENCRYPTED = "\nProc-Type: 4,ENCRYPTED"
"""The header of a key that OpenSSL encrypted before there was PKCS #8 (RFC 1421)."""
_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----")


class Block(NamedTuple):
    """One block. `label` is the text after BEGIN; `text` is the whole block, line by line."""

    label: str
    text: str

    def __repr__(self) -> str:
        return f"Block({self.label})"  # the text may be a private key

    @property
    def is_certificate(self) -> bool:
        """Whether it is a certificate."""
        return self.label in ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")

    @property
    def is_key(self) -> bool:
        """Whether it is a private key, in any form."""
        return self.label.endswith("PRIVATE KEY")

    @property
    def is_encrypted(self) -> bool:
        """Whether it is a private key that needs a password."""
        return self.is_key and (self.label.startswith("ENCRYPTED") or _OLD_ENCRYPTED in self.text[:200])


def blocks(text: str) -> list[Block]:
    """The blocks of a PEM text; text between them is skipped. Raises ValueError for a broken one."""
    found: list[Block] = []
    position = 0
    while (begin := _BEGIN.search(text, position)) is not None:
        label = begin[1]
        end_line = f"-----END {label}-----"
        end = text.find(end_line, begin.end())
        if end < 0:
            raise ValueError(f"a block that begins with {begin[0]} has no end")
        body = text[begin.end() : end]
        position = end + len(end_line)
        found.append(Block(label, f"{begin[0]}\n{_lines(label, body)}{end_line}\n"))
    return found


def _lines(label: str, body: str) -> str:
    if ":" in body:  # an old encrypted key has headers, and its lines mean something
        return body.strip("\r\n ") + "\n"
    joined = "".join(body.split())
    try:
        base64.b64decode(joined, validate=True)
    except binascii.Error:
        raise ValueError(f"a block of {label} is not base64") from None
    return "".join(f"{joined[start : start + 64]}\n" for start in range(0, len(joined), 64))
