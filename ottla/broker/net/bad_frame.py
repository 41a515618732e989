"""What is said of a frame whose size cannot be, before its connection ends: often it is another protocol's."""

from __future__ import annotations

_HTTP_METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"DELETE", b"CONNECT", b"PRI")
_TLS_HANDSHAKE = b"\x16\x03"


def describe_bad_size(size_bytes: int, start: bytes, max_frame_bytes: int) -> str:
    """Why a connection ends that announced such a frame; by its first bytes, `start`, another protocol is known."""
    if size_bytes <= 0:
        return f"a frame of {size_bytes} bytes"
    reason = f"a frame of {size_bytes} bytes is longer than socket.request.max.bytes={max_frame_bytes}"
    if start.split(b" ")[0] in _HTTP_METHODS:
        return f"{reason}; this is HTTP ({start!r}), and the listener speaks Kafka's protocol"
    if start.startswith(_TLS_HANDSHAKE):
        return f"{reason}; this is a TLS handshake, and the listener speaks plaintext"
    return reason
