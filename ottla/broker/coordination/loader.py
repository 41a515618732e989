"""The load of one shard: pieces of its log are read and replayed in steps, so that requests run in between.

A small log is loaded within the start (`run_now`). The broker's workers read a cold piece, never the loop. Records
beyond the high watermark must become durable before the shard is ready.
Source: Kafka's `CoordinatorLoader`.
Source: Kafka's `CoordinatorLoader`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.coordination.replay import LogReplay
from ottla.protocol.errors import KafkaError
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.broker.coordination.definition import LoadCounters
    from ottla.broker.coordination.shard import CoordinatorShard
    from ottla.broker.runtime.timers import Timer
    from ottla.broker.services import Services

logger = logging.getLogger(__name__)

STEP_BYTES = 64 << 10
"""The most that one step reads and replays: a few milliseconds."""
NOTABLE_US = 1_000_000
"""A load that takes longer is logged at INFO; the start-up summary counts all loads."""

Done = Callable[["BaseException | None"], None]


class CoordinatorLoader:
    """One load; `done(error)` is called once at its end, unless it is cancelled."""

    def __init__(self, services: Services, counters: LoadCounters, shard: CoordinatorShard, done: Done) -> None:
        self._services = services
        self._counters = counters
        self._shard = shard
        self._done = done
        self._timer: Timer | None = None
        self._is_over = False
        self._is_durable = False
        self._started_ns = time.perf_counter_ns()
        partition = shard.partition
        partition.settle()
        self._replay = LogReplay(
            partition.log, shard.codec, shard.replay, shard.replay_open, partition.open_transactions
        )

    def start(self) -> None:
        """Begin; steps follow in later turns. An empty log is loaded immediately."""
        if self._shard.partition.log.size_bytes == 0:
            self.run_now(0)
        else:
            self._plan()

    def run_now(self, most_bytes: int) -> None:
        """Load up to `most_bytes` now, and finish if that is the whole log. May wait for the disk: for a start."""
        read = 0
        replay = self._replay
        while not self._is_over and not replay.is_done and read <= most_bytes:
            try:
                read += self._feed_blocking()
            except OSError as error:
                self._end(error)
        if replay.is_done and not self._is_durable:
            self._await_durable()
        while self._is_durable and not self._is_over and read <= most_bytes:
            self._begin_some()

    def cancel(self) -> None:
        """Stop; `done` is not called."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self) -> None:
        if not self._is_over and self._timer is None:
            self._timer = self._services.timers.at(self._services.clock.monotonic_ms(), self._step_or_end)

    def _feed_blocking(self) -> int:
        replay = self._replay
        if replay.is_read:
            replay.step()
            return 0
        piece = replay.read(STEP_BYTES)
        if piece is None:
            return 0
        try:
            data = piece.read_blocking()
        except KafkaError as damage:
            replay.pass_over(str(damage))
            return 0
        replay.feed(data)
        return len(data)

    def _step_or_end(self) -> None:
        """End the load if there is no memory for a step: it may be torn, and another load begins later."""
        try:
            self._step()
        except MemoryError:
            self._run_short()

    def _run_short(self) -> None:
        self._services.memory_reserve.let_go()
        self._end(MemoryError("no memory was left"))

    def _step(self) -> None:
        self._timer = None
        replay = self._replay
        if self._is_durable:
            self._begin_some()
            return
        if replay.is_done:
            self._await_durable()
            return
        if replay.is_read:
            replay.step()
            self._plan()
            return
        try:
            piece = replay.read(STEP_BYTES)
        except OSError as error:
            self._end(error)
            return
        if piece is None:
            self._plan()
        elif piece.view is not None:
            replay.feed(bytes(piece.view))
            self._plan()
        else:
            self._services.workers.run(piece.read_blocking, self._came)

    def _came(self, data: bytes | None, error: BaseException | None) -> None:
        """Replay a cold piece that a worker has read."""
        try:
            self._replay_piece(data, error)
        except MemoryError:
            self._run_short()

    def _replay_piece(self, data: bytes | None, error: BaseException | None) -> None:
        if self._is_over:
            return
        if isinstance(error, KafkaError):
            self._replay.pass_over(str(error))
        elif error is not None or data is None:
            self._end(error or OSError("nothing was read"))
            return
        else:
            self._replay.feed(data)
        self._plan()

    def _await_durable(self) -> None:
        if not self._is_over:
            self._shard.partition.ask_for_sync()  # the append of the last records may have had no memory for that
            self._shard.partition.when_visible(self._replay.end_offset, self._durable)

    def _durable(self, error: BaseException | None) -> None:
        """Everything that was replayed is durable: the shard may begin."""
        if error is not None:
            self._end(error)
        else:
            self._is_durable = True
            self._plan()

    def _begin_some(self) -> None:
        if self._shard.begin_some():
            self._plan()
        elif not self._shard.is_dead:
            self._end(None)
        else:
            self._end(OSError("it was unloaded as it began"))

    def _end(self, error: BaseException | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counters = self._counters
        elapsed_us = (time.perf_counter_ns() - self._started_ns) // 1_000
        counters.loads += 1
        counters.load_us += elapsed_us
        counters.loaded_records += self._replay.record_count
        counters.skipped_records += sum(self._replay.skipped.values())
        if error is None and self._replay.record_count:
            logger.log(
                logging.INFO if elapsed_us > NOTABLE_US else logging.DEBUG,
                "%s: %s from %s in %d ms",
                self._shard.partition.log.name,
                self._shard.summary(),
                counted(self._replay.record_count, "record"),
                elapsed_us // 1_000,
            )
        self._done(error)
