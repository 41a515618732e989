"""Transactions of clients with `transaction.version` 2 on one broker, from begin to commit, for `peers.py`.

A transaction consists of its Produce requests (version 12, which adds the partition; at most `RECORDS_PER_BATCH`
records in each, all sent together) and, when they are answered, EndTxn 5. The producers are state machines on one
thread of one process; Ottla's encoder makes their frames before the time of a transaction begins. Each producer has its
own transactional id, and the partition of its number.

A producer sends the next transaction when the end of the one before is answered. If the broker still works on that end
(CONCURRENT_TRANSACTIONS, which Apache Kafka answers sometimes), the producer waits for
`RETRY_S`, as Kafka's producer does at first, and sends it again; the time counts.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import struct
import time
from collections.abc import Generator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeVar

import servers
from frames import RECORD_BYTES, framed

from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.message import Request, Response, decode, encode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.checksum import crc32c
from ottla.protocol.records.record import Record

TOPIC = "transactions"
MOST_PRODUCERS = 20
RECORDS_PER_BATCH = 1_000
RETRY_S = 0.02
SETUP_S = 60.0
PRODUCE_VERSION, END_VERSION, INIT_VERSION, FIND_VERSION = 12, 5, 5, 4
AGAIN = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS})

_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_CRC_AT = 17
_CHECKED_FROM = 21


@dataclass(frozen=True)
class TransactionLoad:
    """Transactions of `records` records by `producers` concurrent producers; `count` in a round, in all."""

    records: int
    producers: int
    count: int

    @property
    def name(self) -> str:
        """The name in the table."""
        records = f"{self.records:,} record{'s' * (self.records > 1)}"
        return f"transactions of {records}, {self.producers} producer{'s' * (self.producers > 1)}"


LOADS = [
    TransactionLoad(1, 1, 300),
    TransactionLoad(1, 20, 1_000),
    TransactionLoad(100, 1, 300),
    TransactionLoad(100, 20, 1_000),
    TransactionLoad(10_000, 1, 20),
    TransactionLoad(10_000, 20, 40),
]


R = TypeVar("R", bound=Response)
Step = Generator["bytes | float", None, None]
"""The program of a producer: it yields bytes to send, b"" to wait for more bytes, or seconds to wait."""


class Refused(Exception):
    """The broker answered an error that ends the measurement."""


class BenchProducer:
    """One transactional producer; `transactions` is its program."""

    def __init__(self, host: str, port: int, number: int, name: str) -> None:
        self.socket = socket.create_connection((host, port), SETUP_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.elapsed_s: list[float] = []
        self._transactional_id = f"{name}-{number}"
        self._partition = number
        self._sequence = 0
        self._received = bytearray()
        self._begin()

    def _begin(self) -> None:
        """Find the coordinator and get a producer id; may take some attempts while the broker creates the topic."""
        deadline = time.monotonic() + SETUP_S
        while True:
            found = self._ask(
                FindCoordinatorRequest(key_type=1, coordinator_keys=[self._transactional_id]),
                FindCoordinatorResponse,
                FIND_VERSION,
            )
            code = found.coordinators[0].error_code
            if not code:
                request = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=60_000)
                answer = self._ask(request, InitProducerIdResponse, INIT_VERSION)
                code = answer.error_code
                if not code:
                    self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                    return
            if time.monotonic() > deadline:
                raise Refused(f"InitProducerId: {ErrorCode.of(code).name}")
            time.sleep(0.05)  # nothing is measured yet

    def _ask(self, request: Request, kind: type[R], version: int) -> R:
        self.socket.sendall(frame(request, version))
        while (body := self._frame()) is None:
            self.receive()
        return answered(body, kind, version)

    def receive(self) -> None:
        """Receive the bytes that have arrived."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise Refused("the broker closed the connection")
        self._received += data

    def _frame(self) -> bytes | None:
        received = self._received
        if len(received) < 4:
            return None
        end = 4 + int.from_bytes(received[:4], "big")
        if len(received) < end:
            return None
        body = bytes(received[4:end])
        del received[:end]
        return body

    def transactions(self, batches: list[bytearray], counts: list[int], count: int) -> Step:
        """`count` transactions of these batches, with `counts` records each; each `yield` is a send, continued when
        bytes have arrived.
        """
        for _ in range(count):
            frames = [self._produce(batch, records) for batch, records in zip(batches, counts, strict=True)]
            end = frame(
                EndTxnRequest(
                    transactional_id=self._transactional_id,
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    committed=True,
                ),
                END_VERSION,
            )
            started = time.perf_counter()
            yield from self._send_batches(frames)
            answer = yield from self._end(end)
            self.elapsed_s.append(time.perf_counter() - started)
            if (answer.producer_id, answer.producer_epoch) != (self._producer_id, self._epoch):
                self._sequence = 0
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def _send_batches(self, frames: list[bytes]) -> Step:
        missing = frames
        while missing:
            yield b"".join(missing)
            again: list[bytes] = []
            for sent in missing:
                while (body := self._frame()) is None:
                    yield b""
                result = answered(body, ProduceResponse, PRODUCE_VERSION).responses[0].partition_responses[0]
                if result.error_code in AGAIN:
                    again.append(sent)
                elif result.error_code:
                    raise Refused(f"Produce: {ErrorCode.of(result.error_code).name} {result.error_message or ''}")
            if again:
                yield RETRY_S
            missing = again

    def _end(self, end: bytes) -> Generator[bytes | float, None, EndTxnResponse]:
        while True:
            yield end
            while (body := self._frame()) is None:
                yield b""
            answer = answered(body, EndTxnResponse, END_VERSION)
            if not answer.error_code:
                return answer
            if answer.error_code not in AGAIN:
                raise Refused(f"EndTxn: {ErrorCode.of(answer.error_code).name}")
            yield RETRY_S

    def _produce(self, batch: bytearray, records: int) -> bytes:
        _PRODUCER.pack_into(batch, _PRODUCER_AT, self._producer_id, self._epoch, self._sequence)
        struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_CHECKED_FROM:]))
        self._sequence += records
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                data(
                    name=TOPIC,
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=self._partition, records=memoryview(batch))
                    ],
                )
            ],
        )
        return frame(request, PRODUCE_VERSION)


def frame(request: Request, version: int) -> bytes:
    """The request on the wire."""
    return framed(encode_request_header(request.message_key, version, 1, "bench"), encode(request, version))


def answered(body: bytes, kind: type[R], version: int) -> R:
    """The response in a frame."""
    _, position = decode_response_header(kind.message_key, version, body)
    return decode(kind, body, version, position)


def batches_of(records: int) -> tuple[list[bytearray], list[int]]:
    """The batches of a transaction, whose producer is set later, and the number of records in each."""
    value = b"v" * RECORD_BYTES
    counts = [min(RECORDS_PER_BATCH, records - first) for first in range(0, records, RECORDS_PER_BATCH)]
    stamp = time.time_ns() // 1_000_000
    return [
        bytearray(
            encode_batch(
                [Record(number, stamp, None, value, ()) for number in range(count)],
                producer_id=0,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        )
        for count in counts
    ], counts


def round_of(
    load: TransactionLoad, producers: list[BenchProducer], count: int, server: servers.Server
) -> dict[str, float]:
    """Run one round, and return figures per transaction."""
    batches, counts = batches_of(load.records)
    each = max(1, count // load.producers)
    programs = []
    for producer in producers[: load.producers]:
        producer.elapsed_s = []
        own = [bytearray(batch) for batch in batches]
        programs.append((producer, producer.transactions(own, counts, each)))
    before, started = server.cpu, time.perf_counter()
    _drive(programs)
    elapsed_s, cpu_s = time.perf_counter() - started, server.cpu - before
    times = sorted(one for producer, _ in programs for one in producer.elapsed_s)
    done = len(times)
    return {
        "cpu_us": cpu_s / done * 1e6,
        "rate": done / elapsed_s,
        "mb_s": done * load.records * RECORD_BYTES / elapsed_s / 1e6,
        "p50": statistics.median(times) * 1e6,
        "p99": times[min(done - 1, int(done * 0.99))] * 1e6,
    }


def _drive(programs: list[tuple[BenchProducer, Step]]) -> None:
    """Run all until they end, each when bytes have arrived for it or its wait has ended."""
    waits: list[tuple[float, int]] = []

    def go_on(number: int) -> None:
        producer, program = programs[number]
        try:
            for wanted in program:
                if isinstance(wanted, float):
                    heappush(waits, (time.perf_counter() + wanted, number))
                    return
                if not wanted:
                    return
                producer.socket.sendall(wanted)
        except Exception:  # a refusal ends the measurement
            selector.unregister(producer.socket)
            raise
        selector.unregister(producer.socket)

    with selectors.DefaultSelector() as selector:
        for number, (producer, _) in enumerate(programs):
            selector.register(producer.socket, selectors.EVENT_READ, number)
            go_on(number)
        while selector.get_map():
            now = time.perf_counter()
            while waits and waits[0][0] <= now:
                go_on(heappop(waits)[1])
            for key, _ in selector.select(max(0.0, waits[0][0] - now) if waits else SETUP_S):
                programs[key.data][0].receive()
                go_on(key.data)
