"""A bound on what is open: descriptors and maps beyond it are dropped, those not used lately first.

A handle is an open descriptor or a map. Its owner (a `File`) keeps the only lasting reference; code that works with it
holds another for the time of the call, so that dropping the owner's reference never closes a descriptor under a
running `pread` or a map under a view: Python's reference count is the pin. Choosing what to drop is "second chance"
(a clock): a use only sets a flag, which costs the hot path one attribute, and the sweep drops the first handle whose
flag was not set again since it last came by.

The bound is soft: pinned handles (unsynced writes) stay, and so does everything used since the last sweep but one. A
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
"""Handles that are passed for each one that comes. With thousands of unsynced segments nothing can be dropped, and
passing all of them twice took 2.5 ms for each file that was opened."""


class Handle:
    """Something open. `used` is set by every use; a `pinned` one is not dropped."""

    __slots__ = ("__weakref__", "drop", "pinned", "used")

    def __init__(self, drop: Callable[[Handle], None]) -> None:
        self.used = True
        self.pinned = False
        self.drop = drop


class Descriptor(Handle):
    """An open file descriptor that is closed when nobody refers to it any more."""

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
        # First the others: a handle must not go before it was used once.
        if len(self._handles) >= self.limit:
            self.sweep(self.limit - 1, most=LOOKS_PER_ADMISSION)
        # The callback runs wherever the last reference goes, maybe inside a sweep: a single pop, no lock.
        self._handles[weakref.ref(handle, self._forget)] = None

    def sweep(self, keep: int, *, most: int | None = None) -> None:
        """Drop handles until `keep` are left, `most` were passed, or every handle has been passed twice."""
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
