"""Records of one step that are being written to the disk, and the replies that wait until they are durable.

A reply never shows state that a crash could take back: a request about a key whose records are not durable waits for
the newest of them. `Partition.high_watermark` shows what is durable, in `sync` and `page-cache` alike.

Source: Kafka's `DeferredEvent` and `DeferredEventQueue`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from ottla.broker.runtime.pending import Pending
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.log.append import AppendEntry

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import Reply
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.partitions.visibility import VisibleCallback
    from ottla.protocol.message import Response
    from ottla.storage.log.append import AppendResult

R = TypeVar("R")

PRODUCE_VERSION = 13
"""Ottla's own batches are checked like those of the newest clients."""

REPLIES_PER_STEP: Final = 100
"""Each reply is encoded, and sent at the end of the turn: 20 to 30 us."""

Later = Callable[[Callable[[], None]], None]
Settled = Callable[[KafkaError | None], None]
"""Called once: with None when what it waits for is durable, or with the reason why that will not happen here."""


class WriteOwner(Protocol):
    """The object that began a write."""

    def write_ended(self, write: Write) -> None:
        """The write's records are durable."""

    def write_failed(self, error: BaseException) -> None:
        """The disk, or the log, did not accept records on which the state depends already."""

    def deadline_ms(self) -> float:
        """The deadline of a reply that begins to wait now (monotonic)."""


class Write:
    """The batches of one step, or one batch of several steps. Created before they are gathered; `appended` is called
    once for each batch.

    `keys` are the keys of these steps.
    """

    __slots__ = ("_deadline_ms", "_end_offset", "_error", "_listeners", "_missing", "_owner", "_partition", "keys")

    def __init__(
        self,
        owner: WriteOwner,
        partition: Partition,
        keys: list[str],
        batch_count: int,
        deadline_ms: float,
    ) -> None:
        self.keys = keys
        self._owner = owner
        self._partition = partition
        self._missing = batch_count
        self._deadline_ms = deadline_ms
        self._end_offset = -1
        self._error: KafkaError | None = None
        self._listeners: list[Settled] = []

    def when_durable(self, settled: Settled) -> None:
        """Call `settled` at the end."""
        self._listeners.append(settled)

    def appended(self, index: int, result: AppendResult) -> None:
        """Take the result of one batch (`ottla.broker.partitions.partition.Appended`)."""
        self._missing -= 1
        if result.error_code is not ErrorCode.NONE:
            self._error = KafkaError(result.error_code, result.error_message)
        else:
            self._end_offset = result.last_offset + 1
        if self._missing:
            return
        if self._error is not None:
            self._owner.write_failed(self._error)
        else:
            self.await_visible(self._end_offset)

    def stored(self, last_offset: int) -> None:
        """As `appended`, of its only batch."""
        self._missing = 0
        self.await_visible(last_offset + 1)

    def await_visible(self, end_offset: int) -> None:
        """All of it is in the log, up to `end_offset`: wait until it is durable."""
        self._end_offset = end_offset
        self._partition.when_visible(end_offset, self._visible, self._deadline_ms)

    def settle(self, error: KafkaError | None) -> None:
        """Call all listeners."""
        listeners, self._listeners = self._listeners, []
        for settled in listeners:
            settled(error)

    def _visible(self, error: BaseException | None) -> None:
        if error is None:
            self._owner.write_ended(self)
            self.settle(None)
        elif isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT:
            # The coordinator's timeout limits the wait of each client, also of later ones, but not that for the disk.
            self.settle(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message))
            self._partition.when_visible(self._end_offset, self._visible, self._owner.deadline_ms())
        else:
            self._owner.write_failed(error)


def release(replies: Sequence[Reply], later: Later | None = None) -> Settled:
    """A `Settled` that completes the replies of a step, or fails all of them.

    A rebalance answers all members of a group. With `later`, which runs a step in a later turn, only some replies are
    completed per turn, so that other requests are answered in between.
    """

    def settled(error: KafkaError | None) -> None:
        if error is None:
            complete_from(0)
        else:
            for waiter, _ in replies:
                give(waiter, error)

    def complete_from(first: int) -> None:
        following = len(replies) if later is None else first + REPLIES_PER_STEP
        for waiter, response in replies[first:following]:
            give(waiter, response)
        if later is not None and following < len(replies):
            later(lambda: complete_from(following))

    return settled


def give(waiter: Any, answer: Response | KafkaError) -> None:
    """Complete or fail a waiter with its reply."""
    if isinstance(answer, KafkaError):
        waiter.fail(answer)
    else:
        waiter.complete(answer)


def append_elsewhere(partition: Partition, batch: bytes | bytearray, done: VisibleCallback) -> None:
    """Append one batch to a partition of another topic; `done(None)` once it is durable there, or `done(error)`."""
    partition.gather(AppendEntry(memoryview(batch), PRODUCE_VERSION), _AppendElsewhere(partition, done), 0)


class _AppendElsewhere:
    __slots__ = ("_done", "_partition")

    def __init__(self, partition: Partition, done: VisibleCallback) -> None:
        self._partition = partition
        self._done = done

    def appended(self, index: int, result: AppendResult) -> None:
        if result.error_code is not ErrorCode.NONE:
            self._done(KafkaError(result.error_code, result.error_message))
        else:
            self._partition.when_visible(result.last_offset + 1, self._done)


class WaitsForKeys(Protocol):
    """A shard, for an answer that depends on its records."""

    def when_durable(self, key: str | None, settled: Settled) -> None:
        """As `ShardLog.when_durable`."""


class JointAnswer(Generic[R]):
    """An answer about several keys, completed when all that it depends on is durable: `rest_on` each, then `seal`."""

    def __init__(self, pending: Pending[R], response: R) -> None:
        self._pending = pending
        self._response = response
        self._missing = 1

    def rest_on(self, shard: WaitsForKeys, key: str | None) -> None:
        """Wait for what was written of a key, or (None) of all keys of the shard."""
        self._missing += 1
        shard.when_durable(key, self._settled)

    def seal(self) -> None:
        """No more keys follow: complete the answer when all keys so far are durable."""
        self._settled(None)

    def _settled(self, error: KafkaError | None) -> None:
        """One part is durable; an error of a part fails the answer."""
        if error is not None:
            self._pending.fail(error)
        self._missing -= 1
        if self._missing == 0:
            self._pending.complete(self._response)
