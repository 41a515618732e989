"""A group of the consumer protocol (KIP-848): members heartbeat, the broker assigns, each member reconciles by itself.

There are three epochs. The *group epoch* grows when members or topics change. The *assignment epoch* is the group epoch
for which the target was computed. A *member epoch* shows how far that member has moved to the target. A heartbeat does
everything that is possible in one step: what the member reports is stored, the target is computed again if the group
epoch has grown, and the member takes its next step (`consumer_step.py`). No member waits for another, so every request
is answered in its step.

This file, `consumer_heartbeats.py` and `classic_in_consumer.py` are one class in three files and import each other: the
functions of the other two are long methods of `ConsumerGroup`, and take it as a parameter.

Durable state is `durable`; sessions and connections are soft. The behaviour, the codes and the records are those of
Kafka 4.4's `GroupMetadataManager` and `ConsumerGroup`, with exceptions: expressions (`consumer_step.py`), targets that
are computed immediately, and the early removal of members whose connection breaks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now, Waiter
from ottla.broker.groups import classic_in_consumer, consumer_heartbeats
from ottla.broker.groups.consumer_checks import check_commit_epoch, check_fetch_epoch, check_heartbeat
from ottla.broker.groups.consumer_description import describe_group
from ottla.broker.groups.consumer_member import (
    NOT_GIVEN,
    ConsumerMember,
    MemberState,
)
from ottla.broker.groups.consumer_records import group_tombstones, member_record
from ottla.broker.groups.consumer_state import ConsumerState
from ottla.broker.groups.consumer_step import ConsumerStep, TopicWatch
from ottla.broker.groups.group import Caller, GroupType, PartitionCheck
from ottla.broker.groups.member_timers import Limit
from ottla.broker.groups.modern_group import ModernGroup
from ottla.broker.groups.target_assignment import preferred_assignor
from ottla.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import encode_group_key, encode_group_value
from ottla.storage.formats.kafka_uuid import random_uuid, uuid_to_text

if TYPE_CHECKING:
    from ottla.broker.groups.settings import GroupSettings
    from ottla.broker.groups.topics import TopicView
    from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeResponse
    from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from ottla.protocol.api.heartbeat import HeartbeatRequest
    from ottla.protocol.api.join_group import JoinGroupRequest
    from ottla.protocol.api.leave_group import LeaveGroupRequest
    from ottla.protocol.api.sync_group import SyncGroupRequest
    from ottla.protocol.message import Response

LOG = logging.getLogger("ottla.groups")
DOWNGRADE_POLICIES = ("bidirectional", "downgrade")


def random_member_id() -> str:
    """A member id for a client that did not choose one: a UUID in Kafka's text format."""
    return uuid_to_text(random_uuid())


class Downgrade(NamedTuple):
    """A planned conversion to a classic group: without `leaving`, with a rebalance unless the target is complete."""

    leaving: frozenset[str]
    rebalances: bool


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """One group of the consumer protocol; it may have members of the classic protocol too (online migration).

    A step sets `downgrade` when only classic members remain (or would remain) after it. The shard then calls
    `conversion.downgrade(group, now)` and replaces this group with the returned one.
    """

    type = GroupType.CONSUMER
    durable: ConsumerState

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        topics: TopicView,
        *,
        new_id: Callable[[], str] = random_member_id,
    ) -> None:
        super().__init__(group_id, settings, topics)
        self.new_id = new_id
        self.durable = ConsumerState(group_id)
        self.downgrade: Downgrade | None = None
        self._watch = TopicWatch()

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now
    ) -> Effects:
        """ConsumerGroupHeartbeat: join, stay, leave. Refusals are replies; nothing is raised."""
        try:
            check_heartbeat(request, api_version, self.settings.consumer_assignors)
            return consumer_heartbeats.answer(self, request, caller, waiter, now)
        except KafkaError as error:
            return self.answer(waiter, error)

    def join(self, request: JoinGroupRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now) -> Effects:
        """JoinGroup of a classic member. Answered immediately."""
        return classic_in_consumer.join(self, request, api_version, caller, waiter, now)

    def sync(self, request: SyncGroupRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now) -> Effects:
        """SyncGroup of a classic member. Answered immediately."""
        return classic_in_consumer.sync(self, request, waiter, now)

    def heartbeat(
        self, request: HeartbeatRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now
    ) -> Effects:
        """Heartbeat of a classic member."""
        return classic_in_consumer.heartbeat(self, request, caller, waiter, now)

    def leave(self, request: LeaveGroupRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now) -> Effects:
        """LeaveGroup: of classic members, and of members of either protocol that an administrator removes."""
        return classic_in_consumer.leave(self, request, api_version, waiter, now)

    def describe(self) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """The group as ConsumerGroupDescribe shows it, without authorized operations."""
        return describe_group(
            self.durable, self.topics, preferred_assignor(self.durable, self.settings.consumer_assignors)
        )

    @property
    def protocol_type(self) -> str:
        """Always `consumer`."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def next_deadline_ms(self) -> float | None:
        """The earliest end of a session, or of a member's time to revoke, to join again or to sync."""
        return self.timers.next_ms

    def on_load(self, now: Now) -> Effects:
        """Begin all sessions again, and the time of members that have partitions to give up."""
        for member in self.durable.members.values():
            self.begin_session(member, now)
            self.time_revocation(member, now)
        return Effects()

    def on_deadline(self, now: Now) -> Effects:
        """Fence members whose time has passed."""
        due = self.timers.pop_due(now.monotonic_ms)
        for member_id, limit in due.items():
            LOG.info("group %r: member %r is fenced: %s", self.group_id, member_id, limit.value)
        return self.remove([member_id for member_id in due if member_id in self.durable.members], now)

    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> PartitionCheck | None:
        """Raise UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION, UNSUPPORTED_VERSION (OffsetCommit < 9)."""
        if generation_or_epoch < 0 and self.is_empty:
            return None
        says_nothing = generation_or_epoch == NOT_GIVEN and not member_id and group_instance_id is None
        if is_transactional and says_nothing:
            return None
        return check_commit_epoch(
            self.member_of(member_id), generation_or_epoch, commit_version=None if is_transactional else api_version
        )

    def check_fetch_offsets(self, member_id: str | None, member_epoch: int) -> None:
        """Raise UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION; never where no member is named."""
        if member_id is not None or member_epoch >= 0:
            check_fetch_epoch(self.member_of(member_id or ""), member_epoch)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members subscribe to it by name, or by a regular expression as it was last matched."""
        return self.durable.subscriptions.includes(topic)

    def tombstones(self) -> list[CoordinatorRecord]:
        """The tombstones of all records of the group."""
        return group_tombstones(self.durable)

    def offsets_idle_since_ms(self) -> int | None:
        """None: each offset's own commit time counts."""
        return None

    # Also needed by the classic protocol's part and the conversions.

    def begin_step(self, now: Now, may_see: Callable[[str], bool] | None = None) -> ConsumerStep:
        """A step on the durable state. Nothing may be refused once it has written. `may_see`: the topics that the
        heartbeat's member may know of.
        """
        return ConsumerStep(self.durable, self.settings, self.topics, self._watch, now, may_see)

    def answer(self, waiter: Waiter, response: Response | KafkaError) -> Effects:
        """A step without records."""
        effects = Effects()
        effects.reply(waiter, response)
        return effects

    def static_member_of(self, instance_id: str, member_id: str | None) -> ConsumerMember:
        """The member with an instance id; it has to be `member_id`, unless that is None.

        Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        member = self.durable.member_of_instance(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member_id is not None and member.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    def check_room(self, member_id: str) -> None:
        """Raise GROUP_MAX_SIZE_REACHED for one member too many."""
        most = self.settings.consumer_max_size
        if len(self.durable.members) >= most and member_id not in self.durable.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def check_size(self, member: ConsumerMember) -> None:
        """Raise UNKNOWN_SERVER_ERROR, as Kafka does, for a member whose records the log would not accept.

        A member's own metadata may take half of a record, so that its assignment has room beside its id.
        """
        key, value = member_record(self.group_id, member)
        assert value is not None
        size_bytes = len(encode_group_key(key)) + len(encode_group_value(value))
        if size_bytes > self.settings.record_max_bytes // 2:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the member's record would have {size_bytes} bytes, which is too large"
            )

    def begin_session(self, member: ConsumerMember, now: Now) -> None:
        """Begin the member's session again, after a sign of life."""
        if member.classic is None:
            timeout_ms = self.settings.consumer_session_timeout_ms_of(self.group_id)
        else:
            timeout_ms = member.classic.session_timeout_ms
        self.timers.start(member.member_id, Limit.SESSION, now.monotonic_ms + timeout_ms)

    def await_join(self, member: ConsumerMember, now: Now) -> None:
        """Begin the time in which a classic member must join again."""
        self.timers.start_if_absent(member.member_id, Limit.JOIN, now.monotonic_ms + member.rebalance_timeout_ms)

    def remove(self, member_ids: Collection[str], now: Now) -> Effects:
        """Members leave, or are fenced: their partitions become free, and a new epoch begins.

        If only classic members would stay, the group is planned to become a classic one instead, without these members.
        """
        if not member_ids:
            return Effects()
        if self.plan_downgrade(leaving=frozenset(member_ids), rebalances=True):
            return Effects()
        step = self.begin_step(now)
        step.remove_members(member_ids)
        for member_id in member_ids:
            self.timers.forget(member_id)
        return step.effects

    def plan_downgrade(self, *, leaving: frozenset[str], rebalances: bool) -> bool:
        """Set `downgrade` if all but `leaving` are classic members, and the policy and the sizes allow it."""
        staying = [member for member_id, member in self.durable.members.items() if member_id not in leaving]
        if not staying or not all(member.uses_classic_protocol for member in staying):
            return False
        is_allowed = self.settings.consumer_migration_policy in DOWNGRADE_POLICIES
        size_bytes = classic_in_consumer.classic_record_bytes(self, staying)
        if not is_allowed or len(staying) > self.settings.max_size or size_bytes > self.settings.record_max_bytes:
            LOG.info("group %r: cannot become a classic group by the policy or its size", self.group_id)
            return False
        self.downgrade = Downgrade(leaving, rebalances)
        return True

    def time_revocation(self, member: ConsumerMember, now: Now, since: ConsumerMember | None = None) -> None:
        """Begin the `rebalance_timeout_ms` of a member to give up partitions, from the answer that asks for it."""
        if member.classic is not None or member.state is not MemberState.UNREVOKED_PARTITIONS:
            self.timers.cancel(member.member_id, Limit.REVOCATION)
        elif since is None or (since.member_epoch, since.pending_revocation) != (
            member.member_epoch,
            member.pending_revocation,
        ):
            self.timers.start(member.member_id, Limit.REVOCATION, now.monotonic_ms + member.rebalance_timeout_ms)
