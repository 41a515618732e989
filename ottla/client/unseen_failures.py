"""Failures that the program may not have got, for `flush` and `close` to raise: some are kept, unseen ones first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

REMEMBERED = 100
"""The most failures that are kept. More are not needed, since only the first unseen one is raised."""


class UnseenFailures(Generic[T]):
    """See the module. `is_seen` returns whether the program has got a failure by now."""

    def __init__(self, is_seen: Callable[[T], bool]) -> None:
        self._is_seen = is_seen
        self._failures: list[T] = []

    def add(self, failure: T) -> None:
        """Keep a failure; if there is no room, drop those that were seen meanwhile."""
        if len(self._failures) >= REMEMBERED:
            self._failures = [one for one in self._failures if not self._is_seen(one)]
        if len(self._failures) < REMEMBERED:
            self._failures.append(failure)

    def take(self) -> T | None:
        """Return the first one that was not seen, None if there is none, and drop all."""
        failures, self._failures = self._failures, []
        return next((one for one in failures if not self._is_seen(one)), None)
