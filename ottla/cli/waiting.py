"""Lines on standard error that say what a command waits for, once it has been silent for some seconds.

    ottla: waiting for an answer of localhost:9092 since 14:02:11 (5 s)
    ottla: waiting for a place in the group g since 14:02:11 (15 s): group g: The coordinator is not available.
    ottla: mending data since 14:02:11 (5 s)

The reason after the colon is the last line that the client has logged since, from INFO up. An ordinary wait, such as
for records that are not written yet, is reported once, and not at all after a notice on the terminal (`notices.py`).
With `--quiet` only a wait that has a reason is reported. A thread of its own writes the lines, whatever the command is
doing; if the system has no thread for it, there are none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Self, TypeVar

import click

from ottla.cli.show import one_line

SPEAKS_AFTER_S: Final = 5.0
SPEAKS_AGAIN_AFTER_S: Final = 10.0
_LOGGER: Final = "ottla.client"
T = TypeVar("T")
_SAID_BY_THE_ERROR: Final = ("ottla.client.sender", "ottla.client.transactional")
"""Loggers whose warnings are printed only if the command does not end with a KafkaError, which repeats them."""
_AGAIN: Final = ("; asking again", "; joining again", "; will be sent again", "; will be asked again")


class Waiting(logging.Handler):
    """A context in which a command waits for `what`. Call `on` with what it waits for next, `heard` for each response.

    `is_quiet`: report a wait only if the client has logged its reason. `verb` is another word than "waiting for", for
    work on files.
    """

    def __init__(self, what: str, *, is_quiet: bool = False, verb: str = "waiting for") -> None:
        super().__init__(logging.INFO)
        self._is_quiet = is_quiet
        self._verb = verb
        self.is_resting = False
        self._ended = threading.Event()
        self._held_back: list[str] = []
        self._had_level = logging.NOTSET
        self.on(what)

    def on(self, what: str, *, is_ordinary: bool = False, is_said: bool = False) -> None:
        """Wait for `what` from now on. An `is_ordinary` wait may take long, and is reported once, unless it `is_said`
        already.
        """
        self._what = what
        self._is_ordinary = is_ordinary
        self._has_spoken = is_said
        self.heard()

    def heard(self) -> None:
        """Begin the wait again, without a reason, since something has arrived."""
        self._began_s = time.monotonic()
        self._began_at = time.time()
        self.due_s = self._began_s + SPEAKS_AFTER_S
        self._reason = ""

    @contextmanager
    def resting(self) -> Iterator[None]:
        """A context in which the command waits for a person or for the reader of a pipe: nothing is reported."""
        self.is_resting = True
        try:
            yield
        finally:
            self.is_resting = False
            self.heard()

    def over(self, lines: Iterable[T]) -> Iterator[T]:
        """Yield the lines. Waiting for each of them counts, and its use does not."""
        for line in lines:
            with self.resting():
                yield line

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what the client has logged; warnings go to standard error, as the command's own lines do."""
        said = record.getMessage()
        for end in _AGAIN:
            said = said.removesuffix(end)
        self._reason = said
        if record.levelno < logging.WARNING:
            return
        line = one_line(record.getMessage())
        if record.name in _SAID_BY_THE_ERROR:
            self._held_back.append(line)
        else:
            click.echo(f"ottla: {line}", err=True)

    def __enter__(self) -> Self:
        logger = logging.getLogger(_LOGGER)
        self._had_level = logger.level
        logger.addHandler(self)
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO)
        self.heard()
        with suppress(RuntimeError):  # no thread can be started
            threading.Thread(target=self._watch, name="waiting", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self)
        logger.setLevel(self._had_level)
        if self._held_back:
            from ottla.protocol.errors import KafkaError

            if not isinstance(error, KafkaError):
                for line in self._held_back:
                    click.echo(f"ottla: {line}", err=True)

    def _watch(self) -> None:
        while not self._ended.wait(max(0.05, self.due_s - time.monotonic())):
            self.look(time.monotonic())

    def look(self, now_s: float) -> None:
        """Write the line if it is due."""
        if now_s < self.due_s:
            return
        if self.is_resting:
            self.due_s = now_s + SPEAKS_AFTER_S
            return
        self.due_s = now_s + SPEAKS_AGAIN_AFTER_S
        if not (self._is_ordinary and self._has_spoken) and (self._reason or not self._is_quiet):
            self._has_spoken = True
            click.echo(f"ottla: {self.words()}", err=True)

    def words(self) -> str:
        """The text of the line: what the command waits for, since when, and why if that is known."""
        since = time.strftime("%H:%M:%S", time.localtime(self._began_at))
        words = f"{self._verb} {self._what} since {since} ({time.monotonic() - self._began_s:.0f} s)"
        return f"{words}: {self._reason}" if self._reason else words
