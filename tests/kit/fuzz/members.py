"""Members that know how to behave: requests that get far into the coordinator, for hostile ones to meet.

A few members of a few groups, of both protocols. What an answer gave a member (id, generation or epoch, assignment) it
says the next time; sometimes it says something else.
"""

from __future__ import annotations

import random

from kit.fuzz.vocabulary import TOPICS

from ottla.protocol.api import ApiKey
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.message import Request, Response, encode

GROUPS = ("classic", "modern", "g")
NAMES = ("m1", "m2", "m3")
STRATEGIES = ("range", "cooperative-sticky", "roundrobin")


class Members:
    """What the members know."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._epochs: dict[str, int] = {}
        self._owned: dict[str, list[ConsumerGroupHeartbeatResponse.TopicPartitions]] = {}
        self._joined: list[tuple[str, str, int]] = []
        """(group, member, generation) of the classic protocol, newest last."""
        self._asked_group = ""

    def request(self, version_of: dict[ApiKey, tuple[int, int]]) -> tuple[ApiKey, int, Request]:
        """The next request of one of them, at one of its versions."""
        chance = self._chance
        key = chance.choice(
            (ApiKey.CONSUMER_GROUP_HEARTBEAT,) * 5 + (ApiKey.JOIN_GROUP,) * 4
            + (ApiKey.SYNC_GROUP,) * 3 + (ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT)
        )  # fmt: skip
        version = chance.randint(*version_of[key])
        self._asked_group = group = chance.choice(GROUPS)
        if key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
            return key, version, self._heartbeat(group, version)
        if key == ApiKey.JOIN_GROUP:
            return key, version, self._join(group, version)
        group, member, generation = self._classic(group)
        if key == ApiKey.SYNC_GROUP:
            return key, version, self._sync(group, member, generation)
        if key == ApiKey.HEARTBEAT:
            return key, version, HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        if key == ApiKey.LEAVE_GROUP:
            if version < 3:
                return key, version, LeaveGroupRequest(group_id=group, member_id=member)
            leaving = [LeaveGroupRequest.MemberIdentity(member_id=member)]
            return key, version, LeaveGroupRequest(group_id=group, members=leaving)
        committed = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=chance.choice((0, 1)), committed_offset=chance.choice((0, 1, 5)), committed_metadata="m"
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=chance.choice(TOPICS), partitions=[committed])
        commit = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=[topic]
        )
        return key, version, commit

    def learn(self, answer: Response) -> None:
        """Remember what it tells a member."""
        if isinstance(answer, ConsumerGroupHeartbeatResponse) and answer.member_id is not None:
            if not answer.error_code:
                self._epochs[answer.member_id] = answer.member_epoch
                if answer.assignment is not None:
                    self._owned[answer.member_id] = answer.assignment.topic_partitions
            else:
                self._epochs.pop(answer.member_id, None)
        elif isinstance(answer, JoinGroupResponse) and answer.member_id:
            self._joined.append((self._asked_group, answer.member_id, answer.generation_id))
            del self._joined[:-6]

    def _heartbeat(self, group: str, version: int) -> ConsumerGroupHeartbeatRequest:
        chance = self._chance
        member = chance.choice((*NAMES, *self._epochs)) if version else chance.choice(("", *self._epochs))
        epoch = self._epochs.get(member, 0)
        if chance.random() < 0.15:
            epoch = chance.choice((0, -1, -2, epoch + 1, epoch - 1, 99))
        is_full = epoch == 0 or chance.random() < 0.4
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)
        if epoch == -2 or chance.random() < 0.1:
            request.instance_id = chance.choice(("static-1", "static-2"))
        if is_full:
            request.rebalance_timeout_ms = chance.choice((1_000, 30_000))
            request.subscribed_topic_names = chance.sample(TOPICS, chance.randint(0, len(TOPICS)))
            request.topic_partitions = []
            request.server_assignor = chance.choice(("uniform", "range", None))
            if version and chance.random() < 0.4:
                request.subscribed_topic_regex = chance.choice(("p.*", ".*", "(plain|old)", ""))
        if epoch > 0 and chance.random() < 0.7:
            owned = self._owned.get(member, [])
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                for each in owned[: chance.randint(0, len(owned))]
            ]
        return request

    def _join(self, group: str, version: int) -> JoinGroupRequest:
        chance = self._chance
        known = [member for asked, member, _ in self._joined if asked == group]
        subscription_version = chance.randint(0, 3)
        subscription = ConsumerProtocolSubscription(topics=chance.sample(TOPICS, 2), user_data=None)
        metadata = subscription_version.to_bytes(2, "big") + encode(subscription, subscription_version)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=chance.choice((6_000, 10_000)),
            member_id=chance.choice(known) if known and chance.random() < 0.7 else "",
            protocol_type="consumer",
            protocols=[
                protocol(name=name, metadata=metadata) for name in chance.sample(STRATEGIES, chance.randint(1, 3))
            ],
        )
        if version:
            request.rebalance_timeout_ms = chance.choice((1_000, 20_000))
        if version >= 5 and chance.random() < 0.2:
            request.group_instance_id = chance.choice(("static-1", "static-2"))
        return request

    def _sync(self, group: str, member: str, generation: int) -> SyncGroupRequest:
        partitions = ConsumerProtocolAssignment.TopicPartition(topic="plain", partitions=[0, 1])
        assignment = b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=[partitions], user_data=None), 0)
        given = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=assignment)
            for each in {member, *(one for asked, one, _ in self._joined if asked == group)}
        ]
        return SyncGroupRequest(group_id=group, generation_id=generation, member_id=member, assignments=given)

    def _classic(self, group: str) -> tuple[str, str, int]:
        if not self._joined:
            return group, "", -1
        group, member, generation = self._chance.choice(self._joined)
        if self._chance.random() < 0.1:
            generation += self._chance.choice((-1, 1))
        return group, member, generation
