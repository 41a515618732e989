"""The members of a group of the classic protocol, their leader, and the protocol that all of them support.

The bookkeeping of Kafka's `ClassicGroup`, without time, states or replies. Invariants:

- `leader` is a member, or None when there are no members (a record read from disk may break that until the next join);
- `joined_count` is the number of members with a parked JoinGroup;
- every pending join is the id of a client that is not yet a member: it was asked to join again with that id (KIP-394);
- every pending sync is a member that has not sent SyncGroup in this generation.

Only the group's state machine may call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ottla.broker.groups.classic_member import ClassicMember, ProtocolMetadata, Wait, protocol_names
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla.protocol.message import decode

CONSUMER_PROTOCOL_TYPE = "consumer"
MAX_PENDING_JOINS = 10_000
"""The limit of assigned ids not yet used. Beyond it the oldest is forgotten, and its client asks for another."""
_VERSION_BYTES = 2


class Roster:
    """Members by id, in the order in which they joined."""

    def __init__(self) -> None:
        self.members: dict[str, ClassicMember] = {}
        self.static_ids: dict[str, str] = {}
        """The member id of each instance id."""
        self.pending_joins: dict[str, object] = {}
        """Assigned ids that are not yet used, with the connection of the client that received them."""
        self.pending_syncs: set[str] = set()
        self.leader: str | None = None
        self.protocol_type: str | None = None
        self.joined_count = 0
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.members)

    @property
    def all_joined(self) -> bool:
        """Whether every member has a parked JoinGroup, and no client is still expected to join again with its id."""
        return len(self.members) == self.joined_count and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def refusal(self, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
        """The reason why this is no member of the group: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID; None when it is one."""
        if group_instance_id is not None:
            owner = self.static_ids.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: ClassicMember) -> None:
        """Add a new member; the first one becomes the leader."""
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id
        self._supporters.update(protocol_names(member.protocols))
        self.pending_joins.pop(member.member_id, None)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member or a pending join; None when it was no member. The caller must answer its waits first.

        Raises AssertionError if it still has one, since that would never be answered.
        """
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        assert member.join_wait is None
        assert member.sync_wait is None
        self._count_out(member)
        instance_id = member.group_instance_id
        if instance_id is not None and self.static_ids.get(instance_id) == member_id:
            del self.static_ids[instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Let the next run of a static member replace `member`, including its leadership, under its own id."""
        old_id = member.member_id
        # Its place in the order is kept: assignors assign partitions in the order of the members.
        self.members = {member_id if key == old_id else key: each for key, each in self.members.items()}
        member.member_id = member_id
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(member_id)

    def update_protocols(self, member: ClassicMember, protocols: tuple[ProtocolMetadata, ...]) -> None:
        """Replace the protocols that a member supports."""
        self._count_out(member)
        member.protocols = protocols
        self._supporters.update(protocol_names(protocols))

    def await_join(self, member: ClassicMember, wait: Wait) -> None:
        """Park the JoinGroup of a member that has none parked."""
        assert member.join_wait is None
        member.join_wait = wait
        self.joined_count += 1

    def end_join(self, member: ClassicMember) -> Wait | None:
        """Remove and return the parked JoinGroup, to be answered or forgotten; None when none is parked."""
        wait, member.join_wait = member.join_wait, None
        if wait is not None:
            self.joined_count -= 1
        return wait

    def add_pending_join(self, member_id: str, connection: object) -> str | None:
        """Remember an id that was assigned; return the id that had to be forgotten for it."""
        forgotten = None
        if len(self.pending_joins) >= MAX_PENDING_JOINS:
            forgotten = next(iter(self.pending_joins))
            del self.pending_joins[forgotten]
        self.pending_joins[member_id] = connection
        return forgotten

    def elect_joined_leader(self) -> bool:
        """Elect a leader that has joined, the previous one if possible. False when no member has joined."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join_wait is None:
            joined = next((member for member in self.members.values() if member.join_wait is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def supports(self, protocols: Iterable[ProtocolMetadata]) -> bool:
        """Whether all members support one of `protocols`."""
        return any(self._supporters[protocol.name] == len(self.members) for protocol in protocols)

    def select_protocol(self) -> str | None:
        """The protocol with the most votes of those that all members support; of equals the one voted for first."""
        count = len(self.members)
        candidates = {name for name, supporters in self._supporters.items() if supporters == count}
        votes = Counter(vote for member in self.members.values() if (vote := member.vote(candidates)) is not None)
        return max(votes, key=votes.__getitem__) if votes else None

    def subscribed_topics(self, protocol_name: str | None) -> frozenset[str] | None:
        """The topics that members of a consumer group subscribe to; None when that is not known.

        It is not known for another protocol type, nor when any member's metadata is no consumer subscription (Kafka's
        `computeSubscribedTopics`). Each is read as version 0, with which all versions begin.
        """
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        topics: set[str] = set()
        for member in self.members.values():
            blob = member.metadata(protocol_name)
            try:
                if len(blob) < _VERSION_BYTES:
                    return None
                topics.update(decode(ConsumerProtocolSubscription, blob, 0, _VERSION_BYTES).topics)
            except MalformedMessage:
                return None
        return frozenset(topics)

    def _count_out(self, member: ClassicMember) -> None:
        for name in protocol_names(member.protocols):
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]
