"""A temporary directory that is removed with its owner: when the owner is forgotten, or the process ends.

Not by a process that was forked from this one, which would take the directory away from its parent
(`tempfile.TemporaryDirectory` does).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path


class TemporaryDirectory:
    """A new directory at `path`. Raises OSError."""

    def __init__(self, owner: object) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="ottla-"))
        self.remove = weakref.finalize(owner, _remove, self.path, os.getpid())


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)
