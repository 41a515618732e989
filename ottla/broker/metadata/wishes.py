"""What clients wish of topics, configurations and quotas, and what became of each wish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ottla.config.topic import TopicConfig
from ottla.protocol.errors import ErrorCode, KafkaError

ZERO_ID = UUID(int=0)


class NewTopic(NamedTuple):
    """A wish to create a topic.

    `partitions` and `replication_factor` are -1 for the broker's default. `assignments` are (partition, brokers), as
    they came, so that one named twice can be refused. A config whose value is None cannot be met.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A wish to grow a topic to `count` partitions; `assignments` names the brokers of each new one, or is None."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicOutcome(NamedTuple):
    """What became of one wish.

    `id` is the zero uuid for a refusal, and for a creation that was only to be validated. `name` is None where a
    deletion named an id that does not exist.
    """

    name: str | None
    id: UUID = ZERO_ID
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    partitions: int = -1
    config: TopicConfig | None = None

    @property
    def failed(self) -> bool:
        """Whether the wish was refused."""
        return self.error_code is not ErrorCode.NONE

    def as_existing(self) -> TopicOutcome:
        """The same, but that the topic exists already is no failure."""
        return TopicOutcome(self.name) if self.error_code is ErrorCode.TOPIC_ALREADY_EXISTS else self

    def as_unusable(self) -> TopicOutcome:
        """The topic exists, and not all of its partitions can be served."""
        message = "the topic exists, but the disk is full or failing: its directories are made once there is room"
        return TopicOutcome(self.name, self.id, ErrorCode.KAFKA_STORAGE_ERROR, message)


Outcomes = Callable[[list[TopicOutcome]], None]
"""Who is told what became of the wishes of one request, in their order."""


def refused(target: str | UUID, error: KafkaError) -> TopicOutcome:
    """A refusal says the topic as it was asked for, by name or by id: a client need not learn the other."""
    if isinstance(target, UUID):
        return TopicOutcome(None, target, error_code=error.code, error_message=error.message)
    return TopicOutcome(target, error_code=error.code, error_message=error.message)


SET, DELETE, APPEND, SUBTRACT = range(4)
"""What IncrementalAlterConfigs may do to a key (Kafka's AlterConfigOp.OpType)."""


class ConfigWish(NamedTuple):
    """A wish about one resource's configuration.

    `changes` are (key, operation, value) in the order of the request. With `replaces` they are all that the resource
    is to set: what they do not name goes back to its default (AlterConfigs).
    """

    resource_type: int
    name: str
    changes: Sequence[tuple[str, int, str | None]]
    replaces: bool = False


class ConfigOutcome(NamedTuple):
    """What became of one wish about a configuration; `changed` says whether anything is different now."""

    resource_type: int
    name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    changed: bool = False


class QuotaWish(NamedTuple):
    """A wish about the quotas of one entity, as it came; a value of None removes the quota."""

    entity: Sequence[tuple[str, str | None]]
    changes: Sequence[tuple[str, float | None]]


class QuotaOutcome(NamedTuple):
    """What became of the wish of the same place."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
