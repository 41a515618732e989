"""An Admin's results about streams groups: what a topology consists of, and which tasks a member runs (KIP-1071)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class StreamsTask(NamedTuple):
    """A task: one partition of the source topics of a subtopology. Its name is as in Kafka Streams: 0_3."""

    subtopology_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology_id}_{self.partition}"


@dataclass(frozen=True, slots=True)
class StreamsTasks:
    """The tasks of a member, each list sorted. Only active tasks write; standby tasks keep a copy of their state, and
    warm-up tasks make one, before an active task moves.
    """

    active: list[StreamsTask] = field(default_factory=list)
    standby: list[StreamsTask] = field(default_factory=list)
    warmup: list[StreamsTask] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """What a member of a streams group has beside what all members have."""

    process_id: str
    """Members with the same one are threads of one process."""
    topology_epoch: int
    tasks: StreamsTasks
    target_tasks: StreamsTasks
    """Those that the broker wants it to run."""
    rack_id: str | None = None
    user_endpoint: tuple[str, int] | None = None
    """Host and port for interactive queries."""
    client_tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamsInternalTopic:
    """A topic that the broker creates for the application."""

    name: str
    partitions: int
    """0: not known yet."""
    replication_factor: int
    """0: the broker's default."""
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamsSubtopology:
    """A part of a topology: it reads its source topics together, and has a task for each of their partitions."""

    subtopology_id: str
    source_topics: list[str]
    """The application's own; `repartition_source_topics` are read, too."""
    repartition_source_topics: list[StreamsInternalTopic]
    repartition_sink_topics: list[str]
    """Those that it writes."""
    state_changelog_topics: list[StreamsInternalTopic]

    @property
    def topics_read(self) -> list[str]:
        """All topics that it reads, sorted."""
        return sorted({*self.source_topics, *(topic.name for topic in self.repartition_source_topics)})


@dataclass(frozen=True, slots=True)
class StreamsTopology:
    """The topology of a streams group; `subtopologies` are empty while a broker cannot tell them."""

    epoch: int
    subtopologies: list[StreamsSubtopology]
