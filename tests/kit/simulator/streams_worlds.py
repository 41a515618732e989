"""Worlds with streams groups: their members, an administrator of theirs, and in the end a look whether the groups come
to rest (`streams_end.py`).

The groups read topics that all other clients use, too, which are created late, grow and are deleted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from kit.simulator.admin import Administrator
from kit.simulator.streams_administrator import StreamsAdministrator
from kit.simulator.streams_end import StreamsEnd
from kit.simulator.streams_members import StreamsMember
from kit.simulator.streams_model import StreamsGroupModel
from kit.simulator.streams_requests import APPLICATIONS

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Line
    from kit.simulator.machine import Machine
    from kit.simulator.model import Model

    from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeResponse

WORLDS: Final = 0.1
"""How many there are."""
MEMBERS: Final = (
    (0, "process-0", None),
    (0, "process-0", None),
    (0, "process-1", None),
    (0, "process-2", "instance-0"),
    (1, "process-3", None),
    (1, "process-4", "instance-1"),
    (1, "process-5", "instance-2"),
)
"""The number of the group, the process, and the instance id of a static member."""
OPERATIONS: Final = 300
"""Of such a world, in which much more may happen."""
MOST_REQUESTS: Final = 5
"""Of members, in one operation."""
SYNCED: Final = 0.25
"""After how many of them the disk finishes all syncs, so that answers come."""
WAITS_MS: Final = 60_000
WAITS: Final = 4
"""So often as long: longer than a session."""


class StreamsWorld:
    """See the module. `new_line` makes a connection; it and what it connects to is given anew for each life."""

    def __init__(
        self, seed: int, model: Model, clock: ManualClock, machine: Machine, administrator: Administrator
    ) -> None:
        """`administrator` makes topics."""
        self._chance = random.Random(f"the streams groups of {seed}")
        self._machine = machine
        self._clock = clock
        self._groups = [StreamsGroupModel(application, model, clock) for application in APPLICATIONS]
        self._members = [
            StreamsMember(self._groups[number], self._chance, process_id, instance_id)
            for number, process_id, instance_id in MEMBERS
        ]
        self._administrator = StreamsAdministrator(model, self._groups, administrator, self._chance)
        self._end = StreamsEnd(model, machine, clock, self._members, self._administrator)
        self.new_line: Callable[[], Line]
        self.settle: Callable[[], None]
        self.end_turn: Callable[[], None]

    def operations(self) -> list[tuple[float, Callable[[], None]]]:
        """What may happen, and how often."""
        return [(60, self._act), *self._administrator.operations(), (0.7, self._wait)]

    # -- lives --------------------------------------------------------------------------------------------------------

    def reconnect(self, started_ms: float) -> None:
        """A broker has started at that time, which may be some seconds ago."""
        self._administrator.line = self.new_line()
        for member in self._members:
            member.new_line, member.line = self.new_line, self.new_line()
            member.reconnect()
        for group in self._groups:
            group.note_restart(started_ms)

    def note_power_cut(self) -> None:
        """After `reconnect`: what was answered of groups was not synced."""
        for group in self._groups:
            group.note_power_cut()
        for member in self._members:
            member.begin_again()

    def audit(self) -> None:
        """After a restart, and the audit of all topics: what it says of the groups, unless it cannot yet."""
        found: dict[StreamsGroupModel, StreamsGroupDescribeResponse.DescribedGroup | None] = {}
        for group in self._groups:
            self._administrator.describe(group, partial(found.__setitem__, group))
        self._machine.node.settle()
        self.take_answers()
        for group, described in found.items():
            group.audit(described)

    def lines(self) -> Iterator[Line]:
        """Of all members, in their order, and of the administrator."""
        for member in self._members:
            yield member.line
        yield self._administrator.line

    def take_answers(self) -> None:
        """In the order of the lines."""
        for line in list(self.lines()):
            line.deliver()
            if line.written:
                line.take()
            assert not line.is_closed, "the broker closed a connection of a streams group that did nothing wrong"

    # -- what happens -------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        """Some requests, the answers to some of which have come before the next."""
        for _ in range(self._chance.randint(1, MOST_REQUESTS)):
            self._chance.choice(self._members).act()
            if self._chance.random() < 0.5:
                self.end_turn()
            self.take_answers()
            if self._chance.random() < SYNCED:
                self.settle()

    def _wait(self) -> None:
        """So much time passes that sessions end, but for those of members that heartbeat meanwhile."""
        awake = [member for member in self._members if self._chance.random() < 0.7]
        for _ in range(WAITS):
            for member in awake:
                if not member.is_waiting:
                    member.heartbeat(gives_up=self._chance.random() < 0.7)
            self.end_turn()
            if self._chance.random() < 0.7:
                self._machine.node.settle()
            self.take_answers()
            self._clock.advance(WAITS_MS)
            self._machine.files.now_ms = self._clock.wall_ms()
            self._machine.node.run_due()

    def end(self) -> None:
        """The world ends: all groups come to rest."""
        for group in self._groups:
            self._end.run(group)
