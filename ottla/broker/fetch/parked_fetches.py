"""Fetches that wait at the end of a log and are answered from a request template (`broker/fast`).

    a Fetch without enough records  ->  `ParkedFetch` at the `Tail` of each of its partitions, with a deadline
    more is visible                 ->  at the turn's end, each Fetch that this woke is checked once

Records that many wait for are read once: `SharedReads` returns the same buffer to all that ask for the same bytes. A
ParkedFetch does what `DelayedFetch` does for a request of the slow path. It becomes one (`ParkedFetch.fall_back`) where
a template may not answer: when the broker's stamp has changed, or when the records are cold, damaged or have aborted
transactions.
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
"""Fetches that are checked in one turn: sending their answers takes the loop 4 to 8 ms."""

MOST_TIMER_MS: Final = 60_000
"""The longest time until a timer fires, which keeps its deadlines: a client may ask to wait for weeks, and leave."""


class SharedReads:
    """Results of one turn, by what was asked for: records, and the answers around them."""

    __slots__ = ("answers", "records")

    def __init__(self) -> None:
        self.answers: dict[tuple[object, ...], Any] = {}
        self.records: dict[tuple[object, ...], memoryview | None] = {}


class ParkedFetch(InFlightRequest):
    """A Fetch that waits; its template knows for what.

    Attributes:
        stamp: the broker's stamp at which it was parked.
        woken: what has changed since the last check: the names that it gave when it began to wait at a `Tail`.
        is_waiting: false once it is answered, or cancelled, or has taken the slow path.
    """

    __slots__ = ("deadlines", "is_waiting", "stamp", "woken")

    # The same for all: constants of the class, since setting an attribute takes time on the hot path.
    parks = True
    requests = 1
    waits_again = False
    """Whether `wait_again` decides for the next request of its connection whether it waits, too."""

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

    # For subclasses, in `fast/parked_templates.py`. No ABC: InFlightRequest, the base, has no metaclass.

    def look(self, reads: SharedReads) -> None:
        """Read what has changed; answer, if there is enough now."""
        raise NotImplementedError

    def look_alone(self) -> None:
        """As `look`, where no other fetch shares the read. Raises nothing: a bug is logged, and ends its connection."""
        raise NotImplementedError

    def expire(self) -> None:
        """Answer with the records that there are: its time has passed."""
        raise NotImplementedError

    def fall_back(self) -> None:
        """Continue on the slow path, which may wait for the rest of the time."""
        raise NotImplementedError

    def stop_waiting(self) -> None:
        """Leave the tails."""
        raise NotImplementedError

    def end_wait(self) -> int:
        """Stop waiting. Return when it would have expired (monotonic, in ms)."""
        self.is_waiting = False
        self.stop_waiting()
        return self.deadlines.remove(self)

    def cancel(self) -> None:
        """Drop the request: the connection has ended, or the broker stops."""
        if self.is_waiting:
            self.end_wait()
        super().cancel()


class Tail:
    """The fetches that wait at the end of one partition.

    It watches the partition from the first of them on, until it is woken while none waits: a single consumer leaves and
    returns with every record.
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
        """Each fetch's name for the partition. Code that adds a fetch must make sure that the tail `is_watching`."""

    def watch(self) -> None:
        """Watch the partition from now on."""
        self.is_watching = True
        self._partition.watch(self)

    def remove(self, fetch: ParkedFetch) -> None:
        """End a fetch's wait here, if it waits."""
        self.waiting.pop(fetch, None)

    def wake(self) -> None:
        """More is visible, or something is wrong: check the waiting fetches, after this turn's appends."""
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
    """The parked fetches with the same longest wait: the first is due first, so one timer suffices for all of them.

    `waiting` has them, with the time when each began to wait (`now_ns`, monotonic).
    """

    __slots__ = ("__weakref__", "_max_wait_ms", "_timers", "_validity", "has_timer", "now_ns", "waiting")

    def __init__(self, max_wait_ms: int, timers: Timers, now_ns: Callable[[], int], validity: Validity) -> None:
        self._validity = validity
        self._max_wait_ms = max_wait_ms
        self.now_ns = now_ns
        self._timers = timers
        self.has_timer = False
        self.waiting: dict[ParkedFetch, int] = {}
        """A fetch adds itself, and calls `begin` where there is no timer: nearly always there is one, and no call."""

    def begin(self, since_ns: int) -> None:
        """Start a timer, for a fetch that has waited since then."""
        self.has_timer = True
        longest_ms = self.now_ns() // 1_000_000 + MOST_TIMER_MS
        self._timers.at(min(self._deadline_ms(since_ns), longest_ms), self._expire)

    def remove(self, fetch: ParkedFetch) -> int:
        """End the wait of a fetch. Return its deadline (monotonic, in ms). The timer stays: when it fires, it finds
        nothing to do, or only later deadlines.
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
                    # As when it is woken: an earlier right does not allow sending newer records.
                    if fetch.stamp == self._validity.stamp:
                        fetch.expire()
                    else:
                        fetch.fall_back()
                except Exception:  # a bug, which `fail` logs: other requests whose time has passed continue
                    fail(fetch)

    def __len__(self) -> int:
        return len(self.waiting)


class ParkedFetches:
    """All parked fetches of one node."""

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
        """Fetches that were woken before, and left for the next turn."""

    def deadlines(self, max_wait_ms: int) -> Deadlines:
        """The deadlines of the fetches with this longest wait; the caller keeps them."""
        deadlines = self._deadlines.get(max_wait_ms)
        if deadlines is None:
            deadlines = self._deadlines[max_wait_ms] = Deadlines(
                max_wait_ms, self._timers, self._now_ns, self._validity
            )
        return deadlines

    def tail_of(self, partition: Partition) -> Tail:
        """The tail where fetches wait for more of a partition."""
        tail = partition.tail
        if not isinstance(tail, Tail):
            tail = partition.tail = Tail(partition, self, self._turn, self._validity)
        return tail

    def wait_ms(self, deadline_ms: int) -> int:
        """The time until then; at least 0."""
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
        """The result of `Partition.read`, once for all that ask the same of `reads`; None where a worker has to read
        it.

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
        """Check the fetches that wait there at the end of this turn."""
        is_planned = bool(self._woken or self._left)
        self._woken.append(tail)
        if not is_planned:
            self._turn.after_append(self._look_again)

    def _look_again(self) -> None:
        """Answer the fetches for which there is enough now."""
        tails = self._woken
        if len(tails) != 1 or len(tails[0].waiting) != 1 or self._left or self._turn.is_long:
            self._look_at_all()
            return
        # `_look_at_all` where a single fetch waits, and so at one partition: half the steps.
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
        """One append may wake very many. Some wait for the next turn if there are more than `MOST_PER_TURN`, or if this
        turn has no memory left for their answers.
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
                except Exception:  # a bug, which `fail` logs: other requests that wait continue
                    fail(fetch)
            else:
                fetch.woken.clear()


def fail(fetch: ParkedFetch) -> None:
    """End its connection: a bug in one answer must not delay other requests."""
    LOG.exception("bug: the answer of a parked fetch failed")
    if fetch.is_waiting:
        fetch.end_wait()
    if not fetch.is_done:
        fetch.finish(None, close_reason="no answer to its Fetch could be made")
