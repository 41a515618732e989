"""Opening a log: what is trusted, what is looked at again, what is cut and what is kept aside (decisions.md 7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from ottla.config.topic import TopicConfig
    from ottla.storage.files import Files
    from ottla.storage.health import DirectoryHealth
    from ottla.storage.log import Log

Progress = Callable[[int, int], None]
"""Called with (bytes looked at, bytes to look at) of the log that is being recovered."""


@dataclass(slots=True)
class RecoveryReport:
    """What opening one log found: for the start-up summary, metrics and one log line per oddity."""

    scanned_bytes: int = 0
    scanned_segments: int = 0
    rebuilt_indexes: int = 0
    truncated_bytes: int = 0
    kept_aside: list[str] = field(default_factory=list)
    lost_below_high_watermark: bool = False


def open_log(
    files: Files,
    directory: str,
    *,
    topic: str,
    partition: int,
    topic_id: UUID,
    config: TopicConfig,
    now_ms: int,
    was_clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    producer_id_expiration_ms: int = 86_400_000,
    health: DirectoryHealth | None = None,
    progress: Progress | None = None,
) -> Log:
    """Open the log in `directory` (which exists; a new one is empty and gets its first segment).

    Args:
        directory: `<log.dirs entry>/<topic>-<partition>`.
        was_clean: the clean-shutdown marker was there: nothing is scanned.
        recovery_point, log_start_offset, high_watermark: from the checkpoints, 0 where they name nothing.
        health: of the directory in `log.dirs`; is told about a full or failing disk.
        progress: called now and then while scanning.

    Raises:
        OSError: the directory cannot be read or repaired; it is for the manager to call it offline.
    """
    raise NotImplementedError
