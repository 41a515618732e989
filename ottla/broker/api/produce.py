"""Produce, versions 0-13: gather record batches per partition; the turn's flush appends them.

The handler only checks what does not need the log, passes each batch to its partition and returns. The answer is sent
when every partition has its result: for acks=1 in the turn's flush, for acks=all when the high watermark covers the
batch (in `ottla.acks.all=sync` after the group sync), or when `timeout_ms` has passed. acks=0 is never answered: an
error closes the connection, which is all that such a producer can notice.

Duplicates of idempotent producers are answered like their originals, and no earlier.

With a transactional id the transaction coordinator is asked first, in the same step. From version 12 on it adds the
partitions to the transaction; below, they must have been added before (`transactions/produce_admission.py`). The answer
then waits for the coordinator's record, too.

The first batches of many partitions in one request are gathered in several turns (`partitions/first_appends.py`); the
coordinator is asked again in each.

Difference from Apache Kafka: what is checked in a batch (docs/decisions/a-look-at-the-header.md). Versions 0-2 carry
messages of formats v0 and v1, which become a batch before they are gathered (`produce_conversion.py`); Kafka 4 refuses
them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.catalog.topic import find_partition
from ottla.broker.declarations import Need
from ottla.broker.partitions.first_appends import (
    FEW_PARTITIONS,
    FirstAppends,
    SentBatch,
    are_too_many,
)
from ottla.broker.partitions.visibility import promise_failure
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import has_transactional_header
from ottla.storage.log.append import AppendEntry, AppendResult, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.catalog.topic import Topic
    from ottla.broker.context import Context
    from ottla.broker.partitions.first_appends import Gather
    from ottla.broker.partitions.partition import Partition

PartitionResponse = ProduceResponse.PartitionProduceResponse

_Unpromised = tuple[int, "Partition", int]
"""The slot of a batch that is stored, its partition, and the offset up to which the partition must be visible."""

ACKS_ALL = -1
FIRST_VERSION_WITH_BATCHES = 3
FIRST_VERSION_WITH_IDS = 13

NEEDS = (
    Need(AclOperation.WRITE, ResourceType.TOPIC, lacking="the partitions of the topic are refused"),
    Need(
        AclOperation.WRITE,
        ResourceType.TRANSACTIONAL_ID,
        when="a batch is part of a transaction",
        lacking="the request is refused",
    ),
)
CHUNKS = ()


def handle(request: ProduceRequest, context: Context) -> Pending[ProduceResponse] | None:
    """Gather every batch of the request."""
    acks = request.acks
    if acks not in (ACKS_ALL, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}; it must be -1, 0 or 1")
    may_be_refused = context.services.authorizer is not None
    if may_be_refused:
        _check_transactional_id(request, context)
    produce = _Produce(request, context)
    payer = produce.payer
    version = context.api_version
    is_transactional = request.transactional_id is not None
    old: list[tuple[int, Partition, memoryview]] = []
    transactional: list[SentBatch] = []
    has_many = sum(len(topic_data.partition_data) for topic_data in request.topic_data) > FEW_PARTITIONS
    many: list[SentBatch] = []
    for topic_data in request.topic_data:
        topic, missing = _find_topic(topic_data, context)
        if may_be_refused and not _may_write(topic_data, topic, context):
            topic, missing = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for data in topic_data.partition_data:
            index = produce.expect(data.index)
            try:
                partition = find_partition(topic, data.index, missing=missing)
            except KafkaError as error:
                produce.refuse(index, error.code, error.message)
                continue
            if not isinstance(data.records, memoryview) or not data.records:
                produce.refuse(index, ErrorCode.INVALID_RECORD, "the request holds no record batch for the partition")
            else:
                produce.partitions[index] = partition
                if version < FIRST_VERSION_WITH_BATCHES:
                    old.append((index, partition, data.records))
                elif is_transactional:
                    transactional.append(SentBatch(index, partition, data.records))
                elif has_many:
                    many.append(SentBatch(index, partition, data.records))
                else:
                    produce.unreported += 1  # `produce.gather`, without the call: a request may have many partitions
                    partition.gather(AppendEntry(data.records, version), produce, index)
                    if payer is not None:
                        partition.charge_append(payer, 1, len(data.records))
    if old:
        _convert(old, produce, context)
    if transactional:
        _gather_transactional(request, transactional, produce, context)
    if many:
        _gather_many(many, produce, context)
    produce.all_expected()
    if acks == 0 and not produce.pending.parks:
        return None
    return produce.pending


def _check_transactional_id(request: ProduceRequest, context: Context) -> None:
    """Raise KafkaError if a batch is part of a transaction whose id the client may not use."""
    is_transactional = any(
        isinstance(data.records, memoryview) and has_transactional_header(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )
    transactional_id = request.transactional_id
    if is_transactional and (
        transactional_id is None or not context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _may_write(data: ProduceRequest.TopicProduceData, topic: Topic | None, context: Context) -> bool:
    """Whether the client may write, before the existence is revealed. An id without a topic is not refused."""
    if context.api_version < FIRST_VERSION_WITH_IDS:
        return context.may(AclOperation.WRITE, ResourceType.TOPIC, data.name)
    found = context.services.catalog.find_topic(data.topic_id)
    return found is None or context.may(AclOperation.WRITE, ResourceType.TOPIC, found.name)


def _gather_transactional(
    request: ProduceRequest, batches: list[SentBatch], produce: _Produce, context: Context
) -> None:
    """Gather what the transaction coordinator lets the producer write now. For batches that are left for later turns it
    is asked again there, since the transaction may have ended meanwhile.
    """
    from ottla.broker.transactions.produce_admission import FIRST_VERSION_THAT_ADDS, Admitted, admit, for_version

    version = context.api_version
    transactional_id = request.transactional_id
    assert transactional_id is not None
    coordinator = context.services.transactions.get()
    begins_at_zero = version >= FIRST_VERSION_THAT_ADDS

    def refuse(admitted: Admitted) -> None:
        for batch, refusal in admitted.refused:
            produce.refuse(batch.slot, refusal.code, refusal.message)
            if refusal.code.retriable:
                batch.partition.log.producers.note_unstored((batch.records,), context.services.clock.wall_ms())

    def take(admitted: Admitted) -> None:
        for slot, partition, records in admitted.transactional:
            produce.gather(partition, AppendEntry(records, version, True, begins_at_zero), slot)
        for slot, partition, records in admitted.plain:
            produce.gather(partition, AppendEntry(records, version), slot)
        refuse(admitted)
        if admitted.admission is not None and admitted.transactional:
            slots = [batch.slot for batch in admitted.transactional]

            def settled(error: KafkaError | None) -> None:
                produce.recorded(slots, None if error is None else for_version(error, version))

            produce.expect_record()
            admitted.admission.when_durable(settled)

    admitted = admit(coordinator, transactional_id, batches, version)
    to_gather = [*admitted.transactional, *admitted.plain]
    if not are_too_many(to_gather, context.services.clock.wall_ms()):
        take(admitted)
        return
    refuse(admitted)
    _gather_in_turns(
        to_gather, lambda some: take(admit(coordinator, transactional_id, some, version)), produce, context
    )


def _gather_many(batches: list[SentBatch], produce: _Produce, context: Context) -> None:
    """Gather the batches of many partitions: immediately, or some in each turn if they take long."""
    version = context.api_version

    def gather(some: Sequence[SentBatch]) -> None:
        for slot, partition, records in some:
            produce.gather(partition, AppendEntry(records, version), slot)

    if are_too_many(batches, context.services.clock.wall_ms()):
        _gather_in_turns(batches, gather, produce, context)
    else:
        gather(batches)


def _gather_in_turns(batches: list[SentBatch], gather: Gather, produce: _Produce, context: Context) -> None:
    """Gather some of the batches in this turn, and the rest in later turns. No later request starts before that is
    done.
    """

    def gathered(error: Exception | None) -> None:
        if error is None:
            produce.all_expected()
        else:
            produce.pending.fail(error)

    produce.expect_more()
    produce.pending.parks = True
    services, received = context.services, context.connection.endpoint.received
    FirstAppends(batches, gather, gathered, services.clock.wall_ms, services.turn, context.later, received)


def _convert(old: list[tuple[int, Partition, memoryview]], produce: _Produce, context: Context) -> None:
    """Gather what an old client sent, once it is converted to batches. No later request starts before that."""
    # Imported here: most brokers never have such a client, and none has one before its first record.
    from ottla.broker.formats.produce_conversion import OldRecords, convert_in_worker, convert_now, is_little

    parts = [OldRecords(*part) for part in old]

    def converted(part: OldRecords, entry: AppendEntry | Refused) -> None:
        if isinstance(entry, Refused):
            produce.refuse(part.slot, entry.code, entry.message)
        else:
            produce.gather(part.partition, entry, part.slot)

    if is_little(parts):
        convert_now(parts, context.api_version, converted)
    else:
        produce.pending.parks = True
        convert_in_worker(context.services.conversions, context.connection, parts, context.api_version, converted)


def _find_topic(data: ProduceRequest.TopicProduceData, context: Context) -> tuple[Topic | None, ErrorCode]:
    """The topic, and the error code for a partition that does not exist."""
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    topic = context.services.catalog.find_topic(data.topic_id if by_id else data.name)
    missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is not None and topic.is_internal:
        return None, ErrorCode.INVALID_TOPIC_EXCEPTION
    return topic, missing


class _Produce:
    """One request under way: collects the partitions' results and completes the answer when it has all of them.

    What is appended together is synced together, as a rule. So of the partitions that must be waited for, the request
    waits only for the one that was appended last. When that is visible, or has failed, the other ones are checked, and
    each that is not visible is waited for. `unreported`: the number of gathered batches without a result of the append.
    """

    __slots__ = (
        *("_acks", "_context", "_deadline_ms", "_missing", "_request", "_results", "_unpromised"),
        *("partitions", "payer", "pending", "unreported"),
    )

    def __init__(self, request: ProduceRequest, context: Context) -> None:
        self.pending: Pending[ProduceResponse] = Pending()
        self.partitions: list[Partition | None] = []
        self._request = request
        self._context = context
        self._acks = request.acks
        self._results: list[PartitionResponse] = []
        self._missing = 1
        quota = context.quota
        self.payer = quota if quota is not None and quota.is_timed else None
        """The quota that pays for the time of the appends."""
        self._deadline_ms = -1.0
        self.unreported = 0
        self._unpromised: list[_Unpromised] = []

    def expect(self, partition_index: int) -> int:
        """Make room for one more partition's result. Return its index."""
        self._results.append(PartitionResponse(index=partition_index, base_offset=-1))
        self.partitions.append(None)
        self._missing += 1
        return len(self._results) - 1

    def gather(self, partition: Partition, entry: AppendEntry, index: int) -> None:
        """Append a batch at the end of this turn; `appended` gets its result."""
        self.unreported += 1
        partition.gather(entry, self, index)
        if self.payer is not None:
            partition.charge_append(self.payer, 1, len(entry.records))

    def expect_record(self) -> None:
        """Let the answer wait for the transaction coordinator's record, too; `recorded` reports it."""
        self._missing += 1

    def expect_more(self) -> None:
        """Expect batches of later turns; one more `all_expected` reports that all are gathered."""
        self._missing += 1

    def recorded(self, slots: Sequence[int], error: KafkaError | None) -> None:
        """The coordinator's record is durable, or it is not: then all of these batches are refused."""
        if error is not None:
            for slot in slots:
                result = self._results[slot]
                result.error_code, result.error_message = error.code, error.message
                result.base_offset = -1
        self._one_done()

    def all_expected(self) -> None:
        """Every partition has been asked; the answer is complete once all have answered."""
        self._one_done()

    def refuse(self, index: int, code: ErrorCode, message: str | None = None) -> None:
        """The partition's batch is not stored, or not acknowledged."""
        result = self._results[index]
        result.error_code = code
        result.error_message = message or code.message
        if self._acks == 0:
            reason = f"acks=0 Produce to partition {result.index} failed: {code.name}: {result.error_message}"
            self._context.connection.close(reason)
        self._one_done()

    def appended(self, index: int, result: AppendResult) -> None:
        """The result of a batch, from the turn's flush: answer now, or when the high watermark covers it."""
        self.unreported -= 1
        response = self._results[index]
        response.log_start_offset = result.log_start_offset
        if result.error_code is not ErrorCode.NONE:
            response.record_errors = [
                ProduceResponse.BatchIndexAndErrorMessage(
                    batch_index=error.batch_index, batch_index_error_message=error.message
                )
                for error in result.record_errors
            ]
            self.refuse(index, result.error_code, result.error_message)
        else:
            response.base_offset = result.base_offset
            response.log_append_time_ms = result.log_append_time_ms
            partition = self.partitions[index]
            assert partition is not None
            end_offset = result.last_offset + 1
            if partition.may_acknowledge(end_offset, self._acks):
                self._one_done()
            else:
                self._unpromised.append((index, partition, end_offset))
        if self._unpromised and not self.unreported:
            self._wait()

    def _wait(self) -> None:
        """Wait until the batches that were appended since the last call may be acknowledged."""
        if self._deadline_ms < 0:
            self._deadline_ms = self._context.services.clock.monotonic_ms() + max(self._request.timeout_ms, 0)
        unpromised, self._unpromised = self._unpromised, []
        index, partition, end_offset = unpromised.pop()
        done = partial(self._last_visible, unpromised, index) if unpromised else partial(self._visible, index)
        partition.when_visible(end_offset, done, self._deadline_ms)

    def _last_visible(self, others: list[_Unpromised], index: int, error: BaseException | None) -> None:
        """The wait for the last partition has ended: check the other partitions."""
        for other, partition, end_offset in others:
            if partition.high_watermark >= end_offset:
                self._missing -= 1
            else:
                partition.when_visible(end_offset, partial(self._visible, other), self._deadline_ms)
        self._visible(index, error)

    def _visible(self, index: int, error: BaseException | None) -> None:
        """The wait for one partition has ended, with or without an error."""
        if error is None:
            self._one_done()
        else:
            self._results[index].base_offset = -1
            self.refuse(index, *promise_failure(error))

    def _one_done(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self.pending.complete(self._response() if self._acks != 0 else None)

    def _response(self) -> ProduceResponse:
        results = iter(self._results)
        return ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[next(results) for _ in topic.partition_data],
                )
                for topic in self._request.topic_data
            ]
        )
