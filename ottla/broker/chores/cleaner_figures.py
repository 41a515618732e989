"""What the cleaner tells of itself: figures for metrics, and what became of a cleaning that somebody asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CleanerFigures:
    """What the cleaner counts, for metrics; sums since the start, except where it says otherwise."""

    cleanings: int = 0
    failed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_freed: int = 0
    records_removed: int = 0
    max_dirty_ratio: float = 0.0
    """Of the logs as of the last look."""
    last_look_wall_ms: int = 0
    last_recopy_ratio: float = 0.0
    last_map_utilization: float = 0.0
    last_cleaning_s: float = 0.0
    max_overdue_ms: int = 0
    """The longest that a log was overdue by `max.compaction.lag.ms` at the last look."""


@dataclass(slots=True)
class CleaningTold:
    """What became of a cleaning that somebody asked for: `state` is waiting, running, done or failed."""

    state: str
    message: str = ""
    bytes_before: int = 0
    bytes_after: int = 0
    records_removed: int = 0
    end_offset: int = -1
    rounds: int = 0
