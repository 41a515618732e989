"""The dimensions of `growth.py`: the values of each, and the measurement of one value on one broker.

A dimension's `session` is a context in which one broker runs. It yields a function that measures one value: CPU
microseconds of the broker per request (`cpu_us`), and other figures that get a line. This module knows no rounds, files
or plots. All loads are bounded by a number of requests, and a broker that does not answer is given up after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import frames
import servers
import sparse_log
import tails
from groups import Member, gather_group, one_round
from partition_rounds import exchange_of

from ottla.client import LATEST, Admin, TopicPartition
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.errors import KafkaError
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

ACKS_ALL = -1
TOPIC = "growth"
SMALL_BATCH_BYTES = 170
STAMP_MS = 1_700_000_000_000
ANSWER_TIMEOUT_S = 60
ATTEMPTS = 60
TOPIC_STEP = 5_000
"""Partitions that are created by one request: Kafka's controller refuses more than 10,000 records in one change."""
DELIVERIES_PER_S = 5_000
TAIL_RATE = 1_000
TAIL_S = 2.0
PLACES = 64

BY_ANOTHER_SETTING = ("ottla sync", "kafka sync")
"""The brokers of dimensions that measure syncs."""

Figures = dict[str, float]
Measure = Callable[[int], Figures]


@dataclass(frozen=True)
class Broker:
    """A contender: its name, and how it is started, on a directory that outlives it or on a temporary one."""

    name: str
    start: Callable[[Path | None], servers.Server]
    has_kafkas_files: bool = True

    @property
    def is_syncing(self) -> bool:
        return self.name.endswith(" sync")

    @property
    def requests(self) -> int:
        """The number of requests, one after the other, of a point: a sync takes milliseconds on some disks."""
        return 300 if self.is_syncing else 2_000


@dataclass(frozen=True)
class Dimension:
    """One panel: `values` along the x axis, `lines` of figures with the meaning of each."""

    name: str
    x: str
    values: Sequence[int]
    lines: dict[str, str]
    session: Callable[[Broker], AbstractContextManager[Measure]]
    note: str = ""
    takes: Callable[[Broker], bool] = field(default=lambda broker: broker.name not in BY_ANOTHER_SETTING)
    """The brokers that are measured."""


class Connection:
    """A blocking connection that sends prepared frames, one after the other, and reads whole answers."""

    def __init__(self, server: servers.Server) -> None:
        self._socket = socket.create_connection((server.host, server.port), timeout=ANSWER_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb", buffering=1 << 20)

    def exchange(self, requests: Sequence[bytes], error_at: int) -> None:
        """Send each frame when the one before is answered. Raises RuntimeError for an error code at `error_at`."""
        for request in requests:
            self._socket.sendall(request)
            head = self._stream.read(4)
            answer = self._stream.read(struct.unpack(">i", head)[0]) if len(head) == 4 else b""
            if answer[error_at - 4 : error_at - 2] != b"\0\0":
                raise RuntimeError(f"an answer with an error: {answer[:60]!r}" if answer else "it hung up")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()


def charge(server: servers.Server, requests: int, work: Callable[[], object]) -> Figures:
    """Do the work; the broker's CPU time for each of its requests, and its memory afterwards."""
    before, began = server.cpu, time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    cpu_us = (server.cpu - before) / requests * 1e6
    return {"cpu_us": cpu_us, "wall_us": seconds / requests * 1e6, "memory_mb": servers.resident_mb(server.pid)}


def make_topic(server: servers.Server, topic: str, partitions: int) -> None:
    """Create a topic, and wait until all of its partitions have a leader."""

    async def make() -> None:
        async with Admin(bootstrap_servers=f"{server.host}:{server.port}", request_timeout_ms=120_000) as admin:
            made = min(partitions, TOPIC_STEP)
            await admin.create_topic(topic, partitions=made)
            while made < partitions:
                made = min(partitions, made + TOPIC_STEP)
                await admin.create_partitions({topic: made})
            wanted = {TopicPartition(topic, index): LATEST for index in range(partitions)}
            for attempt in range(ATTEMPTS):
                try:
                    await admin.list_offsets(wanted)
                    return
                except KafkaError:  # its controller knows partitions that the broker does not know yet
                    if attempt == ATTEMPTS - 1:
                        raise
                    await asyncio.sleep(0.5)

    asyncio.run(make())


def produce_to(topic: str, partition: int, batch: bytes) -> frames.Exchange:
    """A Produce of a batch to this partition."""
    rows = [ProduceRequest.PartitionProduceData(index=partition, records=batch)]
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=rows)]
    request = ProduceRequest(transactional_id=None, acks=ACKS_ALL, timeout_ms=30_000, topic_data=topics)
    version = frames.PRODUCE_VERSION
    frame = frames.framed(encode_request_header(0, version, 0, "bench"), encode(request, version))
    return frames.Exchange(frame, frames.produce_exchange(topic, batch, ACKS_ALL).error_at)


@contextmanager
def partitions(broker: Broker) -> Iterator[Measure]:
    """A record to a random partition in each request, one in flight; the same partitions in every round."""
    batch = frames.batch_of(SMALL_BATCH_BYTES)[0]
    orders: dict[int, tuple[list[bytes], int]] = {}
    with broker.start(None) as server:

        def measure(value: int) -> Figures:
            if value not in orders:
                topic = f"{TOPIC}-{value}"
                make_topic(server, topic, value)
                exchanges = [produce_to(topic, index, batch) for index in range(value)]
                orders[value] = [one.frame for one in exchanges], exchanges[0].error_at
            each, error_at = orders[value]
            requests = random.Random(value).choices(each, k=broker.requests)
            with Connection(server) as connection:
                return charge(server, len(requests), lambda: connection.exchange(requests, error_at))

        yield measure


@contextmanager
def connections(broker: Broker) -> Iterator[Measure]:
    """Records of 100 bytes over many connections, each with one request in flight."""
    exchange = frames.produce_exchange(TOPIC, frames.batch_of(SMALL_BATCH_BYTES)[0], ACKS_ALL)
    with broker.start(None) as server, tempfile.TemporaryDirectory(prefix="ottla-frames-") as folder:
        server.create_topic(TOPIC)
        frame = frames.write(Path(folder), "produce", exchange.frame)

        def measure(value: int) -> Figures:
            return servers.load(server, frame, value, 1, max(4_000, 4 * value), exchange.error_at)

        yield measure


@contextmanager
def record_size(broker: Broker) -> Iterator[Measure]:
    """One record in each request, of any size, one request in flight."""
    with broker.start(None) as server, tempfile.TemporaryDirectory(prefix="ottla-frames-") as folder:
        server.create_topic(TOPIC)

        def measure(value: int) -> Figures:
            batch = bytes(encode_batch([Record(0, STAMP_MS, None, bytes(value), ())]))
            exchange = frames.produce_exchange(TOPIC, batch, ACKS_ALL)
            frame = frames.write(Path(folder), "produce", exchange.frame)
            requests = min(broker.requests, max(60, 60_000_000 // value))
            return servers.load(server, frame, 1, 1, requests, exchange.error_at)

        yield measure


@contextmanager
def consumers(broker: Broker) -> Iterator[Measure]:
    """Consumers that wait at the end of one partition; a request is a delivery, of one record to one consumer."""
    with broker.start(None) as server:
        runs = 0

        def measure(value: int) -> Figures:
            nonlocal runs
            runs += 1
            rate = min(TAIL_RATE, DELIVERIES_PER_S // value)
            warm_s = tails.JVM_WARM_S if runs == 1 and broker.name.startswith("kafka") else 1
            return tails.measure(server, tails.Row(tails.PLAIN, value, rate), runs, warm_s, TAIL_S)

        yield measure


@contextmanager
def group_size(broker: Broker) -> Iterator[Measure]:
    """A rebalance in which a member joins, and one in which it leaves (classic protocol, two partitions a member)."""

    async def rebalance(server: servers.Server, value: int) -> Figures:
        group = f"growth-{time.monotonic_ns()}"
        members = [Member(group, 2 * value) for _ in range(value + 1)]
        for member in members:
            await member.connect(server.host, server.port)
        await members[0].find_coordinator()
        await gather_group(members[:-1])
        sent, before = sum(member.requests_sent for member in members), server.cpu
        joined_s, left_s = await one_round(members[:-1], members[-1])
        used_s = server.cpu - before
        sent = sum(member.requests_sent for member in members) - sent
        return {
            "cpu_us": used_s / sent * 1e6,
            "rebalance_ms": (joined_s + left_s) / 2 * 1e3,
            "memory_mb": servers.resident_mb(server.pid),
        }

    with broker.start(None) as server:
        yield lambda value: asyncio.run(asyncio.wait_for(rebalance(server, value), ANSWER_TIMEOUT_S))


@contextmanager
def sync_partitions(broker: Broker) -> Iterator[Measure]:
    """A Produce of one small record to each of some partitions; the whole round is one request."""
    with broker.start(None) as server:
        make_topic(server, TOPIC, 200)

        def measure(value: int) -> Figures:
            exchange = exchange_of(TOPIC, value)
            rounds = max(10, 200 // value)
            with Connection(server) as connection:
                return charge(server, rounds, lambda: connection.exchange([exchange.frame] * rounds, exchange.error_at))

        yield measure


@contextmanager
def log_size(broker: Broker) -> Iterator[Measure]:
    """A sparse log of some MB: fetches of 64 KB at its end and anywhere in it, and a start of the broker on it."""
    place = Path(tempfile.mkdtemp(prefix="ottla-growth-"))
    logs: dict[int, sparse_log.SparseLog] = {}

    def measure(value: int) -> Figures:
        home = place / str(value)
        if value not in logs:
            with broker.start(home) as server:
                server.create_topic(TOPIC)
            data = home / "node-1" / "data" if (home / "node-1").is_dir() else home
            logs[value] = sparse_log.write(data, TOPIC, value * 1_000_000)
        log = logs[value]
        with broker.start(home) as server, Connection(server) as connection:
            figures = {"start_ms": server.ready_seconds * 1e3}
            exchange = frames.fetch_exchange(TOPIC, log.small_bytes)
            places = [random.Random(number).randrange(log.smalls) for number in range(PLACES)]
            for name, chosen in (("", [log.smalls - 1] * PLACES), ("anywhere_", places)):
                requests = [at(exchange, one * log.cycle) for one in chosen] * 8
                connection.exchange(requests, exchange.error_at)
                found = charge(server, len(requests), partial(connection.exchange, requests, exchange.error_at))
                figures |= {f"{name}{key}": figure for key, figure in found.items()}
        return figures

    with contextlib.ExitStack() as closing:
        closing.callback(shutil.rmtree, place, ignore_errors=True)
        yield measure


def at(exchange: frames.Exchange, offset: int) -> bytes:
    """The Fetch's frame with this offset in it."""
    frame = bytearray(exchange.frame)
    struct.pack_into(">q", frame, exchange.offset_at, offset)
    return bytes(frame)


REQUEST, DELIVERY = "CPU µs per request", "CPU µs per delivery"
DIMENSIONS = [
    Dimension("partitions", "partitions written to", (1, 10, 100, 1_000, 10_000), {"cpu_us": REQUEST}, partitions),
    Dimension(
        "connections", "connections, each one in flight", (1, 10, 100, 1_000, 5_000), {"cpu_us": REQUEST}, connections
    ),
    Dimension(
        "log size",
        "size of the log, MB",
        (1, 100, 1_000, 10_000, 50_000),
        {"cpu_us": "fetch at the end, CPU µs", "anywhere_cpu_us": "fetch anywhere, CPU µs", "start_ms": "start, ms"},
        log_size,
        takes=lambda broker: broker.has_kafkas_files and not broker.is_syncing,
    ),
    Dimension("consumers", "consumers at the end of a log", (1, 5, 50, 200, 500), {"cpu_us": DELIVERY}, consumers),
    Dimension(
        "group size",
        "members of the group",
        (1, 5, 50, 200, 500),
        {"cpu_us": REQUEST, "rebalance_ms": "rebalance, ms"},
        group_size,
    ),
    Dimension(
        "record size",
        "bytes of the record",
        (10, 100, 1_000, 10_000, 100_000, 1_000_000),
        {"cpu_us": REQUEST},
        record_size,
    ),
    Dimension(
        "sync",
        "partitions in a round",
        (1, 4, 16, 64, 200),
        {"cpu_us": "CPU µs per round", "wall_us": "time per round, µs"},
        sync_partitions,
        takes=lambda broker: broker.is_syncing or broker.name.startswith("ottla"),
    ),
]
