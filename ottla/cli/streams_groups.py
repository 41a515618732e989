"""What `ottla groups` knows of a streams group: its tasks, its internal topics.

Its committed offsets are those of any group: `reset` and `delete` need nothing else. Kafka cannot remove its members.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cli.failures import Failure
from ottla.cli.tables import NONE
from ottla.diagnosis.streams_partitions import STREAMS

if TYPE_CHECKING:
    from ottla.client import Admin, GroupDescription, MemberDescription, StreamsTask, StreamsTopology

SESSION_KEY = "streams.session.timeout.ms"


async def require_no_streams_group(admin: Admin, group: GroupDescription | None) -> None:
    """Raise Failure if the group is a streams group: Kafka has no request that removes its members."""
    from ottla.client import ConfigResource, KafkaError

    if group is None or group.group_type != STREAMS:
        return
    resource = ConfigResource.group(group.group_id)
    try:
        entry = (await admin.describe_configs([resource], keys=[SESSION_KEY]))[resource].get(SESSION_KEY)
    except KafkaError:  # the answer is the same without
        entry = None
    value = entry.value if entry is not None else None
    after = f" after {int(value) / 1000:g} s" if value is not None and value.isdecimal() else ""
    raise Failure(
        f"{group.group_id} is a streams group, and Kafka cannot remove members of streams groups: stop the "
        f"application. A member that is dead is removed{after} ({SESSION_KEY})"
    )


def task_rows(group: GroupDescription, name_of: Callable[[MemberDescription], str]) -> list[tuple[object, ...]]:
    """A row for each member of a streams group: its name, its process, and its active, standby and warm-up tasks."""
    rows: list[tuple[object, ...]] = []
    for member in group.members:
        if (streams := member.streams) is not None:
            tasks = streams.tasks
            lists = (tasks.active, tasks.standby, tasks.warmup)
            rows.append((name_of(member), streams.process_id, *(_named(some) for some in lists)))
    return rows


TASK_HEADINGS = ("member", "process", "active", "standby", "warm-up")


def _named(tasks: list[StreamsTask]) -> str:
    return " ".join(map(str, tasks)) or NONE


def topology_rows(topology: StreamsTopology) -> list[tuple[object, ...]]:
    """A row for each subtopology: what it reads, what it writes for others, and its changelogs."""
    return [
        (
            one.subtopology_id,
            " ".join(one.topics_read) or NONE,
            " ".join(one.repartition_sink_topics) or NONE,
            " ".join(topic.name for topic in one.state_changelog_topics) or NONE,
        )
        for one in topology.subtopologies
    ]


TOPOLOGY_HEADINGS = ("subtopology", "reads", "repartitions to", "changelogs")
