"""Workers that take their time: work waits until a world runs it, and its result until the world gives it back.

What a broker of other worlds has done at once (`InlineWorkers`) falls here between the turns of its clients: a
checkpoint is written after the log has moved on, a directory is synced after its topic was created again, a piece of a
cleaning is read after a segment was rolled. Up to `MAX_WORKERS` pieces are taken up in any order, as by threads; each
is done as a whole, for the disk is. Results come back in the order in which the pieces were done.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.broker.node import Node
from ottla.broker.runtime.workers import MAX_WORKERS, InlineWorkers
from ottla.config.broker import BrokerConfig
from ottla.storage.files.clock import Clock
from ottla.storage.files.files import Files

Done = Callable[[Any, BaseException | None], None]
MOST_ROUNDS = 1000


class SlowWorkers(InlineWorkers):
    """See the module. They compute nothing in threads, so there is nothing to rest for (`pause_for`)."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Any], Done]] = deque()
        self._results: deque[Callable[[], None]] = deque()

    @property
    def are_busy(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting or self._results)

    def run(self, work: Callable[[], Any], done: Done) -> None:
        """Keep it."""
        self._waiting.append((work, done))

    def step(self, chance: random.Random) -> None:
        """Do a piece of work, or give a result back."""
        if self._waiting and (not self._results or chance.random() < 0.5):
            self._do(chance.randrange(min(MAX_WORKERS, len(self._waiting))))
        elif self._results:
            self._results.popleft()()

    def run_all(self) -> None:
        """All that waits now, in order, and the results."""
        while self._waiting:
            self._do(0)
        while self._results:
            self._results.popleft()()

    def close(self) -> None:
        """The work that was given to them is done; no result comes back any more."""
        self._results.clear()
        while self._waiting:
            self._do(0)
            self._results.clear()

    def _do(self, number: int) -> None:
        work, done = self._waiting[number]
        del self._waiting[number]
        try:
            result = work()
        except Exception as error:  # as from a thread
            self._results.append(partial(done, None, error))
        else:
            self._results.append(partial(done, result, None))


class SlowNode(Node):
    """A broker with such workers, whose steps of long work leave turns to others, as on a loop."""

    def __init__(self, config: BrokerConfig, clock: Clock, files: Files) -> None:
        self.workers = SlowWorkers()
        super().__init__(config, clock=clock, files=files, workers=self.workers, later=self._in_a_later_turn)

    def settle(self, *, most_rounds: int = MOST_ROUNDS) -> None:
        """What the workers have is done, too."""
        super().settle(most_rounds=most_rounds)
        for _ in range(most_rounds):
            if not self.workers.are_busy:
                return
            self.workers.run_all()
            super().settle(most_rounds=most_rounds)
        raise RuntimeError(f"workers are not done after {most_rounds} rounds")

    def _in_a_later_turn(self, step: Callable[[], None]) -> None:
        self.services.timers.at(self.services.clock.monotonic_ms(), step)
