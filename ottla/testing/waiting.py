"""Waiting in tests: until something is so, within a time, and with the reason if it never is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_S: Final = 0.01
"""Between two looks: one takes a millisecond or two of the broker's time."""


class NotInTime(AssertionError):
    """Something has not happened in time. The message says what is so in its place."""


def wait_until(look: Callable[[], str | None], timeout_s: float) -> None:
    """Call `look` until it returns None. A text is what is missing. Raises NotInTime with the last one."""
    __tracebackhide__ = True  # pytest shows the line of the test
    deadline = time.monotonic() + timeout_s
    while True:
        missing = look()
        if missing is None:
            return
        if time.monotonic() >= deadline:
            raise NotInTime(f"{missing} after {timeout_s:g} s")
        time.sleep(PAUSE_S)
