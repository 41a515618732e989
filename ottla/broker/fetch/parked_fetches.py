"""Fetches that wait at the end of a log and are answered from a request template (`broker/fast`).

    a Fetch without enough records  ->  `ParkedFetch` at the `Tail` of each of its partitions, with a deadline
    more may be seen                ->  at the turn's end, each Fetch that this woke is looked at once

What many wait for is read once: `SharedReads` gives those that ask for the same bytes the same buffer. A ParkedFetch
does what `DelayedFetch` does for a request of the slow path, and becomes one (`ParkedFetch.fall_back`) where a template
may not answer: when the broker's stamp has changed, or what a reader gets is cold, damaged or has aborted transactions.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from ottla.broker.runtime.in_flight_request import InFlightRequest

if TYPE_CHECKING:
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.answer_memory import AnswerMemory
    from ottla.broker.runtime.timers import Timers
    from ottla.broker.runtime.turn import Turn
    from ottla.broker.runtime.validity import Validity

LOG = logging.getLogger("ottla.fetch")

MOST_PER_TURN: Final = 400
"""Fetches that are looked at in one turn: sending their answers takes the loop 4 to 8 ms."""


class SharedReads:
    """What was found in one turn, by what was asked for: records, and answers around them."""

    __slots__ = ("answers", "records")

    def __init__(self) -> None:
        self.answers: dict[tuple[object, ...], Any] = {}
        self.records: dict[tuple[object, ...], memoryview | None] = {}


class ParkedFetch(InFlightRequest):
    """A Fetch that waits; a template knows what it waits for.

    Attributes:
        stamp: the broker's stamp at which it was parked.
        woken: what has changed since it was looked at last: whatever it named when it began to wait at a `Tail`.
        is_waiting: false once it is answered, or cancelled, or has taken the slow path.
    """

    __slots__ = ("deadlines", "is_waiting", "stamp", "woken")

    # The same for all: constants of the class, since each attribute set is time on the hot path.
    parks = True
    requests = 1
    waits_again = False
    """Whether the next request of its connection is asked by `wait_again` whether it waits, too."""

    def __init__(self, deadlines: Deadlines, stamp: int) -> None:
        self.pending = None
        self.owner = None
        self.is_done = False
        self.buffers = None
        self.size_bytes = 0
        self.close_reason = None
        self.deadlines = deadlines
        self.stamp = stamp
        self.is_waiting = True
        self.woken: list[object] = []

    # The four steps of a subclass, in `fast/parked_templates.py`. No ABC: InFlightRequest, the base, has no metaclass.

    def look(self, reads: SharedReads) -> None:
        """Look at what has woken it; answer, if that is enough now."""
        raise NotImplementedError

    def look_alone(self) -> None:
        """As `look`, where nobody shares what is read. Raises nothing: a bug is logged, and ends its connection."""
        raise NotImplementedError

    def expire(self) -> None:
        """Answer with what there is: its time is over."""
        raise NotImplementedError

    def fall_back(self) -> None:
        """Go on by the slow path, which may wait for what is left of the time."""
        raise NotImplementedError

    def stop_waiting(self) -> None:
        """Leave the tails."""
        raise NotImplementedError

    def end_wait(self) -> int:
        """Wait no more; when it would have expired (monotonic, in ms)."""
        self.is_waiting = False
        self.stop_waiting()
        return self.deadlines.remove(self)

    def cancel(self) -> None:
        """Give the request up: the connection has ended, or the broker stops."""
        if self.is_waiting:
            self.end_wait()
        super().cancel()


class Tail:
    """The fetches that wait at the end of one partition.

    It is the partition's watcher from the first of them on, until it is woken while there are none: a consumer that is
    alone leaves and comes back with every record.
    """

    __slots__ = ("_fetches", "_partition", "_turn", "_validity", "is_watching", "is_woken", "waiting")

    def __init__(self, partition: Partition, fetches: ParkedFetches, turn: Turn, validity: Validity) -> None:
        self._partition = partition
        self._fetches = fetches
        self._turn = turn
        self._validity = validity
        self.is_woken = False
        self.is_watching = False
        self.waiting: dict[ParkedFetch, object] = {}
        """What each calls the partition. Who is added sees to it that the tail `is_watching`."""

    def watch(self) -> None:
        """Be woken from now on."""
        self.is_watching = True
        self._partition.watch(self)

    def remove(self, fetch: ParkedFetch) -> None:
        """It waits no more; fine when it did not."""
        self.waiting.pop(fetch, None)

    def wake(self) -> None:
        """More may be seen, or something is wrong: look at those that wait, behind this turn's appends."""
        waiting = self.waiting
        if not waiting:
            self.is_watching = False
            self._partition.unwatch(self)
        elif not self.is_woken:
            turn = self._turn
            if turn.is_alone and len(waiting) == 1 and turn.behind is None and not turn.has_work:
                (fetch,) = waiting
                if fetch.stamp == self._validity.stamp:
                    name = waiting[fetch]
                    if name is not None:
                        fetch.woken.append(name)
                    turn.behind = fetch
                    return
            self.is_woken = True
            self._fetches.note_woken(self)


class Deadlines:
    """Of the parked fetches that wait equally long: the first is due first, so one timer stands for all of them.

    `waiting` has them and since when each waits (`now_ns`, monotonic).
    """

    __slots__ = ("__weakref__", "_max_wait_ms", "_timers", "_validity", "has_timer", "now_ns", "waiting")

    def __init__(self, max_wait_ms: int, timers: Timers, now_ns: Callable[[], int], validity: Validity) -> None:
        self._validity = validity
        self._max_wait_ms = max_wait_ms
        self.now_ns = now_ns
        self._timers = timers
        self.has_timer = False
        self.waiting: dict[ParkedFetch, int] = {}
        """A fetch adds itself, and calls `begin` where there is no timer: nearly always there is, and no call."""

    def begin(self, since_ns: int) -> None:
        """Have a timer, for one that waits since then."""
        self.has_timer = True
        self._timers.at(self._deadline_ms(since_ns), self._expire)

    def remove(self, fetch: ParkedFetch) -> int:
        """It waits no more: its deadline (monotonic, in ms). The timer stays: it finds nothing to do, or what is due
        later.
        """
        return self._deadline_ms(self.waiting.pop(fetch, 0))

    def _deadline_ms(self, since_ns: int) -> int:
        return since_ns // 1_000_000 + self._max_wait_ms

    def _expire(self) -> None:
        self.has_timer = False
        now_ms, waiting = self.now_ns() // 1_000_000, self.waiting
        due: list[ParkedFetch] = []
        for fetch, since_ns in waiting.items():
            if self._deadline_ms(since_ns) > now_ms:
                self.begin(since_ns)
                break
            due.append(fetch)
        for fetch in due:
            if fetch.is_waiting:
                try:
                    # As when it is woken: what has come meanwhile may be shown by no right of before.
                    if fetch.stamp == self._validity.stamp:
                        fetch.expire()
                    else:
                        fetch.fall_back()
                except Exception:
                    fail(fetch)

    def __len__(self) -> int:
        return len(self.waiting)


class ParkedFetches:
    """All of one node."""

    __slots__ = ("_deadlines", "_left", "_memory", "_now_ns", "_timers", "_turn", "_validity", "_woken")

    def __init__(
        self, turn: Turn, timers: Timers, now_ns: Callable[[], int], validity: Validity, memory: AnswerMemory
    ) -> None:
        self._turn = turn
        self._timers = timers
        self._now_ns = now_ns
        self._validity = validity
        self._memory = memory
        self._deadlines: WeakValueDictionary[int, Deadlines] = WeakValueDictionary()
        self._woken: list[Tail] = []
        self._left: list[ParkedFetch] = []
        """Woken before, and left for the next turn."""

    def deadlines(self, max_wait_ms: int) -> Deadlines:
        """Those of the fetches that wait so long; the caller keeps them."""
        deadlines = self._deadlines.get(max_wait_ms)
        if deadlines is None:
            deadlines = self._deadlines[max_wait_ms] = Deadlines(
                max_wait_ms, self._timers, self._now_ns, self._validity
            )
        return deadlines

    def tail_of(self, partition: Partition) -> Tail:
        """Where fetches wait for more of a partition."""
        tail = partition.tail
        if not isinstance(tail, Tail):
            tail = partition.tail = Tail(partition, self, self._turn, self._validity)
        return tail

    def wait_ms(self, deadline_ms: int) -> int:
        """How long it is until then; at least 0."""
        return max(0, deadline_ms - self._now_ns() // 1_000_000)

    def read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        at_least_one: bool,
        committed_only: bool,
        allow_map: bool,
        reads: SharedReads,
    ) -> memoryview | None:
        """What `Partition.read` gives, once for all that ask the same of `reads`; None where a worker has to read it.

        Raises KafkaError, OSError.
        """
        asked = (partition, offset, max_bytes, at_least_one, committed_only, allow_map)
        try:
            records = reads.records[asked]
        except KeyError:
            records = partition.read_on(offset, max_bytes, at_least_one, committed_only, allow_map)
            if records is None:
                records = partition.read(offset, max_bytes, at_least_one, committed_only, allow_map).view
            reads.records[asked] = records
            if records and not isinstance(records.obj, mmap.mmap):
                self._memory.note_copied(len(records))
        return records

    def note_woken(self, tail: Tail) -> None:
        """Look at those that wait there at the end of this turn."""
        is_planned = bool(self._woken or self._left)
        self._woken.append(tail)
        if not is_planned:
            self._turn.after_append(self._look_again)

    def _look_again(self) -> None:
        """Answer those for whom there is enough now."""
        tails = self._woken
        if len(tails) != 1 or len(tails[0].waiting) != 1 or self._left or self._turn.is_long:
            self._look_at_all()
            return
        # `_look_at_all` where only one waits, and so at one partition: half the steps.
        tail = tails.pop()
        tail.is_woken = False
        ((fetch, name),) = tail.waiting.items()
        if name is not None:
            fetch.woken.append(name)
        if fetch.stamp == self._validity.stamp:
            fetch.look_alone()
            return
        try:
            fetch.fall_back()
        except Exception:  # a bug, logged: the turn of other requests continues
            fail(fetch)

    def _look_at_all(self) -> None:
        """One append may wake very many: some wait for the next turn, where there are more than `MOST_PER_TURN`, or
        this one has no memory left for their answers.
        """
        tails, self._woken = self._woken, []
        turn = self._turn
        due, self._left = self._left, []
        for tail in tails:
            tail.is_woken = False
            for fetch, name in tail.waiting.items():
                woken = fetch.woken
                if not woken:
                    due.append(fetch)
                woken.append(name)
        stamp, memory = self._validity.stamp, self._memory
        reads = SharedReads()
        for number, fetch in enumerate(due):
            if number == MOST_PER_TURN or (turn.is_long and memory.is_turn_full):
                self._left = due[number:]
                self._turn.after_append(self._look_again)
                return
            if fetch.is_waiting:
                try:
                    if fetch.stamp == stamp:
                        fetch.look(reads)
                    else:
                        fetch.fall_back()
                except Exception:
                    fail(fetch)
            else:
                fetch.woken.clear()


def fail(fetch: ParkedFetch) -> None:
    """End its connection: a bug in one answer must not keep the others back."""
    LOG.exception("bug: the answer of a parked fetch failed")
    if fetch.is_waiting:
        fetch.end_wait()
    if not fetch.is_done:
        fetch.finish(None, close_reason="no answer to its Fetch could be made")
