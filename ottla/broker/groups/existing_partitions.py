"""The partitions of a commit that exist: only these go to the group's shard, the others are answered here.

The newest versions of commits have topic ids in place of names. The coordinator knows offsets by name, as their records
have it, so that the handler resolves the ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.broker.runtime.pending import Pending
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.catalog.topic import Topic
    from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

T = TypeVar("T", "OffsetCommitRequest.OffsetCommitRequestTopic", "TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic")
R = TypeVar("R", "OffsetCommitResponse", "TxnOffsetCommitResponse")


def with_names(asked_topics: list[T], topics_by_id: Mapping[UUID, Topic]) -> list[T]:
    """The topics of a request with ids, with their names as well; the name of an id without a topic is empty."""
    named = []
    for asked in asked_topics:
        topic = topics_by_id.get(asked.topic_id)
        named.append(asked.replace(name="" if topic is None else topic.name))
    return named


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


class CommitCodes(NamedTuple):
    """The codes of a commit: `stored` has those of the shard by topic and partition, `otherwise` is that of the rest.
    `missing` are the partitions that do not exist.
    """

    missing: set[tuple[str, int]]
    is_by_id: bool
    stored: Mapping[tuple[str, int], int] = {}
    otherwise: ErrorCode = ErrorCode.NONE

    def of(self, topic: str, partition: int) -> int:
        """The code of a partition. The name of a topic is empty if its id has none."""
        if (topic, partition) in self.missing:
            return ErrorCode.UNKNOWN_TOPIC_ID if self.is_by_id and not topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self.stored.get((topic, partition), self.otherwise)


def with_missing(committed: Pending[R], codes: CommitCodes, answer: Callable[[CommitCodes], R]) -> Pending[R]:
    """The answer to a whole request, from the shard's to the partitions that exist; its refusal is the code of each."""
    pending: Pending[R] = Pending()

    def done(committed: Pending[R]) -> None:
        error = committed.error
        if committed.response is not None:
            stored = {
                (topic.name, result.partition_index): result.error_code
                for topic in committed.response.topics
                for result in topic.partitions
            }
            pending.complete(answer(codes._replace(stored=stored)))
        elif isinstance(error, KafkaError):
            pending.complete(answer(codes._replace(otherwise=error.code)))
        else:
            assert error is not None
            pending.fail(error)

    committed.then(done)
    return pending
