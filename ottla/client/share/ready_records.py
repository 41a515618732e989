"""The acquired records that the program has not taken, and errors in their places among them.

Records are dropped when their lock ends, and with their session: they may belong to another member then.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque

from ottla.client.errors import KafkaError
from ottla.client.share.acquired_records import AcquiredRecords

logger = logging.getLogger(__name__)


class ReadyRecords:
    """See the module. `queue` has them in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.queue: deque[AcquiredRecords | KafkaError] = deque()
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        """Runs when the lock of the first records ends."""
        self._is_closed = False

    def add(self, records: AcquiredRecords) -> None:
        """Add records after the others."""
        self.queue.append(records)
        if self._timer is None and records.lock_until < math.inf:
            self._timer = self._loop.call_at(records.lock_until, self.drop_lost)

    def drop_lost(self) -> None:
        """Drop records whose lock or session has ended. It is called again when the next lock ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._loop.time()
        next_end = math.inf
        for one in [one for one in self.queue if isinstance(one, AcquiredRecords)]:
            if one.lock_until <= now or one.session.loss is not None:
                logger.info("%s-%d: %d acquired records are lost", *one.partition, one.left_count)
                one.release_left()  # ends the iterator of a reader; nothing is sent, since others may have them
                self.queue.remove(one)
            else:
                next_end = min(next_end, one.lock_until)
        if next_end < math.inf and not self._is_closed:
            self._timer = self._loop.call_at(next_end, self.drop_lost)

    def close(self) -> None:
        """Drop nothing any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
