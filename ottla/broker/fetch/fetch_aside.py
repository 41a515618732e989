"""The part of a Fetch that a worker reads or converts. It begins when memory is reserved, which is held until it is
sent.

    room in `answer_memory.py`  ->  a worker reads, and converts for old clients  ->  the connection sends

While a Fetch waits for room it holds nothing that it has read. When there is room its partitions are read again, since
they may have changed, or be hot by now. Called by `fetch_read.py`, on the broker's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from ottla.broker.peer import Peer
    from ottla.broker.runtime.answer_memory import Reservation
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.services import Services

AGAIN_MOST: Final = 200
"""Partitions that are read again for an answer that has waited for room; the next Fetch gets the rest."""


R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Aside(Protocol[R_co]):
    """The read of one Fetch, as its worker's part needs it (`fetch_read.FetchRead`, `share_fetch.ShareFetchRead`)."""

    def shorten(self, most_bytes: int) -> int:
        """Limit the bytes that a worker reads or that are copied already, but for the first batch. Return how many."""

    def put_back(self) -> list[int]:
        """Release everything that was read. Return the partitions that had something."""

    def read_anew(self, indexes: list[int], most_bytes: int) -> None:
        """Read these partitions once more, at most so many bytes in all, except for the first batch."""

    def is_ready(self) -> bool:
        """Whether nothing is left to be read or converted by a worker."""

    def run_aside(self, done: Callable[[BaseException | None], None], is_given_up: Callable[[], bool]) -> None:
        """Read and convert in a worker; `done` on the broker's thread, with an error only if there is a bug."""

    def size_bytes(self) -> int:
        """Bytes of memory in what has been read."""

    def response(self) -> R_co:
        """The response with what has been read."""


class AsideRead(Generic[R]):
    """See the module. `weight`: bytes of memory for each byte that is read."""

    def __init__(self, read: Aside[R], services: Services, peer: Peer, reply: Pending[R], weight: int) -> None:
        self._read = read
        self._memory = services.answer_memory
        self._peer = peer
        self._reply = reply
        self._weight = weight
        self._put_back: list[int] = []

    def begin(self) -> None:
        """Complete the reply, now or later."""
        memory, weight = self._memory, self._weight
        size_bytes = self._read.shorten(memory.share_bytes // weight) * weight
        reservation = memory.reserve(size_bytes)
        if reservation is not None:
            self._run(reservation)
            return
        self._put_back = self._read.put_back()
        self._reply.on_cancel(memory.wait(min(size_bytes, memory.share_bytes), self._came))

    def _came(self, reservation: Reservation | None) -> None:
        """There is room for it; or there was none for so long that it is answered without records."""
        try:
            if reservation is not None:
                self._read.read_anew(self._put_back[:AGAIN_MOST], reservation.size_bytes // self._weight)
        except Exception as error:  # a bug, which the dispatcher logs
            self._end(reservation, error)
            return
        if reservation is None or self._read.is_ready():
            self._end(reservation, None)
        else:
            self._run(reservation)

    def _run(self, reservation: Reservation) -> None:
        try:
            self._read.run_aside(lambda error: self._end(reservation, error), lambda: self._reply.done)
        except Exception as error:  # no thread could be started
            self._end(reservation, error)

    def _end(self, reservation: Reservation | None, error: BaseException | None) -> None:
        reply = self._reply
        if reply.done or error is not None:
            if reservation is not None:
                reservation.release()
            if error is not None:
                reply.fail(error)  # has no effect where the connection has ended
            return
        try:
            response = self._read.response()
            if reservation is not None:
                reservation.resize(self._read.size_bytes())
        except Exception as failed:  # no memory, or a bug: without a release the reservation would be lost permanently
            if reservation is not None:
                reservation.release()
            reply.fail(failed)
            return
        if reservation is not None:
            if self._peer.owner is None:
                reservation.release()
            else:
                self._peer.owner.hold_answer(reservation)
        reply.complete(response)
