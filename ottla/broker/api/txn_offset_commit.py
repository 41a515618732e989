"""TxnOffsetCommit (key 28), versions 0-6: store a group's position as part of a transaction.

The offsets become valid when the transaction commits. Until then readers of stable offsets (OffsetFetch 7) have to
wait. The answer is sent when the offsets survive a crash. The transaction coordinator is asked in the step that writes
them: up to version 4 the group's partition of `__consumer_offsets` must be part of the transaction (AddOffsetsToTxn),
version 5 adds it.

A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, one whose metadata is longer than
`offset.metadata.max.bytes` OFFSET_METADATA_TOO_LARGE; the other ones are stored. For the whole request:
INVALID_GROUP_ID for the empty group, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION (also for a stale epoch
of a member of the consumer protocol), INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE or, from
version 4 on, TRANSACTION_ABORTABLE.

Older clients get codes after which they send the request again. Up to version 4 it is COORDINATOR_LOAD_IN_PROGRESS for
a transaction whose end is still being written (CONCURRENT_TRANSACTIONS). Up to version 1 it is
COORDINATOR_NOT_AVAILABLE instead: the other code crashes these clients (KAFKA-7296).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import ById, Chunks, Need
from ottla.broker.groups.existing_partitions import CommitCodes, split, with_missing, with_names
from ottla.broker.transactions.codes import ABORTABLE_BEFORE, FENCED_BEFORE, with_codes
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.transactions.admission import Admission

Result = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition

FIRST_VERSION_WITH_IDS = 6

NEEDS = (
    Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, named=("transactional_id",)),
    Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),
    Need(
        AclOperation.READ,
        ResourceType.TOPIC,
        named=("topics", "name"),
        answered="topics",
        by_id=ById("topic_id", FIRST_VERSION_WITH_IDS),
    ),
)
CHUNKS = (Chunks(("topics", "partitions"), ("topics", "partitions")),)

FIRST_VERSION_WITHOUT_CRASHES = 2
FIRST_VERSION_WITH_ABORTABLE = 4
FIRST_VERSION_THAT_ADDS = 5


def handle(
    request: TxnOffsetCommitRequest, context: Context
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    """Commit the partitions that exist, refuse the rest."""
    catalog = context.services.catalog
    is_by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    if is_by_id:
        request = request.replace(topics=with_names(request.topics, catalog.topics_by_id))
    known, unknown = split(request.topics, catalog.topics)
    if not known:
        return _answer(request, CommitCodes(unknown, is_by_id))
    asked = request if not unknown else request.replace(topics=known)
    committed = with_codes(
        context.services.groups.get().commit_transactional_offsets(asked, context, lambda: _admit(request, context)),
        _codes(context.api_version),
    )
    if not unknown and not is_by_id:
        return committed
    return with_missing(committed, CommitCodes(unknown, is_by_id), lambda codes: _answer(request, codes))


def _admit(request: TxnOffsetCommitRequest, context: Context) -> Admission:
    return context.services.transactions.get().admit_offsets(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.group_id,
        adds=context.api_version >= FIRST_VERSION_THAT_ADDS,
    )


def _codes(version: int) -> dict[ErrorCode, ErrorCode]:
    """Codes that clients of this version do not know, or not from this API, and their replacements."""
    codes = dict(FENCED_BEFORE)
    if version < FIRST_VERSION_WITH_ABORTABLE:
        codes.update(ABORTABLE_BEFORE)
    if version < FIRST_VERSION_THAT_ADDS:
        codes[ErrorCode.CONCURRENT_TRANSACTIONS] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if version < FIRST_VERSION_WITHOUT_CRASHES:
        for code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            codes[code] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return codes


def _answer(request: TxnOffsetCommitRequest, codes: CommitCodes) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    Result(partition_index=each.partition_index, error_code=codes.of(topic.name, each.partition_index))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
