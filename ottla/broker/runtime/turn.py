"""One turn of the event loop: what it has gathered, and what happens at its end.

Batches are formed at the end of a turn, not by timers: every ready socket is read and its requests run; Produce batches
are only gathered per partition. At the end of the turn each partition appends all of its batches in one call (one
`pwritev`), then the syncs are requested, then each connection sends all of its replies in one joined send. Only then
may the receive buffers be used again (docs/decisions/one-append-per-turn.md).

Nothing here knows a loop: `on_work` is called when an idle turn gets its first work. Its owner must call `poll_done()`
once every ready socket was read (by `loop.call_soon` in the real broker; a simulation calls `end()`).

In three cases the turn ends earlier or later than the loop would end it:
- Clients have several requests in flight: the rest of them arrives while the first are read. So the turn polls the
  sockets once more before it ends: then one append and one send are enough, where two would be needed.
- One connection has been the only one to send for a while: it has no other to wait for. It ends its turn itself, within
  the read (`has_work`), which nearly always has brought everything. Its requests that can be answered immediately take
  no turn at all, nor does one that waits for a sync by the broker's thread.
- A large frame is enough for its own append: it is not gathered with others, but appended within the read that
  completed it, and answered there if the connection has nothing else to send in the turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Protocol

LOG = logging.getLogger("ottla.turn")

Step = Callable[[], None]

MOST_GATHERING: Final = 128
"""Partitions to which a turn appends; a single request may name more. Each takes about 30 us, a first append twice as
long."""


class Gathering(Protocol):
    """A partition, which gathers batches during a turn."""

    def flush(self, now_ms: int) -> None:
        """Append them."""

    def give_up(self) -> None:
        """Refuse those that `flush` has left because it has failed. Does nothing if there are none."""


class Woken(Protocol):
    """The only Fetch that waits for what is appended."""

    def look_alone(self) -> None:
        """Check what was appended. Raises nothing."""


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
        """Whether there is anything to do at its end. A caller that finds it false may set it, gather, and call `end`
        itself, without `on_work`."""
        self.is_alone = False
        """Whether a connection answers within its read: if that leaves something to do, it calls `end` itself."""
        self.behind: Woken | None = None
        """The only Fetch that such a connection has woken: the connection calls it itself, after its answer, and there
        is no turn to end."""
        self.is_pipelined = False
        """Whether a single read of this turn brought more than one request; connections set it."""
        self.was_pipelined = False
        """The same of the turn before."""
        self.serves_one = False
        """Whether all of its work is for one request, of the only client that sends and which waits for each answer."""
        self._has_looked_again = False
        self.began_ms: int | None = None
        """When the first request without a fast path began (monotonic)."""
        self.is_long = False
        """Whether the requests of this turn have held the loop for so long that others wait for the next turn."""
        self.number = 0
        """The number of this turn. When it changes, nothing reads the bytes received in the turn before any more."""
        self.on_work: Callable[[], object] | None = None

    def begin(self, now_ms: int) -> None:
        """The first request without a fast path begins: the turn ends in the next iteration of the loop.

        Also if it only begins to wait, and nothing else is to be done at the end: else the next request, however much
        later, would find a turn that has lasted all the time.
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
        """For such a step: run now what it has passed to `after_append`, which would wait for the next turn's end."""
        steps = iter(self._after_append)
        self._after_append = []
        self._run(steps)

    def send_at_end(self, step: Step) -> None:
        """Run `step` at the end of the turn, when every reply of this turn is ready."""
        self._senders.append(step)
        self._note_work()

    def last(self, step: Step) -> None:
        """Run `step` when nothing of this turn reads received bytes any more (buffers are returned)."""
        self._last.append(step)
        self._note_work()

    def flush(self) -> None:
        """Append everything that was gathered, now. Replies still wait for the end of the turn."""
        while self._gathering:
            read_clock = self._now_ms  # a local: CPython is slow to call a slot directly
            now_ms = read_clock()  # first, since an error must leave the partitions in the list
            partitions = iter(self._gathering)
            self._gathering = []
            for partition in partitions:
                try:
                    partition.flush(now_ms)
                except Exception:  # a bug, logged: the other partitions must be written
                    _log_bug("the flush of a partition failed")
                    # Batches that stay would refer to buffers that are used again, and no later turn would append any.
                    with suppress(MemoryError):
                        partition.give_up()

    def poll_done(self) -> None:
        """Every ready socket has been read: end the turn, or poll the sockets once more first."""
        if not self.has_work:
            return  # a connection has ended it
        if not self._has_looked_again and (self.is_pipelined or self.was_pipelined) and self.on_work is not None:
            self._has_looked_again = True
            try:
                self.on_work()
            except MemoryError:  # the second poll is optional; the turn must end
                self.end()
        else:
            self.end()

    def plan_again(self) -> None:
        """Plan the end of the turn, whether or not it is planned: there was no memory to end it, perhaps."""
        is_left = self.has_work or self._gathering or self._after_append or self._senders or self._last
        if is_left and self.on_work is not None:
            self.has_work = True
            self.on_work()

    def end(self, own: Step | None = None) -> None:
        """Append, request syncs, send, return buffers. What a step plans again waits for the next turn's end.

        `own`: the step that a connection that is alone in this turn would have passed to `send_at_end`.
        """
        try:
            if self._gathering:
                self.flush()
            if self._after_append:
                steps = iter(self._after_append)
                self._after_append = []
                self._run(steps)
        except MemoryError:
            self.has_work = False  # the next work plans the end again, with what is left
            raise
        self.has_work = self._has_looked_again = self.serves_one = False
        self.was_pipelined, self.is_pipelined = self.is_pipelined, False
        if own is not None:
            try:
                own()
            except Exception:  # a bug, logged: the other steps must run
                _log_bug("a step at the end of a turn failed")
        if self._senders:
            steps = iter(self._senders)
            self._senders = []
            self._run(steps)
        if self._gathering:
            self.flush()
        self.number += 1
        self.began_ms, self.is_long = None, False
        if self._last:
            steps = iter(self._last)
            self._last = []
            self._run(steps)
        if (self._after_append or self._senders) and not self.has_work:
            self._note_work()

    @staticmethod
    def _run(steps: Iterator[Step]) -> None:
        """Run every step. One that fails is a bug, and must not hold back the replies of the other steps.

        The caller makes the iterator before it forgets the steps, so that none is lost if there is no memory for it.
        """
        for step in steps:
            try:
                step()
            except Exception:  # a bug, logged: the other steps must run
                _log_bug("a step at the end of a turn failed")

    def _note_work(self) -> None:
        if self.has_work:
            return
        self.has_work = True
        on_work = self.on_work
        if on_work is not None and not self.is_alone:
            try:
                on_work()
            except BaseException:
                self.has_work = False  # no memory to plan the end: the next work plans it
                raise


def _log_bug(what: str) -> None:
    """Log the current exception. Raises nothing: if there is no memory for the line, the turn must end nevertheless."""
    with suppress(MemoryError):
        LOG.exception("bug: %s", what, stacklevel=2)
