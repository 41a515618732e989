"""What happens to a broker while it serves, beside what clients ask: turns of its loop, syncs, time, and troubles."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from kit.simulator.turn_worlds import TURNS_OF_A_SECOND

from ottla.broker.runtime.queued_syncer import QueuedSyncer

if TYPE_CHECKING:
    from kit.simulator.machine import Machine
    from kit.simulator.shortages import Shortages
    from kit.simulator.transactional_clients import TransactionalClients

CHANGES_AFTER_A_LOSS = 12
HOUR_MS = 3_600_000
JUMPS_MS = (30 * 24 * HOUR_MS, 3650 * 24 * HOUR_MS, -12 * HOUR_MS)
"""By how much the wall clock may be wrong; back not by `producer.id.expiration.ms` (docs/clock.md: what was stamped by
a wrong clock stays stamped so).
"""

Operation = tuple[str, float, Callable[[], None]]


class Happenings:
    """See the module."""

    def __init__(self, machine: Machine, chance: random.Random) -> None:
        self._machine = machine
        self._chance = chance
        self._jump_ms = 0
        """By how much the wall clock is wrong."""
        self.transactional: TransactionalClients | None = None
        """They allow for a clock that has jumped, and are silent for a while in `wait_out`."""
        self.shortages: Shortages | None = None
        """They end before it is asked whether anything waits for ever."""
        self.takes_turns = False
        """Whether workers are slow, and work is done in steps (`turn_worlds.py`)."""

    def operations(self) -> list[Operation]:
        """What may happen, with the name by which themes call it, and how often."""
        return [
            ("end turn", 12, self.end_turn),
            ("sync", 12, self._sync),
            ("pass time", 6, self._pass_time),
            ("background", 4, self._run_background),
            ("jump clock", 1, self._jump_clock),
            ("disk trouble", 1, self._disk_trouble),
            ("thread trouble", 1, self._thread_trouble),
        ]

    @property
    def true_ms(self) -> int:
        """What the wall clock would say if it was right."""
        return self._machine.clock.wall_ms() - self._jump_ms

    @property
    def _syncer(self) -> QueuedSyncer:
        syncer = self._machine.node.services.syncer
        assert isinstance(syncer, QueuedSyncer)
        return syncer

    def end_turn(self) -> None:
        """A turn of the loop ends."""
        self._machine.node.services.turn.end()

    def _sync(self) -> None:
        """The disk finishes a sync, or all."""
        self.end_turn()
        if self._chance.random() < 0.5:
            syncer = self._syncer
            if not syncer.late or self._chance.random() < 0.8 or not syncer.run_late():
                syncer.run_one()
        else:
            self._machine.node.settle()

    def _pass_time(self) -> None:
        """Mostly little; sometimes so much that checkpoints, retention, the cleaner and unlinking are due."""
        machine = self._machine
        machine.clock.advance(self._chance.choice((10, 10, 1_000, 6_000, 61_000, 301_000)))
        machine.files.now_ms = machine.clock.wall_ms()
        machine.node.run_due()

    def _jump_clock(self) -> None:
        """Somebody sets the wall clock wrong, and chores run by it; or it is right again. Restarts fall in between."""
        true_ms = self.true_ms
        self._jump_ms = 0 if self._jump_ms else self._chance.choice(JUMPS_MS)
        self._machine.clock.set_wall(true_ms + self._jump_ms)
        if self.transactional is not None:
            self.transactional.clock_jumped()
        self._pass_time()

    def wait_out(self) -> None:
        """All are silent for as long as a transaction may be open, where the disk and the clock are in order."""
        machine = self._machine
        if (
            machine.troubles.failure is None
            and self.transactional is not None
            and not machine.has_bad_disk
            and not self._jump_ms
        ):
            self._syncer.has_threads = True
            if self.shortages is not None:
                self.shortages.end_for_good()
            self.transactional.wait_out(machine.node, TURNS_OF_A_SECOND if self.takes_turns else 0)

    def _run_background(self) -> None:
        """Turns of the loop in which nobody asks anything: chores continue, step by step."""
        for _ in range(self._chance.randint(1, 10)):
            self._machine.node.run_due()

    def _disk_trouble(self) -> None:
        """In some worlds: the disk is full for a while, or loses pages, after which only a restart helps."""
        machine = self._machine
        if not machine.has_bad_disk or not machine.troubles.next(machine.files):
            return
        if machine.may_stop_inside and self._chance.random() < 0.5:
            machine.stop_soon(CHANGES_AFTER_A_LOSS)  # before the pages are written again by what is appended to them

    def _thread_trouble(self) -> None:
        """The system gives no thread for syncs for a while, or gives them again."""
        self._syncer.has_threads = not self._syncer.has_threads
