"""Old clients that ask for all there is, again and again, and take nothing: what they make a broker hold is bounded.

Fetch before version 4 is converted, so its answers are in memory until they are taken. Held against what the process
held before is the most that it held meanwhile (VmHWM, which Linux lets be set back); the other clients of the audit go
on beside them.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kit.audit.ledger import Place

from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode

READERS = 40
REQUESTS = 4
"""Of each, one behind the other: what the kernel keeps of the first is not the broker's memory."""
VERSION = 2
BOUND_BYTES = 4 << 20
"""`ottla.connections.max.unsent.bytes` of an audited broker."""
OTHER_BYTES = 32 << 20
"""What everybody else, and the allocator, may add meanwhile."""
_MOST_BYTES = (1 << 31) - 1
_CONNECT_S = 10


class GreedyReaders:
    """See the module. `begin` once; `end` closes all connections and says what was wrong."""

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self._status, self._reset = Path(f"/proc/{pid}/status"), Path(f"/proc/{pid}/clear_refs")
        self._sockets: list[socket.socket] = []
        self._before = 0

    def begin(self, places: Iterable[Place]) -> None:
        """Let all of them ask for everything in `places`."""
        self._before = self._held("VmRSS")
        self._reset.write_text("5")
        frame = _frame(places)
        for _ in range(READERS):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(_CONNECT_S)
            self._sockets.append(one)
            with suppress(OSError):  # it may be killed just now, or have no room for so many connections
                one.connect(("127.0.0.1", self._port))
                one.sendall(frame * REQUESTS)

    def end(self) -> str | None:
        """What the broker held beyond its bound, None where it kept it, or is gone."""
        held = self.held()
        for one in self._sockets:
            one.close()
        most = BOUND_BYTES + OTHER_BYTES
        return f"{READERS} readers that take nothing made it hold {held:,} bytes more" if held > most else None

    def held(self) -> int:
        """The most bytes that the broker held since `begin`, beyond what it held then."""
        try:
            return self._held("VmHWM") - self._before
        except (OSError, StopIteration):  # a process that has ended has no memory
            return 0

    def _held(self, name: str) -> int:
        line = next(line for line in self._status.read_text().splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) << 10


def _frame(places: Iterable[Place]) -> bytes:
    topics = [
        FetchRequest.FetchTopic(
            topic=name,
            partitions=[FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=_MOST_BYTES)],
        )
        for name, index in places
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=_MOST_BYTES, session_epoch=-1, topics=topics)
    body = encode_request_header(request.message_key, VERSION, 1, "greedy") + encode(request, VERSION)
    return struct.pack(">i", len(body)) + body
