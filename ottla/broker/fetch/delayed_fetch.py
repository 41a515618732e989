"""A Fetch that waits (Kafka's DelayedFetch): parked until enough of the requested records are visible, until a
partition has an error, or until `max_wait_ms`.

While it is parked it watches its partitions. Only those that woke it are read again, all of a turn together and after
the turn's appends. Where a topic was deleted and created again meanwhile, its new partitions are read and watched. A
request for many partitions is parked from the beginning: they are read in steps, between which other requests run; what
changes in a partition meanwhile is checked after the last step.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ottla.broker.runtime.pending import Pending
from ottla.protocol.api.fetch import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.broker.fetch.fetch_read import FetchRead
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.timers import Timer
    from ottla.broker.services import Services

PARTITIONS_PER_STEP = 100
"""Partitions that are read in one step, 30 to 50 us each, for the first time or again."""


def answer_or_park(read: FetchRead, services: Services, max_wait_ms: float) -> FetchResponse | Pending[FetchResponse]:
    """Read all partitions once. Answer if that is enough or the client does not wait, else park."""
    if len(read.targets) > PARTITIONS_PER_STEP:
        # Decoding the request, and finding the session's partitions, has taken a whole step already.
        return DelayedFetch(read, services, max_wait_ms).read_on()
    read.look(0, PARTITIONS_PER_STEP)
    if max_wait_ms <= 0 or read.is_answerable():
        return read.answer(None)
    return DelayedFetch(read, services, max_wait_ms).park()


class _Watch:
    """Wakes a parked fetch for one of its partitions."""

    __slots__ = ("_fetch", "_index", "partition")

    def __init__(self, fetch: DelayedFetch, index: int, partition: Partition) -> None:
        self._fetch = fetch
        self._index = index
        self.partition = partition

    def wake(self) -> None:
        """Something has changed: read the partition again, after this turn's appends."""
        self._fetch.woken(self._index)


class DelayedFetch:
    """See the module. All calls are made on the broker's thread."""

    def __init__(self, read: FetchRead, services: Services, max_wait_ms: float) -> None:
        self._read = read
        self._services = services
        self._max_wait_ms = max_wait_ms
        self._pending: Pending[FetchResponse] = Pending(parks=True)
        self._pending.on_cancel(self._stop_watching)
        self._is_reading = False
        """Whether partitions are left that have not been read once."""
        self._watches: dict[int, _Watch] = {}
        self._woken: dict[int, None] = {}
        """In the order in which they changed, so that none waits behind those that change all the time."""
        self._timer: Timer | None = None

    def park(self) -> Pending[FetchResponse]:
        """Wait for the partitions, which have all been read once."""
        self._watch(0)
        self._timer = self._services.timers.at(self._services.clock.monotonic_ms() + self._max_wait_ms, self._complete)
        return self._pending

    def read_on(self) -> Pending[FetchResponse]:
        """Read the partitions step by step, then wait if that is not enough."""
        self._is_reading = True
        self._plan_step()
        return self._pending

    def woken(self, index: int) -> None:
        """A watched partition has changed. Many may change in one turn; they are checked together."""
        if not self._is_reading and not self._woken:
            self._services.turn.after_append(self._look_again)
        self._woken[index] = None

    def _plan_step(self) -> None:
        self._timer = self._services.timers.at(self._services.clock.monotonic_ms(), self._step)

    def _step(self) -> None:
        """Read some more partitions; after the last step, read again what has changed meanwhile."""
        read, pending = self._read, self._pending
        if pending.done:
            return
        first = len(read.partitions)
        end = first + PARTITIONS_PER_STEP
        self._is_reading = end < len(read.targets)
        try:
            read.look(first, end)
        except Exception as error:  # no memory, or a bug: the client must not wait forever
            self._fail(error)
            return
        self._watch(first)
        if self._is_reading:
            self._plan_step()
            return
        is_enough = self._max_wait_ms <= 0 or read.is_answerable()
        # The answer to many partitions takes as long as a step: it is made in a separate turn.
        wait_ms = 0 if is_enough else self._max_wait_ms
        self._timer = self._services.timers.at(self._services.clock.monotonic_ms() + wait_ms, self._complete)
        if self._woken and not is_enough:
            self._look_again()

    def _watch(self, first: int) -> None:
        for index, partition in enumerate(self._read.partitions[first:], first):
            if partition is not None:
                watch = self._watches[index] = _Watch(self, index, partition)
                partition.watch(watch)

    def _watch_again(self, indexes: Iterable[int]) -> None:
        """Watch the partitions that were read, where others were watched: the topic was created again."""
        for index in indexes:
            watch, partition = self._watches[index], self._read.partitions[index]
            if partition is not None and partition is not watch.partition:
                watch.partition.unwatch(watch)
                watch.partition = partition
                partition.watch(watch)

    def _look_again(self) -> None:
        """Read the partitions that have changed; answer if there is enough now.

        One append may wake very many: fetches whose answers no longer fit into this turn's memory read in the next
        turn. Of more partitions than are read in a step, the rest are read in the next turns.
        """
        if self._services.answer_memory.is_turn_full:
            self._services.turn.after_append(self._look_again)
            return
        woken, self._woken = self._woken, {}
        if self._pending.done or self._timer is None:
            return
        if len(woken) > PARTITIONS_PER_STEP:
            indexes = iter(woken)
            woken = dict.fromkeys(islice(indexes, PARTITIONS_PER_STEP))
            self._woken = dict.fromkeys(indexes)
            self._services.turn.after_append(self._look_again)
        try:
            is_enough = self._read.look_again(sorted(woken))
        except Exception as error:  # no memory, or a bug: the client must not wait forever
            self._fail(error)
            return
        if is_enough:
            self._complete()
        else:
            self._watch_again(woken)

    def _complete(self) -> None:
        """Answer with what was read: there is enough, or the deadline has passed."""
        self._stop_watching()
        try:
            answer = self._read.answer(self._pending)
        except Exception as error:  # no memory, or a bug: the client must not wait forever
            self._fail(error)
            return
        if isinstance(answer, FetchResponse):
            self._pending.complete(answer)

    def _fail(self, error: Exception) -> None:
        """No memory, or a bug, which the dispatcher logs: without an answer the client would wait for ever."""
        self._stop_watching()
        self._pending.fail(error)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for watch in self._watches.values():
            watch.partition.unwatch(watch)
        self._watches.clear()
