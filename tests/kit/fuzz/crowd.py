"""A crowd: many connections that ask the same, and of which none takes its answer.

What one connection may make the broker hold is small; the question is what all of them together do. Workers finish
nothing until they are asked to, so that whatever waits for them piles up as it does behind a slow disk; what is sent
stays with the transport, as it does behind a slow client. Measured is the memory at its highest (tracemalloc), against
`ottla.connections.max.unsent.bytes` and a little for each connection.
"""

from __future__ import annotations

import gc
import struct
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kit.clock import ManualClock
from kit.exchange import batch, make_topic
from kit.fuzz.watch import Finding, Watch
from kit.nodes import partition_of, start_node_with
from kit.transport import FakeTransport, feed
from kit.workers import HeldWorkers

from ottla.broker.net.connection import Connection
from ottla.broker.net.connections import Connections
from ottla.broker.partitions.partition import Partition
from ottla.broker.runtime.answer_memory import PATIENCE_MS
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import Request, encode
from ottla.storage.segment.slice import LogSlice

MIB = 1 << 20
BOUND = 8 * MIB
BATCHES, RECORDS, VALUE = 8, 4, bytes(50_000)
BYTES_PER_CONNECTION = 64 << 10
BASE_BYTES = 4 * MIB
TOPIC = "crowd"


class FullSocket(FakeTransport):
    """A client that takes nothing: the transport keeps the buffers as they are, and asks to pause."""

    protocol: Connection

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.kept += list_of_data
        self.sends += 1
        self.unsent_bytes = sum(map(len, self.kept))
        if self.unsent_bytes > BYTES_PER_CONNECTION:
            self.protocol.pause_writing()

    def abort(self) -> None:
        was_closed, self.unsent_bytes = self.closed, 0
        super().abort()
        self.kept.clear()
        if not was_closed:
            self.protocol.connection_lost(None)


class Crowd:
    """A node with a topic of some MiB, and its crowd."""

    def __init__(self) -> None:
        self.clock: ManualClock
        self.workers = HeldWorkers()
        self.node, _, self.clock = start_node_with(
            self.workers,
            ottla_acks_all="page-cache",
            ottla_connections_max_unsent_bytes=BOUND,
            ottla_batch_max_decompressed_bytes=MIB,
        )
        make_topic(self.node, TOPIC, 1)
        partition = partition_of(self.node, TOPIC)
        for _ in range(BATCHES):
            records = bytearray(batch(RECORDS, value=VALUE))
            partition.append([memoryview(records)], len(records), self.clock.wall_ms())
        self.workers.holds = True
        self.connections = Connections(self.node.services, self.node.dispatcher)
        self.transports: list[FullSocket] = []

    def join(self, frame: bytes) -> FullSocket:
        """One more connection, which sends the frame."""
        connection, transport = self.connections.protocol("PLAINTEXT"), FullSocket()
        transport.protocol = connection
        connection.connection_made(transport)
        self.transports.append(transport)
        feed(connection, frame)
        self.node.services.turn.end()
        return transport

    def work(self) -> None:
        """Let workers do what there is, and time pass, until nobody waits for anything any more."""
        for _ in range(100 * len(self.transports) + 100):
            if self.workers.jobs:
                self.workers.run_next()
            elif self.node.services.answer_memory.waiting:
                self.clock.advance(PATIENCE_MS)
                self.node.run_due()
            else:
                return
            self.node.services.turn.end()
        raise Finding("a crowd's requests do not come to an end")


class Ask(NamedTuple):
    """What a crowd asks."""

    version: int
    is_cold: bool

    def __str__(self) -> str:
        return f"Fetch v{self.version} of {'cold' if self.is_cold else 'hot'} records"


def all_asks() -> Iterator[Ask]:
    """Fetch in every version, of records in the page cache and of others."""
    api = REGISTRY[ApiKey.FETCH]
    for version in range(api.min_version, api.max_version + 1):
        for is_cold in (False, True):
            yield Ask(version, is_cold)


def peak_bytes(ask: Ask, count: int) -> int:
    """Memory at its highest, while so many connections ask. Raises Finding where it is more than they may take, and
    where something is left of it when all have gone.
    """
    crowd = Crowd()
    topic_id = partition_of(crowd.node, TOPIC).topic_id
    frame = _frame(_fetch(topic_id), ask.version)
    gc.collect()
    tracemalloc.start()
    try:
        with Watch() as watch, _cold(ask.is_cold):
            for _ in range(count):
                crowd.join(frame)
            crowd.work()
            watch.check()
        peak = tracemalloc.get_traced_memory()[1]
        for transport in crowd.transports:
            transport.abort()
        crowd.transports.clear()
        crowd.node.services.turn.end()
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    memory = crowd.node.services.answer_memory
    most = BOUND + count * BYTES_PER_CONNECTION + BASE_BYTES
    if peak > most:
        raise Finding(f"{ask}: {count} connections take {peak} bytes, more than {most}")
    if left > BASE_BYTES:
        raise Finding(f"{ask}: {left} bytes are left when {count} connections have gone")
    if memory.reserved_bytes or memory.unsent_bytes or memory.waiting:
        raise Finding(f"{ask}: {memory.reserved_bytes} bytes count for connections that have gone")
    return peak


def _fetch(topic_id: Any) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=(1 << 31) - 1)
    topic = FetchRequest.FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=[wanted])
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=(1 << 31) - 1, session_epoch=-1, topics=[topic])


def _frame(request: Request, version: int) -> bytes:
    body = encode_request_header(request.message_key, version, 1, "crowd") + encode(request, version)
    return struct.pack(">i", len(body)) + body


@contextmanager
def _cold(is_cold: bool) -> Iterator[None]:
    """Let nothing be in the page cache."""
    if not is_cold:
        yield
        return
    read = Partition.read

    def read_cold(
        self: Partition,
        offset: int,
        max_bytes: int,
        at_least_one: bool,
        committed_only: bool = False,
        *_: Any,
        **__: Any,
    ) -> LogSlice:
        return read(self, offset, max_bytes, at_least_one, committed_only, allow_map=False, most_copied_bytes=-1)

    Partition.read = read_cold  # type: ignore[method-assign]
    try:
        yield
    finally:
        Partition.read = read  # type: ignore[method-assign]
