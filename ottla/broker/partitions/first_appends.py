"""Slow appends to many partitions: some in each turn, so that other requests have their turn in between.

The first append to a log after it was opened opens its file and allocates its first page: 50 to 75 us, twice as long as
a later one. The same applies to the first append after its file was closed because descriptors were short. An append
that begins a segment creates three files: 0.2 ms in memory, 1 to 2 ms on ext4, and segments that began together become
too old together.

A request may bring more of these than `FIRST_APPENDS_PER_TURN`, where a new segment counts as `ROLL_WEIGHT`. Then its
batches are gathered in order, so many at a time, in its own turn and the turns after it. Their bytes are copied, since
the receive buffers are used again from the next turn on. The request has to park meanwhile: no later request of its
client may start.

If the batches are large, their bytes take the time and not their number: they are gathered together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.storage.log.log_append import BEGINS_SEGMENT

if TYPE_CHECKING:
    from ottla.broker.partitions.appending import PartitionAppend
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.peer import ReceivedBytes
    from ottla.broker.runtime.turn import Turn

FIRST_APPENDS_PER_TURN: Final = 64
"""The most of one request: 5 ms."""
ROLL_WEIGHT: Final = 16
"""An append that begins a segment counts as so many: 4 of them in a turn."""
FEW_PARTITIONS: Final = 32
"""A request with so few partitions is not checked: even if each log begins a segment, it takes 7 ms (in memory)."""
MOST_COPIED_BYTES: Final = 4 << 20
"""The most bytes of one request that are copied, in 1 ms."""


class SentBatch(NamedTuple):
    """A batch of a request, and its partition; `slot` is the request's own number for it."""

    slot: int
    partition: Partition
    records: memoryview


Gather = Callable[[Sequence[SentBatch]], None]
Later = Callable[[Callable[[], None]], None]


def have_too_many(partitions: Sequence[PartitionAppend], batches: Sequence[memoryview], now_ms: int) -> bool:
    """Whether the appends of these batches to these partitions are too slow for one turn.

    (0.2 us for each; a template remembers the result, `plain_appends.py`.)
    """
    if len(partitions) <= FEW_PARTITIONS:
        return False
    left = FIRST_APPENDS_PER_TURN
    for partition, records in zip(partitions, batches):  # noqa: B905  (a keyword is time on the hot path)
        kind = partition.log.next_append(records, now_ms)
        if kind:
            left -= ROLL_WEIGHT if kind == BEGINS_SEGMENT else 1
    return left < 0


def are_too_many(batches: Sequence[SentBatch], now_ms: int) -> bool:
    """Whether `FirstAppends` must gather them, and not all in one turn."""
    return (
        have_too_many([batch.partition for batch in batches], [batch.records for batch in batches], now_ms)
        and sum(len(batch.records) for batch in batches) <= MOST_COPIED_BYTES
    )


def _count_of_turn(batches: Sequence[SentBatch], now_ms: int) -> int:
    """How many of these, from the first on, one turn takes; at least one."""
    left = FIRST_APPENDS_PER_TURN
    for number, (_, partition, records) in enumerate(batches):
        left -= ROLL_WEIGHT if partition.log.next_append(records, now_ms) == BEGINS_SEGMENT else 1
        if left < 0 and number:
            return number
    return len(batches)


class FirstAppends:
    """The slow appends of one request. `gather` gathers some of them; `done(None)` is called when all are gathered, or
    `done(error)` when that has failed.

    `now_ms` returns the wall time; `later` runs a step in a later turn; `received`, if given, counts the bytes that are
    kept beyond this turn.
    """

    def __init__(
        self,
        batches: Sequence[SentBatch],
        gather: Gather,
        done: Callable[[Exception | None], None],
        now_ms: Callable[[], int],
        turn: Turn,
        later: Later,
        received: ReceivedBytes | None,
    ) -> None:
        count = _count_of_turn(batches, now_ms())
        now, rest = batches[:count], batches[count:]
        self._rest = [batch._replace(records=memoryview(bytearray(batch.records))) for batch in rest]
        self._copied_bytes = sum(len(batch.records) for batch in rest)
        self._gather = gather
        self._done = done
        self._now_ms = now_ms
        self._turn = turn
        self._later = later
        self._received = received
        gather(now)
        if received is not None:  # only now: if `gather` has raised, nothing is left that would drop them
            received.note_copied(self._copied_bytes)
        self._plan()

    def _plan(self) -> None:
        """Continue in a turn after the one that appends the gathered batches: else one turn would append all."""
        self._turn.last(lambda: self._later(self.gather_more))

    def gather_more(self) -> None:
        """Gather the next of them: a step of a later turn."""
        rest = self._rest
        count = _count_of_turn(rest, self._now_ms())
        self._rest = rest[count:]
        try:
            self._gather(rest[:count])
        except Exception as error:  # a bug, or no memory: the client must not wait forever
            self._end(error)
        else:
            if self._rest:
                self._plan()
            else:
                self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._received is not None:
            self._received.drop_copied(self._copied_bytes)
        self._done(error)
