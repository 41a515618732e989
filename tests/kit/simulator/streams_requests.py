"""The applications of simulated streams groups, and the requests of their members.

streams-0   "0" reads topic-0 and has a store; "1" reads topic-1 and writes a repartition topic, which "2" reads,
            whose store has a changelog
streams-1   "0" reads topic-2 and topic-3, and has no topics of its own
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kit.streams_topologies import internal_topic, request_topology, subtopology

from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from kit.simulator.streams_model import Membership

HEARTBEAT_VERSION: Final = 1
COMMIT_VERSION: Final = 9
DESCRIBE_VERSION: Final = 1
JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
SESSION_MS: Final = 200_000
"""Of all members: shorter than the longest jumps of the clock, longer than the others."""
KEYS: Final[dict[str, object]] = {
    "group.streams.session.timeout.ms": SESSION_MS,
    "group.streams.max.session.timeout.ms": SESSION_MS,
    "group.streams.assignment.interval.ms": 0,
    "group.streams.min.assignment.interval.ms": 0,
}
"""Of the broker."""
INTERNAL: Final = "streams-"
"""How the names of internal topics of these groups begin."""

Task = tuple[str, int]
"""The id of its subtopology, and its partition."""


@dataclass(frozen=True)
class Application:
    """What the members of a group run."""

    group: str
    sources: Mapping[str, Sequence[str]]
    """The source topics of each subtopology, internal ones too."""
    changelogs: Mapping[str, str]
    """The changelog of each subtopology with a store."""
    topology: StreamsGroupHeartbeatRequest.Topology

    @property
    def source_topics(self) -> list[str]:
        """Those that somebody else has to create."""
        names = {name for topics in self.sources.values() for name in topics}
        return sorted(name for name in names if not name.startswith(INTERNAL))


_STORE, _REPARTITION, _COUNTS = "streams-0-store-changelog", "streams-0-repartition", "streams-0-counts-changelog"
APPLICATIONS: Final = (
    Application(
        "streams-0",
        {"0": ["topic-0"], "1": ["topic-1"], "2": [_REPARTITION]},
        {"0": _STORE, "2": _COUNTS},
        request_topology(
            subtopology("0", reads=["topic-0"], changelog=[internal_topic(_STORE, cleanup_policy="compact")]),
            subtopology("1", reads=["topic-1"], writes=[_REPARTITION]),
            subtopology(
                "2",
                repartition=[internal_topic(_REPARTITION, cleanup_policy="delete")],
                changelog=[internal_topic(_COUNTS, cleanup_policy="compact")],
            ),
        ),
    ),
    Application(
        "streams-1", {"0": ["topic-2", "topic-3"]}, {}, request_topology(subtopology("0", ["topic-2", "topic-3"]))
    ),
)


def heartbeat_request(
    application: Application, member: Membership, epoch: int, tasks: tuple[Iterable[Task], ...] | None
) -> StreamsGroupHeartbeatRequest:
    """A heartbeat; `tasks`: the active, standby and warm-up ones that it reports, None where it reports nothing."""
    request = StreamsGroupHeartbeatRequest(
        group_id=application.group,
        member_id=member.member_id,
        member_epoch=epoch,
        endpoint_information_epoch=0,
        instance_id=member.instance_id,
    )
    if tasks is not None:
        request.active_tasks, request.standby_tasks, request.warmup_tasks = map(_listed, tasks)
    if epoch == JOINS:
        request.rebalance_timeout_ms = member.rebalance_ms
        request.topology = application.topology
        request.process_id = member.process_id
    return request


def _listed(tasks: Iterable[Task]) -> list[StreamsGroupHeartbeatRequest.TaskIds]:
    by_subtopology: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        by_subtopology.setdefault(subtopology_id, []).append(partition)
    kind = StreamsGroupHeartbeatRequest.TaskIds
    return [kind(subtopology_id=one, partitions=partitions) for one, partitions in by_subtopology.items()]


def tasks_of(listed: Iterable[StreamsGroupHeartbeatResponse.TaskIds] | None) -> set[Task]:
    """The tasks of an answer."""
    return {(one.subtopology_id, partition) for one in listed or () for partition in one.partitions}


def commit_request(group: str, member: Membership, topic: str, partition: int, offset: int) -> OffsetCommitRequest:
    """A member commits an offset."""
    kind = OffsetCommitRequest
    of_partition = kind.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=f"at {offset}"
    )
    return kind(
        group_id=group,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        generation_id_or_member_epoch=member.epoch,
        topics=[kind.OffsetCommitRequestTopic(name=topic, partitions=[of_partition])],
    )
