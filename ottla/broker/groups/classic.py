"""A group of the classic protocol: the requests of its members, and what each of them does (the third layer).

JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, with the behaviour and codes of Kafka 4.1's `ClassicGroup`
and `GroupMetadataManager`. The two layers below are `classic_rebalance.py` (deadlines, generations, and what Ottla does
beyond Kafka) and `classic_stored.py` (the record). Checks that need no group are in `classic_answers.py`.

A group is created by the JoinGroup of a client without a member id. Its first record is an empty group of generation 0.
If a step leaves `is_stored` False, it has changed nothing, and the group need not be kept.

Differences from Kafka, besides those of `classic_rebalance.py`: a protocol that a member names twice counts once (Kafka
fails). A member that is refused for `group.max.size` during a rebalance does not delay it. A static member that is
replaced shows the client id and host of its new run, not of the old one. An id that was assigned to a dynamic member
and is used with an instance id is UNKNOWN_MEMBER_ID, not UNKNOWN_SERVER_ERROR. A refused request creates no group.
Metadata of any bytes is accepted and left to the members (Kafka 4.1 never answers members whose subscription has a
count beyond its end).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.coordination.effects import Effects, Now, Waiter
from ottla.broker.groups.classic_answers import NO_MEMBER_ID, Leaver, LeaveResult, leavers, left
from ottla.broker.groups.classic_member import ClassicMember, ProtocolMetadata, Wait
from ottla.broker.groups.classic_rebalance import Awaited, RebalancingGroup, Step, random_id
from ottla.broker.groups.classic_stored import LOG, NEVER_IDLE_MS, ClassicState
from ottla.broker.groups.group import Caller
from ottla.protocol.api.heartbeat import HeartbeatResponse
from ottla.protocol.api.join_group import join_refused
from ottla.protocol.api.leave_group import LeaveGroupResponse
from ottla.protocol.api.sync_group import sync_refused
from ottla.protocol.errors import ErrorCode
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.protocol.api.heartbeat import HeartbeatRequest
    from ottla.protocol.api.join_group import JoinGroupRequest
    from ottla.protocol.api.leave_group import LeaveGroupRequest
    from ottla.protocol.api.sync_group import SyncGroupRequest

__all__ = ["NEVER_IDLE_MS", "ClassicGroup", "ClassicState", "random_id"]

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_REQUIRED_ID = 4
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9
MAX_ID_PREFIX_CHARACTERS = 8_000
"""The limit of a client id or instance id in a member id, which must fit into a string of the protocol."""
MAX_REASON_CHARACTERS = 255
"""The limit of a client's reason in Ottla's log; Kafka's clients truncate theirs to the same length."""


class _Joining(NamedTuple):
    """A JoinGroup, with its values read once."""

    request: JoinGroupRequest
    protocols: tuple[ProtocolMetadata, ...]
    rebalance_timeout_ms: int
    caller: Caller
    wait: Wait

    @property
    def reason(self) -> str:
        """The client's own words, in a form that is safe for a log."""
        return f"client reason: {(self.request.reason or 'not provided')[:MAX_REASON_CHARACTERS]!r}"


class ClassicGroup(RebalancingGroup):
    """A group of the classic protocol. No request raises for a client's mistake; each reply carries its code."""

    def join(self, request: JoinGroupRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now) -> Effects:
        """A member joins, for the first time or for a rebalance.

        Codes: MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL,
        GROUP_MAX_SIZE_REACHED, REBALANCE_IN_PROGRESS (a later JoinGroup of the same member took its place).
        """
        step = Step(now, Effects())
        joining = _Joining(
            request,
            tuple(ProtocolMetadata(protocol.name, protocol.metadata) for protocol in request.protocols),
            request.rebalance_timeout_ms
            if api_version >= FIRST_VERSION_WITH_REBALANCE_TIMEOUT
            else request.session_timeout_ms,
            caller,
            Wait(waiter, caller.connection, api_version),
        )
        member_id = request.member_id
        if member_id and not self.is_stored:
            self._refuse(step, joining, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        elif not self._has_room_for(member_id):
            self._turn_away(step, joining)
        elif self._state is ClassicState.DEAD:
            self._refuse(step, joining, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._supports(joining):
            self._refuse(step, joining, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not member_id:
            self._join_without_id(step, joining)
        elif member_id in self.roster.pending_joins and request.group_instance_id is None:
            self._add_member(step, joining, member_id)
        else:
            self._join_with_id(step, joining)
        return step.effects

    def _has_room_for(self, member_id: str) -> bool:
        """Kafka's `acceptJoiningMember`. In the join phase only joined members count: the last are refused."""
        roster, max_size = self.roster, self.settings.max_size
        member = roster.members.get(member_id)
        if self._state is ClassicState.PREPARING_REBALANCE:
            return roster.joined_count < max_size or (member is not None and member.join_wait is not None)
        if self._state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            return member is not None or len(roster) < max_size
        return True

    def _turn_away(self, step: Step, joining: _Joining) -> None:
        member = self.roster.members.get(joining.request.member_id)
        self._refuse(step, joining, NO_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if member is not None:
            self._remove(step, member)
        else:
            self.roster.remove(joining.request.member_id)
        self._maybe_complete_join(step)

    def _supports(self, joining: _Joining) -> bool:
        request = joining.request
        if self._state is ClassicState.EMPTY:
            return bool(request.protocol_type and joining.protocols)
        return self.roster.protocol_type == request.protocol_type and self.roster.supports(joining.protocols)

    def _join_without_id(self, step: Step, joining: _Joining) -> None:
        request = joining.request
        if not self.is_stored:
            self._state_since_ms = step.now.wall_ms
            self._write(step.effects, {})
        instance_id = request.group_instance_id
        prefix = joining.caller.client_id if instance_id is None else instance_id
        member_id = f"{prefix[:MAX_ID_PREFIX_CHARACTERS]}-{self._new_id()}"
        if instance_id is not None and instance_id in self.roster.static_ids:
            self._replace_static(step, joining, self.roster.static_ids[instance_id], member_id)
        elif instance_id is None and joining.wait.api_version >= FIRST_VERSION_WITH_REQUIRED_ID:
            forgotten = self.roster.add_pending_join(member_id, joining.caller.connection)
            if forgotten is not None:
                self._deadlines.cancel((Awaited.MEMBER, forgotten))
            self._await(step.now, request.session_timeout_ms, (Awaited.MEMBER, member_id))
            self._refuse(step, joining, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add_member(step, joining, member_id)

    def _add_member(self, step: Step, joining: _Joining, member_id: str) -> None:
        request, caller = joining.request, joining.caller
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=joining.protocols,
            connection=caller.connection,
            is_new=True,
            knows_its_id=bool(request.member_id),
        )
        if not self.roster.members:
            self.roster.protocol_type = request.protocol_type
        self._has_grown = True
        self.roster.add(member)
        self.roster.await_join(member, joining.wait)
        self._await_life(member, step.now)
        self._rebalance_or_complete_join(step, f"{member_id!r} is new; {joining.reason}")

    def _join_with_id(self, step: Step, joining: _Joining) -> None:
        request = joining.request
        refusal = self.roster.refusal(request.member_id, request.group_instance_id)
        if refusal is not None:
            self._refuse(step, joining, request.member_id, refusal)
            return
        member = self.roster.members[request.member_id]
        is_same = joining.protocols == member.protocols
        if self._state is ClassicState.COMPLETING_REBALANCE and is_same:
            # The answer to its first JoinGroup may have been lost.
            self._answer_present_generation(step, joining, member)
        elif self._state is ClassicState.STABLE and is_same and self.roster.leader != member.member_id:
            self._answer_present_generation(step, joining, member)
        else:
            # A leader that joins again wants a new assignment: topics have changed, which its metadata does not show.
            why = "leads and joins again" if is_same else "changes its metadata"
            self._update(step, joining, member)
            self._show_life(member, joining.caller, step.now)
            self._rebalance_or_complete_join(step, f"{member.member_id} {why}; {joining.reason}")

    def _answer_present_generation(self, step: Step, joining: _Joining, member: ClassicMember) -> None:
        self._show_life(member, joining.caller, step.now)
        step.effects.reply(joining.wait.waiter, self._joined(member))

    def _update(self, step: Step, joining: _Joining, member: ClassicMember) -> None:
        """Update a member by its JoinGroup, and let it wait for the next generation."""
        self.roster.update_protocols(member, joining.protocols)
        member.rebalance_timeout_ms = joining.rebalance_timeout_ms
        member.session_timeout_ms = joining.request.session_timeout_ms
        self._park_join(step.effects, member, joining.wait)

    def _replace_static(self, step: Step, joining: _Joining, old_id: str, member_id: str) -> None:
        """The next run of a static member. A stable group stays stable if its protocol does (KIP-345, KIP-814)."""
        roster = self.roster
        member = roster.members[old_id]
        more_bytes = len(member_id) + sum(len(protocol.metadata) for protocol in joining.protocols)
        if self._state is ClassicState.STABLE and not self._fits(self._assignments(), more_bytes):
            LOG.error("group %r: its record with a new run of %r is larger than the log accepts", self.group_id, old_id)
            self._refuse(step, joining, NO_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        leader_before = roster.leader
        self._refuse_join(step.effects, member, old_id, ErrorCode.FENCED_INSTANCE_ID)
        self._refuse_sync(step.effects, member, ErrorCode.FENCED_INSTANCE_ID)
        self._deadlines.cancel((Awaited.MEMBER, old_id))
        roster.rename(member, member_id)
        member.client_id, member.client_host = joining.caller.client_id, joining.caller.client_host
        member.is_new = False
        member.knows_its_id = True
        self._update(step, joining, member)
        self._show_life(member, joining.caller, step.now)
        reason = f"static member {member.group_instance_id!r} is replaced; {joining.reason}"
        if self._state is ClassicState.STABLE and roster.select_protocol() == self.protocol_name:
            LOG.info("group %r stays in generation %d: %s", self.group_id, self.generation_id, reason)
            self._write(step.effects, self._assignments())
            roster.end_join(member)
            self._answer_replaced(step, joining, member, leader_before)
        elif self._state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            # The leader may be assigning partitions to the old id at this moment.
            self._prepare_rebalance(step, reason)
        else:
            self._maybe_complete_join(step)

    def _assignments(self) -> dict[str, bytes]:
        return {member.member_id: member.assignment for member in self.roster.members.values()}

    def _answer_replaced(self, step: Step, joining: _Joining, member: ClassicMember, leader_before: str | None) -> None:
        """A leader must not assign again: version 9 has a field for it; before, its old id is named as leader."""
        answer = self._joined(member)
        if joining.wait.api_version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT:
            answer.skip_assignment = member.member_id == self.roster.leader
        else:
            answer.leader = leader_before or ""
            answer.members = []
        step.effects.reply(joining.wait.waiter, answer)

    def sync(self, request: SyncGroupRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now) -> Effects:
        """A member (the leader) sends the assignment, or waits for its own part.

        Codes: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS.
        """
        step = Step(now, Effects())
        refusal = self._sync_refusal(request)
        if refusal is not None:
            step.effects.reply(waiter, sync_refused(refusal))
            return step.effects
        member = self.roster.members[request.member_id]
        self._show_life(member, caller, now)
        self._end_pending_sync(member)
        if self._state is ClassicState.STABLE:
            step.effects.reply(waiter, self._assigned(member))
            return step.effects
        self._park_sync(step.effects, member, Wait(waiter, caller.connection, api_version))
        if member.member_id == self.roster.leader:
            self._assign({each.member_id: each.assignment for each in request.assignments}, step)
        return step.effects

    def _sync_refusal(self, request: SyncGroupRequest) -> ErrorCode | None:
        if self._state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        refusal = self.roster.refusal(request.member_id, request.group_instance_id)
        if refusal is not None:
            return ErrorCode.UNKNOWN_MEMBER_ID if self._state is ClassicState.EMPTY else refusal
        if request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        for said, known in (
            (request.protocol_type, self.roster.protocol_type),
            (request.protocol_name, self.protocol_name),
        ):
            if said is not None and known is not None and said != known:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self._state is ClassicState.PREPARING_REBALANCE else None

    def _assign(self, assignments: dict[str, bytes], step: Step) -> None:
        """Keep the leader's assignment, and answer all members that wait. A member that it left out gets nothing.

        If the log cannot take it, all get UNKNOWN_SERVER_ERROR, and another rebalance begins (as in Kafka).
        """
        if not self._fits(assignments):
            LOG.error("group %r: its record with this assignment is larger than the log accepts", self.group_id)
            for member in self.roster.members.values():
                if self._refuse_sync(step.effects, member, ErrorCode.UNKNOWN_SERVER_ERROR):
                    self._await_life(member, step.now)
            self._prepare_rebalance(step, "the assignment is too large")
            return
        missing = sum(member_id not in assignments for member_id in self.roster.members)
        if missing:
            LOG.warning("group %r: the leader assigned nothing to %d members", self.group_id, missing)
        self._write(step.effects, assignments)
        for member in self.roster.members.values():
            wait, member.sync_wait = member.sync_wait, None
            if wait is not None:
                step.effects.reply(wait.waiter, self._assigned(member))
                self._await_life(member, step.now)

    def heartbeat(
        self, request: HeartbeatRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now
    ) -> Effects:
        """Record that a member is alive.

        Codes: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        effects = Effects()
        effects.reply(waiter, HeartbeatResponse(error_code=self._take_heartbeat(request, caller, now)))
        return effects

    def _take_heartbeat(self, request: HeartbeatRequest, caller: Caller, now: Now) -> ErrorCode:
        if self._state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        refusal = self.roster.refusal(request.member_id, request.group_instance_id)
        if refusal is not None:
            return refusal
        if request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._show_life(self.roster.members[request.member_id], caller, now)
        is_preparing = self._state is ClassicState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE

    def leave(self, request: LeaveGroupRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now) -> Effects:
        """Members leave, or are removed. Codes, for each: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        step = Step(now, Effects())
        if self._state is ClassicState.DEAD:
            step.effects.reply(waiter, LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return step.effects
        results = [LeaveResult(leaver, self._leave(step, leaver)) for leaver in leavers(request, api_version)]
        step.effects.reply(waiter, left(api_version, results))
        gone = [result.leaver for result in results if result.code is ErrorCode.NONE]
        if gone and self._state is not ClassicState.EMPTY:
            self._rebalance_or_complete_join(step, f"{counted(len(gone), 'member')} left")
        return step.effects

    def _leave(self, step: Step, leaver: Leaver) -> ErrorCode:
        member_id, instance_id = leaver.member_id, leaver.group_instance_id
        if member_id in self.roster.pending_joins:
            self.roster.remove(member_id)
            self._deadlines.cancel((Awaited.MEMBER, member_id))
            return ErrorCode.NONE
        if not member_id and instance_id is not None:  # an administrator names static members by instance id alone
            member_id = self.roster.static_ids.get(instance_id, "")
        refusal = self.roster.refusal(member_id, instance_id)
        if refusal is not None:
            return refusal
        reason = (leaver.reason or "not provided")[:MAX_REASON_CHARACTERS]
        LOG.info("group %r: %r leaves; client reason: %r", self.group_id, member_id, reason)
        self._remove(step, self.roster.members[member_id])
        return ErrorCode.NONE

    def note_commit(self, member_id: str, now: Now) -> None:
        """A commit outside of the sync phase counts as a heartbeat."""
        member = self.roster.members.get(member_id)
        if member is not None and self._state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
            self._await_life(member, now)

    def _show_life(self, member: ClassicMember, caller: Caller, now: Now) -> None:
        member.connection = caller.connection
        self._await_life(member, now)

    def _refuse(self, step: Step, joining: _Joining, member_id: str, code: ErrorCode) -> None:
        wait = joining.wait
        step.effects.reply(wait.waiter, join_refused(wait.api_version, member_id, code))
