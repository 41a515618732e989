"""Parts of a broker that are made on first use: most brokers never need some of them, and importing them takes time.

To import a large one holds the loop for tens of milliseconds. So where other requests are to run in between, its
modules are imported one after the other first, by `import_some`; `get` finds them in memory then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Generic, TypeVar

T = TypeVar("T")


class OnDemand(Generic[T]):
    """One such part. `make` is called by the first `get`; if that raises, the next one calls it again.

    `modules`: what `make` imports, each after those that it imports itself; () where nobody waits meanwhile.
    """

    __slots__ = ("_made", "_make", "_modules")

    def __init__(self, make: Callable[[], T], modules: Sequence[str] = ()) -> None:
        self._make = make
        self._made: T | None = None
        self._modules = modules

    def get(self) -> T:
        """The part, made if it was not."""
        made = self._made
        if made is None:
            made = self._made = self._make()
        return made

    def import_some(self) -> Iterator[None]:
        """Import the next of its modules with each step. Raises what an import raises."""
        for name in self._modules:
            if name not in sys.modules:
                import_module(name)
                yield

    @property
    def is_imported(self) -> bool:
        """Whether `import_some` has nothing to do."""
        return self._made is not None or not self._modules or self._modules[-1] in sys.modules

    @property
    def if_made(self) -> T | None:
        """The part if anybody has asked for it yet, else None."""
        return self._made
