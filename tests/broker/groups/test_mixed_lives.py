"""Lives of groups in which members of both protocols come and go, commits, deletions and crashes, at random.

A group moves from the classic protocol to the consumer protocol and back meanwhile. Whatever happens, no partition has
two owners, no answer is UNKNOWN_SERVER_ERROR, and a crash gives back what was settled before it.
"""

from __future__ import annotations

import random
from typing import cast

import pytest
from kit.clock import ManualClock
from kit.group_requests import begin, commit_request, join_request, make_topic
from kit.nodes import ask, pass_time, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.groups.classic import ClassicGroup
from ottla.broker.groups.consumer import ConsumerGroup
from ottla.broker.groups.group import Group, GroupType
from ottla.broker.groups.shard import GroupShard
from ottla.broker.node import Node
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.api.delete_groups import DeleteGroupsRequest
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.join_group import JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.errors import ErrorCode

Life = tuple[Node, SimulatedFiles, ManualClock]

TOPICS = ("t", "u", "v")
STEPS = 250
NO_ASSIGNMENT = b"\0\0\0\0\0\0\xff\xff\xff\xff"
WHO_IS_GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


def code_of(pending: Pending[object]) -> int:
    """The code of an answer, wherever it says it."""
    if pending.error is not None:
        return int(getattr(pending.error, "code"))  # noqa: B009  # a handler fails with nothing but a KafkaError
    code = int(getattr(pending.response, "error_code"))  # noqa: B009  # every response here has one
    assert code != ErrorCode.UNKNOWN_SERVER_ERROR
    return code


class ConsumerMember:
    """A member of the consumer protocol that owns whatever it was last assigned."""

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id, self.instance_id = member_id, instance_id
        self.forget()

    def forget(self) -> None:
        self.epoch = 0
        self.owned: list[ConsumerGroupHeartbeatRequest.TopicPartitions] = []

    def act(self, node: Node, group: str, chance: random.Random) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self.epoch and chance.random() < 0.15:
            request.member_epoch = -2 if self.instance_id and chance.random() < 0.5 else -1
        else:
            request.topic_partitions = self.owned
            request.subscribed_topic_names = chance.choice([None, ["t"], ["u", "v"]])
            request.subscribed_topic_regex = chance.choice([None, None, "t|u", ".*", ""])
        if request.member_epoch == 0:
            request.rebalance_timeout_ms = 5_000
            request.subscribed_topic_names = request.subscribed_topic_names or ["t", "u"]
        pending = begin(node, request, 1)
        node.settle()
        if code_of(pending) != ErrorCode.NONE or request.member_epoch < 0:
            self.forget()
            return
        reported = cast("ConsumerGroupHeartbeatResponse", pending.response)
        self.epoch = reported.member_epoch
        if reported.assignment is not None:
            self.owned = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=one.topic_id, partitions=one.partitions)
                for one in reported.assignment.topic_partitions
            ]


class ClassicMember:
    """A member of the classic protocol; as leader it gives nobody anything."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.waiting: Pending[object] | None = None
        self.joined: JoinGroupResponse | None = None
        self.is_assigned = False

    def reconnect(self) -> None:
        """The broker has restarted: answers of before will never come."""
        self.waiting = self.joined = None
        self.is_assigned = False

    def act(self, node: Node, group: str, chance: random.Random) -> None:
        if self.waiting is not None:
            if self.waiting.done:
                self._answered(self.waiting)
        elif self.joined is None:
            request = join_request(group, self.member_id, instance_id=self.instance_id)
            request.protocols[0].metadata = b"\0\1\0\0\0\1\0\1" + chance.choice(TOPICS).encode() + bytes(8)
            self.waiting = begin(node, request, 5)
        elif not self.is_assigned:
            assignments = [
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=one.member_id, assignment=NO_ASSIGNMENT)
                for one in self.joined.members
            ]
            request_ = SyncGroupRequest(
                group_id=group,
                generation_id=self.joined.generation_id,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                assignments=assignments,
            )
            self.waiting = begin(node, request_, 3)
        elif chance.random() < 0.12:
            leaver = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            begin(node, LeaveGroupRequest(group_id=group, members=[leaver]), 4)
            self.member_id = ""
            self.reconnect()
        else:
            beat = HeartbeatRequest(
                group_id=group,
                generation_id=self.joined.generation_id,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
            self.waiting = begin(node, beat, 4)

    def _answered(self, pending: Pending[object]) -> None:
        self.waiting = None
        code, answer = code_of(pending), pending.response
        if isinstance(answer, JoinGroupResponse) and code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
            self.joined = answer if code == ErrorCode.NONE else None
        elif code != ErrorCode.NONE:
            self.reconnect()
            if code in WHO_IS_GONE:
                self.member_id = ""
        else:
            assert isinstance(answer, (SyncGroupResponse, HeartbeatResponse))
            self.is_assigned = True


def start(files: SimulatedFiles | None = None, clock: ManualClock | None = None) -> Life:
    return start_node(
        files,
        clock,
        ottla_acks_all="sync",
        offsets_retention_minutes=60,
        group_consumer_migration_policy="bidirectional",
    )


def shard_of(node: Node) -> GroupShard:
    """The only one: one partition holds all groups here."""
    (shard,) = node.services.groups.get().shards.active()
    return shard


def durable(group: Group, shard: GroupShard) -> tuple[object, ...]:
    """All of a group that a restart must not change."""
    offsets = shard.offsets.of(group.group_id)
    if isinstance(group, ConsumerGroup):
        state = group.durable
        return offsets, state.group_epoch, state.assignment_epoch, state.members, state.target
    assert isinstance(group, ClassicGroup)
    if group.state not in ("Stable", "Empty"):
        return (offsets,)  # a rebalance is soft, as in Kafka: members find out and join again
    members = {member.member_id: (member.group_instance_id, member.assignment) for member in group.members.values()}
    return offsets, group.generation_id, members


def check_owners(shard: GroupShard) -> None:
    for group in shard.groups.values():
        if not isinstance(group, ConsumerGroup):
            continue
        owners: dict[tuple[object, int], str] = {}
        for member in group.durable.members.values():
            for partitions in (member.assigned, member.pending_revocation):
                for topic_id, indexes in partitions.items():
                    for index in indexes:
                        assert owners.setdefault((topic_id, index), member.member_id) == member.member_id


@pytest.mark.parametrize("seed", range(12))
def test_members_of_both_protocols_and_crashes(seed: int) -> None:
    chance = random.Random(seed)
    node, files, clock = start()
    for topic in TOPICS:
        make_topic(node, topic, 3)
    members: list[tuple[str, ConsumerMember | ClassicMember]] = []
    for group in ("a", "b"):
        members += [(group, ConsumerMember(f"{group}{n}", f"i{n}" if n == 2 else None)) for n in range(3)]
        members += [(group, ClassicMember(f"j{n}" if n == 0 else None)) for n in range(3)]
    begin(node, commit_request("x", {0: 1}), 8)
    node.settle()

    kinds: set[GroupType] = set()
    for _ in range(STEPS):
        what = chance.random()
        if what < 0.62:
            group, member = chance.choice(members)
            member.act(node, group, chance)
        elif what < 0.68:
            offsets = {chance.randrange(3): chance.randrange(100)}
            begin(node, commit_request(chance.choice("abxy"), offsets, topic=chance.choice(TOPICS)), 8)
        elif what < 0.70:
            begin(node, DeleteGroupsRequest(groups_names=[chance.choice("abxy")]), 2)
        elif what < 0.72:
            topic = chance.choice(TOPICS)
            if topic in node.services.catalog.topics:
                ask(node, DeleteTopicsRequest(topic_names=[topic], timeout_ms=1_000), 5)
            else:
                make_topic(node, topic, chance.randint(1, 5))
        elif what < 0.91:
            node.settle()
        elif what < 0.96:
            pass_time(node, clock, chance.choice([100, 1_000, 3_000]))
        elif what < 0.965:
            pass_time(node, clock, 7_200_000, step_ms=600_000)
        else:
            node.settle()
            before = shard_of(node)
            files = files.crash(chance)
            node, _, _ = start(files, clock)
            node.settle()
            while node.services.groups.get().loads_under_way:
                node.run_due()
                node.settle()
            after = shard_of(node)
            for group_id in before.groups.keys() | after.groups.keys():
                was, found = before.groups.get(group_id), after.groups.get(group_id)
                assert was is not None
                if found is None:
                    assert isinstance(was, ClassicGroup)
                    assert not was.is_stored
                else:
                    expected = durable(was, before)
                    assert durable(found, after)[: len(expected)] == expected
            for _, member in members:
                if isinstance(member, ClassicMember) and member.waiting is not None:
                    member.reconnect()
        check_owners(shard_of(node))
        kinds |= {group.type for group in shard_of(node).groups.values()}
    assert kinds == {GroupType.CLASSIC, GroupType.CONSUMER}
