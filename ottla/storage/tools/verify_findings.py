"""The findings of a verification, their severity, and the promises of a log directory about a partition.

The severity of a finding:

    damage   records that were on disk are missing, or contradict each other; exit status 1
    unsure   after the recovery point of a directory that was not stopped cleanly: the next start checks and repairs it
    note     nothing is wrong, but a person may want to know
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.storage.files.files import Files
from ottla.storage.recovery.missing_offsets import ANYWHERE

Progress = Callable[[int], None]
"""Called with the number of further bytes that were checked."""


class Severity(enum.StrEnum):
    """The severity of a finding; see the module."""

    DAMAGE = "damage"
    UNSURE = "unsure"
    NOTE = "note"


class Finding(NamedTuple):
    """A fact that a person should know: the place (byte and offset, if it has them) and the problem, in one line."""

    severity: Severity
    path: Path
    problem: str
    position: int | None = None
    offset: int | None = None


def obstacles(files: Files, directory: Path) -> Iterator[Finding]:
    """What is no file, or cannot be read as one, under the name of a file."""
    for path, words in files.obstacles(directory):
        yield Finding(Severity.DAMAGE, path, f"{words}: it is left out of everything below, and no repair changes it")


class Counts:
    """The counts of what was checked and found."""

    def __init__(self) -> None:
        self.partitions = 0
        self.segments = 0
        self.batches = 0
        self.size_bytes = 0
        self.findings = dict.fromkeys(Severity, 0)


class Promises(NamedTuple):
    """The facts that a log directory records about a partition, for the verification of its log."""

    recovery_point: int
    log_start_offset: int
    was_clean: bool
    allows_gaps: bool | None
    """Whether offsets may be missing because the log is, or was, compacted; None: unknown."""
    gaps_before: int = ANYWHERE
    """The offset below which they may be missing (`missing_offsets.py`)."""
    is_served: bool = False
    """Whether a running Ottla uses the directory: files that it writes later than the records may lack the last
    ones.
    """

    def severity_at(self, offset: int) -> Severity:
        """DAMAGE below the recovery point, UNSURE where the next start checks anyway."""
        return Severity.DAMAGE if self.was_clean or offset < self.recovery_point else Severity.UNSURE
