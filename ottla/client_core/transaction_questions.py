"""The requests of a transactional producer: one for each step, at the negotiated version, and the codes of its answer.

In the old protocol (`transaction.version` 0 and 1) a producer first adds partitions and groups to the transaction:
AddPartitionsToTxn up to version 3 (later ones are for brokers), AddOffsetsToTxn. In the new one (2, KIP-890) the writes
themselves do that: Produce from version 12 on, TxnOffsetCommit 5; and EndTxn 5 returns the producer's next epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from ottla.client_core.partition_queue import ProducerIdentity
from ottla.client_core.versions import ANY_VERSION
from ottla.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response

FIRST_NEW_TRANSACTION_VERSION = 2
LAST_OLD_PRODUCE_VERSION = 11
FIRST_VERSION_WITH_IDENTITY = 3
"""The version of InitProducerId (KIP-360) that names the producer's id and epoch. With an earlier one, a producer that
raises its own epoch may fence one that was started after it."""
_LAST_ADD_PARTITIONS_VERSION = 3
_LAST_OLD_OFFSETS_VERSION = 4
_LAST_OFFSETS_VERSION_WITH_NAMES = 5
_LAST_OLD_END_VERSION = 4
_FIRST_OFFSETS_VERSION_WITH_MEMBER = 3

Partition = tuple[str, int]


class Step(Enum):
    """The steps of a transaction that need a request."""

    INITIALIZE = auto()
    ADD_PARTITIONS = auto()
    ADD_OFFSETS = auto()
    COMMIT_OFFSETS = auto()
    END = auto()


class Question(NamedTuple):
    """The request of a step, made at the newest common version up to `at_most`."""

    step: Step
    request: type[Request]
    response: type[Response]
    make: Callable[[int], Request]
    group_id: str | None = None
    """The group whose coordinator is asked; None: that of the transaction."""
    at_most: int = ANY_VERSION


class Offsets:
    """Offsets of a group to commit with the transaction: (offset, metadata, leader epoch) by partition, and the member
    that has consumed them."""

    __slots__ = ("generation", "group_id", "group_instance_id", "is_added", "is_committed", "member_id", "offsets")

    def __init__(
        self,
        group_id: str,
        offsets: Mapping[Partition, tuple[int, str, int]],
        *,
        generation: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation = generation
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.offsets = dict(offsets)
        """The offsets that the group's coordinator has not accepted yet."""
        self.is_added = False
        """Whether the group was added to the transaction, which the old protocol requires first."""
        self.is_committed = False


def initialize(transactional_id: str, timeout_ms: int, identity: ProducerIdentity) -> Question:
    """Ask for a producer id, or for the next epoch of the one that the producer has."""

    def make(version: int) -> Request:
        has_identity = version >= FIRST_VERSION_WITH_IDENTITY
        return InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=identity.producer_id if has_identity else -1,
            producer_epoch=identity.epoch if has_identity else -1,
        )

    return Question(Step.INITIALIZE, InitProducerIdRequest, InitProducerIdResponse, make)


def add_partitions(transactional_id: str, identity: ProducerIdentity, partitions: Iterable[Partition]) -> Question:
    """Add partitions to the transaction."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in by_topic.items()
        ],
    )
    return Question(
        Step.ADD_PARTITIONS,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        lambda _: request,
        at_most=_LAST_ADD_PARTITIONS_VERSION,
    )


def add_offsets(transactional_id: str, identity: ProducerIdentity, group_id: str) -> Question:
    """Add a group's offsets to the transaction."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )
    return Question(Step.ADD_OFFSETS, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, lambda _: request)


def commit_offsets(transactional_id: str, identity: ProducerIdentity, sent: Offsets, *, is_old: bool) -> Question:
    """Send offsets to their group's coordinator."""

    def make(version: int) -> Request:
        by_topic: dict[str, list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]] = defaultdict(list)
        for (topic, index), (offset, metadata, leader_epoch) in sent.offsets.items():
            by_topic[topic].append(
                TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        has_member = version >= _FIRST_OFFSETS_VERSION_WITH_MEMBER
        return TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=sent.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id_or_member_epoch=sent.generation if has_member else -1,
            member_id=sent.member_id if has_member else "",
            group_instance_id=sent.group_instance_id if has_member else None,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )

    return Question(
        Step.COMMIT_OFFSETS,
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
        make,
        sent.group_id,
        _LAST_OLD_OFFSETS_VERSION if is_old else _LAST_OFFSETS_VERSION_WITH_NAMES,
    )


def end(transactional_id: str, identity: ProducerIdentity, *, is_commit: bool, is_old: bool) -> Question:
    """End the transaction."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=is_commit,
    )
    at_most = _LAST_OLD_END_VERSION if is_old else ANY_VERSION
    return Question(Step.END, EndTxnRequest, EndTxnResponse, lambda _: request, at_most=at_most)


def codes_of(answer: AddPartitionsToTxnResponse | TxnOffsetCommitResponse) -> dict[Partition, ErrorCode]:
    """Return an answer's code for each partition."""
    if isinstance(answer, AddPartitionsToTxnResponse):
        return {
            (topic.name, one.partition_index): ErrorCode.of(one.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
    return {
        (topic.name, one.partition_index): ErrorCode.of(one.error_code)
        for topic in answer.topics
        for one in topic.partitions
    }
