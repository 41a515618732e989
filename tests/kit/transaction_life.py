"""A broker without a loop, and transactional producers that send it requests as clients do; it may crash and go on."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kit.clock import ManualClock
from kit.nodes import partition_of, pass_time, start_node
from kit.simulated_files import SimulatedFiles
from kit.topics import create

from ottla.broker.api import HANDLERS
from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.context import Context
from ottla.broker.node import Node
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.protocol.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Request, Response
from ottla.protocol.records.batch import decode_batch, encode_batch, iter_batches
from ottla.protocol.records.record import Record

R = TypeVar("R", bound=Response)

TIMEOUT_MS = 60_000


class TransactionLife:
    """One broker on simulated files; `files` of an earlier one make it a restart. Topic `t` has three partitions."""

    node: Node

    def __init__(self, files: SimulatedFiles | None = None, clock: ManualClock | None = None, **keys: object) -> None:
        self.files = SimulatedFiles() if files is None else files
        self.clock = ManualClock() if clock is None else clock
        self.keys: dict[str, object] = {"ottla_acks_all": "sync"} | keys
        self.node, _, _ = start_node(self.files, self.clock, **self.keys)
        self.pass_ms(10)
        if "t" not in self.node.services.catalog.topics:
            create(self.node, NewTopic("t", partitions=3, replication_factor=1))

    def restarted(self) -> TransactionLife:
        """After a clean stop."""
        self.node.stop()
        return TransactionLife(self.files, self.clock, **self.keys)

    def crashed(self, seed: int = 1) -> TransactionLife:
        """After a power cut that kept some of what was not synced."""
        return TransactionLife(self.files.crash(random.Random(seed)), self.clock, **self.keys)

    def stop_at_write(self, number: int) -> None:
        """Let the machine stop at this write from now on, counted from 1: CrashPoint is raised."""
        writes = 0

        def is_it(call: str, path: Path) -> bool:
            nonlocal writes
            writes += call == "pwritev"
            return writes >= number

        self.files.crash_when = is_it

    def pass_ms(self, ms: int) -> None:
        """Let time pass, and everything that is due run."""
        pass_time(self.node, self.clock, ms, step_ms=min(ms, 500))

    # --- requests ----------------------------------------------------------------------------------------------------

    def begin(self, request: Request, version: int) -> Pending[Response]:
        """Hand a request to its handler; nothing is flushed or synced yet."""
        api = REGISTRY[request.message_key]
        context = Context(self.node.services, api.key, version)
        answer = HANDLERS[ApiKey(api.key)]().handle(request, context)
        if isinstance(answer, Pending):
            return answer
        pending: Pending[Response] = Pending()
        pending.complete(answer)
        return pending

    def ask(self, kind: type[R], request: Request, version: int) -> R:
        """The answer, once everything is on the disk. Raises KafkaError."""
        pending = self.begin(request, version)
        self.node.settle()
        while not pending.done and self.node.services.timers.run_due(self.clock.monotonic_ms()):
            self.node.settle()  # steps of later turns
        assert pending.done, "the answer is still pending after every sync has run"
        if pending.error is not None:
            raise pending.error
        assert isinstance(pending.response, kind)
        return pending.response

    def describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        """What administrators see of a transactional id."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (state,) = self.ask(DescribeTransactionsResponse, request, 0).transaction_states
        return state

    def state(self, transactional_id: str = "tx") -> str:
        """The name of its state."""
        return self.describe(transactional_id).transaction_state

    def last_stable_offset(self, index: int = 0) -> int:
        """Up to where committed records may be read."""
        return partition_of(self.node, "t", index).last_stable_offset

    def committed(self, index: int = 0) -> list[bytes]:
        """The values that a reader of committed records gets from the start of a partition of `t`."""
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 30,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchRequest.FetchTopic(
                    topic="t",
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=index, fetch_offset=0, partition_max_bytes=1 << 30, log_start_offset=-1
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
        )
        response = self.ask(FetchResponse, request, 11)
        (data,) = response.responses[0].partitions
        assert data.error_code == ErrorCode.NONE
        aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
        return committed_values(bytes(data.records or b""), aborted)


def committed_values(records: bytes, aborted: list[tuple[int, int]]) -> list[bytes]:
    """What a client makes of a read_committed answer, as Kafka's Fetcher does: `aborted` has first offsets and
    producer ids in order.
    """
    values: list[bytes] = []
    gone: set[int] = set()
    for position, header in iter_batches(records):
        while aborted and aborted[0][0] <= header.last_offset:
            gone.add(aborted.pop(0)[1])
        if header.is_control:
            gone.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in gone):
            batch = decode_batch(memoryview(records)[position:])
            values += [record.value or b"" for record in batch]
    return values


class TransactionalProducer:
    """A client with a transactional id; `version` 2 of transactions as the newest clients, or 0 as older ones."""

    def __init__(self, life: TransactionLife, transactional_id: str = "tx", *, version: int = 2) -> None:
        self.life = life
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    def init(self, *, timeout_ms: int = TIMEOUT_MS, again: bool = False, api_version: int = 5) -> None:
        """InitProducerId; `again` says who it was."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id if again else -1,
            producer_epoch=self.epoch if again else -1,
        )
        answer = self.life.ask(InitProducerIdResponse, request, api_version)
        self._goes_on(answer.producer_id, answer.producer_epoch)

    def _goes_on(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def add(self, *indexes: int) -> None:
        """AddPartitionsToTxn, for the older version. Raises KafkaError."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[*indexes])],
        )
        answer = self.life.ask(AddPartitionsToTxnResponse, request, 3)
        for result in answer.results_by_topic_v3_and_below[0].results_by_partition:
            if result.partition_error_code:
                raise KafkaError(ErrorCode.of(result.partition_error_code))

    def produce_request(self, value: bytes = b"v", index: int = 0, *, count: int = 1) -> ProduceRequest:
        """A batch of `count` records, the next of its partition."""
        batch = encode_batch(
            [Record(number, self.life.clock.wall_ms(), None, value, ()) for number in range(count)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(index, 0),
            is_transactional=True,
        )
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name="t",
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=index, records=memoryview(bytearray(batch)))
                    ],
                )
            ],
        )

    def produce(self, value: bytes = b"v", index: int = 0, *, count: int = 1) -> int:
        """Write to a partition of `t`; the offset of the first record. Raises KafkaError."""
        if self.version < 2:
            self.add(index)
        answer = self.life.ask(ProduceResponse, self.produce_request(value, index, count=count), self.produce_version)
        offset = stored_at(answer)
        self.sequences[index] = self.sequences.get(index, 0) + count
        return offset

    @property
    def produce_version(self) -> int:
        """Of Produce by name: version 12 adds partitions to the transaction."""
        return 12 if self.version >= 2 else 11

    def end_request(self, *, commit: bool = True) -> EndTxnRequest:
        """The end of its transaction."""
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    def end(self, *, commit: bool = True) -> None:
        """EndTxn. Raises KafkaError."""
        version = 5 if self.version >= 2 else 4
        answer = self.life.ask(EndTxnResponse, self.end_request(commit=commit), version)
        if version >= 5:
            self._goes_on(answer.producer_id, answer.producer_epoch)


def stored_at(answer: ProduceResponse) -> int:
    """The offset of the first record. Raises KafkaError."""
    (result,) = answer.responses[0].partition_responses
    if result.error_code:
        raise KafkaError(ErrorCode.of(result.error_code), result.error_message or "")
    return result.base_offset


# --- what is refused -------------------------------------------------------------------------------------------------


def begun(life: TransactionLife, transactional_id: str = "tx", *, version: int = 2) -> TransactionalProducer:
    """A producer with an open transaction of one record."""
    producer = TransactionalProducer(life, transactional_id, version=version)
    producer.init()
    producer.produce(b"first")
    return producer


def tried(call: Callable[[], object]) -> ErrorCode:
    """What a call answers, NONE where it succeeds."""
    try:
        call()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def refused(call: Callable[[], object]) -> ErrorCode:
    """Why a call is refused."""
    code = tried(call)
    assert code is not ErrorCode.NONE
    return code


def seen(life: TransactionLife) -> tuple[object, ...]:
    """All that a refused request must leave as it was."""
    logs = [partition_of(life.node, "t", index).log for index in range(3)]
    offsets = [(log.log_end_offset, log.transactions.open_offsets) for log in logs]
    shard = life.node.services.transactions.get().shards.get("tx")
    return offsets, None if shard is None else dict(shard.transactions)


def commits(producer: TransactionalProducer) -> None:
    """The open transaction goes on and is committed, with all that was stored of it."""
    producer.produce(b"last")
    producer.end()
    assert producer.life.committed() == [b"first", b"last"]
    assert producer.life.last_stable_offset() == partition_of(producer.life.node, "t").high_watermark
