"""Members of a consumer group, topics in a dictionary, and a group with a manual clock: what tests of KIP-848 share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID

from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now
from ottla.broker.groups.consumer import ConsumerGroup
from ottla.broker.groups.group import Caller
from ottla.broker.groups.settings import GroupSettings
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import decode_group_record, encode_group_key, encode_group_value

GROUP = "group"
TopicPartitions = ConsumerGroupHeartbeatRequest.TopicPartitions


def topic_uuid(number: int) -> UUID:
    return UUID(int=(0xA << 124) | number)


class FakeTopics:
    """A `TopicView` over a dictionary. A topic that is made again has a new id."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.epoch = 0
        self._ids = count(1)
        self._topics: dict[str, tuple[UUID, int]] = {}
        for name, partitions in (counts or {}).items():
            self.create(name, partitions)

    def create(self, name: str, partitions: int) -> UUID:
        self._topics[name] = (topic_uuid(next(self._ids)), partitions)
        self.epoch += 1
        return self._topics[name][0]

    def grow(self, name: str, partitions: int) -> None:
        self._topics[name] = (self._topics[name][0], partitions)
        self.epoch += 1

    def delete(self, name: str) -> None:
        del self._topics[name]
        self.epoch += 1

    def names(self) -> Iterable[str]:
        return self._topics.keys()

    def exists(self, name: str) -> bool:
        return name in self._topics

    def id_of(self, name: str) -> UUID | None:
        return self._topics[name][0] if name in self._topics else None

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, (known, _) in self._topics.items() if known == topic_id), None)

    def partition_count(self, topic_id: UUID) -> int:
        return next((partitions for known, partitions in self._topics.values() if known == topic_id), 0)


def heartbeat(member_id: str, member_epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=member_epoch, **fields)


def join_request(member_id: str, topics: Iterable[str] | None = None, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    return heartbeat(
        member_id,
        0,
        **{
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": None if topics is None else list(topics),
            "topic_partitions": [],
            **fields,
        },
    )


def through_the_wire(record: CoordinatorRecord) -> CoordinatorRecord:
    """A record as it comes back from the log."""
    key, value = record
    return decode_group_record(encode_group_key(key), None if value is None else encode_group_value(value))


@dataclass
class GroupUnderTest:
    """A group, its clock, and everything that it has asked to be written, in the bytes of the log."""

    topics: FakeTopics
    settings: GroupSettings = field(default_factory=GroupSettings)
    monotonic_ms: float = 0
    records: list[CoordinatorRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.group = self.new_group()

    def new_group(self) -> ConsumerGroup:
        ids = count(1)
        return ConsumerGroup(GROUP, self.settings, self.topics, new_id=lambda: f"generated-{next(ids)}")

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ms, 1_700_000_000_000 + int(self.monotonic_ms))

    def run(self, effects: Effects) -> Any:
        """Keep the records of a step and give its only reply."""
        self.records.extend(through_the_wire(record) for record in effects.records)
        replies = [response for _, response in effects.replies]
        assert len(replies) <= 1
        return replies[0] if replies else None

    def ask(self, request: ConsumerGroupHeartbeatRequest, *, version: int = 1, connection: object = None) -> Any:
        caller = Caller("client", "/127.0.0.1", connection)
        return self.run(self.group.consumer_heartbeat(request, version, caller, "waiter", self.now))

    def accepted(self, request: ConsumerGroupHeartbeatRequest, **ask: Any) -> ConsumerGroupHeartbeatResponse:
        response = self.ask(request, **ask)
        assert isinstance(response, ConsumerGroupHeartbeatResponse), response
        assert response.error_code == ErrorCode.NONE
        return response

    def refused(self, request: ConsumerGroupHeartbeatRequest, **ask: Any) -> ErrorCode:
        records_before = len(self.records)
        response = self.ask(request, **ask)
        assert isinstance(response, KafkaError), response
        assert len(self.records) == records_before, "a refused request must leave the state as it is"
        return response.code

    def pass_time(self, ms: float) -> None:
        """Move the clock, stopping at each deadline on the way."""
        end_ms = self.monotonic_ms + ms
        while (deadline_ms := self.group.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.monotonic_ms = max(self.monotonic_ms, deadline_ms)
            self.run(self.group.on_deadline(self.now))
        self.monotonic_ms = end_ms

    def restart(self) -> None:
        """A new broker that has only the log."""
        self.group = self.new_group()
        for record in self.records:
            self.group.replay(*record)
        self.run(self.group.on_load(self.now))


class Member:
    """A client of the consumer protocol: heartbeats, and revokes when it is asked to (or does not, for a while)."""

    def __init__(
        self, under_test: GroupUnderTest, member_id: str, topics: Iterable[str] | None = None, **fields: Any
    ) -> None:
        self.group = under_test
        self.member_id = member_id
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}
        """What it works on; it gives up first and takes over later."""
        self.assigned: dict[UUID, frozenset[int]] = {}
        """What it was last sent."""
        if topics is None and "subscribed_topic_regex" not in fields:
            topics = ["t"]
        self.fields: dict[str, Any] = {"topics": topics, **fields}

    def join(self) -> Member:
        return self._note(self.group.accepted(join_request(self.member_id, **self.fields)))

    def heartbeat(self, **fields: Any) -> Member:
        """Say that it is alive, and what it owns where that changed."""
        return self._note(self.group.accepted(heartbeat(self.member_id, self.epoch, **fields)))

    def revoke(self) -> None:
        """Give up what it is not to own any more."""
        kept = {topic: self.owned[topic] & self.assigned.get(topic, frozenset()) for topic in self.owned}
        self.owned = {topic: partitions for topic, partitions in kept.items() if partitions}

    def take_over(self) -> None:
        """Begin to work on all that it is to own."""
        self.owned = dict(self.assigned)

    def keep_up(self) -> Member:
        """One turn of a good client: give up, take over, tell."""
        self.revoke()
        self.take_over()
        return self.heartbeat(topic_partitions=owned_structs(self.owned))

    def _note(self, response: ConsumerGroupHeartbeatResponse) -> Member:
        self.epoch = response.member_epoch
        if response.assignment is not None:
            listed = response.assignment.topic_partitions
            self.assigned = {entry.topic_id: frozenset(entry.partitions) for entry in listed}
        return self


def owned_structs(owned: Mapping[UUID, frozenset[int]]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic, partitions=sorted(partitions)) for topic, partitions in owned.items()]


def settle(*members: Member, rounds: int = 8) -> None:
    """Let all keep up until nothing is left to do."""
    for _ in range(rounds):
        for member in members:
            member.keep_up()


def snapshot(group: ConsumerGroup) -> dict[str, object]:
    """The durable state, to be compared."""
    state = group.durable
    return {
        "epochs": (state.group_epoch, state.assignment_epoch, state.metadata_hash),
        "members": state.members,
        "target": {member_id: dict(partitions) for member_id, partitions in state.target.items()},
        "static": state.static_member_ids,
        "resolved": dict(state.subscriptions.resolved),
        "names": state.subscriptions.names(),
    }


__all__ = [
    "GROUP",
    "FakeTopics",
    "GroupUnderTest",
    "Member",
    "heartbeat",
    "join_request",
    "owned_structs",
    "settle",
    "snapshot",
    "through_the_wire",
    "topic_uuid",
]
