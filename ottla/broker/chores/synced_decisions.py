"""Decisions of transactions that are on the disk: the cleaner goes by no other.

In `page-cache` a marker counts for readers before it is synced. The cleaner must not believe it yet: it would remove a
record for a newer committed one of its key, and a power cut could take the marker that commits that one. So the cleaner
gets the last stable offset of an earlier look, from which on the log was synced. Where the high watermark is synced,
as in `sync`, all decisions are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.runtime.disk import Syncer
    from ottla.storage.log.log import Log


class SyncedDecisions:
    """See the module. All calls on the broker's thread."""

    def __init__(self, syncer: Syncer, look_again: Callable[[], None]) -> None:
        self._syncer = syncer
        self._look_again = look_again
        self.offsets: dict[Log, int] = {}
        """By log, what was its last stable offset when a sync began that is done."""

    def stable_offset(self, log: Log, stable_offset: int, *, is_asked: bool) -> int | None:
        """`stable_offset`, the last one of a log, where what has decided it is synced; else that of an earlier look,
        and a sync of the log is asked for. None where there was no look before, and a person waits for this one
        (`is_asked`): then `look_again` is called once the log is synced.
        """
        if log.transactions.last_marker_offset < log.synced_offset:
            return stable_offset
        is_first = log not in self.offsets

        def synced(error: BaseException | None) -> None:
            if error is None:
                self.offsets[log] = stable_offset
                if is_asked and is_first:
                    self._look_again()

        self._syncer.request(log, synced)
        return None if is_asked and is_first else self.offsets.get(log, log.log_start_offset)
