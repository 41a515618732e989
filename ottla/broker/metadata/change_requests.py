"""Requests to change topics, configurations and quotas, and their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.config.topic import TopicConfig
from ottla.plain import Plain
from ottla.protocol.errors import ErrorCode, KafkaError

ZERO_ID = UUID(int=0)


class NewTopic(NamedTuple):
    """A request to create a topic.

    `partitions` and `replication_factor` are -1 for the broker's default. `assignments` are (partition, brokers), as in
    the request, so that a partition named twice can be refused. A config whose value is None is refused.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class NewPartitions(Plain, frozen=True):
    """A request to grow a topic to `count` partitions; `assignments` names the brokers of each new one, or is None."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicResult(NamedTuple):
    """The result of one request about a topic.

    `id` is the zero uuid for a refusal, and for a creation that was only validated. `name` is None if a deletion named
    an id that does not exist.
    """

    name: str | None
    id: UUID = ZERO_ID
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    partitions: int = -1
    config: TopicConfig | None = None

    @property
    def failed(self) -> bool:
        """Whether the request was refused."""
        return self.error_code is not ErrorCode.NONE

    def as_existing(self) -> TopicResult:
        """The same result, except that a topic which exists already counts as success."""
        return TopicResult(self.name) if self.error_code is ErrorCode.TOPIC_ALREADY_EXISTS else self

    def as_unusable(self) -> TopicResult:
        """The result for an existing topic whose partitions cannot all be served."""
        message = "the topic exists, but the disk is full or failing: its directories are created once there is room"
        return TopicResult(self.name, self.id, ErrorCode.KAFKA_STORAGE_ERROR, message)


ResultsCallback = Callable[[list[TopicResult]], None]
"""Receives the results of one request, in the order of its items."""


def refused(target: str | UUID, error: KafkaError) -> TopicResult:
    """The result of a refusal: it has the topic as the request named it, by name or by id, and not the other."""
    if isinstance(target, UUID):
        return TopicResult(None, target, error_code=error.code, error_message=error.message)
    return TopicResult(target, error_code=error.code, error_message=error.message)


SET, DELETE, APPEND, SUBTRACT = range(4)
"""The operations of IncrementalAlterConfigs on a key (Kafka's AlterConfigOp.OpType)."""


class ConfigRequest(NamedTuple):
    """A request to change one resource's configuration.

    `changes` are (key, operation, value) in the order of the request. With `replaces` they are all keys that the
    resource sets: every other key returns to its default (AlterConfigs).
    """

    resource_type: int
    name: str
    changes: Sequence[tuple[str, int, str | None]]
    replaces: bool = False

    def refused(self, error: KafkaError) -> ConfigResult:
        """The result of a refusal."""
        return ConfigResult(self.resource_type, self.name, error.code, error.message)


class ConfigResult(NamedTuple):
    """The result of one request about a configuration; `changed`: whether anything is different now."""

    resource_type: int
    name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    changed: bool = False


class QuotaRequest(NamedTuple):
    """A request to change the quotas of one entity; a value of None removes the quota."""

    entity: Sequence[tuple[str, str | None]]
    changes: Sequence[tuple[str, float | None]]


class QuotaResult(NamedTuple):
    """The result of the request at the same index."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
