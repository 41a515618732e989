"""Receivers of the answer to a request: a future, or an object that processes the answer immediately.

The callbacks of a future are called in the event loop's next iteration. Where one iteration matters, as for records
that wait for the answer, an object processes the answer in the step that has read it.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

from ottla.client.errors import KafkaError
from ottla.client_core.exchange import Answer, InFlight
from ottla.protocol.message import Response
from ottla.protocol.types import Buffer

R = TypeVar("R", bound=Response)


class Awaited(Protocol):
    """The receiver of the answer to a request, and how long to wait for that."""

    limit_ms: int

    def take(self, answer: Answer[Awaited]) -> None:
        """Process the answer, in the step that has read it. Raises MalformedMessage for one that cannot be decoded."""

    def fail(self, error: KafkaError) -> None:
        """Note that no answer will come. The connection is ending: send nothing in this step."""


class AloneInFlight(InFlight[Awaited]):
    """A request that is the only one in flight on its connection: the bytes that come next are its answer."""

    __slots__ = ()

    def foresee(self) -> None:
        """Prepare `take_received`, while the broker works."""
        raise NotImplementedError

    def take_received(self, received: Buffer, count: int) -> bool:
        """Process the answer from `count` received bytes if they are exactly the usual one; return whether they are."""
        raise NotImplementedError


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
        """Fail the future."""
        fail(self._future, error)


def fail(future: asyncio.Future[R] | asyncio.Future[None], error: KafkaError) -> None:
    """Fail a future that is not done, without a warning if no task awaits it any more."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # mark it as retrieved: the program may have stopped waiting, which needs no warning
