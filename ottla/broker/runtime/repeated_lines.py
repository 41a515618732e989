"""A limit for repeated log lines: a hundred of one kind in a burst, then ten a minute, with the number left out.

Examples: a client that speaks TLS to a plain listener and reconnects immediately, a disk that fails each read of a
consumer that tries again, a group that never settles. Each is worth a line, but none may fill the disk of a machine
that is unattended for months. Kafka leaves that to log4j. A kind is a line of code, so their number is bounded. The
events that are left out are still counted: `/metrics` counts all connections, requests and errors.

Lines below INFO are not limited: a person who turns them on wants them all. Nor are those of a start, of which there is
up to one for each partition: each partition that has lost something must be named.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

AT_ONCE = 100
A_MINUTE = 10
_LINE_S = 60 / A_MINUTE


class _Kind:
    """The budget of one kind: `saved_s` grows with time up to a maximum; a written line takes `_LINE_S` of it."""

    __slots__ = ("at_s", "left_out", "saved_s")

    def __init__(self, now_s: float) -> None:
        self.saved_s = AT_ONCE * _LINE_S
        self.at_s = now_s
        self.left_out = 0


class RepeatedLines(logging.Filter):
    """A filter for the handler that writes the log. Any thread may call it; `now_s` is a monotonic clock."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._kinds: dict[tuple[str, int], _Kind] = {}
        self._guard = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written. The last line before some are left out has a note; the next one their number."""
        if record.levelno < logging.INFO:
            return True
        with self._guard:
            kind = self._kind(record)
            if kind.saved_s < _LINE_S:
                kind.left_out += 1
                return False
            kind.saved_s -= _LINE_S
            left_out, kind.left_out = kind.left_out, 0
            is_last = kind.saved_s < _LINE_S
        if left_out:
            _add(record, f"{left_out} lines like this were left out")
        elif is_last:
            _add(record, f"from now on {A_MINUTE} lines like this are written a minute")
        return True

    def _kind(self, record: logging.LogRecord) -> _Kind:
        key, now_s = (record.pathname, record.lineno), self._now_s()
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(now_s)
        kind.saved_s = min(AT_ONCE * _LINE_S, kind.saved_s + now_s - kind.at_s)
        kind.at_s = now_s
        return kind


def _add(record: logging.LogRecord, note: str) -> None:
    record.msg, record.args = f"{record.getMessage()} ({note})", None
