"""A wall clock that can be set wrong while a real broker runs: its process reads how wrong from a file.

Only root may set a machine's clock, and everybody else on it would see that. So the interpreter imports a module of
ours first, by which `time.time_ns`, the broker's only source of the wall clock, is ahead or behind. The boot clock and
the monotonic one are the machine's own.
"""

from __future__ import annotations

import os
from pathlib import Path

FILE_VARIABLE = "OTTLA_TEST_WRONG_CLOCK"
_MODULE = f'''
import os, time

_path, _right = os.environ["{FILE_VARIABLE}"], time.time_ns


def _wrong():
    with open(_path, encoding="ascii") as file:
        return _right() + int(file.read()) * 1_000_000


time.time_ns = _wrong
'''


class WrongClock:
    """The clock of processes that are started with `environment`; right until `set` says otherwise."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "sitecustomize.py").write_text(_MODULE, "utf-8")
        self._path = directory / "ahead-ms"
        self.ahead_ms = 0
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        """What a process must be started with, beside what it has anyway."""
        paths = [str(self._path.parent), os.environ.get("PYTHONPATH", "")]
        return {FILE_VARIABLE: str(self._path), "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def set(self, ahead_ms: int) -> None:
        """Let it be so far ahead from now on; behind: negative. Replaced whole: it may be read at any moment."""
        fresh = self._path.with_suffix(".fresh")
        fresh.write_text(str(ahead_ms), "ascii")
        fresh.replace(self._path)
        self.ahead_ms = ahead_ms
