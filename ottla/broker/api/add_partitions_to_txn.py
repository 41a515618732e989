"""AddPartitionsToTxn (key 24), versions 0-5: partitions that a transaction is going to write to.

All of a transaction's partitions are added, or none: if one of them does not exist, the result of the other ones is
OPERATION_NOT_ATTEMPTED. Versions 4 and 5 are for other brokers of a Kafka cluster: they name several transactions, and
may only check (`verify_only`). They are served as in Kafka. Clients of `transaction.version` 2 send none of these
requests: Produce adds partitions then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.runtime.pending import Pending
from ottla.broker.transactions.codes import ABORTABLE_BEFORE, FENCED_BEFORE, replaced
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import INTERNAL_TOPICS, OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.context import Context

Asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
Where = tuple[str, int]

FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_FOR_BROKERS = 4
FIRST_VERSION_WITH_ABORTABLE = 5

NEEDS = (
    Need(
        AclOperation.WRITE,
        ResourceType.TRANSACTIONAL_ID,
        when="the version is below 4",
        lacking="the request is refused",
    ),
    Need(
        AclOperation.WRITE,
        ResourceType.TOPIC,
        when="the version is below 4",
        lacking="the partitions of the topic are refused, and the others not attempted",
    ),
    Need(
        AclOperation.CLUSTER_ACTION,
        ResourceType.CLUSTER,
        when="the version is 4 or later",
        lacking="the request is refused",
    ),
)
CHUNKS = ()


def handle(request: AddPartitionsToTxnRequest, context: Context) -> Pending[AddPartitionsToTxnResponse]:
    """Add each transaction's partitions; the answer is sent when they survive a crash."""
    version = context.api_version
    if version >= FIRST_VERSION_FOR_BROKERS:
        if not context.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return _Additions(request.transactions, context).pending
    transactional_id = request.v3_and_below_transactional_id
    if not context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    only = Asked(
        transactional_id=transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return _Additions([only], context).pending


class _Additions:
    """One request under way: the answer is complete when every transaction has its result."""

    def __init__(self, transactions: list[Asked], context: Context) -> None:
        self.pending: Pending[AddPartitionsToTxnResponse] = Pending()
        self._context = context
        self._results: list[Result] = []
        self._missing = 1
        for asked in transactions:
            self._missing += 1
            self._add(asked)
        self._one_done()

    def _add(self, asked: Asked) -> None:
        where = [(topic.name, index) for topic in asked.topics for index in topic.partitions]
        refused = self._impossible(where)
        if refused:
            rest = dict.fromkeys(where, ErrorCode.OPERATION_NOT_ATTEMPTED)
            self._answer(asked, {**rest, **refused})
            return
        admission = self._context.services.transactions.get().admit_batches(
            asked.transactional_id, asked.producer_id, asked.producer_epoch, where, adds=not asked.verify_only
        )
        if admission.error is not None:
            self._answer(asked, dict.fromkeys(where, self._code(admission.error)))
            return
        missing = self._code(KafkaError(ErrorCode.TRANSACTION_ABORTABLE))
        codes = {**dict.fromkeys(where, ErrorCode.NONE), **dict.fromkeys(admission.missing, missing)}

        def settled(error: KafkaError | None) -> None:
            self._answer(asked, codes if error is None else dict.fromkeys(where, self._code(error)))

        admission.when_durable(settled)

    def _impossible(self, partitions: list[Where]) -> dict[Where, ErrorCode]:
        """The partitions to which no transaction may write, with the error code."""
        context = self._context
        topics = context.services.catalog.topics
        is_clients = context.api_version < FIRST_VERSION_FOR_BROKERS
        found: dict[Where, ErrorCode] = {}
        for name, index in partitions:
            topic = topics.get(name)
            if is_clients and not context.may(AclOperation.WRITE, ResourceType.TOPIC, name):
                found[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif is_clients and name in INTERNAL_TOPICS:
                found[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # AddOffsetsToTxn adds those of groups
            elif topic is None or not 0 <= index < len(topic.partitions):
                found[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif name in INTERNAL_TOPICS and name != OFFSETS_TOPIC:
                found[name, index] = ErrorCode.INVALID_TOPIC_EXCEPTION
        return found

    def _code(self, error: KafkaError) -> ErrorCode:
        version = self._context.api_version
        codes: dict[ErrorCode, ErrorCode] = {}
        if version < FIRST_VERSION_WITH_FENCED:
            codes.update(FENCED_BEFORE)
        if version < FIRST_VERSION_WITH_ABORTABLE:
            codes.update(ABORTABLE_BEFORE)
        return replaced(error, codes).code

    def _answer(self, asked: Asked, codes: Mapping[Where, ErrorCode]) -> None:
        topics = [
            TopicResult(
                name=topic.name,
                results_by_partition=[
                    PartitionResult(partition_index=index, partition_error_code=codes[topic.name, index])
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        self._results.append(Result(transactional_id=asked.transactional_id, topic_results=topics))
        self._one_done()

    def _one_done(self) -> None:
        self._missing -= 1
        if self._missing:
            return
        if self._context.api_version < FIRST_VERSION_FOR_BROKERS:
            self.pending.complete(
                AddPartitionsToTxnResponse(results_by_topic_v3_and_below=self._results[0].topic_results)
            )
        else:
            self.pending.complete(AddPartitionsToTxnResponse(results_by_transaction=self._results))
