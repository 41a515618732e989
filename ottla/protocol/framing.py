"""Frames: each request and each response is preceded by its size as an int32.

    00 00 00 0a  00 12 00 04 00 00 00 01 ff ff      a frame of ten bytes

The owner of the socket's buffer reads; this file has what both sides must agree on. An announced size never causes an
allocation: buffers grow with the bytes that have arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.types import Buffer

SIZE_BYTES: Final = 4
"""The length of the size field."""

MAX_FRAME_BYTES: Final = 2**31 - 1
"""The largest size that an int32 can announce."""

SIZE: Final = struct.Struct(">i")


def frame_size_bytes(data: Buffer, position: int, max_bytes: int) -> int | None:
    """The size of the frame whose size field begins at `position`; None if that field has not arrived completely.

    Raises MalformedMessage for a size that is negative or above `max_bytes`.
    """
    if len(data) - position < SIZE_BYTES:
        return None
    size_bytes: int = SIZE.unpack_from(data, position)[0]
    if not 0 <= size_bytes <= max_bytes:
        raise MalformedMessage(f"a frame of {size_bytes} bytes is not within 0 and {max_bytes}")
    return size_bytes


def frame(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The buffers of one message, preceded by their total size. Nothing is copied.

    Buffers have items of one byte. Raises UnencodableMessage above `MAX_FRAME_BYTES`.
    """
    size_bytes = sum(map(len, buffers))
    if size_bytes > MAX_FRAME_BYTES:
        raise UnencodableMessage(f"a frame of {size_bytes} bytes is larger than {MAX_FRAME_BYTES}")
    return [SIZE.pack(size_bytes), *buffers]
