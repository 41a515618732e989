"""Arguments and results of an Admin about settings: configurations, log directories, quotas, reassignments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from ottla.client.errors import KafkaError
from ottla.client.structs import TopicPartition

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity of quotas: pairs such as ("user", "alice"), sorted; a name of None is the default of its type."""


class ConfigOperation(IntEnum):
    """The ways to change a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One key of one resource. `append` and `subtract` are for keys that hold lists, such as `cleanup.policy`."""

    name: str
    operation: ConfigOperation
    value: str | None = None

    @classmethod
    def set(cls, name: str, value: str) -> ConfigChange:
        """Give the key this value."""
        return cls(name, ConfigOperation.SET, value)

    @classmethod
    def delete(cls, name: str) -> ConfigChange:
        """Remove the key, so that its inherited value or its default applies."""
        return cls(name, ConfigOperation.DELETE)

    @classmethod
    def append(cls, name: str, value: str) -> ConfigChange:
        """Add items to the key's list, with commas between them."""
        return cls(name, ConfigOperation.APPEND, value)

    @classmethod
    def subtract(cls, name: str, value: str) -> ConfigChange:
        """Remove items from the key's list, with commas between them."""
        return cls(name, ConfigOperation.SUBTRACT, value)


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """A log in a directory. A future one is still being copied from another directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker. Bytes of its volume are -1 if they are unknown; `error` is set if it failed.
    `is_cordoned`: it takes no new partitions (brokers of Kafka 4.3 and newer report it).
    """

    path: str
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, ReplicaDescription] = field(default_factory=dict)
    error: KafkaError | None = None
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition that is being moved: the brokers of its replicas, those being added and those being removed."""

    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
