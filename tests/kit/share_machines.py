"""A share group with a manual clock and topics in a dictionary, and its members."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kit.consumer_groups import GROUP, FakeTopics, through_the_wire

from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now
from ottla.broker.groups.group import Caller
from ottla.broker.groups.settings import GroupSettings
from ottla.broker.groups.share_group import ShareGroup
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode, KafkaError


def heartbeat(member_id: str, member_epoch: int, **fields: Any) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=member_epoch, **fields)


@dataclass
class ShareGroupUnderTest:
    """A group, its clock, and everything that it has asked to be written, in the bytes of the log."""

    topics: FakeTopics
    settings: GroupSettings = field(default_factory=GroupSettings)
    monotonic_ms: float = 0
    records: list[CoordinatorRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.group = ShareGroup(GROUP, self.settings, self.topics)

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ms, 1_700_000_000_000 + int(self.monotonic_ms))

    def run(self, effects: Effects) -> Any:
        """Keep the records of a step and give its only reply."""
        self.records.extend(through_the_wire(record) for record in effects.records)
        replies = [response for _, response in effects.replies]
        assert len(replies) <= 1
        return replies[0] if replies else None

    def ask(self, request: ShareGroupHeartbeatRequest, connection: object = None) -> ShareGroupHeartbeatResponse:
        """The answer to a heartbeat. Raises KafkaError."""
        caller = Caller("client", "/127.0.0.1", connection)
        response = self.run(self.group.heartbeat(request, caller, "waiter", self.now))
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def refused(self, request: ShareGroupHeartbeatRequest) -> ErrorCode:
        """The code of a heartbeat that is refused, and has changed nothing."""
        before = (len(self.records), snapshot(self.group))
        try:
            self.ask(request)
        except KafkaError as refusal:
            assert (len(self.records), snapshot(self.group)) == before
            return refusal.code
        raise AssertionError("the heartbeat was accepted")

    def pass_time(self, ms: float) -> None:
        """Move the clock, stopping at each deadline on the way."""
        end_ms = self.monotonic_ms + ms
        while (deadline_ms := self.group.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.monotonic_ms = max(self.monotonic_ms, deadline_ms)
            self.run(self.group.on_deadline(self.now))
        self.monotonic_ms = end_ms

    def restart(self) -> None:
        """A new broker that has only the log."""
        self.group = ShareGroup(GROUP, self.settings, self.topics)
        for record in self.records:
            self.group.replay(*record)
        self.run(self.group.on_load(self.now))


class ShareMemberClient:
    """A client of the protocol: it heartbeats with its newest epoch, and reads from what it was sent last."""

    def __init__(self, under_test: ShareGroupUnderTest, member_id: str, topics: Iterable[str] = ("t",)) -> None:
        self.group = under_test
        self.member_id = member_id
        self.epoch = 0
        self.assigned: dict[UUID, frozenset[int]] = {}
        self.topics = list(topics)

    def join(self) -> ShareMemberClient:
        self.epoch = 0
        return self.note(self.group.ask(heartbeat(self.member_id, 0, subscribed_topic_names=self.topics)))

    def heartbeat(self, **fields: Any) -> ShareMemberClient:
        return self.note(self.group.ask(heartbeat(self.member_id, self.epoch, **fields)))

    def leave(self) -> ShareGroupHeartbeatResponse:
        return self.group.ask(heartbeat(self.member_id, -1))

    def note(self, response: ShareGroupHeartbeatResponse) -> ShareMemberClient:
        """Take over what an answer says."""
        assert response.member_id == self.member_id
        self.epoch = response.member_epoch
        if response.assignment is not None:
            listed = response.assignment.topic_partitions
            self.assigned = {entry.topic_id: frozenset(entry.partitions) for entry in listed}
        return self

    @property
    def size(self) -> int:
        """How many partitions it reads from."""
        return sum(map(len, self.assigned.values()))


def snapshot(group: ShareGroup) -> dict[str, object]:
    """The durable state, to be compared."""
    state = group.durable
    return {
        "epochs": (state.group_epoch, state.assignment_epoch, state.metadata_hash),
        "members": dict(state.members),
        "target": {member_id: dict(partitions) for member_id, partitions in state.target.items()},
        "topics": dict(state.topics),
    }
