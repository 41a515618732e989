"""What a verification finds, how bad that is, and what a log directory promises of a partition.

How bad a finding is:

    damage   what was on disk is not there any more, or contradicts itself; exit status 1
    unsure   past the recovery point of a directory that was not stopped cleanly: the next start checks and mends it
    note     nothing is wrong, but a person may want to know
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ottla.storage.recovery.missing_offsets import ANYWHERE

Progress = Callable[[int], None]
"""Called with so many more bytes that were checked."""


class Severity(enum.StrEnum):
    """How bad a finding is; see the module."""

    DAMAGE = "damage"
    UNSURE = "unsure"
    NOTE = "note"


class Finding(NamedTuple):
    """Something that a person should know: where (byte and offset, where there are such), and what, in a line."""

    severity: Severity
    path: Path
    problem: str
    position: int | None = None
    offset: int | None = None


class Counts:
    """What was checked, and what was found."""

    def __init__(self) -> None:
        self.partitions = 0
        self.segments = 0
        self.batches = 0
        self.size_bytes = 0
        self.findings = dict.fromkeys(Severity, 0)


class Promises(NamedTuple):
    """What a log directory says of a partition, for the one who goes through its log."""

    recovery_point: int
    log_start_offset: int
    was_clean: bool
    allows_gaps: bool | None
    """Whether offsets may be missing because the log is, or was, compacted; None: nobody knows."""
    gaps_before: int = ANYWHERE
    """Below which offset, if so (`missing_offsets.py`)."""
    is_served: bool = False
    """Whether a running Ottla has the directory: what it writes some time after the records may lack the last ones."""

    def severity_at(self, offset: int) -> Severity:
        """DAMAGE below the recovery point, UNSURE where the next start looks anyway."""
        return Severity.DAMAGE if self.was_clean or offset < self.recovery_point else Severity.UNSURE
