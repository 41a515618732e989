"""A system that gives no thread, for a real broker: while a file is there, its process can start none.

Root, as whom tests may run, has no RLIMIT_NPROC. So the interpreter imports a line of ours first, by which starting a
thread fails as it does then ("can't start new thread").
"""

from __future__ import annotations

import os
from pathlib import Path

FILE_VARIABLE = "OTTLA_TEST_NO_THREADS"
_MODULE = f'''
import os, threading

_start_thread = threading.Thread.start


def _start_or_refuse(thread):
    if os.path.exists(os.environ["{FILE_VARIABLE}"]):
        raise RuntimeError("can't start new thread")
    _start_thread(thread)


threading.Thread.start = _start_or_refuse
'''


class ThreadShortage:
    """Of processes that are started with `environment`; over until `begin` and after `end`.

    Adds itself to the `sitecustomize.py` of `directory`, of which an interpreter imports one only.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "sitecustomize.py").open("a", encoding="utf-8") as file:
            file.write(_MODULE)
        self._path = directory / "no-threads"
        self.end()

    @property
    def environment(self) -> dict[str, str]:
        """What a process must be started with, beside what it has anyway."""
        paths = [str(self._path.parent), os.environ.get("PYTHONPATH", "")]
        return {FILE_VARIABLE: str(self._path), "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    @property
    def is_on(self) -> bool:
        """Whether no thread can be started now."""
        return self._path.exists()

    def begin(self) -> None:
        """No thread can be started from now on."""
        self._path.touch()

    def end(self) -> None:
        """Threads can be started again."""
        self._path.unlink(missing_ok=True)
