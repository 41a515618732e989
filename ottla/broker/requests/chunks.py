"""Chunked requests: one that names more than `ELEMENTS_PER_CHUNK` things is handled a chunk at a time.

Each chunk is a request of its own to the handler, with the next stretch of the list (and of the list inside of it), and
starts in a turn of the loop of its own once the chunk before is answered; the answers are joined in order. So nobody
has to wait for a request that names 60,000 partitions, and no handler has to know. The connection is parked meanwhile:
nothing starts after the request.

The module of each API states which lists are split (`CHUNKS`): those whose elements are independent of each other. The
one difference to be seen: what a handler answers about a name that is there twice, it answers about names in one chunk
only. An answer whose own error code is set, not an element's, ends it: that is the answer.

How many elements a request may name at all is the decoder's matter: MAX_REQUEST_ELEMENTS (protocol/decoder_source.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.runtime.pending import Pending

if TYPE_CHECKING:
    from ottla.broker.declarations import Chunks, Path
    from ottla.broker.services import Services
    from ottla.protocol.message import Request, Response

ELEMENTS_PER_CHUNK: Final = 300
"""Elements take up to 30 us each: 9 ms (docs/limits.md)."""


def split_of(chunks: tuple[Chunks, ...], request: Request) -> tuple[Chunks, list[Any]] | None:
    """The list of the request that is too long, and its elements; None where the request is handled in one piece."""
    for one in chunks:
        elements = getattr(request, one.requested[0])
        if elements and _weight(elements, one.requested[1:], ELEMENTS_PER_CHUNK) > ELEMENTS_PER_CHUNK:
            return one, elements
    return None


def handle_in_chunks(
    services: Services,
    request: Request,
    split: tuple[Chunks, list[Any]],
    handle: Callable[[Request], Response | Pending[Response] | None],
) -> Pending[Response]:
    """The joined answer, in time. `handle` is called for each chunk; what it raises is the answer."""
    return _ChunkedRequest(services, request, *split, handle).answer


class _ChunkedRequest:
    """A chunked request under way."""

    def __init__(
        self,
        services: Services,
        request: Request,
        split: Chunks,
        elements: list[Any],
        handle: Callable[[Request], Response | Pending[Response] | None],
    ) -> None:
        self.answer: Pending[Response] = Pending(parks=True)
        self._services = services
        self._request = request
        self._split = split
        self._handle = handle
        self._rest = _chunks(elements, split.requested[1:], ELEMENTS_PER_CHUNK)
        self._joins = 0
        self._joined: Response | None = None
        self._later()

    def _later(self) -> None:
        self._services.timers.at(self._services.clock.monotonic_ms(), self._next)

    def _next(self) -> None:
        if self.answer.done:
            return  # the connection has ended
        chunk = next(self._rest, None)
        if chunk is None:
            assert self._joined is not None
            self.answer.complete(self._joined)
            return
        request = copy(self._request)
        setattr(request, self._split.requested[0], chunk.elements)
        self._joins = chunk.joins
        try:
            answer = self._handle(request)
        except Exception as error:  # the gate knows refusals from bugs
            self.answer.fail(error)
            return
        if isinstance(answer, Pending):
            self.answer.on_cancel(answer.cancel)
            answer.then(self._answered)
        else:
            self._join(answer)

    def _answered(self, pending: Pending[Response]) -> None:
        if pending.error is not None:
            self.answer.fail(pending.error)
        else:
            self._join(pending.response)

    def _join(self, answer: Response | None) -> None:
        assert answer is not None  # only Produce has requests without an answer
        if getattr(answer, "error_code", 0):
            self.answer.complete(answer)
            return
        if self._joined is None:
            self._joined = answer
        else:
            _append(self._joined, answer, self._split.answered, self._joins)
        self._later()


class _Chunk(NamedTuple):
    """Some elements. `joins`: at how many levels the first one goes on with the last one of the chunk before."""

    elements: list[Any]
    joins: int


def _weight(elements: list[Any], path: Path, most: int) -> int:
    """How many elements there are at all levels; may stop to count beyond `most`."""
    count = len(elements)
    if not path or count > most:
        return count
    for element in elements:
        inner = getattr(element, path[0])
        if inner:
            count += _weight(inner, path[1:], most)
            if count > most:
                break
    return count


def _chunks(elements: list[Any], path: Path, most: int) -> Iterator[_Chunk]:
    """The elements in order, in chunks that weigh `most`; one that weighs more is cut within its own list."""
    chunk: list[Any] = []
    weight = 0
    for element in elements:
        inner = getattr(element, path[0]) if path else None
        own = 1 + (_weight(inner, path[1:], most) if inner else 0)
        if chunk and weight + own > most:
            yield _Chunk(chunk, 0)
            chunk, weight = [], 0
        if own <= most or not inner:
            chunk.append(element)
            weight += own
            continue
        for index, piece in enumerate(_chunks(inner, path[1:], most)):
            cut = copy(element)
            setattr(cut, path[0], piece.elements)
            yield _Chunk([cut], piece.joins + 1 if index else 0)
    if chunk:
        yield _Chunk(chunk, 0)


def _append(joined: Any, answer: Any, path: Path, joins: int) -> None:
    """Put the answer's elements after those that are there."""
    before, more = getattr(joined, path[0]), getattr(answer, path[0])
    if joins and before and more:
        _append(before[-1], more[0], path[1:], joins - 1)
        more = more[1:]
    before.extend(more)
