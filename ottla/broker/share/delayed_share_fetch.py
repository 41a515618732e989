"""A ShareFetch that waits (Kafka's DelayedShareFetch): for records, until `max_wait_ms`, then for a worker's read.

While it waits, the share partitions of its session wake it, one waiting request after the other (`share_partition.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.fetch.fetch_aside import AsideRead
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api.share_fetch import ShareFetchResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.peer import RequestContext
    from ottla.broker.runtime.timers import Timer
    from ottla.broker.services import Services
    from ottla.broker.share.share_fetch import ShareFetchRead
    from ottla.broker.share.share_partition import SharePartition


class DelayedShareFetch:
    """See the module's text. All calls on the broker's thread."""

    def __init__(
        self,
        read: ShareFetchRead,
        context: RequestContext,
        services: Services,
        send: Callable[[ShareFetchResponse], None],
        pending: Pending[ShareFetchResponse],
    ) -> None:
        """`send` is called once, with the response, which then waits for what it rests on; `pending` is its answer."""
        self._read = read
        self._context = context
        self._services = services
        self._send = send
        self._pending = pending
        self._watched: list[SharePartition] = []
        self._timer: Timer | None = None
        pending.on_cancel(self._stop_waiting)

    def begin(self, max_wait_ms: float) -> None:
        """Look; answer if that is enough, else wait."""
        self._read.look()
        if max_wait_ms <= 0 or self._read.is_answerable():
            self._answer()
            return
        self._timer = self._services.timers.at(self._services.clock.monotonic_ms() + max_wait_ms, self._answer_late)
        self._wait()

    def try_again(self) -> None:
        """Something may be available (`share_partition.Waiting`)."""
        if self._pending.done or self._timer is None:
            return
        self._read.look()
        if self._read.is_over or self._read.is_answerable():
            self._answer()
        else:
            self._wait()

    def _answer_late(self) -> None:
        self._timer = None
        self._read.look()
        self._answer()

    def _wait(self) -> None:
        for share_partition in self._watched:
            share_partition.stop_waiting(self)
        self._watched = self._read.watched()
        for share_partition in self._watched:
            share_partition.wait(self)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for share_partition in self._watched:
            share_partition.stop_waiting(self)
        self._watched = []

    def _answer(self) -> None:
        self._stop_waiting()
        if self._read.is_over:
            self._pending.fail(KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the share session has ended"))
            return
        if self._read.is_ready():
            self._send(self._read.response())
            return
        read: Pending[ShareFetchResponse] = Pending(parks=True, is_cold=True)
        self._pending.on_cancel(read.cancel)
        read.then(self._came)
        AsideRead(self._read, self._services, self._context.connection, read, 1).begin()

    def _came(self, read: Pending[ShareFetchResponse]) -> None:
        if read.error is not None:
            self._pending.fail(read.error)
        elif read.response is not None:
            self._send(read.response)
