"""Records of one step on their way to the disk, and everybody who waits until they are safe there.

A reply never shows state that a crash could take back: whoever looks at a group whose records are not durable waits
for the newest of them. `Partition.high_watermark` says what is durable, in `sync` and `page-cache`
alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.broker.runtime.pending import Pending
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.groups.effects import Reply
    from ottla.broker.partitions.partition import Partition
    from ottla.storage.log.append import AppendResult

Settled = Callable[[KafkaError | None], None]
"""Told None once what it waits for is durable, or why that will not happen here."""


class WriteOwner(Protocol):
    """Whoever began a write."""

    def write_ended(self, write: Write) -> None:
        """Its records are durable."""

    def write_failed(self, error: BaseException) -> None:
        """The disk, or the log, did not take records that the groups' state rests on already."""


class Write:
    """The batches of one step. Made before they are gathered; `appended` is called once for each of them."""

    __slots__ = ("_deadline_ms", "_end_offset", "_error", "_listeners", "_missing", "_owner", "_partition", "group_id")

    def __init__(
        self, owner: WriteOwner, partition: Partition, group_id: str, batch_count: int, deadline_ms: float
    ) -> None:
        self.group_id = group_id
        self._owner = owner
        self._partition = partition
        self._missing = batch_count
        self._deadline_ms = deadline_ms
        self._end_offset = -1
        self._error: KafkaError | None = None
        self._listeners: list[Settled] = []

    def when_durable(self, settled: Settled) -> None:
        """Tell `settled` once."""
        self._listeners.append(settled)

    def appended(self, index: int, result: AppendResult) -> None:
        """What became of one batch (`ottla.broker.partitions.partition.Appended`)."""
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
            self._partition.when_visible(self._end_offset, self._visible, self._deadline_ms)

    def tell(self, error: KafkaError | None) -> None:
        """Tell everybody who waits."""
        listeners, self._listeners = self._listeners, []
        for settled in listeners:
            settled(error)

    def _visible(self, error: BaseException | None) -> None:
        if error is None:
            self._owner.write_ended(self)
            self.tell(None)
        elif isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT:
            # `offsets.commit.timeout.ms` bounds the wait of clients, not the wait for the disk.
            self.tell(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message))
            self._partition.when_visible(self._end_offset, self._visible)
        else:
            self._owner.write_failed(error)


def release(replies: Sequence[Reply]) -> Settled:
    """Lets the replies of a step go, or fails all of them."""

    def settled(error: KafkaError | None) -> None:
        for waiter, response in replies:
            assert isinstance(waiter, Pending)
            answer = response if error is None else error
            if isinstance(answer, KafkaError):
                waiter.fail(answer)
            else:
                waiter.complete(answer)

    return settled
