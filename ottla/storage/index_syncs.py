"""Up to where the index files of active segments are on disk: `ottla-index-offset-checkpoint`, a file of our own.

A group sync covers records, not the indexes of the active segment, which can be made anew from it. But an active
segment may have a gigabyte, and reading all of its headers after each kill would take as long as the disk needs for
that. So, now and then, a chore brings the index files of those logs to the disk that have grown most since the last
time, and this checkpoint remembers the offset behind the last entry that is there. A start after a crash keeps the
entries before that offset and looks at batches from there on. A row that is missing, or does not fit what is found,
costs time and nothing else. The format is that of Kafka's checkpoints (checkpoint.py); Kafka does not look at the file.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.storage.layout import TopicPartition
    from ottla.storage.log import Log

logger = logging.getLogger(__name__)

BEHIND_BYTES: Final = 4 << 20
"""A log that has grown less since the last time is left alone: so much is read in milliseconds."""
MOST_LOGS: Final = 16
"""Logs whose index files are synced in one round, two syncs each."""


class IndexSyncs:
    """What is known of the logs of one broker. `run` waits for the disk, in any one thread."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        """The rows: up to which offset the index files are known to be on disk."""
        self._seen: dict[TopicPartition, tuple[Log, int, int]] = {}
        """By partition the log, the base offset of the segment that was active, and its size."""

    def forget(self, one: TopicPartition) -> None:
        """The log is gone."""
        self.offsets.pop(one, None)
        self._seen.pop(one, None)

    def run(self, logs: Iterable[tuple[TopicPartition, Log]]) -> None:
        """Bring the index files of those that have grown most to the disk. Raises OSError: the disk failed."""
        behind = []
        for one, log in logs:
            active = log.segment_list.active
            known, base_offset, size_bytes = self._seen.get(one, (None, 0, 0))
            if known is not log or base_offset != active.base_offset:
                size_bytes = 0
            if active.size_bytes - size_bytes >= BEHIND_BYTES and log.error is None:
                behind.append((active.size_bytes - size_bytes, one, log))
        for _, one, log in heapq.nlargest(MOST_LOGS, behind, key=lambda item: item[0]):
            active = log.segment_list.active
            size_bytes = active.size_bytes
            try:
                offset = active.sync_written_indexes()
            except (OSError, ValueError):
                if log.error is None and not active.is_deleted and active is log.segment_list.active:
                    raise
                continue  # it was closed meanwhile
            self._seen[one] = (log, active.base_offset, size_bytes)
            self.offsets[one] = offset
