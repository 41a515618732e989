"""What one turn of the event loop has gathered, and what happens at its end.

Batching is a matter of turns, not of timers: every ready socket is read and its requests run; Produce batches are only
gathered per partition. At the end of the turn each partition appends all of its batches in one call (one `pwritev`),
then the disk is asked for the syncs, then each connection sends all of its replies in one joined send, and only then
may the receive buffers be used again (docs/decisions/one-append-per-turn.md).

Nothing here knows a loop: `on_work` is called when an idle turn gets its first work; its owner has to make sure
that `poll_done()` is called once every ready socket was read (`loop.call_soon` in life; a simulation calls `end()`).

Three cases know better than the loop when a turn should end. Where clients have several requests under way, the rest of
them is arriving while the first are read: the turn looks at the sockets once more before it ends, which makes of two
appends and two sends one. And a connection that has been the only one to send for a while has nobody to wait for: it
ends its turn itself, within the read (`has_work`), which has brought nearly always what there was; and requests of its
that can be answered at once take no turn at all. A large frame is enough for an append of its own: it is not gathered
with others, but appended within the read that made it whole, and answered there if the connection has nothing else to
send in the turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

LOG = logging.getLogger("ottla.turn")

Step = Callable[[], None]

MOST_GATHERING: Final = 128
"""Partitions that a turn appends to; a single request may name more. Each takes about 30 us, a first append to it twice
as long."""


class Gathering(Protocol):
    """What gathers batches during a turn: a partition."""

    def flush(self, now_ms: int) -> None:
        """Append them."""


class Woken(Protocol):
    """A Fetch that waits for what is appended, with no other beside it."""

    def look_alone(self) -> None:
        """Look at what was appended. Raises nothing."""


class Turn:
    """The current turn. One per node; all calls on the broker's one thread."""

    __slots__ = (
        "_after_append",
        "_gathering",
        "_has_looked_again",
        "_last",
        "_now_ms",
        "_senders",
        "began_ms",
        "behind",
        "has_work",
        "is_alone",
        "is_long",
        "is_pipelined",
        "number",
        "on_work",
        "serves_one",
        "was_pipelined",
    )

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._gathering: list[Gathering] = []
        self._after_append: list[Step] = []
        self._senders: list[Step] = []
        self._last: list[Step] = []
        self.has_work = False
        """Whether there is anything to do at its end. Who finds that there is nothing may set it, gather, and call
        `end` itself, without `on_work`."""
        self.is_alone = False
        """Whether a connection answers within its read: where that leaves something to do, it calls `end` itself."""
        self.behind: Woken | None = None
        """What such a connection has woken, where that is only one: it calls it itself, behind its answer, and there is
        no turn to end."""
        self.is_pipelined = False
        """Whether a single read of this turn brought more than one request; connections set it."""
        self.was_pipelined = False
        """Whether a read of the turn before did."""
        self.serves_one = False
        """Whether all that it has to do is for one request, of a client that alone sends and waits for each answer."""
        self._has_looked_again = False
        self.began_ms: int | None = None
        """When the first request began that took no fast path (monotonic)."""
        self.is_long = False
        """Whether the requests of this turn have held the loop for so long that others wait for the next one."""
        self.number = 0
        """Of this turn: once it is another one, nothing looks at what was received in the one before."""
        self.on_work: Callable[[], object] | None = None

    def begin(self, now_ms: int) -> None:
        """The first request that takes no fast path begins: the turn ends once the loop has come around.

        Also where it only begins to wait, and nobody else has anything to do at the end: else the next one, however
        much later, would find a turn that has been going on all the while.
        """
        self.began_ms = now_ms
        if not self.has_work:
            self._note_work()

    def note_gathering(self, partition: Gathering) -> None:
        """`partition` holds its first gathered batch of this turn: append it at the end. Once there are many,
        requests that have not begun wait for the next turn.
        """
        gathering = self._gathering
        gathering.append(partition)
        if len(gathering) >= MOST_GATHERING:
            self.is_long = True
        if not self.has_work:
            self._note_work()

    def after_append(self, step: Step) -> None:
        """Run `step` at the end of the turn, after the appends and before the replies are sent (syncs, long polls)."""
        self._after_append.append(step)
        if not self.has_work:
            self._note_work()

    def run_asked(self) -> None:
        """For such a step: run what it has asked for with `after_append`, which would wait for the next turn's end."""
        steps, self._after_append = self._after_append, []
        self._run(steps)

    def send_at_end(self, step: Step) -> None:
        """Run `step` at the end of the turn, when every reply that this turn can give is there."""
        self._senders.append(step)
        self._note_work()

    def last(self, step: Step) -> None:
        """Run `step` when nothing of this turn looks at received bytes any more (buffers go back)."""
        self._last.append(step)
        self._note_work()

    def flush(self) -> None:
        """Append everything that was gathered, now. Replies still wait for the end of the turn."""
        while self._gathering:
            partitions, self._gathering = self._gathering, []
            read_clock = self._now_ms  # CPython looks up a slot slowly where it is called at once
            now_ms = read_clock()
            for partition in partitions:
                try:
                    partition.flush(now_ms)
                except Exception:
                    # Batches left behind would look at buffers that are used again, and the turn would never end.
                    LOG.exception("bug: the flush of a partition failed")

    def poll_done(self) -> None:
        """Every socket that was ready has been read: end the turn, or ask for one more look first."""
        if not self.has_work:
            return  # somebody else has ended it
        if not self._has_looked_again and (self.is_pipelined or self.was_pipelined) and self.on_work is not None:
            self._has_looked_again = True
            try:
                self.on_work()
            except MemoryError:  # the look was a favour; the turn must end
                self.end()
        else:
            self.end()

    def end(self, own: Step | None = None) -> None:
        """Append, ask for syncs, send, give buffers back. What a step asks for again waits for the next turn's end.

        `own` is what who has begun the turn alone would have asked for with `send_at_end`.
        """
        if self._gathering:
            self.flush()
        if self._after_append:
            steps, self._after_append = self._after_append, []
            self._run(steps)
        self.has_work = self._has_looked_again = self.serves_one = False
        self.was_pipelined, self.is_pipelined = self.is_pipelined, False
        if own is not None:
            try:
                own()
            except Exception:
                LOG.exception("bug: a step at the end of a turn failed")
        if self._senders:
            steps, self._senders = self._senders, []
            self._run(steps)
        if self._gathering:
            self.flush()
        self.number += 1
        self.began_ms, self.is_long = None, False
        if self._last:
            steps, self._last = self._last, []
            self._run(steps)
        if (self._after_append or self._senders) and not self.has_work:
            self._note_work()

    @staticmethod
    def _run(steps: list[Step]) -> None:
        """Run every step; one that fails is a bug of its own and must not keep the others' replies back."""
        for step in steps:
            try:
                step()
            except Exception:
                LOG.exception("bug: a step at the end of a turn failed")

    def _note_work(self) -> None:
        if self.has_work:
            return
        self.has_work = True
        on_work = self.on_work
        if on_work is not None and not self.is_alone:
            try:
                on_work()
            except BaseException:
                self.has_work = False  # no memory to plan the end: whatever comes next plans it, or nothing would
                raise
