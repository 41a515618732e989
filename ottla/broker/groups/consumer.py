"""A group of the consumer protocol (KIP-848): members heartbeat, the broker assigns, each member reconciles by itself.

Surface first; the machine follows in the next commits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.groups.effects import Caller, Effects, GroupRecord, Now, Waiter
from ottla.broker.groups.group import Group, GroupType

if TYPE_CHECKING:
    from ottla.broker.groups.settings import GroupSettings
    from ottla.broker.groups.topics import TopicView
    from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeResponse
    from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from ottla.protocol.api.heartbeat import HeartbeatRequest
    from ottla.protocol.api.join_group import JoinGroupRequest
    from ottla.protocol.api.leave_group import LeaveGroupRequest
    from ottla.protocol.api.sync_group import SyncGroupRequest
    from ottla.protocol.message import Struct


class ConsumerGroup(Group):
    """One group of the consumer protocol; it may have members of the classic protocol too (online migration).

    `downgrade` is set by a step after which only classic members remain (or would remain): the shell then calls
    `conversion.downgrade(group, now)` and puts the group that comes back in this one's place.
    """

    type = GroupType.CONSUMER

    def __init__(
        self, group_id: str, settings: GroupSettings, topics: TopicView, *, new_id: Callable[[], str] | None = None
    ) -> None:
        super().__init__(group_id)
        raise NotImplementedError

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now
    ) -> Effects:
        """ConsumerGroupHeartbeat: join, stay, leave. Refusals are replies; nothing is raised."""
        raise NotImplementedError

    def join(self, request: JoinGroupRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now) -> Effects:
        """JoinGroup of a classic member. Answered at once."""
        raise NotImplementedError

    def sync(self, request: SyncGroupRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now) -> Effects:
        """SyncGroup of a classic member. Answered at once."""
        raise NotImplementedError

    def heartbeat(
        self, request: HeartbeatRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now
    ) -> Effects:
        """Heartbeat of a classic member."""
        raise NotImplementedError

    def leave(self, request: LeaveGroupRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now) -> Effects:
        """LeaveGroup: classic members, and members of any protocol that an administrator removes."""
        raise NotImplementedError

    def on_metadata_change(self, now: Now) -> Effects:
        """Topics came, grew or went."""
        raise NotImplementedError

    def describe(self) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """The group as ConsumerGroupDescribe shows it, without authorized operations."""
        raise NotImplementedError

    @property
    def state(self) -> str:
        """`Empty`, `Assigning`, `Reconciling` or `Stable`."""
        raise NotImplementedError

    @property
    def protocol_type(self) -> str:
        """Always `consumer`."""
        raise NotImplementedError

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        raise NotImplementedError

    @property
    def next_deadline_ms(self) -> float | None:
        """The earliest end of a session or of a member's time to revoke."""
        raise NotImplementedError

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply one of the records 3-8 and 16."""
        raise NotImplementedError

    def on_load(self, now: Now) -> Effects:
        """Sessions begin anew."""
        raise NotImplementedError

    def on_deadline(self, now: Now) -> Effects:
        """Fence members whose time is over."""
        raise NotImplementedError

    def on_disconnect(self, connection: object, now: Now) -> Effects:
        """Shorten the sessions of the members that came by `connection`, where the settings say so."""
        raise NotImplementedError

    def on_unload(self) -> Effects:
        """Nobody waits in this protocol."""
        raise NotImplementedError

    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> None:
        """Raise UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION, UNSUPPORTED_VERSION (OffsetCommit below 9)."""
        raise NotImplementedError

    def note_commit(self, member_id: str, now: Now) -> None:
        """Nothing: in this protocol only heartbeats count."""
        raise NotImplementedError

    def check_fetch_offsets(self, member_id: str | None, member_epoch: int) -> None:
        """Raise UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION."""
        raise NotImplementedError

    def check_delete(self) -> None:
        """Raise NON_EMPTY_GROUP while there are members."""
        raise NotImplementedError

    def is_subscribed_to(self, topic: str) -> bool:
        """By name, or by a regular expression as it was last resolved."""
        raise NotImplementedError

    def tombstones(self) -> list[GroupRecord]:
        """All records of the group, removed."""
        raise NotImplementedError

    def offsets_idle_since_ms(self) -> int | None:
        """None: each offset's own commit time counts."""
        raise NotImplementedError
