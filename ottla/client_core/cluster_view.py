"""A client's view of the cluster: its brokers, the topics that it asks about, and the leaders of their partitions.

The driver asks for metadata (`metadata_request`), passes the answer to `take`, and asks again when `is_stale`. A topic
is asked about from the first mention on: a topic in use until `forget`, others until `let_go`. A topic that an answer
does not mention stays unchanged, unless all topics were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from ottla.client_core.topic_metadata import PartitionMetadata, TopicMetadata
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import ZERO_UUID

MAX_TOPIC_NAME_CHARACTERS = 249
"""Kafka's limit, which keeps a name with its partition within a file name."""
FIRST_VERSION_THAT_FINDS_IDS = 12
"""The version of Metadata; earlier ones find topics only by name."""
_FIRST_VERSION_WITH_AUTO_CREATION_SWITCH = 4

STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""Errors of a partition after which its leader may be another broker."""


class BrokerAddress(NamedTuple):
    """A broker of the cluster, with the address for clients."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def check_topic_name(name: object) -> None:
    """Raise TypeError for what is no text, and ValueError for a text that is empty or too long to name a topic."""
    if not isinstance(name, str):
        raise TypeError(f"a topic's name must be a str, not {type(name).__name__}")
    if not name:
        raise ValueError(f"{name!r:.40} cannot be the name of a topic")
    if len(name) > MAX_TOPIC_NAME_CHARACTERS:
        raise ValueError(
            f"{name[:30]!r}... cannot be the name of a topic: it has {len(name):,} characters, and names have at most "
            f"{MAX_TOPIC_NAME_CHARACTERS}"
        )


class ClusterView:
    """See the module."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        """The cluster's id, where the broker reports it."""
        self.controller_id = -1
        """The broker that handles changes; -1 when none is known."""
        self.brokers: dict[int, BrokerAddress] = {}
        """The brokers by node id."""
        self.topics: dict[str, TopicMetadata] = {}
        """The known topics, by name."""
        self.version = 0
        """Increases whenever a broker, a leader or a topic's id may have changed."""
        self.is_stale = False
        """Whether the view was found to be wrong since the last request."""
        self._wanted: set[str] = set()
        """The topics that are asked for; those in `_in_use` stay until `forget`, the rest until `let_go`."""
        self._in_use: set[str] = set()
        self._wants_all = False
        self._knows_all = False

    # Known state ------------------------------------------------------------------------------------------------

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """Return a partition's metadata, None when it is not known."""
        known = self.topics.get(topic)
        return known.partitions.get(partition) if known is not None else None

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the node id of a partition's leader, -1 when it is not known."""
        known = self.topics.get(topic)
        found = known.partitions.get(partition) if known is not None else None
        return found.leader_id if found is not None and found.leader_id in self.brokers else -1

    def epoch_of(self, topic: str, partition: int) -> int:
        """Return the leader epoch of a partition, -1 when it is not known."""
        found = self.partition(topic, partition)
        return found.leader_epoch if found is not None else -1

    def topic_id(self, topic: str) -> UUID:
        """Return a topic's id, zero when it is not known."""
        known = self.topics.get(topic)
        return known.topic_id if known is not None else ZERO_UUID

    def is_missing(self, topic: str) -> bool:
        """Whether the newest answer about a topic says that it does not exist."""
        known = self.topics.get(topic)
        return known is not None and known.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def names_by_id(self) -> dict[UUID, str]:
        """Return the names of the known topics, by topic id."""
        return {topic.topic_id: name for name, topic in self.topics.items()}

    @property
    def lacks_topics(self) -> bool:
        """Whether a topic that is asked about is not known."""
        return not self._wanted <= self.topics.keys()

    @property
    def lacks_all(self) -> bool:
        """Whether all topics are wanted, and no answer has listed them yet."""
        return self._wants_all and not self._knows_all

    # Requests ---------------------------------------------------------------------------------------------------

    def ask_about(self, topics: Iterable[str]) -> bool:
        """Ask about topics until `let_go`; return whether any of them is new. Raises ValueError for an invalid name,
        TypeError for what is no text.
        """
        new = [topic for topic in topics if topic not in self._wanted]
        for topic in new:
            check_topic_name(topic)
        self._wanted.update(new)
        return bool(new)

    def use(self, topics: Iterable[str]) -> None:
        """Ask about topics until they are forgotten."""
        topics = set(topics)
        self._in_use |= topics
        self._wanted |= topics

    def let_go(self, topic: str) -> None:
        """Stop asking about a topic, unless it is in use."""
        if topic not in self._in_use:
            self.forget(topic)

    def forget(self, topic: str) -> None:
        """Drop a topic's metadata and stop asking for it."""
        self._wanted.discard(topic)
        self._in_use.discard(topic)
        self.topics.pop(topic, None)
        self.version += 1

    def use_all(self, is_wanted: bool) -> bool:
        """Ask for all topics from now on, or only for the wanted ones; return whether that is a change."""
        if is_wanted == self._wants_all:
            return False
        self._wants_all = is_wanted
        self._knows_all = False
        self.version += 1
        if not is_wanted:
            for name in self.topics.keys() - self._wanted:
                del self.topics[name]
        return True

    def forget_brokers(self) -> None:
        """Trust no broker's address until the next answer."""
        self.brokers = {}
        self.version += 1

    def metadata_request(self, version: int, *, may_create: bool = False) -> MetadataRequest:
        """Return the request for the wanted topics. `may_create` lets the broker create topics that do not exist, as
        versions below 4 always do.
        """
        topics: list[MetadataRequest.MetadataRequestTopic] | None
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(self._wanted)]
        if self._wants_all:
            topics = None if version else []  # version 0 has no null for everything
        return MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=may_create or version < _FIRST_VERSION_WITH_AUTO_CREATION_SWITCH,
        )

    def take(self, request: MetadataRequest, version: int, answer: MetadataResponse) -> None:
        """Update the view from the answer to a request. If that asked for all topics, others are removed."""
        self.version += 1
        if answer.brokers:
            self.cluster_id = answer.cluster_id
            self.controller_id = answer.controller_id
            self.brokers = {b.node_id: BrokerAddress(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
        asked_for_all = request.topics is None or (version == 0 and not request.topics)
        is_everything = asked_for_all and self._wants_all
        for described in answer.topics:
            name = described.name
            if name is None or not (is_everything or name in self._wanted):
                continue
            found = TopicMetadata.of(name, described)
            before = self.topics.get(name)
            if before is not None:
                found.keep_newer_leaders(before)
            self.topics[name] = found
        if is_everything:
            self._knows_all = True
            for name in self.topics.keys() - {described.name for described in answer.topics}:
                del self.topics[name]
