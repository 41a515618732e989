"""The partitions that the members of a streams group read: those of their active tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client import Admin, GroupDescription, MemberDescription, TopicPartition

STREAMS = "streams"
"""The type of streams groups."""


async def with_partitions(admin: Admin, group: GroupDescription) -> GroupDescription:
    """The same group, whose members have the partitions assigned that their active tasks read."""
    from ottla.client import TopicPartition

    if group.topology is None or not group.members:
        return group
    reads = {one.subtopology_id: one.topics_read for one in group.topology.subtopologies}
    existing = sorted({topic for topics in reads.values() for topic in topics} & {*await admin.list_topics()})
    described = await admin.describe_topics(existing) if existing else {}
    counts = {name: len(topic.partitions) for name, topic in described.items()}

    def read(member: MemberDescription) -> list[TopicPartition]:
        tasks = member.streams.tasks.active if member.streams is not None else []
        return sorted(
            TopicPartition(topic, task.partition)
            for task in tasks
            for topic in reads.get(task.subtopology_id, ())
            if task.partition < counts.get(topic, 0)
        )

    return replace(group, members=[replace(member, assignment=read(member)) for member in group.members])
