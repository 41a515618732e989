"""A member of a streams group for tests of the client and the commands: raw frames, with a topology of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kit.streams_wire import StreamsWireMember, new_streams_group, subtopology, topic_info, topology
from kit.wire import Wire


@contextmanager
def streams_member(port: int, group_id: str, topic: str, *, partitions: int = 2) -> Iterator[StreamsWireMember]:
    """A member that has all tasks of an application with a store, and leaves at the end.

    Subtopology 0 reads the topic and writes a repartition topic, which subtopology 1 reads and counts.
    """
    with Wire(port) as wire:
        new_streams_group(wire, group_id)
    internal, changelog = f"{group_id}-repartition", f"{group_id}-changelog"
    wanted = topology(
        subtopology("0", topic, repartition_sinks=[internal]),
        subtopology(
            "1",
            repartition_sources=[topic_info(internal)],
            changelogs=[topic_info(changelog, cleanup_policy="compact")],
        ),
    )
    member = StreamsWireMember(port, group_id)
    try:
        member.join(wanted, endpoint=("localhost", 7000))
        member.settle()
        assert member.active == {number: list(range(partitions)) for number in ("0", "1")}
        yield member
        member.heartbeat(-1)
    finally:
        member.close()
