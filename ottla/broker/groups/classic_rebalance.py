"""The rebalance of a classic group: how a generation begins, and what happens to late members (the second layer).

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
               ^  members join        leader assigns         |
               +---------- a member joins, leaves, fails ----+

Three things are awaited, each with its deadline: a sign of life of each member (its session), the end of the join
phase, and SyncGroup of every member. A deadline that passes removes late members, so no phase lasts for ever. A member
with a parked JoinGroup continues to wait. Behaviour and codes are those of Kafka's `GroupMetadataManager`. Ottla goes
beyond it in three points:

- A parked request whose connection has ended counts as never sent: its member must send it again within its session
  timeout (a new member that has not received its id cannot, and is removed immediately). Kafka assigns partitions to
  the dead member.
- With `ottla.group.evict.on.disconnect.ms` a dynamic member is removed that long after its connection ended, unless it
  sends a request on another one. Static members are not removed: an instance id lets them survive a restart unnoticed.
- A second JoinGroup or SyncGroup of a member answers the first one, and a member that is removed while its SyncGroup
  is parked is answered UNKNOWN_MEMBER_ID. Kafka answers neither.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from ottla.broker.coordination.deadlines import Deadlines
from ottla.broker.coordination.effects import Effects, Now
from ottla.broker.groups.classic_answers import NO_MEMBER_ID
from ottla.broker.groups.classic_member import NO_BYTES, ClassicMember, Wait
from ottla.broker.groups.classic_stored import LOG, ClassicState, StoredClassicGroup
from ottla.broker.groups.settings import NEVER_EVICT
from ottla.protocol.api.join_group import JoinGroupResponse, join_refused
from ottla.protocol.api.sync_group import SyncGroupResponse, sync_refused
from ottla.protocol.errors import ErrorCode
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.broker.groups.settings import GroupSettings

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a new member's parked JoinGroup keeps it in the group; then its client may have given up (KAFKA-7610)."""
MIN_WAIT_MS = 1
"""No deadline is earlier, whatever timeouts clients request: in a phase of no length no other member could join."""
RETRY_JOIN_MS = 100
"""The shortest time between two checks whether one of the static members that are left has joined."""
_MAX_GENERATION = (1 << 31) - 1


class Step(NamedTuple):
    """One call of the state machine: its time, and its effects."""

    now: Now
    effects: Effects


class Awaited(Enum):
    """The subject of a deadline."""

    MEMBER = auto()
    JOINS = auto()
    SYNCS = auto()


_JOINS = (Awaited.JOINS, "")
_SYNCS = (Awaited.SYNCS, "")


def random_id() -> str:
    """The part of a member id that makes it unique."""
    return str(uuid4())


class RebalancingGroup(StoredClassicGroup):
    """A group with deadlines and parked requests."""

    def __init__(self, group_id: str, settings: GroupSettings, new_id: Callable[[], str] = random_id) -> None:
        super().__init__(group_id, settings)
        self._new_id = new_id
        self._deadlines: Deadlines[tuple[Awaited, str]] = Deadlines()
        self._is_first_rebalance = False
        """Whether the current rebalance began with an empty group; then it may wait for more members."""
        self._has_grown = False
        self._initial_delay_ms = 0
        self._initial_left_ms = 0

    @property
    def next_deadline_ms(self) -> float | None:
        """The latest time for the next call of `on_deadline`."""
        return self._deadlines.next_ms

    def on_load(self, now: Now) -> Effects:
        """Begin every member's session. A group that is now over `group.max.size` rebalances to remove some members."""
        step = Step(now, Effects())
        for member in self.roster.members.values():
            self._await_life(member, now)
        if len(self.roster) > self.settings.max_size:
            self._prepare_rebalance(
                step, f"the group has {counted(len(self.roster), 'member')}, {self.settings.max_size} are allowed"
            )
        return step.effects

    def on_unload(self) -> Effects:
        """Answer every waiter with NOT_COORDINATOR; the group becomes Dead."""
        effects = self.answer_waiters(ErrorCode.NOT_COORDINATOR)
        self._deadlines.clear()
        self._state = ClassicState.DEAD
        return effects

    def answer_waiters(self, code: ErrorCode) -> Effects:
        """Refuse every parked request; members stay. For an unload, and for a change to the other protocol."""
        effects = Effects()
        for member in self.roster.members.values():
            self._refuse_join(effects, member, member.member_id, code)
            self._refuse_sync(effects, member, code)
        return effects

    def rebalance(self, reason: str, now: Now) -> Effects:
        """Begin a rebalance from outside (after a conversion from the consumer protocol), if the group has members."""
        step = Step(now, Effects())
        if self.roster.members and self._state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            self._prepare_rebalance(step, reason)
        return step.effects

    def on_deadline(self, now: Now) -> Effects:
        """Remove late members, and continue without them."""
        step = Step(now, Effects())
        self._run_due(step)
        return step.effects

    def _run_due(self, step: Step) -> None:
        while (due := self._deadlines.take(step.now.monotonic_ms)) is not None:
            awaited, member_id = due
            if awaited is Awaited.MEMBER:
                self._on_member_late(step, member_id)
            elif awaited is Awaited.JOINS:
                self._on_joins_due(step)
            else:
                self._on_syncs_due(step)

    def on_disconnect(self, connection: object, now: Now) -> Effects:
        """Forget requests parked on the connection, and shorten the sessions of its members (see the module)."""
        step = Step(now, Effects())
        roster = self.roster
        evict_ms = self.settings.evict_on_disconnect_ms
        evict_at_ms = None if evict_ms <= NEVER_EVICT else now.monotonic_ms + evict_ms
        if evict_at_ms is not None:
            for member_id, asked_by in roster.pending_joins.items():
                if asked_by is connection:
                    self._deadlines.bring_forward((Awaited.MEMBER, member_id), evict_at_ms)
        lost = [member for member in roster.members.values() if self._forget_waits(member, connection, now)]
        for member in roster.members.values():
            if member.connection is connection:
                member.connection = None
                if evict_at_ms is not None and not member.is_static:
                    self._deadlines.bring_forward((Awaited.MEMBER, member.member_id), evict_at_ms)
        for member in lost:
            if not member.knows_its_id and not member.is_static and member.member_id in roster.members:
                self._remove_and_rebalance(step, member, "its connection ended before it received its id")
        self._run_due(step)
        return step.effects

    def _forget_waits(self, member: ClassicMember, connection: object, now: Now) -> bool:
        """Drop what the member has parked on `connection`, as if it was never sent. Return whether there was any."""
        joins = member.join_wait is not None and member.join_wait.connection is connection
        syncs = member.sync_wait is not None and member.sync_wait.connection is connection
        if joins:
            self.roster.end_join(member)
        if syncs:
            member.sync_wait = None
            self.roster.pending_syncs.add(member.member_id)
        if joins or syncs:  # while it was parked, its session may have expired unnoticed
            self._await(now, member.session_timeout_ms, (Awaited.MEMBER, member.member_id))
        return joins or syncs

    # Rebalances

    def _rebalance_or_complete_join(self, step: Step, reason: str) -> None:
        if self._state is ClassicState.PREPARING_REBALANCE:
            self._maybe_complete_join(step)
        elif self._state is not ClassicState.DEAD:
            self._prepare_rebalance(step, reason)

    def _prepare_rebalance(self, step: Step, reason: str) -> None:
        """Ask every member to join again: in the answer to a parked SyncGroup now, or to its next heartbeat."""
        now, roster = step.now, self.roster
        if self._state is ClassicState.COMPLETING_REBALANCE:
            for member in roster.members.values():
                member.assignment = NO_BYTES
                if self._refuse_sync(step.effects, member, ErrorCode.REBALANCE_IN_PROGRESS):
                    self._await_life(member, now)
        roster.pending_syncs.clear()
        self._deadlines.cancel(_SYNCS)
        self._is_first_rebalance = self._state is ClassicState.EMPTY
        self._enter(ClassicState.PREPARING_REBALANCE, now)
        self.rebalance_reason = reason
        LOG.info("group %r leaves generation %d: %s", self.group_id, self.generation_id, reason)
        if self._is_first_rebalance and self.settings.initial_rebalance_delay_ms > 0:
            self._has_grown = False
            self._initial_delay_ms = self.settings.initial_rebalance_delay_ms
            self._initial_left_ms = max(roster.rebalance_timeout_ms - self._initial_delay_ms, 0)
            self._await(now, self._initial_delay_ms, _JOINS)
        elif self._is_first_rebalance or roster.all_joined:
            self._complete_join(step)
        else:
            self._await(now, roster.rebalance_timeout_ms, _JOINS)

    def _maybe_complete_join(self, step: Step) -> None:
        """End the join phase when all members have joined. A group's first rebalance always waits its full time."""
        if self._state is ClassicState.PREPARING_REBALANCE and not self._is_first_rebalance and self.roster.all_joined:
            self._complete_join(step)

    def _complete_join(self, step: Step) -> None:
        """Begin the next generation with the members that have joined."""
        now, roster = step.now, self.roster
        self._deadlines.cancel(_JOINS)
        late = [member for member in roster.members.values() if member.join_wait is None and not member.is_static]
        for member in late:
            self._remove(step, member)
        if late:
            LOG.info("group %r: %d members did not join in time", self.group_id, len(late))
        if not roster.elect_joined_leader() and roster.members:
            # Static members only, and none has joined: they may still join, or their sessions end.
            self._await(now, max(roster.rebalance_timeout_ms, RETRY_JOIN_MS), _JOINS)
            return
        self.generation_id = 0 if self.generation_id == _MAX_GENERATION else self.generation_id + 1
        self.protocol_name = roster.select_protocol()
        self._subscribed_topics = roster.subscribed_topics(self.protocol_name)
        if not roster.members:
            self._enter(ClassicState.EMPTY, now)
            LOG.info("group %r is empty in generation %d", self.group_id, self.generation_id)
            self._write(step.effects, {})
            return
        self._enter(ClassicState.COMPLETING_REBALANCE, now)
        LOG.info("group %r: %s in generation %d", self.group_id, counted(len(roster), "member"), self.generation_id)
        for member in roster.members.values():
            wait = roster.end_join(member)
            if wait is not None:
                step.effects.reply(wait.waiter, self._joined(member))
                member.knows_its_id = True
            member.is_new = False
            self._await_life(member, now)
        roster.pending_syncs = set(roster.members)
        self._await(now, roster.rebalance_timeout_ms, _SYNCS)

    def _on_joins_due(self, step: Step) -> None:
        if self._state is not ClassicState.PREPARING_REBALANCE:
            return
        if self._is_first_rebalance and self._has_grown and self._initial_left_ms > 0:
            self._has_grown = False
            waited_ms = self._initial_delay_ms
            self._initial_delay_ms = min(self.settings.initial_rebalance_delay_ms, self._initial_left_ms)
            self._initial_left_ms = max(self._initial_left_ms - waited_ms, 0)
            self._await(step.now, self._initial_delay_ms, _JOINS)
        else:
            self._complete_join(step)

    def _on_syncs_due(self, step: Step) -> None:
        """Remove members that have the generation and have not sent SyncGroup for their part of it."""
        late = [member for member in self.roster.members.values() if member.member_id in self.roster.pending_syncs]
        if not late or self._state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            return
        for member in late:
            self._remove(step, member)
        self._prepare_rebalance(step, f"{counted(len(late), 'member')} did not send SyncGroup in time")

    def _end_pending_sync(self, member: ClassicMember) -> None:
        self.roster.pending_syncs.discard(member.member_id)
        if not self.roster.pending_syncs:
            self._deadlines.cancel(_SYNCS)

    # Members

    def _on_member_late(self, step: Step, member_id: str) -> None:
        member = self.roster.members.get(member_id)
        if member is None:
            self._remove_pending_join(step, member_id)
        elif not member.needs_no_heartbeat:
            self._remove_and_rebalance(step, member, "it sent no request within its session timeout")

    def _remove_pending_join(self, step: Step, member_id: str) -> None:
        """Remove the id of a client that was asked to join again with it and has not."""
        self.roster.remove(member_id)
        if self._state is ClassicState.PREPARING_REBALANCE and self.roster.all_joined:
            self._complete_join(step)

    def _remove_and_rebalance(self, step: Step, member: ClassicMember, why: str) -> None:
        self._remove(step, member)
        LOG.info("group %r removed %r: %s", self.group_id, member.member_id, why)
        if self._state is not ClassicState.PREPARING_REBALANCE:
            self._rebalance_or_complete_join(step, f"{member.member_id!r} was removed: {why}")
        elif self.roster.all_joined:
            self._complete_join(step)

    def _remove(self, step: Step, member: ClassicMember) -> None:
        """Remove a member. Its parked requests are answered UNKNOWN_MEMBER_ID, so that a live client joins again."""
        self._refuse_join(step.effects, member, NO_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID)
        self._refuse_sync(step.effects, member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.roster.remove(member.member_id)
        self._deadlines.cancel((Awaited.MEMBER, member.member_id))
        if not self.roster.pending_syncs:
            self._deadlines.cancel(_SYNCS)

    def _await_life(self, member: ClassicMember, now: Now) -> None:
        """Begin its session again; for a new member, the time after which its client must send JoinGroup again."""
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        self._await(now, timeout_ms, (Awaited.MEMBER, member.member_id))

    def _await(self, now: Now, timeout_ms: int, key: tuple[Awaited, str]) -> None:
        self._deadlines.set(key, now.monotonic_ms + max(timeout_ms, MIN_WAIT_MS))

    # Answers

    def _joined(self, member: ClassicMember) -> JoinGroupResponse:
        """The member's answer for the current generation; the leader gets all members."""
        is_leader = member.member_id == self.roster.leader
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.roster.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.roster.leader or "",
            member_id=member.member_id,
            members=self._members_for_leader() if is_leader else [],
        )

    def _members_for_leader(self) -> list[JoinGroupResponse.JoinGroupResponseMember]:
        return [
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.roster.members.values()
        ]

    def _assigned(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.roster.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def _refuse_join(self, effects: Effects, member: ClassicMember, member_id: str, code: ErrorCode) -> bool:
        """Refuse the parked JoinGroup of `member`. Return whether there was one."""
        wait = self.roster.end_join(member)
        if wait is not None:
            effects.reply(wait.waiter, join_refused(wait.api_version, member_id, code))
        return wait is not None

    def _refuse_sync(self, effects: Effects, member: ClassicMember, code: ErrorCode) -> bool:
        """Refuse the parked SyncGroup of `member`. Return whether there was one."""
        wait, member.sync_wait = member.sync_wait, None
        if wait is not None:
            effects.reply(wait.waiter, sync_refused(code))
        return wait is not None

    def _park_join(self, effects: Effects, member: ClassicMember, wait: Wait) -> None:
        self._refuse_join(effects, member, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self.roster.await_join(member, wait)

    def _park_sync(self, effects: Effects, member: ClassicMember, wait: Wait) -> None:
        self._refuse_sync(effects, member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync_wait = wait
