"""Chunked requests: a request with more than `ELEMENTS_PER_CHUNK` elements is handled one chunk at a time.

To the handler, each chunk is a separate request with the next part of the list (and of its nested list). It starts in
its own turn of the loop, when the chunk before is answered; the answers are joined in order. So no client has to wait
for a request that names 60,000 partitions, and handlers need no code for it. The connection is parked meanwhile: no
later request starts.

The module of each API declares the lists that are split (`CHUNKS`): those whose elements are independent of each other.
The one visible difference: a handler detects duplicate names only within one chunk. An answer with an error code of its
own, not an element's, ends the request and is its answer.

The decoder limits the elements of a request: MAX_REQUEST_ELEMENTS (protocol/decoder_source.py).
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
    """The list of the request that is too long, and its elements; None if the request is handled in one piece."""
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
    """The joined answer, as a `Pending`. `handle` is called for each chunk; an error that it raises is the answer."""
    return _ChunkedRequest(services, request, *split, handle).answer


class _ChunkedRequest:
    """A chunked request in flight."""

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
        except Exception as error:  # the gate distinguishes refusals and bugs
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
    """Some elements. `joins`: at how many levels the first one continues the last one of the chunk before."""

    elements: list[Any]
    joins: int


def _weight(elements: list[Any], path: Path, most: int) -> int:
    """The number of elements at all levels; may stop counting above `most`."""
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
    """The elements in order, in chunks that weigh at most `most`; a heavier element is split within its own list."""
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
    """Append the answer's elements to the joined ones."""
    before, more = getattr(joined, path[0]), getattr(answer, path[0])
    if joins and before and more:
        _append(before[-1], more[0], path[1:], joins - 1)
        more = more[1:]
    before.extend(more)
