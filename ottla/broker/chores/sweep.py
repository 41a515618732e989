"""A chore's iteration over all logs: some logs in each step, so that requests run in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.storage.log.log import Log

LOGS_PER_STEP = 50
"""The logs that one step visits: about a millisecond of work when there is nothing to do."""


class Sweep:
    """Visits all logs, some per step, and then begins again.

    A visit that returns True ends its step: the log has given work to a worker, and the code that waits for that
    continues the sweep.
    """

    def __init__(
        self, logs: Callable[[], Sequence[Log]], visit: Callable[[Log], object], per_step: int | None = None
    ) -> None:
        self._logs = logs
        self._per_step = per_step
        self.visit = visit
        """The function that is called with each log."""
        self._rest: Iterator[Log] = iter(())
        self._is_under_way = False
        self._again: Log | None = None

    def visit_again(self, log: Log) -> None:
        """Begin the next step with this log."""
        self._again = log

    def step(self) -> bool:
        """Visit the next logs. Return whether some are left."""
        if not self._is_under_way:
            self._rest = iter(self._logs())
            self._is_under_way = True
        for _ in range(self._per_step or LOGS_PER_STEP):
            log, self._again = self._again or next(self._rest, None), None
            if log is None:
                self._is_under_way = False
                return False
            if log.error is None and self.visit(log) is True:
                return False
        return True
