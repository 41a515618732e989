"""The offset up to which the index files of active segments are on disk: `ottla-index-offset-checkpoint`, Ottla's file.

A group sync covers records, but not the indexes of the active segment, which can be rebuilt from it. But an active
segment may have a gigabyte, and a start after a kill would have to read all of its headers. So a chore periodically
syncs the index files of the logs that have grown most since the last time, and this checkpoint records the offset after
the last synced entry. A start after a crash keeps the entries before that offset and reads batches from there on. A row
that is missing, or does not match the files, costs time only. The format is that of Kafka's checkpoints
(`checkpoint.py`); Kafka does not read the file.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.storage.formats.layout import TopicPartition
    from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

BEHIND_BYTES: Final = 4 << 20
"""A log that has grown less since the last time is skipped: a start reads this much in milliseconds."""
MOST_LOGS: Final = 16
"""Logs whose index files are synced in one round, two syncs each."""


class _Synced(NamedTuple):
    """The index files of a log that are on disk. `base_offset` and `size_bytes`: its active segment's at that time."""

    log: Log
    base_offset: int
    size_bytes: int
    offset: int


class IndexSyncs:
    """The synced index files of a broker's logs. `run` waits for the disk; one thread at a time may call it."""

    def __init__(self) -> None:
        self._synced: dict[TopicPartition, _Synced] = {}

    def offset_of(self, one: TopicPartition, log: Log) -> int | None:
        """The row: the offset up to which the index files are known to be on disk, None if none of this log's were
        synced.
        """
        synced = self._synced.get(one)
        # A sync that was under way when the log was deleted is reported later: it must not count for a new log.
        return synced.offset if synced is not None and synced.log is log else None

    def closed(self, one: TopicPartition, log: Log) -> None:
        """Note that the log was closed cleanly: its index files are on disk, too."""
        self._synced[one] = _Synced(log, 0, 0, log.log_end_offset)

    def forget(self, one: TopicPartition) -> None:
        """Drop the row of a log that is gone."""
        self._synced.pop(one, None)

    def keep(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Forget logs that are not among these: some were deleted during the sync of their index files, which was noted
        afterwards. Called by the thread that calls `run`.
        """
        for one, synced in self._synced.copy().items():  # other threads change it (`log_checkpoints.py`)
            if logs.get(one) is not synced.log:
                self._synced.pop(one, None)

    def run(self, logs: Iterable[tuple[TopicPartition, Log]]) -> None:
        """Sync the index files of the logs that have grown most. Raises OSError: the disk failed."""
        behind = []
        for one, log in logs:
            active = log.segment_list.active
            synced = self._synced.get(one)
            grown_bytes = active.size_bytes
            if synced is not None and synced.log is log and synced.base_offset == active.base_offset:
                grown_bytes -= synced.size_bytes
            if grown_bytes >= BEHIND_BYTES and log.error is None:
                behind.append((grown_bytes, one, log))
        for _, one, log in heapq.nlargest(MOST_LOGS, behind, key=lambda item: item[0]):
            active = log.segment_list.active
            size_bytes = active.size_bytes
            try:
                offset = active.sync_written_indexes()
            except (OSError, ValueError):
                # The files were closed with the log, or some time after it was deleted. A rolled segment is still open:
                # its indexes are part of the next group sync, which would not see what was lost here.
                if log.error is None and not active.is_deleted:
                    raise
                continue
            self._synced[one] = _Synced(log, active.base_offset, size_bytes, offset)
