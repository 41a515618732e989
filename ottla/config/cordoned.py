"""`cordoned.log.dirs` (KIP-1066): the log directories that take no new partitions, by their names in `log.dirs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
ALL_DIRECTORIES: Final = "*"


def cordoned_problem(cordoned: Collection[str], log_dirs: Collection[str]) -> str:
    """The reason why these names cannot be the value of the key; empty if they can."""
    if ALL_DIRECTORIES in cordoned:
        return "" if len(cordoned) == 1 else f"{ALL_DIRECTORIES} stands for all directories, and must be alone"
    known = _absolute(log_dirs)
    missing = [name for name in cordoned if Path(name).absolute() not in known]
    return f"must be in log.dirs: {', '.join(missing)}" if missing else ""


def is_cordoned(path: Path, cordoned: Collection[str]) -> bool:
    """Whether the directory of this absolute path takes no new partitions."""
    return ALL_DIRECTORIES in cordoned or path in _absolute(cordoned)


def _absolute(names: Collection[str]) -> set[Path]:
    return {Path(name).absolute() for name in names}
