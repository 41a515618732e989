"""A simulated member of a streams group: a program that joins, heartbeats, gives up and takes tasks, and commits
offsets of what it reads. It leaves, falls asleep while another program takes its place, loses its connection, and makes
mistakes.

A program has one request under way at a time. What the answers may say is in `streams_model.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kit.simulator.commits import CommitModel
from kit.simulator.members import SESSION_TIMEOUT_MS
from kit.simulator.model import Violation
from kit.simulator.streams_model import Membership, StreamsGroupModel
from kit.simulator.streams_requests import (
    COMMIT_VERSION,
    HEARTBEAT_VERSION,
    JOINS,
    LEAVES,
    LEAVES_FOR_A_WHILE,
    Task,
    commit_request,
    heartbeat_request,
    tasks_of,
)

from ottla.protocol.api.offset_commit import OffsetCommitResponse
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.simulator.clients import Line

LOST: Final = 0.1
"""How often a program loses its connection while it waits for an answer."""
REBALANCE_TIMEOUTS_MS: Final = (20_000, SESSION_TIMEOUT_MS)
MOST_ASLEEP: Final = 4
"""Of one group."""
OUT: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
"""The broker does not have the member as it says."""
STALE: Final = (*OUT, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)


class StreamsMember:
    """See the module. `line` is given anew for each life of the broker, and after each loss of a connection."""

    def __init__(
        self, group: StreamsGroupModel, chance: random.Random, process_id: str, instance_id: str | None
    ) -> None:
        self.group = group
        self._chance = chance
        self._process_id = process_id
        self._instance_id = instance_id
        self.line: Line
        self.new_line: Callable[[], Line]
        self._life = 0
        self.is_waiting = False
        self.member = self._new_program()

    def _new_program(self, member_id: str = "") -> Membership:
        return Membership(
            member_id or str(UUID(int=self._chance.getrandbits(128))),
            self._process_id,
            self._instance_id,
            self._chance.choice(REBALANCE_TIMEOUTS_MS),
        )

    # -- its connection -----------------------------------------------------------------------------------------------

    def reconnect(self) -> None:
        """The broker has restarted: answers of before will never come."""
        self._life += 1
        if self.is_waiting:
            self.member.is_sure = False
        self.is_waiting = False

    def begin_again(self) -> None:
        """Its machine has lost its power."""
        self.group.end(self.member)
        self.member = self._new_program(self.member.member_id if self._chance.random() < 0.5 else "")

    def lose_connection(self) -> None:
        """Another one begins."""
        self.line.end()
        self.reconnect()
        self.line = self.new_line()

    # -- what it does -------------------------------------------------------------------------------------------------

    def act(self) -> None:
        """One request, if none is under way."""
        if self.is_waiting:
            if self._chance.random() < LOST:
                self.lose_connection()
            return
        what = self._chance.random()
        if self.member.epoch == JOINS or what < 0.55:
            self.heartbeat(gives_up=self._chance.random() < 0.7, reports=self._chance.random() < 0.5)
        elif what < 0.8:
            self._commit(self.member, self._drawn_task(self.member))
        elif what < 0.83:
            self.leave()
        elif what < 0.86:
            self._fall_asleep()
        elif what < 0.91:
            self._wake_another()
        elif what < 0.96:
            self._claim_another_epoch()
        else:
            self._act_as_former()

    def heartbeat(self, *, gives_up: bool = True, reports: bool = True) -> None:
        """Join, or begin the session again. `gives_up`: tasks that its last assignment does not have any more are
        given up; `reports`: its tasks are in the request, even if they have not changed.
        """
        member, group = self.member, self.group
        is_changed = bool(gives_up and (member.has - member.assigned or member.replicas != member.assigned_replicas))
        if gives_up:
            group.give_up(member, member.has - member.assigned)
            member.replicas = set(member.assigned_replicas)
        epoch = member.epoch
        reported: tuple[set[Task], ...] | None = (set(member.has), set(member.replicas), set())
        if epoch != JOINS and member.is_sure and not (reports or is_changed):
            reported = None
        sent_ms, newest = group.now_ms, group.newest_epoch()
        if member.unsettled_ms is None and epoch != JOINS:
            member.unsettled_ms = sent_ms
        life, self.is_waiting = self._life, True

        def answered(response: Response) -> None:
            assert isinstance(response, StreamsGroupHeartbeatResponse)
            if life == self._life:
                self.is_waiting = False
                self._take(response, epoch, sent_ms, newest, has_reported=reported is not None)

        self.line.send(heartbeat_request(group.application, member, epoch, reported), HEARTBEAT_VERSION, answered)

    def _take(
        self, answer: StreamsGroupHeartbeatResponse, epoch: int, sent_ms: float, newest: int, *, has_reported: bool
    ) -> None:
        member, group = self.member, self.group
        code = answer.error_code
        if code == ErrorCode.NONE:
            group.epoch_answered(member, answer.member_epoch, newest)
            if epoch == JOINS:
                group.members.append(member)
            member.epoch, member.alive_ms = answer.member_epoch, sent_ms
            member.is_sure, member.may_be_gone = True, False
            if answer.active_tasks is not None:
                member.assigned, member.assigned_replicas = (
                    tasks_of(answer.active_tasks),
                    tasks_of(answer.standby_tasks),
                )
                group.give(member, member.assigned)
                member.replicas |= member.assigned_replicas
            if has_reported and member.has == member.assigned and member.replicas == member.assigned_replicas:
                member.unsettled_ms = None
        elif code in OUT:
            if member.is_certain(group.now_ms):
                raise Violation(
                    f"{group}: {ErrorCode.of(code).name} for {member.member_id} at epoch {epoch}, as it was answered"
                )
            group.end(member)
            self.member = self._new_program(member.member_id)
        elif code == ErrorCode.INVALID_REQUEST:  # it has tasks of a topic that had more partitions: the program ends
            group.end(member)
            self.member = self._new_program()
        else:
            member.is_sure = False

    def leave(self) -> None:
        """The program ends in good order, and another one begins: of the same instance, if it has one."""
        member, group = self.member, self.group
        is_sure = member.is_certain(group.now_ms)
        epoch = LEAVES if member.instance_id is None or self._chance.random() < 0.3 else LEAVES_FOR_A_WHILE
        group.end(member)
        self.member = self._new_program()
        life, self.is_waiting = self._life, True

        def answered(response: Response) -> None:
            assert isinstance(response, StreamsGroupHeartbeatResponse)
            if life != self._life:
                return
            self.is_waiting = False
            if response.error_code == ErrorCode.NONE:
                group.former.append(member)
            elif is_sure and response.error_code in OUT and not member.may_be_gone:
                now_ms, member.is_over = group.now_ms, False
                if not member.may_have_ended(now_ms):
                    raise Violation(f"{group}: {member.member_id} cannot leave: {response.error_message}")
                member.is_over = True

        self.line.send(heartbeat_request(group.application, member, epoch, None), HEARTBEAT_VERSION, answered)

    def _fall_asleep(self) -> None:
        """The program is silent from now on, and another one begins."""
        if len(self.group.asleep) < MOST_ASLEEP and self._instance_id is None:
            self.group.asleep.append(self.member)
            self.member = self._new_program()

    def _wake_another(self) -> None:
        """The program is silent from now on, and one that was silent goes on."""
        asleep = self.group.asleep
        if asleep:
            number = self._chance.randrange(len(asleep))
            asleep[number], self.member = self.member, asleep[number]
            self.heartbeat(gives_up=self._chance.random() < 0.5, reports=self._chance.random() < 0.5)

    # -- offsets ------------------------------------------------------------------------------------------------------

    def _drawn_task(self, member: Membership) -> Task | None:
        return self._chance.choice(sorted(member.has)) if member.has else None

    def _commit(self, member: Membership, task: Task | None, *, is_former: bool = False) -> None:
        """A member commits an offset of what its task reads. `is_former`: it is out."""
        group = self.group
        if task is None:
            return
        topic = group.model.topics.get(self._chance.choice(list(group.application.sources[task[0]])))
        if topic is None or topic.name in group.model.deleting or task[1] >= len(topic.partitions):
            return
        place = (group.application.group, topic.name, task[1])
        known = group.model.commits.setdefault(place, CommitModel())
        known.sent = offset = known.sent + self._chance.randint(1, 9)
        other = group.owner(task)
        was_certain = member.is_certain(group.now_ms)
        life, self.is_waiting = self._life, True

        def answered(response: Response) -> None:
            assert isinstance(response, OffsetCommitResponse)
            if life != self._life:
                return
            self.is_waiting = False
            code = response.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                known.note_committed(offset)
                if is_former or (other not in (None, member) and group.owner(task) is other):
                    raise Violation(
                        f"{group}: {member.member_id} commits for {task} at epoch {member.epoch}, and is out"
                    )
            elif code in STALE and was_certain and member.is_certain(group.now_ms):
                raise Violation(
                    f"{group}: {ErrorCode.of(code).name} for a commit of {member.member_id}, which has {task}"
                )

        self.line.send(commit_request(group.application.group, member, *place[1:], offset), COMMIT_VERSION, answered)

    # -- those that are out -------------------------------------------------------------------------------------------

    def _claim_another_epoch(self) -> None:
        """A heartbeat with an epoch that is not the member's is refused, and changes nothing."""
        member, group = self.member, self.group
        if not member.is_certain(group.now_ms):
            return
        epoch = member.epoch + self._chance.choice((1, 3, -1, -2))
        if epoch <= JOINS:
            return
        tasks = set(member.has)
        if epoch < member.epoch:  # the last one is right as well, unless there are tasks that it does not have
            others = sorted(task for task in group.owners if task not in member.assigned)
            if not others:
                return
            tasks.add(self._chance.choice(others))
        self._expect_refusal(member, epoch, tasks)

    def _act_as_former(self) -> None:
        """One that has left heartbeats, or commits."""
        if not self.group.former:
            return
        member = self._chance.choice(self.group.former)
        if self._chance.random() < 0.5:
            tasks = sorted(self.group.owners)
            self._commit(member, self._chance.choice(tasks) if tasks else None, is_former=True)
        else:
            self._expect_refusal(member, member.epoch, set())

    def _expect_refusal(self, member: Membership, epoch: int, tasks: set[Task]) -> None:
        request = heartbeat_request(self.group.application, member, epoch, (tasks, member.replicas, ()))
        life, self.is_waiting = self._life, True
        was_known = member.epoch

        def answered(response: Response) -> None:
            assert isinstance(response, StreamsGroupHeartbeatResponse)
            if life != self._life:
                return
            self.is_waiting = False
            if response.error_code == ErrorCode.NONE:
                raise Violation(
                    f"{self.group}: {member.member_id} is accepted at epoch {epoch}, and was answered {was_known}"
                )

        self.line.send(request, HEARTBEAT_VERSION, answered)
