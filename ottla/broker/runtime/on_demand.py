"""Parts of a broker that are made on first use: most brokers never need some of them, and importing them takes time.

The import of a large one holds the loop for tens of milliseconds. So where other requests must run in between,
`import_some` first imports its modules one after the other; `get` finds them in memory then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Generic, TypeVar

T = TypeVar("T")


class OnDemand(Generic[T]):
    """One such part. The first `get` calls `make`; if that raises, the next one calls it again.

    `modules`: what `make` imports, each module after those that it imports itself; () where no client waits meanwhile.
    """

    __slots__ = ("_made", "_make", "_modules")

    def __init__(self, make: Callable[[], T], modules: Sequence[str] = ()) -> None:
        self._make = make
        self._made: T | None = None
        self._modules = modules

    def get(self) -> T:
        """The part, made on the first call."""
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
        """The part if it has been made, else None."""
        return self._made
