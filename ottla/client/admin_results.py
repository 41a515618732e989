"""Arguments and results of an Admin: topics to create, descriptions of topics, configurations, and refusals by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from ottla.client.errors import KafkaError
from ottla.client.structs import BrokerAddress


class AdminError(KafkaError):
    """Part of a request was refused, the rest is done. `errors` has the refusals by name; `code` is the first's."""

    def __init__(self, errors: Mapping[str, KafkaError]) -> None:
        self.errors = dict(errors)
        first = next(iter(self.errors.values()))
        lines = [f"{name}: {error.message}" for name, error in self.errors.items()]
        super().__init__(first.code, "; ".join([*(line.removesuffix(".") for line in lines[:-1]), lines[-1]]))


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 means the broker's default; `assignments`, brokers by partition, set both numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignments: Mapping[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition: its leader (-1 for none), the leader epoch, the brokers of its replicas, and those in sync."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as in the cluster's metadata. `topic_id` is zero if the broker sends none."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: list[PartitionDescription]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A partition's state of a producer. `last_sequence` and `last_timestamp_ms` are -1 if there are none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None
    """The start of its open transaction; None without one."""
    coordinator_epoch: int = -1
    """The epoch of the coordinator that wrote its last marker; -1 before the first."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster; `controller_id` is -1 when none is known."""

    cluster_id: str | None
    controller_id: int
    brokers: list[BrokerAddress]


class ConfigResourceType(IntEnum):
    """The types of resources that have configurations."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic or a group by name, or a broker by node id, as text; an empty name means all brokers."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """The configuration of a topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> ConfigResource:
        """The configuration of a broker."""
        return cls(ConfigResourceType.BROKER, str(node_id))

    @classmethod
    def all_brokers(cls) -> ConfigResource:
        """The defaults of all brokers that do not set a key themselves."""
        return cls(ConfigResourceType.BROKER, "")

    @classmethod
    def loggers(cls, node_id: int) -> ConfigResource:
        """The levels of a broker's loggers."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(node_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        """The configuration of a consumer group."""
        return cls(ConfigResourceType.GROUP, group_id)

    @property
    def node_id(self) -> int | None:
        """The broker that must be asked about it; None if any can be."""
        is_broker = self.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        return int(self.name) if is_broker and self.name.isdecimal() else None


class ConfigSource(IntEnum):
    """The source of a value."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the sources of a value, the effective one first."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A configuration. `value` is None if it is not set or secret; `source` is a `ConfigSource` or a newer number."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    synonyms: list[ConfigSynonym] = field(default_factory=list)
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether it is not set anywhere."""
        return self.source == ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class ApiVersionRange:
    """The versions of an API that a broker accepts, both ends included. `name` is Kafka's (`Fetch`), None for an API
    that this version of Ottla does not know.
    """

    key: int
    name: str | None
    least: int
    highest: int


@dataclass(frozen=True, slots=True)
class FeatureLevels:
    """A feature of a cluster."""

    level: int | None
    """The cluster's level; None if no level was ever set, which means 0."""
    least: int | None
    highest: int | None
    """The bounds of the levels that the broker supports; None if it does not return them."""
