"""A group of the classic protocol as its record describes it: generation, protocol, leader, members, assignments.

The first of three layers: stored state (here), rebalances (`classic_rebalance.py`), members' requests (`classic.py`).
One record holds the whole group, and the newest counts. It is written when the leader has assigned, when the last
member has left, when a static member is replaced in a stable group, and when a group is created. In between the group
has only soft state, so a restart during a rebalance falls back to the previous generation, as in Kafka.

`replay` applies a record in the same way while the broker runs and at load. While the broker runs it finds the members
that the record names and sets their assignments; at load it creates them, each with the one protocol of the group.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from ottla.broker.groups.classic_member import NO_BYTES, ClassicMember, ProtocolMetadata
from ottla.broker.groups.classic_roster import CONSUMER_PROTOCOL_TYPE, Roster
from ottla.broker.groups.group import Group, GroupType, PartitionCheck
from ottla.protocol.api.describe_groups import DescribeGroupsResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import GroupMetadataKey, GroupMetadataValue, encode_group_value

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now
    from ottla.broker.groups.settings import GroupSettings
    from ottla.protocol.message import Struct

LOG = logging.getLogger("ottla.groups.classic")

NEVER_IDLE_MS = (1 << 63) - 1
"""`offsets_idle_since_ms` of a group whose offsets must not expire now: later than any wall time."""
NO_TIMESTAMP = -1


class ClassicState(Enum):
    """The states of Kafka's `ClassicGroupState`, by the names that ListGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class StoredClassicGroup(Group):
    """The durable state of a group, and the questions that it answers."""

    type = GroupType.CLASSIC

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        super().__init__(group_id)
        self.settings = settings
        self.roster = Roster()
        self.generation_id = 0
        self.protocol_name: str | None = None
        self.is_stored = False
        """Whether there is a record of the group. A group that has none after a request can be forgotten."""
        self.rebalance_reason = ""
        """Why the last rebalance since the start began; for people."""
        self._state = ClassicState.EMPTY
        self._state_since_ms: int | None = None
        self._subscribed_topics: frozenset[str] | None = None

    @property
    def state(self) -> str:
        """`Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable` or `Dead`."""
        return self._state.value

    @property
    def protocol_type(self) -> str:
        """The protocol type of the first member since the group was last empty: `consumer`, `connect`, ..."""
        return self.roster.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        """Whether its state is Empty or Dead (a group whose first members are about to join is not)."""
        return self._state in (ClassicState.EMPTY, ClassicState.DEAD)

    @property
    def members(self) -> Mapping[str, ClassicMember]:
        """The members by id. To be read, not changed."""
        return self.roster.members

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that a consumer group reads; None if not known (another protocol type, malformed metadata)."""
        return self._subscribed_topics

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Take over the state of the record; a tombstone makes the group Dead."""
        if value is None:
            self.roster = Roster()
            self.is_stored = False
            self._state = ClassicState.DEAD
            return
        assert isinstance(value, GroupMetadataValue)
        roster = self.roster
        roster.protocol_type = value.protocol_type or None
        stored = {member.member_id: member for member in value.members}
        for member_id in [known for known in roster.members if known not in stored]:
            roster.remove(member_id)
        for each in stored.values():
            self._replay_member(each, value.protocol)
        roster.members = {member_id: roster.members[member_id] for member_id in stored}
        roster.leader = value.leader
        self.generation_id = value.generation
        self.protocol_name = value.protocol
        self.is_stored = True
        self._state = ClassicState.STABLE if stored else ClassicState.EMPTY
        since_ms = value.current_state_timestamp
        self._state_since_ms = None if since_ms == NO_TIMESTAMP else since_ms
        self._subscribed_topics = roster.subscribed_topics(value.protocol)

    def _replay_member(self, stored: GroupMetadataValue.MemberMetadata, protocol_name: str | None) -> None:
        subscription = ProtocolMetadata(protocol_name or "", stored.subscription)
        rebalance_timeout_ms = stored.rebalance_timeout
        if rebalance_timeout_ms == -1:  # version 0 of the record has none
            rebalance_timeout_ms = stored.session_timeout
        member = self.roster.members.get(stored.member_id)
        if member is None:
            self.roster.add(
                ClassicMember(
                    member_id=stored.member_id,
                    group_instance_id=stored.group_instance_id,
                    client_id=stored.client_id,
                    client_host=stored.client_host,
                    rebalance_timeout_ms=rebalance_timeout_ms,
                    session_timeout_ms=stored.session_timeout,
                    protocols=(subscription,),
                    assignment=stored.assignment,
                )
            )
            return
        member.client_id = stored.client_id
        member.client_host = stored.client_host
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = stored.session_timeout
        member.assignment = stored.assignment
        if subscription not in member.protocols:
            self.roster.update_protocols(member, (subscription,))

    def _write(self, effects: Effects, assignments: Mapping[str, bytes]) -> None:
        """Request the record of this generation, and take over its state: Stable, or Empty without members."""
        key, value = GroupMetadataKey(group=self.group_id), self._record(assignments)
        effects.records.append((key, value))
        self.replay(key, value)

    def _fits(self, assignments: Mapping[str, bytes], more_bytes: int = 0) -> bool:
        """Whether the log accepts the record of this generation, `more_bytes` longer than it is now."""
        size_bytes = len(self.group_id.encode()) + len(encode_group_value(self._record(assignments)))
        return size_bytes + more_bytes <= self.settings.record_max_bytes

    def _record(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.roster.leader,
            current_state_timestamp=NO_TIMESTAMP if self._state_since_ms is None else self._state_since_ms,
            members=[
                member.stored(self.protocol_name, assignments.get(member.member_id, NO_BYTES))
                for member in self.roster.members.values()
            ],
        )

    def _enter(self, state: ClassicState, now: Now) -> None:
        self._state = state
        self._state_since_ms = now.wall_ms

    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> PartitionCheck | None:
        """Kafka's `ClassicGroup.validateOffsetCommit`.

        Raises KafkaError: COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        REBALANCE_IN_PROGRESS (a member that has the new generation but not yet its assignment).
        """
        if self._state is ClassicState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_or_epoch < 0 and self._state is ClassicState.EMPTY:
            return None  # an admin client, or a consumer that assigns its partitions itself
        if generation_or_epoch >= 0 or member_id or group_instance_id is not None:
            refusal = self.roster.refusal(member_id, group_instance_id)
            if refusal is not None:
                raise KafkaError(refusal)
            if generation_or_epoch != self.generation_id:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional:  # old transactional producers name no member, so they may commit into any group
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not is_transactional and self._state is ClassicState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def check_fetch_offsets(self, member_id: str | None, member_epoch: int) -> None:
        """Every client may read offsets, as long as the group exists. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        self._check_alive()

    def check_delete(self) -> None:
        """Raises KafkaError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        self._check_alive()
        if self._state is not ClassicState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def _check_alive(self) -> None:
        if self._state is ClassicState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {self.group_id!r} is dead")

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members use `topic`. A consumer group whose subscriptions cannot be read may use every topic."""
        if self._subscribed_topics is None:
            return self.roster.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self._subscribed_topics

    def tombstones(self) -> list[CoordinatorRecord]:
        """The one record that removes the group."""
        return [(GroupMetadataKey(group=self.group_id), None)]

    def offsets_idle_since_ms(self) -> int | None:
        """The time since which it is empty; None for a stable consumer group and for one that only keeps offsets.

        `NEVER_IDLE_MS` while nothing may expire: during a rebalance, and as long as it is not known what members use.
        """
        if self.roster.protocol_type is None:
            return None
        if self._state is ClassicState.EMPTY:
            return self._state_since_ms
        if self._subscribed_topics is not None and self._state is ClassicState.STABLE:
            return None
        return NEVER_IDLE_MS

    def describe(self) -> DescribeGroupsResponse.DescribedGroup:
        """As DescribeGroups shows it: protocol and metadata only of a stable group."""
        is_stable = self._state is ClassicState.STABLE
        protocol_name = self.protocol_name if is_stable else None
        return DescribeGroupsResponse.DescribedGroup(
            group_id=self.group_id,
            group_state=self.state,
            protocol_type=self.protocol_type,
            protocol_data=protocol_name or "",
            members=[
                DescribeGroupsResponse.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(protocol_name) if is_stable else NO_BYTES,
                    member_assignment=member.assignment,
                )
                for member in self.roster.members.values()
            ],
        )
