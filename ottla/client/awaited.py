"""What waits for the answer to a request on a connection: a future, or an object that takes the answer at once.

A future has its callbacks called in the loop's next turn. Where a turn counts, as between an answer and the records
that wait for it, an object takes the answer in the step that has read it.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

from ottla.client.errors import KafkaError
from ottla.client_core.exchange import Answer
from ottla.protocol.message import Response

R = TypeVar("R", bound=Response)


class Awaited(Protocol):
    """What the answer to a request becomes, and how long it is to be waited for."""

    limit_ms: int

    def take(self, answer: Answer[Awaited]) -> None:
        """Take the answer, in the step that has read it. Raises MalformedMessage for one that cannot be decoded."""

    def fail(self, error: KafkaError) -> None:
        """Take note that no answer comes; the connection is ending, so that nothing may be sent in this step."""


class AwaitedFuture(Generic[R]):
    """A future that gets the decoded answer."""

    __slots__ = ("_future", "_response", "limit_ms")

    def __init__(self, response: type[R], future: asyncio.Future[R], limit_ms: int) -> None:
        self._response = response
        self._future = future
        self.limit_ms = limit_ms

    def take(self, answer: Answer[Awaited]) -> None:
        """Complete the future, unless it was cancelled."""
        if not self._future.done():
            self._future.set_result(answer.decode(self._response))

    def fail(self, error: KafkaError) -> None:
        """End the future."""
        fail(self._future, error)


def fail(future: asyncio.Future[R] | asyncio.Future[None], error: KafkaError) -> None:
    """End a future that is not done, without a complaint if nothing waits for it any more."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # seen: the program may have stopped waiting, which is nothing to complain about
