"""A group as JSON: what `ottla groups describe --json` prints, and the console shows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.diagnosis.group_facts import GroupView

if TYPE_CHECKING:
    from ottla.client import GroupDescription, MemberDescription, StreamsTopology, TopicPartition
    from ottla.diagnosis.share_facts import ShareView


def view_to_json(group_id: str, view: GroupView | ShareView) -> dict[str, object]:
    """A group in full: its members with their assignments, and its partitions with their lag."""
    group = view.description
    return {
        "group": group_id,
        "state": group.state if group is not None else None,
        "type": group.group_type if group is not None else None,
        "assignor": group.assignor if group is not None else None,
        "coordinator": group.coordinator.node_id if group is not None else None,
        "members": _members_to_json(group),
        **({"topology": topology_to_json(group.topology)} if group is not None and group.topology is not None else {}),
        "partitions": _partitions_to_json(view) if isinstance(view, GroupView) else _shared_to_json(view),
    }


def _members_to_json(group: GroupDescription | None) -> list[dict[str, object]]:
    return [
        {
            "member": member.member_id,
            "instance": member.group_instance_id,
            "client": member.client_id,
            "host": member.host.lstrip("/"),
            "topics": member.topics,
            "pattern": member.pattern,
            "assignment": [list(partition) for partition in member.assignment],
            **streams_to_json(member),
        }
        for member in (group.members if group is not None else [])
    ]


def _partitions_to_json(view: GroupView) -> list[dict[str, object]]:
    partitions: list[dict[str, object]] = []
    for partition in view.partitions:
        committed, end, lag = offsets_of(view, partition)
        owner = view.owners.get(partition)
        partitions.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": committed,
                "metadata": view.committed[partition].metadata if partition in view.committed else None,
                "end": end,
                "lag": lag,
                "member": owner.member_id if owner is not None else None,
            }
        )
    return partitions


def _shared_to_json(view: ShareView) -> list[dict[str, object]]:
    partitions: list[dict[str, object]] = []
    for partition in view.partitions:
        start_offset, end, lag = view.place(partition)
        partitions.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start_offset": start_offset,
                "end": end,
                "lag": lag,
                "members": [member.member_id for member in view.readers.get(partition, ())],
            }
        )
    return partitions


def offsets_of(view: GroupView, partition: TopicPartition) -> tuple[int | None, int | None, int | None]:
    """The committed offset, the end of the log, and the lag; None if there is none."""
    committed = view.committed[partition].offset if partition in view.committed else None
    edges = view.edges.get(partition)
    if edges is None or committed is None:
        return committed, edges.end if edges is not None else None, None
    return committed, edges.end, max(0, edges.end - committed)


def streams_to_json(member: MemberDescription) -> dict[str, object]:
    """What a member of a streams group has beside what all members have."""
    streams = member.streams
    if streams is None:
        return {}
    return {
        "process": streams.process_id,
        "active": [str(task) for task in streams.tasks.active],
        "standby": [str(task) for task in streams.tasks.standby],
        "warmup": [str(task) for task in streams.tasks.warmup],
    }


def topology_to_json(topology: StreamsTopology) -> dict[str, object]:
    """The topology of a streams group."""
    return {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "subtopology": one.subtopology_id,
                "reads": one.topics_read,
                "repartitions_to": one.repartition_sink_topics,
                "changelogs": [topic.name for topic in one.state_changelog_topics],
            }
            for one in topology.subtopologies
        ],
    }
