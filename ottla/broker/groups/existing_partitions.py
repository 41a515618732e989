"""The partitions of a commit that exist: only these go to the group's shard, the handler answers the others.

The newest versions of commits have topic ids in place of names. The coordinator knows offsets by name, as their records
have it, so that the handler resolves the ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.catalog.topic import Topic
    from ottla.protocol.api.offset_commit import OffsetCommitRequest
    from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest

T = TypeVar("T", "OffsetCommitRequest.OffsetCommitRequestTopic", "TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic")


def with_names(asked_topics: list[T], topics_by_id: Mapping[UUID, Topic]) -> list[T]:
    """The topics of a request with ids, with their names as well; the name of an id without a topic is empty."""
    named = []
    for asked in asked_topics:
        topic = topics_by_id.get(asked.topic_id)
        named.append(asked.replace(name="" if topic is None else topic.name))
    return named


def missing_code(name: str, *, is_by_id: bool) -> ErrorCode:
    """The code of a partition that does not exist, by the name of its topic (empty: its id has none)."""
    return ErrorCode.UNKNOWN_TOPIC_ID if is_by_id and not name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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
