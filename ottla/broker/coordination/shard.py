"""One partition of an internal topic as its coordinator's state: runs steps, and writes their records.

    request, timer, change of topics -> step of a pure state machine -> effects -> one batch -> replies

Durable state changes only by replaying records. A state machine has replayed the records that it requests to be
written, and a load replays the same records from the log. Hence a record that the log does not accept leaves the memory
ahead of the disk. The shard is then dead (`on_dead` is called once), everything that waits gets NOT_COORDINATOR, and a
new shard loads the log.

A reply is sent when the newest records of its key are durable, immediately where none are being written. Work on other
partitions that may begin only then (markers of a transaction) begins in a callback of `when_durable`. A load finds
unfinished work by its records, and `begin_some` begins it again.

Source: Kafka's `CoordinatorShard` (what a coordinator supplies) and `CoordinatorRuntime.CoordinatorContext`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.broker.coordination.effects import Effects, Now
from ottla.broker.coordination.shard_log import ShardLog
from ottla.broker.coordination.timer import CoordinatorTimer
from ottla.broker.coordination.writes import Settled, append_elsewhere, release
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import CoordinatorRecord, Reply
    from ottla.broker.coordination.records import RecordCodec
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.services import Services
    from ottla.protocol.message import Struct

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardContext:
    """The parameters of a shard; a coordinator's own shard passes them on to `CoordinatorShard`.

    `noun` names what is coordinated, in log lines. `write_timeout_ms` limits the time that replies wait for the disk.
    """

    partition: Partition
    services: Services
    codec: RecordCodec
    noun: str
    write_timeout_ms: int
    on_dead: Callable[[CoordinatorShard], None]


class CoordinatorShard(ABC):
    """One shard, from the beginning of its load until its partition is deleted or its disk fails."""

    def __init__(self, context: ShardContext) -> None:
        services = context.services
        self.partition = context.partition
        self.codec = context.codec
        self.is_dead = False
        self.timer = CoordinatorTimer(services.timers, services.listening, self.on_due, self._run_short)
        self.log = ShardLog(
            context.partition,
            context.codec,
            services.turn,
            services.clock,
            context.write_timeout_ms,
            self.die,
            self.later,
        )
        self._context = context

    # --- what the coordinator supplies -------------------------------------------------------------------------------

    @abstractmethod
    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply one record of the log at a load."""

    def replay_open(self, producer_id: int, key: Struct, value: Struct) -> None:  # noqa: B027  (few write in transactions)
        """Apply a `newest_only` record of a transaction that is open at the end of the log, at a load."""

    def begin_some(self) -> bool:
        """After replay and sync: begin unfinished work of some keys. Return whether keys are left."""
        return False

    def on_due(self, key: str) -> None:  # noqa: B027  (not every coordinator has deadlines)
        """Handle a deadline that was planned in `timer` and has passed."""

    def on_unload(self) -> Sequence[Reply]:
        """The shard is dead: return the replies, all errors, for what waits in the state machines (not for the log)."""
        return ()

    def on_topics_changed(self, deleted: Collection[str]) -> Iterator[None]:
        """Handle a change of the catalog's topics; `deleted` no longer exist. A shard that did not exist then gets the
        deleted ones after its load. Long work is returned as steps; while they run, no topic of these names is
        created.
        """
        return iter(())

    @property
    def deleted_topics(self) -> Collection[str]:
        """Deleted topics that this shard would have to be notified of again if it were loaded now: what it wrote about
        them is not durable yet."""
        return ()

    def expire_some(self) -> bool:
        """Remove expired state of some keys. Return whether keys are left."""
        return False

    def summary(self) -> str:
        """The contents of the shard, in words: `3 groups and 1 committed offset`."""
        return f"its {self._context.noun}s"

    # --- what the runtime supplies -----------------------------------------------------------------------------------

    def finish(self, key: str, effects: Effects) -> None:
        """Write the records of a step, and send its replies when they may be sent."""
        if effects.records:
            self.log.write(key, effects.records, effects.replies)
        elif effects.replies:
            self.log.when_durable(key, release(effects.replies, self.later))

    def later(self, step: Callable[[], None]) -> None:
        """Run `step` in a later turn."""
        services = self._context.services
        services.timers.at(services.clock.monotonic_ms(), step)

    def write(self, key: str, records: Sequence[CoordinatorRecord]) -> None:
        """Write records for which no reply waits."""
        self.log.write(key, records, ())

    def when_durable(self, key: str | None, settled: Settled) -> None:
        """As `ShardLog.when_durable`."""
        self.log.when_durable(key, settled)

    def append_elsewhere(
        self, topic: str, index: int, batch: bytes | bytearray, done: Callable[[BaseException | None], None]
    ) -> None:
        """Append a batch to another topic's partition; `done(None)` once it is durable there, `done(error)` where it
        will not be: then the caller tries again later. `done` is not called if this shard is dead by then; its
        successor finds unfinished work in the log.
        """

        def ended(error: BaseException | None) -> None:
            if not self.is_dead:
                done(error)

        partition = self._context.services.catalog.partition(topic, index)
        if partition is None:
            ended(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} does not exist or is offline"))
        else:
            append_elsewhere(partition, batch, ended)

    def now(self) -> Now:
        """The time of a step that begins now."""
        # Not the wall clock: data stamped by a wrong clock would expire immediately after its correction, or never.
        services = self._context.services
        return Now(services.listening.now_ms(), services.clock_trust.estimate_ms())

    def _run_short(self) -> None:
        """There was no memory for a step, or for a part of one: its deadlines may be lost, and its state may be torn.
        The log has neither; a load begins all deadlines again.
        """
        self._context.services.memory_reserve.let_go()
        self.die(MemoryError("no memory was left"))

    def die(self, error: BaseException) -> None:
        """Unload the shard: everything that waits gets NOT_COORDINATOR. The log does not change."""
        if self.is_dead:
            return
        self.is_dead = True
        logger.error("%s: its %ss are unloaded: %s", self.partition.log.name, self._context.noun, error)
        self.timer.close()
        self.log.close(KafkaError(ErrorCode.NOT_COORDINATOR, str(error)))
        release(self.on_unload())(None)
        self._context.on_dead(self)
