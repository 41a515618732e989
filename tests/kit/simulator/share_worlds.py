"""Worlds with share groups: their members, an administrator of theirs, and in the end a member of each that reads all
that is left (`share_drain.py`).

One group begins with the first records, one as well and with committed records only, and one with those that come after
its first fetch, or as its administrator says. What the broker removes from `__share_group_state` is removed after few
records here. In some worlds two of the groups have dead letters (`share_letters.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kit.simulator.share_administrator import ISOLATION, RESET, ShareAdministrator
from kit.simulator.share_drain import Drain
from kit.simulator.share_letters import DeadLetterWorld
from kit.simulator.share_limits import few_records_left
from kit.simulator.share_members import ShareMember
from kit.simulator.share_model import GroupModel, ShareModel

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Line
    from kit.simulator.machine import Machine
    from kit.simulator.model import Model
    from kit.simulator.transactions import Transactions

WORLDS: Final = 0.25
"""How many there are."""
MEMBERS: Final = ("share-0", "share-0", "share-0", "share-1", "share-1", "share-2", "share-2")
OPERATIONS: Final = 300
"""Of such a world, in which much more may happen."""
MOST_REQUESTS: Final = 4
"""Of members, in one operation."""


class ShareWorld:
    """See the module. `new_line` makes a connection; it and what it connects to is given anew for each life."""

    def __init__(
        self,
        seed: int,
        model: Model,
        clock: ManualClock,
        machine: Machine,
        transactions: Transactions | None,
        *,
        loses_states: bool,
        letters: float,
    ) -> None:
        """`loses_states`: a broker may have to load states again while it lives, where it could not write them.
        `letters`: how many worlds have dead letters.
        """
        self._chance = random.Random(f"the share groups of {seed}")
        self._machine = machine
        self._clock = clock
        groups = [
            GroupModel("share-0", reset="earliest", committed_only=False),
            GroupModel("share-1", reset="earliest", committed_only=True),
            GroupModel("share-2", reset="latest", committed_only=False),
        ]
        self._known = ShareModel(model, groups, loses_states=loses_states)
        self._members = [ShareMember(group, self._known, self._chance, clock, transactions) for group in MEMBERS]
        self._administrator = ShareAdministrator(self._known, self._chance, self._leave)
        self._letters = DeadLetterWorld(seed, machine, clock, self._known, letters)
        self._drain = Drain(
            self._known,
            self._chance,
            machine,
            clock,
            self._members,
            self._administrator,
            transactions,
            self._letters.require,
        )
        self._are_set = False
        """Whether groups have the settings with which they begin."""
        self.new_line: Callable[[], Line]
        self.settle: Callable[[], None]
        self.end_turn: Callable[[], None]

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Little is left in `__share_group_state`."""
        with few_records_left():
            yield

    def operations(self) -> list[tuple[float, Callable[[], None]]]:
        """What may happen, and how often."""
        return [(45, self._act), *self._administrator.operations(), (0.4, self._drain_one)]

    # -- lives --------------------------------------------------------------------------------------------------------

    def reconnect(self) -> None:
        """A broker has started."""
        self._known.restarted()
        self._administrator.line = self.new_line()
        for member in self._members:
            member.new_line, member.line = self.new_line, self.new_line()
            member.reconnect()
        if not self._are_set:
            self._are_set = True
            self._administrator.set("share-0", {RESET: "earliest"})
            self._administrator.set("share-1", {RESET: "earliest", ISOLATION: "read_committed"})
            self._letters.begin(self._administrator)
            self._machine.node.settle()
            self.take_answers()

    def note_power_cut(self, *, syncs: bool) -> None:
        """After `reconnect`; `syncs`: what was answered of groups was synced."""
        self._known.note_power_cut(syncs=syncs)
        if not syncs:
            for member in self._members:
                member.note_power_cut()

    def audit(self) -> None:
        """After a restart, and the audit of all topics: what it says of all groups."""
        ends = {
            (topic.name, index): topic.partitions[index].shown_end
            for topic in self._known.topics()
            for index in range(len(topic.partitions))
        }
        self._administrator.describe(sorted(self._known.groups), ends)
        self._machine.node.settle()
        self.take_answers()
        self._known.note_found()

    def take_answers(self) -> None:
        """Of all members, in the order of their lines, and of the administrator."""
        clients: list[ShareMember | ShareAdministrator] = [*self._members, self._administrator]
        for client in clients:
            line = client.line
            line.deliver()
            if line.written:
                line.take()
            if line is client.line:
                assert not line.is_closed, "the broker closed a connection of a share group that did nothing wrong"

    # -- what happens -------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        """Some requests, the answers to some of which have come before the next."""
        for _ in range(self._chance.randint(1, MOST_REQUESTS)):
            self._chance.choice(self._members).act()
            if self._chance.random() < 0.5:
                self.end_turn()
            self.take_answers()

    def _leave(self, group: str) -> None:
        for member in self._members:
            if member.group == group and not member.is_waiting:
                member.heartbeat(leaves=True)

    def _drain_one(self) -> None:
        self._drain.run(self._chance.choice(sorted(self._known.groups)))

    def end(self) -> None:
        """The world ends: all groups get what is left."""
        for group in sorted(self._known.groups):
            self._drain.run(group)
