"""Parts of a broker that are made on first use: most brokers never need some of them, and importing them takes time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class OnDemand(Generic[T]):
    """One such part. `make` is called by the first `get`; if that raises, the next one calls it again."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: T | None = None

    def get(self) -> T:
        """The part, made if it was not."""
        made = self._made
        if made is None:
            made = self._made = self._make()
        return made

    @property
    def if_made(self) -> T | None:
        """The part if anybody has asked for it yet, else None."""
        return self._made
