"""What must hold whatever comes in, and how a breach is noticed: `Finding`.

`Watch` listens to all that the broker logs meanwhile: a line that says `bug`, a traceback, or a line that is more
than one line (somebody's name in it began a new one) is a finding. It also makes ids known: member ids, topic ids and
sessions come from a seed, so that saved bytes that name them mean the same when they are replayed.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from types import TracebackType

from kit.known_ids import known_ids

from ottla.protocol.message import Struct

FOREIGN_LINES = ("ottla", "")


class Finding(AssertionError):
    """A promise that an input has broken."""


class Watch(logging.Handler):
    """A context: while it is open nothing is printed, everything is checked, and ids are known."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []
        self._logger = logging.getLogger("ottla")
        self._levels: dict[str, int] = {}
        self._before: tuple[int, bool] = (logging.NOTSET, True)
        self._ids = ExitStack()

    def __enter__(self) -> Watch:
        self._before = self._logger.level, self._logger.propagate
        self._levels = {name: logger.level for name, logger in _loggers()}
        self._logger.addHandler(self)
        self._logger.propagate = False
        self._logger.setLevel(logging.DEBUG)
        self._ids.enter_context(known_ids(0))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ids.close()
        self._logger.removeHandler(self)
        for name, logger in _loggers():  # clients may set levels
            logger.setLevel(self._levels.get(name, logging.NOTSET))
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        """Look at a line."""
        said = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None or record.msg.startswith("bug"):
            self.found.append(f"{record.levelname} {record.name}: {said}" + (_place(error) if error else ""))
        elif len(said.splitlines()) > 1:
            self.found.append(f"more than one line in the log: {said[:200]!r} (message {record.msg!r})")

    def check(self) -> None:
        """Raise what was found since the last look."""
        if self.found:
            found, self.found = self.found, []
            raise Finding("; ".join(found[:3]))


def _loggers() -> list[tuple[str, logging.Logger]]:
    known = logging.root.manager.loggerDict
    return [
        (name, logger)
        for name, logger in known.items()
        if name.startswith("ottla") and isinstance(logger, logging.Logger)
    ]


def _place(error: BaseException) -> str:
    """Where an exception was raised, in a few words."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/ottla/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f": {error!r:.300} at {' < '.join(reversed(frames[-4:]))}"


def describe(error: BaseException) -> str:
    """An exception that reached the caller, in a few words."""
    return f"{type(error).__name__}{_place(error)}"


def error_codes(struct: Struct) -> list[int]:
    """All error codes of an answer, at any depth."""
    found = []
    for field in struct.fields():
        value = getattr(struct, field.name)
        if field.name == "error_code" and isinstance(value, int):
            found.append(value)
        elif isinstance(value, Struct):
            found += error_codes(value)
        elif isinstance(value, list):
            found += [code for each in value if isinstance(each, Struct) for code in error_codes(each)]
    return found
