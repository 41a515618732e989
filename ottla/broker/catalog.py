"""What exists on this broker: topics, their partitions, configurations and identities.

The catalog is the one owner of `__cluster_metadata-0`. A change is a function of the image that yields records; the
records of one request are one batch, and only when that batch is synced are they replayed into the image, and only
then is the change answered. So the image never holds what a crash could take back, and live running and restarting
share one code path: replay.

Changes run one after another (`ChangeQueue`): while one waits for its sync the next waits in memory. Hence at most
one batch of the metadata log is ever unsynced, and a bad batch that is not the last one is damage, not bad luck.

Who may call: the composition root (`open`, `close`), API handlers (everything else). All on the broker's one thread.
Nothing here knows of sockets or of an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.partition import Partition
    from ottla.config.broker import BrokerConfig
    from ottla.config.topic import TopicConfig
    from ottla.storage.clock import Clock
    from ottla.storage.files import Files
    from ottla.storage.log import Log
    from ottla.storage.manager import LogManager


@dataclass(slots=True)
class Topic:
    """A topic as requests see it; `partitions[i]` is partition i."""

    name: str
    id: UUID
    partitions: list[Partition]
    config: TopicConfig
    overrides: dict[str, str]
    is_internal: bool


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A wish to create a topic. `partitions` and `replication_factor` are -1 for the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A wish to grow a topic to `count` partitions; `assignments` names the brokers of each new one, or is None."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """What became of one wish. With an error, `topic` is None; for validate_only, `id` is the zero uuid."""

    name: str | None
    id: UUID = UUID(int=0)
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    partitions: int = -1
    config: TopicConfig | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)



class Catalog:
    """Topics and identities of this broker; see the module's text for what holds."""

    topics: dict[str, Topic]
    topics_by_id: dict[UUID, Topic]
    cluster_id: str
    node_id: int
    node_epoch: int

    def __init__(
        self,
        *,
        config: BrokerConfig,
        files: Files,
        clock: Clock,
        log_manager: LogManager,
        syncer: object,
        make_partition: Callable[[str, int, Log], Partition],
    ) -> None:
        raise NotImplementedError

    def open(self) -> None:
        """Load (or found) the metadata, register this run, open every log. After `log_manager.open_directories()`.

        Blocks; call before serving. Raises MetadataError (one line for people) when the metadata log is unreadable.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Take a last sync and let go of the metadata log. Does not close partitions' logs (the manager does)."""
        raise NotImplementedError

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, or None when there is none of that name and index."""
        raise NotImplementedError

    def create_topics(
        self, wishes: Sequence[NewTopic], done: Callable[[list[TopicOutcome]], None], *, validate_only: bool = False
    ) -> None:
        """Create topics; `done` is called once, when all that were created accept requests."""
        raise NotImplementedError

    def delete_topics(self, targets: Sequence[str | UUID], done: Callable[[list[TopicOutcome]], None]) -> None:
        """Delete topics by name or id; `done` is called once, when the removal is synced and the directories renamed."""
        raise NotImplementedError

    def create_partitions(
        self, wishes: Sequence[NewPartitions], done: Callable[[list[TopicOutcome]], None], *, validate_only: bool = False
    ) -> None:
        """Grow topics; `done` is called once, when the new partitions accept requests."""
        raise NotImplementedError

    def auto_create(self, names: Sequence[str], done: Callable[[list[TopicOutcome]], None]) -> None:
        """Create topics with the broker's defaults; one that exists by then counts as success."""
        raise NotImplementedError

    def allocate_producer_ids(self, done: Callable[[range | None], None]) -> None:
        """Take the next block of producer ids; `done` gets it once it is synced, or None when the disk failed."""
        raise NotImplementedError

    def finalized_features(self) -> tuple[int, dict[str, int]]:
        """(epoch, levels) for ApiVersions: the metadata offset that the levels hold at, and level by feature name."""
        raise NotImplementedError
