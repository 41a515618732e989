"""How far a transfer has come, on standard error, where somebody watches; silent where nobody does."""

from __future__ import annotations

import sys
import time

import click

from ottla.cli.show import show_size

_REFRESH_S = 0.2


class Progress:
    """One line that is written again and again. `is_shown` False, or no terminal, shows nothing."""

    def __init__(self, verb: str, *, is_shown: bool = True) -> None:
        self.records = 0
        self.size_bytes = 0
        self._verb = verb
        self._is_shown = is_shown and sys.stderr.isatty()
        self._started = self._refreshed = time.monotonic()
        self._width = 0

    def add(self, records: int, size_bytes: int) -> None:
        """So many more records and bytes."""
        self.records += records
        self.size_bytes += size_bytes
        if self._is_shown and time.monotonic() - self._refreshed >= _REFRESH_S:
            self._refreshed = time.monotonic()
            self._write(self._line())

    def end(self, more: str = "") -> None:
        """The last line stays."""
        if self._is_shown:
            self._write(self._line() + more)
            click.echo(err=True)
            self._is_shown = False

    def _line(self) -> str:
        elapsed_s = max(time.monotonic() - self._started, 0.001)
        plural = "" if self.records == 1 else "s"
        rate = f", {self.records / elapsed_s:,.0f}/s" if elapsed_s >= 1 and self.records > elapsed_s else ""
        return f"{self._verb} {self.records:,} record{plural}, {show_size(self.size_bytes)}{rate}"

    def _write(self, line: str) -> None:
        click.echo("\r" + line.ljust(self._width), nl=False, err=True)
        self._width = len(line)
