"""The length in front of each request: where its frame ends, and what is said of a length that cannot be.

length 4 | request, `length` bytes          0 < length <= socket.request.max.bytes
"""

from __future__ import annotations

import struct

LENGTH = struct.Struct(">i")
LENGTH_BYTES = LENGTH.size
_HTTP_METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"DELETE", b"CONNECT", b"PRI")
_TLS_HANDSHAKE = b"\x16\x03"


def frame_bytes(view: memoryview, max_frame_bytes: int) -> int | None:
    """Length of the frame that begins in `view`, its length field included; None where that is not there yet, or cannot
    be.
    """
    if len(view) < LENGTH_BYTES:
        return None
    length: int = LENGTH.unpack_from(view)[0]
    return LENGTH_BYTES + length if 0 < length <= max_frame_bytes else None


def describe_bad_length(length: int, start: bytes, max_frame_bytes: int) -> str:
    """Why a connection ends that sent such a length; `start` are the first bytes, which tell whose protocol it is."""
    if length <= 0:
        return f"a frame of {length} bytes"
    reason = f"a frame of {length} bytes is longer than socket.request.max.bytes={max_frame_bytes}"
    if start.split(b" ")[0] in _HTTP_METHODS:
        return f"{reason}; this is HTTP ({start!r}), and the listener speaks Kafka's protocol"
    if start.startswith(_TLS_HANDSHAKE):
        return f"{reason}; this is a TLS handshake, and the listener speaks plaintext"
    return reason
