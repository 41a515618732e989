"""Acknowledgements in a request, checked: of a ShareAcknowledge, and of a ShareFetch that has some beside it.

Offsets must go up from batch to batch, and each batch has one type, or one for each offset. What is wrong with one
partition leaves the others as they are. An offset in two neighbouring batches counts as not acquired any more. Source:
Kafka's `KafkaApis.getAcknowledgeBatchesFromShareFetchRequest` and `validateAcknowledgementBatches`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.share.deliveries import Acknowledgement
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.share.sessions import Place

_TYPES: Final = frozenset(int(kind) for kind in AcknowledgeType)


class AcknowledgementBatch(Protocol):
    """A batch as ShareFetch and ShareAcknowledge have it."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class PartitionOfRequest(Protocol):
    """A partition as both requests have it."""

    partition_index: int

    @property
    def acknowledgement_batches(self) -> Sequence[AcknowledgementBatch]:
        """What is acknowledged of it."""


class TopicOfRequest(Protocol):
    """A topic as both requests have it."""

    topic_id: UUID

    @property
    def partitions(self) -> Sequence[PartitionOfRequest]:
        """Its partitions."""


def batches_by_place(topics: Iterable[TopicOfRequest]) -> dict[Place, list[AcknowledgementBatch]]:
    """The batches of a request by partition; those of one that is named twice come after one another."""
    batches: dict[Place, list[AcknowledgementBatch]] = {}
    for topic in topics:
        for asked in topic.partitions:
            batches.setdefault((topic.topic_id, asked.partition_index), []).extend(asked.acknowledgement_batches)
    return batches


def acknowledgements_of(
    batches: Iterable[AcknowledgementBatch], *, may_renew: bool, group_renews: bool = True
) -> list[Acknowledgement]:
    """The acknowledgements of one partition. Raises KafkaError INVALID_REQUEST, INVALID_RECORD_STATE.

    `may_renew`: the request says that some renew; `group_renews`: the group allows it.
    """
    found: list[Acknowledgement] = []
    last_offset = -1
    for batch in batches:
        if batch.first_offset > batch.last_offset:
            raise _invalid(f"offsets {batch.first_offset} to {batch.last_offset} go down")
        if batch.first_offset < last_offset or batch.first_offset < 0:
            raise _invalid(f"offset {batch.first_offset} is not after those before it")
        _check_types(batch.acknowledge_types, batch.last_offset - batch.first_offset + 1, may_renew=may_renew)
        if found and batch.first_offset == last_offset:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"offset {last_offset} is acknowledged twice")
        if not group_renews and AcknowledgeType.RENEW in batch.acknowledge_types:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "records may not be renewed in this group")
        found.append(Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types))
        last_offset = batch.last_offset
    return found


def _check_types(types: Sequence[int], count: int, *, may_renew: bool) -> None:
    if not types:
        raise _invalid("a batch has no acknowledge type")
    if len(types) not in (1, count):
        raise _invalid(f"a batch of {count} offsets has {len(types)} acknowledge types, not 1 or {count}")
    if not _TYPES.issuperset(types):
        raise _invalid(f"{next(kind for kind in types if kind not in _TYPES)} is no acknowledge type")
    if not may_renew and AcknowledgeType.RENEW in types:
        raise _invalid("records may not be renewed by this request")


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
