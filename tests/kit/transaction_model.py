"""A transaction coordinator and its partitions as a model: what a transactional producer meets, without a socket.

It knows both protocols (`version` 2 is that of KIP-890), repeats of requests whose answer was lost, and epochs that run
out. Markers are written at once. `visible` is what a reader with `read_committed` sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from kit.fake_broker import FakePartition

from ottla.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    topic_results,
)
from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse, refused
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.records.batch import decode_batch, parse_header

Place = tuple[str, int]


@dataclass
class ModelPartition(FakePartition):
    """A partition that refuses sequences as Kafka does, and knows which records are committed."""

    open_values: dict[int, list[bytes | None]] = field(default_factory=dict)
    """By producer id, in the transactions that have not ended."""
    visible: list[bytes | None] = field(default_factory=list)
    admit: Callable[[memoryview], ErrorCode] | None = None
    """Whether a batch may come, by its transaction."""

    def append(self, records: memoryview) -> tuple[ErrorCode, int]:
        if self.admit is not None and (code := self.admit(records)):
            return code, -1
        before = self.end
        code, offset = super().append(records)
        if not code and self.end > before:
            header = parse_header(records)
            assert header.is_transactional
            values = [record.value for record in decode_batch(records)]
            self.open_values.setdefault(header.producer_id, []).extend(values)
        return code, offset

    def end_transaction(self, producer_id: int, epoch: int, is_commit: bool) -> None:
        """Write a marker."""
        values = self.open_values.pop(producer_id, [])
        if is_commit:
            self.visible += values
        if self.producers.get(producer_id, (-1, 0))[0] < epoch:
            self.producers[producer_id] = (epoch, 0)


class TransactionModel:
    """See the module. One transactional id, one group."""

    def __init__(self, partitions: dict[Place, ModelPartition], version: int = 2, last_epoch: int = 2**15 - 2) -> None:
        self.partitions: dict[Place, ModelPartition] = {}
        self.add(partitions)
        self.version = version
        self.last_epoch = last_epoch
        self.next_producer_id = 1
        self.producer_id, self.epoch = -1, -1
        self.state = "Empty"
        self.added: set[Place] = set()
        self.has_group = False
        self.pending: dict[Place, int] = {}
        self.committed: dict[Place, int] = {}
        self.answered_identity = (-1, -1)
        """What a repeated request is answered with: the identity that came after `former`."""
        self.former = (-1, -1)

    def add(self, partitions: dict[Place, ModelPartition]) -> None:
        """Let these partitions be written to."""
        self.partitions |= partitions
        for place, partition in partitions.items():
            partition.admit = partial(self.admit, place)

    # Requests ---------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Response:
        """Act on a request."""
        match request:
            case InitProducerIdRequest():
                return self._initialize(request)
            case AddPartitionsToTxnRequest():
                return self._add_partitions(request)
            case AddOffsetsToTxnRequest():
                code = self._check((request.producer_id, request.producer_epoch))
                if not code:
                    self.state, self.has_group = "Ongoing", True
                return AddOffsetsToTxnResponse(error_code=code)
            case TxnOffsetCommitRequest():
                return self._commit_offsets(request)
            case EndTxnRequest():
                return self._end(request)
        raise AssertionError(f"the model has no answer for {request}")

    def admit(self, place: Place, records: memoryview) -> ErrorCode:
        """Whether a batch of a Produce may come: as part of the transaction, which it opens in the new protocol."""
        header = parse_header(records)
        identity = (header.producer_id, header.producer_epoch)
        if code := self._check(identity):
            return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
        if self.version >= 2:
            self.state = "Ongoing"
            self.added.add(place)
        elif place not in self.added:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def time_out(self) -> None:
        """The transaction has been open for too long: the coordinator aborts it, and fences the producer."""
        if self.state == "Ongoing":
            self._raise_epoch()
            self.answered_identity = (-1, -1)
            self._finish(is_commit=False)

    # Inside -----------------------------------------------------------------------------------------------------

    def _check(self, identity: tuple[int, int]) -> ErrorCode:
        if self.producer_id < 0 or identity[0] != self.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if identity[1] == self.epoch else ErrorCode.PRODUCER_FENCED

    def _initialize(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        given = (request.producer_id, request.producer_epoch)
        if given[0] >= 0 and given == self.former and self.answered_identity == (self.producer_id, self.epoch):
            return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        if given[0] >= 0 and given != (self.producer_id, self.epoch):
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED, producer_epoch=-1)
        if self.state == "Ongoing":
            self._finish(is_commit=False)
            self._raise_epoch() if given[0] < 0 else None
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=-1)
        if self.producer_id < 0:
            self.producer_id, self.epoch, self.next_producer_id = self.next_producer_id, 0, self.next_producer_id + 1
        else:
            self._raise_epoch()
        self.state = "Empty"
        if given[0] < 0:
            self.answered_identity = (-1, -1)
        return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def _add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        assert self.version < 2
        code = self._check((request.v3_and_below_producer_id, request.v3_and_below_producer_epoch))
        topics = request.v3_and_below_topics
        if not code:
            self.state = "Ongoing"
            self.added |= {(topic.name, index) for topic in topics for index in topic.partitions}
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topic_results(topics, code))

    def _commit_offsets(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        code = self._check((request.producer_id, request.producer_epoch))
        if not code and self.version >= 2:
            self.state, self.has_group = "Ongoing", True
        elif not code and not self.has_group:
            code = ErrorCode.INVALID_TXN_STATE
        if not code:
            for topic in request.topics:
                self.pending |= {(topic.name, one.partition_index): one.committed_offset for one in topic.partitions}
        return refused(request, 5, code, "")

    def _end(self, request: EndTxnRequest) -> EndTxnResponse:
        identity = (request.producer_id, request.producer_epoch)
        done = "CompleteCommit" if request.committed else "CompleteAbort"
        is_repeat = identity == self.former and self.answered_identity == (self.producer_id, self.epoch)
        if self.version >= 2 and is_repeat and self.state == done:
            return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        if code := self._check(identity):
            return EndTxnResponse(error_code=code)
        if self.version < 2:
            if self.state == "Ongoing":
                self._finish(request.committed)
            return EndTxnResponse(error_code=ErrorCode.NONE if self.state == done else ErrorCode.INVALID_TXN_STATE)
        if self.state != "Ongoing" and request.committed:
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        self._finish(request.committed, raises_epoch=True)
        self.state = done
        return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def _finish(self, is_commit: bool, *, raises_epoch: bool = False) -> None:
        producer_id, epoch = self.producer_id, self.epoch + int(raises_epoch)
        for place in self.added:
            self.partitions[place].end_transaction(producer_id, epoch, is_commit)
        if is_commit:
            self.committed |= self.pending
        self.added.clear()
        self.pending.clear()
        self.has_group = False
        self.state = "CompleteCommit" if is_commit else "CompleteAbort"
        if raises_epoch:
            self._raise_epoch()

    def _raise_epoch(self) -> None:
        self.former = (self.producer_id, self.epoch)
        if self.epoch >= self.last_epoch:
            self.producer_id, self.epoch, self.next_producer_id = self.next_producer_id, 0, self.next_producer_id + 1
        else:
            self.epoch += 1
        self.answered_identity = (self.producer_id, self.epoch)
