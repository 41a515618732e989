"""The partitions of a commit that exist: only these go to the group's shard, the handler answers the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic
    from ottla.protocol.api.offset_commit import OffsetCommitRequest
    from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest

T = TypeVar("T", "OffsetCommitRequest.OffsetCommitRequestTopic", "TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic")


def split(asked_topics: list[T], topics: Mapping[str, Topic]) -> tuple[list[T], set[tuple[str, int]]]:
    """The topics with the partitions that exist, and the partitions that do not."""
    known: list[T] = []
    unknown: set[tuple[str, int]] = set()
    for asked in asked_topics:
        topic = topics.get(asked.name)
        count = 0 if topic is None else len(topic.partitions)
        missing = [each.partition_index for each in asked.partitions if not 0 <= each.partition_index < count]
        if not missing:
            known.append(asked)
            continue
        unknown.update((asked.name, index) for index in missing)
        existing = [each for each in asked.partitions if 0 <= each.partition_index < count]
        if existing:
            known.append(asked.replace(partitions=existing))
    return known, unknown
