"""Progress on standard error: in a terminal one line that changes, else a line from time to time.

`Progress` counts a transfer whose end is not known; `Bar` shows how much of a known amount is done.
"""

from __future__ import annotations

import os
import sys
import time

import click

from ottla.shown import counted, shown_bytes

_REFRESH_S = 0.2
_LINE_EVERY_S = 10.0
"""How often a bar is a line if standard error is not a terminal."""


def one_row(line: str) -> str:
    """The beginning of a line that fits into a row of the terminal: one that wraps cannot be rewritten."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):  # no terminal
        return line
    return line[: columns - 1] if columns > 1 else line


class Progress:
    """One line that is rewritten. Nothing is shown if `is_shown` is False or standard error is not a terminal."""

    def __init__(self, verb: str, *, is_shown: bool = True) -> None:
        self.records = 0
        self.size_bytes = 0
        self._verb = verb
        self._is_shown = is_shown and sys.stderr.isatty()
        self._started = self._refreshed = time.monotonic()
        self._width = 0

    def add(self, records: int, size_bytes: int) -> None:
        """Count so many more records and bytes."""
        self.records += records
        self.size_bytes += size_bytes
        if self._is_shown and time.monotonic() - self._refreshed >= _REFRESH_S:
            self._refreshed = time.monotonic()
            self._write(one_row(self._line()))

    def end(self, more: str = "") -> None:
        """Write the last line, which stays."""
        if self._is_shown:
            self._write(self._line() + more)
            click.echo(err=True)
            self._is_shown = False

    def _line(self) -> str:
        elapsed_s = max(time.monotonic() - self._started, 0.001)
        rate = f", {self.records / elapsed_s:,.0f}/s" if elapsed_s >= 1 and self.records > elapsed_s else ""
        return f"{self._verb} {counted(self.records, 'record')}, {shown_bytes(self.size_bytes)}{rate}"

    def _write(self, line: str) -> None:
        click.echo("\r" + line.ljust(self._width), nl=False, err=True)
        self._width = len(line)


class Bar:
    """A bar for bytes out of a known number, for work that takes longer than `_REFRESH_S`.

    Call `above` before each line that is printed, so that the bar stays below it.
    """

    _WIDTH = 30

    def __init__(self, label: str, all_bytes: int, *, is_shown: bool = True) -> None:
        self._label = label
        self._all_bytes = max(all_bytes, 1)
        self._done_bytes = 0
        self._is_shown = is_shown and sys.stderr.isatty()
        self._writes_lines = is_shown and not self._is_shown
        self._started = self._refreshed = time.monotonic()
        self._width = 0

    def add(self, size_bytes: int) -> None:
        """Count so many more bytes as done."""
        self._done_bytes += size_bytes
        now = time.monotonic()
        if self._is_shown and now - self._refreshed >= _REFRESH_S:
            self._refreshed = now
            self._write()
        elif self._writes_lines and now - self._refreshed >= _LINE_EVERY_S:
            self._refreshed = now
            share = min(self._done_bytes / self._all_bytes, 1.0)
            click.echo(f"{self._label}: {share:.0%}, {shown_bytes(self._done_bytes)}", err=True)

    def above(self) -> None:
        """Erase the bar, so that a line can be printed; the next `add` draws it again."""
        if self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)
            self._width = 0

    def end(self) -> None:
        """Erase the bar permanently."""
        self.above()
        self._is_shown = False

    def _write(self) -> None:
        share = min(self._done_bytes / self._all_bytes, 1.0)
        filled = int(share * self._WIDTH)
        elapsed_s = time.monotonic() - self._started
        left_s = elapsed_s / share - elapsed_s if share else 0
        line = (
            f"{self._label} [{'#' * filled}{'-' * (self._WIDTH - filled)}] {share:4.0%}  "
            f"{shown_bytes(self._done_bytes)}, {left_s:,.0f} s left"
        )
        line = one_row(line)
        click.echo("\r" + line.ljust(self._width), nl=False, err=True)
        self._width = len(line)
