"""Handing things from one thread to another that sleeps until there are some: `HandOver`, and `Posts` for a loop.

A `SimpleQueue` wakes its taker while the giver holds the interpreter: the taker wakes up, finds that out, sleeps again
and is woken a second time. Here the giver lets go of the interpreter while it writes to an eventfd, so that the taker
can mostly go on at once; and a loop that watches one has less to do than for `call_soon_threadsafe`
(docs/decisions/a-sync-by-the-kernel.md).

A descriptor is closed when nobody refers to it any more: a thread that the disk has held may give something back long
after the broker has stopped, and must not write into what was opened meanwhile under the same number.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class HandOver(Generic[T]):
    """Things for one thread, in the order in which they came. Raises OSError when made: no eventfd here, or no
    descriptor left.
    """

    __slots__ = ("_close", "_descriptor", "_things")

    def __init__(self, *, waits: bool = True) -> None:
        make = getattr(os, "eventfd", None)
        if make is None:
            raise OSError("there is no eventfd")
        self._things: deque[T] = deque()
        self._descriptor: int = make(0, os.EFD_CLOEXEC if waits else os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._close = os.close  # os itself may be gone when the interpreter ends

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            self._descriptor = -1  # other garbage of the same cycle may still `put`, and the number may be reused
            self._close(descriptor)

    def put(self, thing: T) -> None:
        """Give something; may be called in any thread. An interrupt that is raised here leaves nothing behind that
        nobody takes.
        """
        try:
            self._things.append(thing)
        finally:
            os.eventfd_write(self._descriptor, 1)

    def get(self) -> T:
        """The next thing; sleeps until there is one. For one thread alone."""
        things = self._things
        while not things:  # the counter may still count a thing that was taken before
            try:
                os.eventfd_read(self._descriptor)
            except InterruptedError:  # by a signal
                continue
        return things.popleft()


class Posts(HandOver[Callable[[], object]]):
    """Steps for a loop's thread, from any thread. The loop calls `run` whenever `descriptor` is readable."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(waits=False)

    @property
    def descriptor(self) -> int:
        """What the loop watches."""
        return self._descriptor

    def run(self) -> None:
        """Run the steps that are there. What one raises is raised; the others run when the loop looks again."""
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return
        steps = self._things
        for _ in range(len(steps)):
            try:
                steps.popleft()()
            except BaseException:
                os.eventfd_write(self._descriptor, 1)
                raise
