"""An answer that is not available yet.

A handler that cannot answer immediately (it waits for this turn's append, a sync, a long poll, a deadline) returns a
`Pending` and completes it later. It is completed, failed or cancelled exactly once; a second result is ignored,
because a deadline and the event it guards may fall into the same turn. It knows neither loops nor connections.

The connection that owns the request registers one listener with `then`. A connection that ends calls `cancel`, and the
handler removes its waiters in `on_cancel`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

R = TypeVar("R")


class Pending(Generic[R]):
    """A future reply.

    `parks`: whether it stops its connection. After a parking request (Fetch, JoinGroup, SyncGroup) no other starts on
    the same connection; after any other (Produce) the next ones start immediately, but their replies wait their turn.
    `is_cold`: it waits for a worker that reads the disk, not for an event.
    """

    __slots__ = ("_cancel_callbacks", "_listener", "done", "error", "is_cold", "parks", "response")

    def __init__(self, *, parks: bool = False, is_cold: bool = False) -> None:
        self.parks = parks
        self.is_cold = is_cold
        self.done = False
        self.response: R | None = None
        self.error: BaseException | None = None
        self._listener: Callable[[Pending[R]], None] | None = None
        self._cancel_callbacks: list[Callable[[], None]] | None = None

    def complete(self, response: R | None) -> None:
        """Give the reply; `None` means that none is sent (acks=0). Ignored when done or cancelled."""
        if not self.done:
            self.response = response
            self._finish()

    def fail(self, error: BaseException) -> None:
        """Let the dispatcher answer with `error`, as if the handler had raised it. Ignored when done or cancelled."""
        if not self.done:
            self.error = error
            self._finish()

    def cancel(self) -> None:
        """Give up waiting (the connection ended): run the `on_cancel` callbacks, call no listener."""
        if self.done:
            return
        self.done = True
        self._listener = None
        callbacks, self._cancel_callbacks = self._cancel_callbacks, None
        for callback in callbacks or ():
            callback()

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Run `callback` if the answer is cancelled before it is given."""
        if self._cancel_callbacks is None:
            self._cancel_callbacks = []
        self._cancel_callbacks.append(callback)

    def then(self, listener: Callable[[Pending[R]], None]) -> None:
        """Call `listener(self)` once when completed or failed; immediately if it already is. One listener only."""
        if self.done:
            listener(self)
        else:
            self._listener = listener

    def _finish(self) -> None:
        self.done = True
        self._cancel_callbacks = None
        listener, self._listener = self._listener, None
        if listener is not None:
            listener(self)


def follow(pending: Pending[R], result: R | Pending[R]) -> None:
    """Complete `pending` with a result, now or when it is available."""
    if not isinstance(result, Pending):
        pending.complete(result)
        return
    pending.on_cancel(result.cancel)
    result.then(lambda done: pending.complete(done.response) if done.error is None else pending.fail(done.error))


def changed(answer: Pending[R], change: Callable[[R], R]) -> Pending[R]:
    """The answer after `change`, which is applied when the answer is available."""
    later: Pending[R] = Pending(parks=answer.parks, is_cold=answer.is_cold)
    later.on_cancel(answer.cancel)

    def done(came: Pending[R]) -> None:
        if came.error is not None:
            later.fail(came.error)
            return
        try:
            response = None if came.response is None else change(came.response)
        except Exception as error:  # a bug: the dispatcher logs it
            later.fail(error)
        else:
            later.complete(response)

    answer.then(done)
    return later
