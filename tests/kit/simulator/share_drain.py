"""A share group is read empty: all that it has to deliver still comes, nothing else, and then its lag says so.

The members of before lose their connections, or are silent for longer than any lock lasts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kit.nodes import pass_time
from kit.simulator.clients import settle, settle_postponed
from kit.simulator.committed_readers import READ_COMMITTED
from kit.simulator.model import Violation
from kit.simulator.readers import FETCH_VERSION, end_of, fetch_request
from kit.simulator.share_members import ShareMember
from kit.simulator.share_requests import Limits
from kit.simulator.transaction_audit import LogContent

from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Line
    from kit.simulator.machine import Machine
    from kit.simulator.share_administrator import ShareAdministrator
    from kit.simulator.share_model import ShareModel, SharePartitionModel
    from kit.simulator.transactions import Transactions

LONGER_THAN_LOCKS_MS: Final = 70_000
LOADING_STEPS, LOADING_STEP_MS = 200, 500
"""Longer than a fetch that waits, and then the longest lock."""
MOST_FETCHES: Final = 400
EMPTY_IN_A_ROW: Final = 6
"""So many segments may have aborted records alone."""


class _Log:
    """What a partition holds."""

    def __init__(self) -> None:
        self.content = LogContent()
        self.position = self.start = 0
        self.end = self.stable = -1
        self.is_over = False


class Drain:
    """See the module."""

    def __init__(
        self,
        known: ShareModel,
        chance: random.Random,
        machine: Machine,
        clock: ManualClock,
        members: Sequence[ShareMember],
        administrator: ShareAdministrator,
        transactions: Transactions | None,
        require_letters: Callable[[str], None],
    ) -> None:
        """`require_letters` waits for the dead letters of a group, and checks them."""
        self._known = known
        self._chance = chance
        self._machine = machine
        self._clock = clock
        self._members = members
        self._administrator = administrator
        self._transactions = transactions
        self._require_letters = require_letters

    def run(self, group: str) -> None:
        """Read a group empty; not where the disk is in trouble."""
        machine = self._machine
        if machine.has_bad_disk or not machine.troubles.is_over:
            return
        syncer = machine.node.services.syncer
        assert isinstance(syncer, QueuedSyncer)
        syncer.has_threads = True
        machine.files.has_descriptor = lambda: True
        self._settle()
        settle_postponed(machine.node, self._clock, self._administrator.line)
        of_group = [member for member in self._members if member.group == group]
        if self._chance.random() < 0.5:
            for member in of_group:
                member.lose_connection()
        else:
            pass_time(machine.node, self._clock, LONGER_THAN_LOCKS_MS, step_ms=10_000)
        self._settle()
        if self._known.model.deleting or self._known.model.creating:
            return
        self._describe(group)
        shards = machine.node.services.share_groups.get().shards
        for _ in range(LOADING_STEPS):  # one that had no descriptor is loaded again, in steps
            if not shards.loads_under_way and len(shards.active()) == shards.count:
                break
            pass_time(machine.node, self._clock, LOADING_STEP_MS)
        self._require_letters(group)
        logs = self._read()
        member = ShareMember(group, self._known, self._chance, self._clock, self._transactions)
        member.member_id = f"drain {self._known.next_number()}"
        member.new_line, member.line = of_group[0].new_line, of_group[0].new_line()
        got = self._empty(member)
        left = self._read()  # retention and the cleaner may have been at work
        self._require(group, logs, left, got)
        self._require_lag(group, left)
        member.lose_connection()
        self._settle()
        self._require_lag(group, left)

    def _settle(self) -> None:
        for line in (*(member.line for member in self._members), self._administrator.line):
            settle(self._machine.node, line)

    def _describe(self, group: str) -> None:
        self._administrator.describe([group])
        settle(self._machine.node, self._administrator.line)

    # -- what there is ------------------------------------------------------------------------------------------------

    def _read(self) -> dict[tuple[str, int], _Log]:
        """All logs, from their starts."""
        logs = {(topic.name, index): _Log() for topic in self._known.topics() for index in range(len(topic.partitions))}
        line = self._administrator.line
        while wanted := {place: log.position for place, log in logs.items() if not log.is_over}:
            for topic in _ask(self._machine, line, fetch_request(wanted)).responses:
                for answer in topic.partitions:
                    log = logs[topic.topic, answer.partition_index]
                    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and log.end < 0:
                        log.position = answer.log_start_offset
                        continue
                    content = bytes(answer.records or b"")
                    if log.end < 0:
                        log.start, log.end = answer.log_start_offset, answer.high_watermark
                        log.position = log.start
                    log.content.add(content)
                    log.position = max(end_of(content), log.position)
                    log.is_over = not content or log.position >= log.end
        self._look_at_bounds(logs)
        return logs

    def _look_at_bounds(self, logs: dict[tuple[str, int], _Log]) -> None:
        """Where the logs start and end for whom; retention may have been at work."""
        if not logs:
            return
        request = fetch_request({place: log.end for place, log in logs.items()}, isolation_level=READ_COMMITTED)
        for topic in _ask(self._machine, self._administrator.line, request).responses:
            for answer in topic.partitions:
                log = logs[topic.topic, answer.partition_index]
                log.start = max(answer.log_start_offset, log.start)
                log.end, log.stable = answer.high_watermark, answer.last_stable_offset

    # -- what comes ---------------------------------------------------------------------------------------------------

    def _empty(self, member: ShareMember) -> dict[SharePartitionModel, set[int]]:
        """Fetch and accept until nothing comes."""
        got: dict[SharePartitionModel, set[int]] = {}
        empty = 0
        for _ in range(MOST_FETCHES):
            member.fetch(Limits(is_strict=self._chance.random() < 0.3), [], of_all=True)
            settle(self._machine.node, member.line)
            if member.is_waiting:
                raise Violation(f"share group {member.group}: a fetch that does not wait is not answered")
            for partition, offset in member.got:
                got.setdefault(partition, set()).add(offset)
            if member.failed and not member.got:  # states are loaded, perhaps in steps, or once there are descriptors
                pass_time(self._machine.node, self._clock, 1_000)
                continue
            empty = 0 if member.got else empty + 1
            if empty == EMPTY_IN_A_ROW:
                return got
            member.acknowledge(member.everything(), renews=False)
            settle(self._machine.node, member.line)
        raise Violation(f"share group {member.group}: {MOST_FETCHES} fetches do not read it empty")

    def _require(
        self,
        group: str,
        logs: dict[tuple[str, int], _Log],
        left: dict[tuple[str, int], _Log],
        got: dict[SharePartitionModel, set[int]],
    ) -> None:
        """`logs` as they were before, `left` as they are now: what is in both had to come."""
        for topic in self._known.topics():
            for index in range(len(topic.partitions)):
                one, place = self._known.partition(group, topic, index), (topic.name, index)
                offsets = got.get(one, set())
                before, after = logs[place].content, left[place].content
                if one.group.committed_only:
                    hidden = offsets & after.hidden.keys()
                    if hidden:
                        raise Violation(f"{one}: {sorted(hidden)} were aborted, and are delivered")
                    records = {offset for offset in before.shown if offset < logs[place].stable}
                    records &= after.shown.keys()
                else:
                    records = before.offsets & after.offsets
                missing = [offset for offset in records - offsets if one.must_deliver(offset)]
                if missing:
                    raise Violation(f"{one}: {sorted(missing)} are not delivered")

    def _require_lag(self, group: str, logs: dict[tuple[str, int], _Log]) -> None:
        """Nothing is left but what readers of committed records have to wait for."""
        lags = self._administrator.lags_of(group, lambda: settle(self._machine.node, self._administrator.line))
        for (name, index), (start_offset, lag) in lags.items():
            log = logs[name, index]
            one = self._known.partition(group, self._known.model.topics[name], index)
            first = max(start_offset, log.stable if one.group.committed_only else log.end)
            has_gap_at_end = start_offset >= log.position  # nothing is there to be read that would take it further
            if has_gap_at_end and lag == log.end - start_offset:
                continue
            if one.is_certain and start_offset >= 0 and lag != max(log.end - first, 0):
                raise Violation(
                    f"{one}: the lag is {lag} from {start_offset} on, all is read up to {first} of {log.end}"
                )


def _ask(machine: Machine, line: Line, request: FetchRequest) -> FetchResponse:
    got: list[Response] = []
    line.send(request, FETCH_VERSION, got.append)
    settle(machine.node, line)
    assert len(got) == 1
    assert isinstance(got[0], FetchResponse)
    return got[0]
