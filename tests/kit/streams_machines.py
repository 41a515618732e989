"""A streams group with a manual clock and topics in a dictionary, and its members."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kit.consumer_groups import GROUP, FakeTopics, through_the_wire

from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now
from ottla.broker.groups.group import Caller
from ottla.broker.groups.settings import GroupSettings
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.broker.groups.streams.settings import StreamsSettings
from ottla.broker.groups.streams.tasks import NO_TASK_SETS, TaskSets, from_ids
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode, KafkaError

Request = StreamsGroupHeartbeatRequest
BEGIN_MS = 1_700_000_000_000
REBALANCE_TIMEOUT_MS = 30_000


def subtopology(
    subtopology_id: str,
    sources: Iterable[str] = (),
    *,
    repartitions: Iterable[str] = (),
    sinks: Iterable[str] = (),
    changelogs: Iterable[str] = (),
) -> Request.Subtopology:
    """A part of a topology, without copartition groups."""

    def infos(names: Iterable[str]) -> list[Request.TopicInfo]:
        return [Request.TopicInfo(name=name, partitions=0, replication_factor=0, topic_configs=[]) for name in names]

    return Request.Subtopology(
        subtopology_id=subtopology_id,
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=infos(changelogs),
        repartition_sink_topics=list(sinks),
        repartition_source_topics=infos(repartitions),
        copartition_groups=[],
    )


def topology(*subtopologies: Request.Subtopology, epoch: int = 0) -> Request.Topology:
    return Request.Topology(epoch=epoch, subtopologies=list(subtopologies))


PLAIN = topology(subtopology("0", ["t"]))
"""A topology without internal topics: one task for each partition of `t`."""
STATEFUL = topology(subtopology("0", ["t"], changelogs=["log"]))
"""The same with a store, whose changelog is `log`."""


def ids(tasks: dict[str, Iterable[int]]) -> list[Request.TaskIds]:
    return [Request.TaskIds(subtopology_id=one, partitions=sorted(tasks[one])) for one in sorted(tasks)]


def heartbeat(member_id: str, member_epoch: int, **fields: Any) -> Request:
    fields.setdefault("endpoint_information_epoch", 0)
    return Request(group_id=GROUP, member_id=member_id, member_epoch=member_epoch, **fields)


def joining(member_id: str, **fields: Any) -> Request:
    usual: dict[str, Any] = {
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        "topology": PLAIN,
        "process_id": f"process-{member_id}",
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }
    return heartbeat(member_id, 0, **{**usual, **fields})


@dataclass
class StreamsGroupUnderTest:
    """A group, its clock, and everything that it has asked to be written, in the bytes of the log.

    Assignments follow each other at once unless `streams` says otherwise.
    """

    topics: FakeTopics
    streams: StreamsSettings = field(default_factory=lambda: StreamsSettings(assignment_interval_ms=0))
    evict_on_disconnect_ms: int = -1
    record_max_bytes: int = 1 << 20
    monotonic_ms: float = 0
    wall_offset_ms: int = BEGIN_MS
    records: list[CoordinatorRecord] = field(default_factory=list)
    batches: list[list[CoordinatorRecord]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = GroupSettings(
            streams=lambda _: self.streams,
            evict_on_disconnect_ms=self.evict_on_disconnect_ms,
            record_max_bytes=self.record_max_bytes,
        )
        self.group = StreamsGroup(GROUP, self.settings, self.topics)

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ms, self.wall_offset_ms + int(self.monotonic_ms))

    @property
    def state(self) -> str:
        return self.group.state

    def run(self, effects: Effects) -> Any:
        """Keep the records of a step and give its only reply."""
        written = [through_the_wire(record) for record in effects.records]
        self.records.extend(written)
        if written:
            self.batches.append(written)
        replies = [response for _, response in effects.replies]
        assert len(replies) <= 1
        return replies[0] if replies else None

    def ask(self, request: Request, version: int = 1, connection: object = None) -> StreamsGroupHeartbeatResponse:
        """The answer to a heartbeat. Raises KafkaError."""
        caller = Caller("client", "/127.0.0.1", connection)
        response = self.run(self.group.heartbeat(request, version, caller, "waiter", self.now))
        assert isinstance(response, StreamsGroupHeartbeatResponse)
        return response

    def refused(self, request: Request) -> KafkaError:
        """The error of a heartbeat that is refused, and has changed nothing."""
        before = (len(self.records), snapshot(self.group))
        try:
            self.ask(request)
        except KafkaError as refusal:
            assert (len(self.records), snapshot(self.group)) == before
            return refusal
        raise AssertionError("the heartbeat was accepted")

    def refusal(self, request: Request) -> ErrorCode:
        return self.refused(request).code

    def pass_time(self, ms: float) -> None:
        """Move the clock, stopping at each deadline on the way."""
        end_ms = self.monotonic_ms + ms
        while (deadline_ms := self.group.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.monotonic_ms = max(self.monotonic_ms, deadline_ms)
            self.run(self.group.on_deadline(self.now))
        self.monotonic_ms = end_ms

    def restart(self, records: list[CoordinatorRecord] | None = None) -> None:
        """A new broker that has only the log, or only these records of it."""
        self.group = StreamsGroup(GROUP, self.settings, self.topics)
        for record in self.records if records is None else records:
            self.group.replay(*record)
        self.run(self.group.on_load(self.now))


class StreamsMemberClient:
    """A client of the protocol: it heartbeats with its newest epoch, and has the tasks that it was sent last.

    It takes new tasks at once, and reports them with the next heartbeat; `is_slow` keeps those that it is to give up.
    """

    def __init__(self, under_test: StreamsGroupUnderTest, member_id: str, **fields: Any) -> None:
        self.group = under_test
        self.member_id = member_id
        self.fields = fields
        self.epoch = 0
        self.endpoint_epoch = 0
        self.tasks = NO_TASK_SETS
        self.statuses: list[int] = []
        self.is_slow = False

    def join(self) -> StreamsMemberClient:
        self.tasks = NO_TASK_SETS
        return self.note(self.group.ask(joining(self.member_id, **self.fields)))

    def heartbeat(self, **fields: Any) -> StreamsMemberClient:
        return self.note(self.group.ask(self.request(**fields)))

    def request(self, **fields: Any) -> Request:
        """A heartbeat that reports what it has."""
        reported = {
            "active_tasks": ids(dict(self.tasks.active)),
            "standby_tasks": ids(dict(self.tasks.standby)),
            "warmup_tasks": ids(dict(self.tasks.warmup)),
            "endpoint_information_epoch": self.endpoint_epoch,
        }
        if "instance_id" in self.fields:
            reported["instance_id"] = self.fields["instance_id"]
        return heartbeat(self.member_id, self.epoch, **{**reported, **fields})

    def leave(self, epoch: int = -1) -> StreamsGroupHeartbeatResponse:
        instance_id = self.fields.get("instance_id")
        return self.group.ask(heartbeat(self.member_id, epoch, instance_id=instance_id))

    def note(self, response: StreamsGroupHeartbeatResponse) -> StreamsMemberClient:
        """Take over what an answer says."""
        assert response.member_id == self.member_id
        self.epoch = response.member_epoch
        self.endpoint_epoch = response.endpoint_information_epoch
        self.statuses = [status.status_code for status in response.status or ()]
        sent = (response.active_tasks, response.standby_tasks, response.warmup_tasks)
        assert len({one is None for one in sent}) == 1
        if response.active_tasks is not None and not self.is_slow:
            self.tasks = TaskSets(*(from_ids(one or ()) for one in sent))
        return self

    @property
    def active(self) -> set[tuple[str, int]]:
        """Its active tasks."""
        return {(one, partition) for one, partitions in self.tasks.active.items() for partition in partitions}

    @property
    def standby(self) -> set[tuple[str, int]]:
        """Its standby tasks."""
        return {(one, partition) for one, partitions in self.tasks.standby.items() for partition in partitions}


def settle(members: Iterable[StreamsMemberClient], rounds: int = 4) -> None:
    """Let members heartbeat in turn until all have what they are to have."""
    listed = list(members)
    for _ in range(rounds):
        for member in listed:
            member.heartbeat()


def snapshot(group: StreamsGroup) -> dict[str, object]:
    """The durable state, to be compared."""
    state = group.durable
    return {
        "epochs": (state.group_epoch, state.assignment_epoch, state.validated_topology_epoch),
        "hash": state.metadata_hash,
        "settings": dict(state.assignment_settings),
        "assigned at": state.assigned_at_ms,
        "topology": state.topology,
        "members": dict(state.members),
        "static": dict(state.static_member_ids),
        "target": dict(state.target),
    }
