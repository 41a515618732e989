"""A limit on open handles: descriptors and maps beyond it are dropped, the least recently used first.

A handle is an open descriptor or a map. Its owner (a `File`) keeps the only lasting reference. Code that uses the
handle has another reference during the call, so dropping the owner's never closes a descriptor during a `pread` or a
map under a view: Python's reference count is the pin. The choice follows the "second chance" (clock) algorithm: a use
only sets a flag, which costs the hot path one attribute, and the sweep drops the first handle whose flag was not set
again since the last pass.

The limit is soft: pinned handles (unsynced writes) stay, and so do all that were used since the last sweep but one. A
sweep continues where the last one ended, and is short when a file is opened.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

DEFAULT_MAX_DESCRIPTORS: Final = 4096
DEFAULT_MAX_MAPS: Final = 1024
LOOKS_PER_ADMISSION: Final = 32
"""The number of handles that are checked for each new one. With thousands of unsynced segments none can be dropped, and
checking all of them twice took 2.5 ms for each file that was opened."""


class Handle:
    """An open descriptor or map. Every use sets `used`; a `pinned` handle is not dropped."""

    __slots__ = ("__weakref__", "drop", "pinned", "used")

    def __init__(self, drop: Callable[[Handle], None]) -> None:
        self.used = True
        self.pinned = False
        self.drop = drop


class Descriptor(Handle):
    """An open file descriptor that is closed when the last reference to it is gone."""

    __slots__ = ("_close", "fd")

    def __init__(self, fd: int, drop: Callable[[Handle], None]) -> None:
        super().__init__(drop)
        self.fd = fd
        self._close = os.close  # os itself may be gone when the interpreter ends

    def __del__(self) -> None:
        self._close(self.fd)


class OpenFiles:
    """The handles of one kind that are open, at most about `limit`."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"at least one must be open: {limit}")
        self.limit = limit
        self._handles: OrderedDict[weakref.ref[Handle], None] = OrderedDict()
        self._sweeping = threading.Lock()

    def __len__(self) -> int:
        return len(self._handles)

    def admit(self, handle: Handle) -> None:
        """Count a handle that was just opened, and drop others if there are too many."""
        # Sweep before adding: a handle must not be dropped before its first use.
        if len(self._handles) >= self.limit:
            self.sweep(self.limit - 1, most=LOOKS_PER_ADMISSION)
        # The callback runs wherever the last reference is dropped, maybe inside a sweep: a single pop, no lock.
        self._handles[weakref.ref(handle, self._forget)] = None

    def sweep(self, keep: int, *, most: int | None = None) -> None:
        """Drop handles until `keep` are left, `most` were checked, or every handle was checked twice."""
        looks = 2 * len(self._handles)
        with self._sweeping:
            for _ in range(looks if most is None else min(looks, most)):
                if len(self._handles) <= keep:
                    return
                self._pass_one()

    def _pass_one(self) -> None:
        try:
            reference, _ = self._handles.popitem(last=False)
        except KeyError:
            return
        handle = reference()
        if handle is None:
            return
        if handle.used or handle.pinned:
            handle.used = False
            self._handles[reference] = None
        else:
            handle.drop(handle)

    def _forget(self, reference: weakref.ref[Handle]) -> None:
        self._handles.pop(reference, None)
