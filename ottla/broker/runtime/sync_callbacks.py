"""The callbacks of requests that wait for a sync: all of them are called, even if one raises.

A callback that raises is a bug, which is logged: no other log may be left with a sync that never ends, and no other
request without an answer. Every line runs on the broker's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.storage.log.log import Log

LOG = logging.getLogger("ottla.disk")

SyncCallback = Callable[[BaseException | None], None]
"""Called with None when the log is synced up to the end that it had at the request, else with the error."""


def call_all(callbacks: Sequence[SyncCallback], result: BaseException | None) -> None:
    """Call all callbacks of one log. Loops over the logs of a round have these lines inlined: a call for each log would
    cost more than the rest of it.
    """
    for callback in callbacks:
        try:
            callback(result)
        except Exception:  # a bug, logged: the other callbacks must be called
            log_bug()


def fail_all(waiting: Mapping[Log, Sequence[SyncCallback]], error: BaseException) -> None:
    """Fail these logs, and call their callbacks with the error."""
    for log, callbacks in waiting.items():
        log.fail(error)
        call_all(callbacks, error)


def log_bug() -> None:
    """Log that a callback has raised; called in its `except` clause."""
    LOG.exception("bug: a completion of a sync failed")
