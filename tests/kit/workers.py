"""Work that a test holds: it is done on the spot, but while the test wants it kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.broker.runtime.workers import InlineWorkers


class HeldWorkers(InlineWorkers):
    """While `holds`, nothing is finished until the test asks for it."""

    def __init__(self) -> None:
        self.holds = False
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Do it, or keep it."""
        if self.holds:
            self.jobs.append((work, done))
        else:
            super().run(work, done)

    def run_next(self) -> None:
        """Do what came first of what is kept."""
        work, done = self.jobs.popleft()
        try:
            result = work()
        except Exception as error:
            done(None, error)
        else:
            done(result, None)

    def close(self) -> None:
        """Nothing is done any more."""
        self.jobs.clear()


class HeldSteps(deque[Callable[[], None]]):
    """`later` of a node: steps that leave others a turn. While `holds` they are kept here, for the test to run."""

    def __init__(self, *, holds: bool = True) -> None:
        super().__init__()
        self.holds = holds

    def __call__(self, step: Callable[[], None]) -> None:
        """Keep it, or run it."""
        if self.holds:
            self.append(step)
        else:
            step()
