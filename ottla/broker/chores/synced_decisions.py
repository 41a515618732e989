"""Decisions of transactions that are synced: the cleaner uses no others.

In `page-cache` a marker is visible to readers before it is synced. The cleaner must not trust it yet: it would remove a
record because of a newer committed one of its key, and a power cut could lose the marker that commits the newer one. So
the cleaner gets the last stable offset of an earlier check, after which the log was synced. Where the high watermark is
synced, as in `sync`, all decisions are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.runtime.disk import GroupSyncer
    from ottla.storage.log.log import Log


class SyncedDecisions:
    """See the module. All calls are made on the broker's thread."""

    def __init__(self, syncer: GroupSyncer, look_again: Callable[[], None]) -> None:
        self._syncer = syncer
        self._look_again = look_again
        self.offsets: dict[Log, int] = {}
        """By log: its last stable offset at the beginning of a sync that has ended."""

    def stable_offset(self, log: Log, stable_offset: int, *, is_asked: bool) -> int | None:
        """`stable_offset`, the last one of a log, if what has decided it is synced. Otherwise that of an earlier check,
        and a sync of the log is requested. None if there was no earlier check and a user waits for this one
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
