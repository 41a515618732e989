r"""`consume --format`: how a record is written, in kcat's placeholders.

    %s  value                      %S  its length in bytes, -1 for null      %R  the same as 4 bytes, big-endian
    %k  key                        %K  its length in bytes, -1 for null
    %t  topic                      %p  partition                             %o  offset
    %T  timestamp, milliseconds    %D  timestamp as 2023-11-14 22:13:20.000Z (Ottla's)
    %h  headers, name=value with commas between                              %%  a percent sign (Ottla's)
    \n \r \t \\ \xHH               line end, return, tab, backslash, any byte

A null key or value writes nothing, as in kcat; its length is -1. Nothing is added at the end of a record, so most
formats end in \n.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.cli.escapes import byte_of
from ottla.cli.show import printable, show_time

if TYPE_CHECKING:
    from ottla.client import ConsumerRecord

Piece = Callable[["ConsumerRecord"], bytes]
"""Writes one part of a record."""

_TOKEN: Final = re.compile(r"%(?P<field>.?)|\\(?P<escape>x[0-9A-Fa-f]{2}|.?)|[^%\\]+", re.DOTALL)
_LENGTH: Final = struct.Struct(">i")


def compile_format(text: str, *, for_terminal: bool) -> Callable[[ConsumerRecord], bytes]:
    """Return the function that writes a record in the format `text`. `for_terminal`: control characters are escaped.

    Raises ValueError, one line, for an unknown placeholder or escape.
    """
    show: Callable[[bytes | None], bytes] = _printable if for_terminal else _plain
    pieces = [_piece(match, show) for match in _TOKEN.finditer(text)]

    def write(record: ConsumerRecord) -> bytes:
        return b"".join([piece(record) for piece in pieces])

    return write


def _piece(match: re.Match[str], show: Callable[[bytes | None], bytes]) -> Piece:
    field, escape = match["field"], match["escape"]
    if field is not None:
        fields = _fields(show)
        if field not in fields:
            raise ValueError(f"there is no placeholder %{field}; there are {' '.join('%' + one for one in fields)}")
        return fields[field]
    if escape is None:
        return _constant(match[0].encode("utf-8", "surrogateescape"))
    return _constant(byte_of(escape))


def _constant(data: bytes) -> Piece:
    return lambda record: data


def _fields(show: Callable[[bytes | None], bytes]) -> dict[str, Piece]:
    return {
        "s": lambda record: show(record.value),
        "S": lambda record: b"%d" % _length(record.value),
        "R": lambda record: _LENGTH.pack(_length(record.value)),
        "k": lambda record: show(record.key),
        "K": lambda record: b"%d" % _length(record.key),
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "D": lambda record: show_time(record.timestamp_ms).encode(),
        "h": lambda record: b",".join(
            [show(name.encode("utf-8", "surrogateescape")) + b"=" + show(value) for name, value in record.headers]
        ),
        "%": lambda record: b"%",
    }


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _plain(data: bytes | None) -> bytes:
    return b"" if data is None else bytes(data)


def _printable(data: bytes | None) -> bytes:
    return b"" if data is None else printable(data).encode()
