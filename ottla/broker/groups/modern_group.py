"""What the groups of consumers, share consumers and streams have in common: members heartbeat, and no request waits.

Kafka calls the first two modern groups. In all three the durable state has the members, and `MemberTimers` their
deadlines. Committing offsets extends no session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ottla.broker.coordination.effects import Effects, Now
from ottla.broker.groups.group import Group
from ottla.broker.groups.member_timers import Limit, MemberTimers
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.groups.settings import GroupSettings
    from ottla.broker.groups.topics import TopicView
    from ottla.protocol.message import Struct


class ModernMember(Protocol):
    """A member of any of these groups."""

    @property
    def instance_id(self) -> str | None:
        """The instance id of a static member, else None."""


MemberT = TypeVar("MemberT", bound=ModernMember)


class ModernState(Protocol[MemberT]):
    """The durable state of any of these groups."""

    members: dict[str, MemberT]

    @property
    def name(self) -> str:
        """The name of the state, as ListGroups shows it."""

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply a record."""


class ModernGroup(Group, Generic[MemberT]):
    """One group; see the module."""

    durable: ModernState[MemberT]

    def __init__(self, group_id: str, settings: GroupSettings, topics: TopicView) -> None:
        super().__init__(group_id)
        self.settings = settings
        self.topics = topics
        self.timers = MemberTimers()

    @property
    def state(self) -> str:
        """The name of the durable state."""
        return self.durable.name

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.durable.members

    def member_of(self, member_id: str) -> MemberT:
        """The member of this id. Raises UNKNOWN_MEMBER_ID."""
        member = self.durable.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply a record of this group to the durable state."""
        self.durable.replay(key, value)

    def on_disconnect(self, connection: object, now: Now) -> Effects:
        """Shorten the sessions of the members whose last request came on `connection`, if that is configured.

        Static members keep theirs: an instance id promises that the member returns.
        """
        evict_ms = self.settings.evict_on_disconnect_ms
        for member_id in self.timers.members_of(connection):
            member = self.durable.members.get(member_id)
            if evict_ms >= 0 and member is not None and member.instance_id is None:
                self.timers.start_if_earlier(member_id, Limit.SESSION, now.monotonic_ms + evict_ms)
        return self.on_deadline(now) if evict_ms == 0 else Effects()

    def on_unload(self) -> Effects:
        """No replies: no request waits."""
        return Effects()

    def note_commit(self, member_id: str, now: Now) -> None:
        """Do nothing: only heartbeats extend a session."""

    def check_delete(self) -> None:
        """Raise NON_EMPTY_GROUP while there are members."""
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
