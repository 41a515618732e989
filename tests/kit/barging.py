"""A lock that somebody else gets first: what threads do to each other, at one place and every time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType


class Barged(AbstractContextManager[object]):
    """In the place of `guard`: whoever takes it for the `count`th time finds that `first` was done just before."""

    def __init__(self, guard: AbstractContextManager[object], first: Callable[[], object], count: int = 1) -> None:
        self._guard = guard
        self._first = first
        self._waits = count
        self.has_happened = False

    def __enter__(self) -> object:
        self._waits -= 1
        if not self._waits:
            self.has_happened = True
            self._first()
        return self._guard.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._guard.__exit__(kind, error, trace)
