"""Wide requests in parts: one that names more than `ELEMENTS_PER_PART` things is handled a part at a time.

Each part is a request of its own to the handler, with the next stretch of the list (and of the list inside of it), and
starts in a turn of the loop of its own once the part before is answered; the answers are joined in order. So nobody
has to wait for a request that names 60,000 partitions, and no handler has to know. The connection is parked meanwhile:
nothing starts behind the request.

Only APIs whose elements are asked for independently of each other are here (`_WIDE`). The one difference to be seen:
what a handler says of the same name twice, it says of names in one part only. An answer whose own error code is set,
not an element's, ends it: that is the answer.

How many elements a request may name at all is the decoder's matter: MAX_REQUEST_ELEMENTS (protocol/decoder_source.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.runtime.pending import Pending
from ottla.protocol.api import ApiKey

if TYPE_CHECKING:
    from ottla.broker.services import Services
    from ottla.protocol.message import Request, Response

ELEMENTS_PER_PART: Final = 500
"""Elements take up to 30 us each: 15 ms (docs/limits.md)."""

Way = tuple[str, ...]
"""Lists inside of each other, from the message down."""


class _Wide(NamedTuple):
    """Where a request holds its elements, and its response their answers."""

    asked: Way
    answered: Way


_PARTITIONS = _Wide(("topics", "partitions"), ("topics", "partitions"))
_WIDE: Final[dict[int, tuple[_Wide, ...]]] = {
    ApiKey.LIST_OFFSETS: (_PARTITIONS,),
    ApiKey.METADATA: (_Wide(("topics",), ("topics",)),),
    ApiKey.OFFSET_COMMIT: (_PARTITIONS,),
    ApiKey.OFFSET_FETCH: (
        _Wide(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions")),
        _Wide(("topics", "partition_indexes"), ("topics", "partitions")),
    ),
    ApiKey.FIND_COORDINATOR: (_Wide(("coordinator_keys",), ("coordinators",)),),
    ApiKey.LEAVE_GROUP: (_Wide(("members",), ("members",)),),
    ApiKey.DESCRIBE_GROUPS: (_Wide(("groups",), ("groups",)),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (_Wide(("group_ids",), ("groups",)),),
    ApiKey.DELETE_GROUPS: (_Wide(("groups_names",), ("results",)),),
    ApiKey.OFFSET_DELETE: (_PARTITIONS,),
    ApiKey.CREATE_TOPICS: (_Wide(("topics",), ("topics",)),),
    ApiKey.CREATE_PARTITIONS: (_Wide(("topics",), ("results",)),),
    ApiKey.DELETE_TOPICS: (_Wide(("topics",), ("responses",)), _Wide(("topic_names",), ("responses",))),
    ApiKey.DELETE_RECORDS: (_PARTITIONS,),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (_PARTITIONS,),
    ApiKey.DESCRIBE_CONFIGS: (_Wide(("resources",), ("results",)),),
    ApiKey.ALTER_CONFIGS: (_Wide(("resources",), ("responses",)),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (_Wide(("resources",), ("responses",)),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_Wide(("entries",), ("entries",)),),
    ApiKey.DESCRIBE_PRODUCERS: (_Wide(("topics", "partition_indexes"), ("topics", "partitions")),),
    ApiKey.ELECT_LEADERS: (
        _Wide(("topic_partitions", "partitions"), ("replica_election_results", "partition_result")),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_Wide(("topics", "partitions"), ("responses", "partitions")),),
}  # fmt: skip


def splits(request: Request) -> tuple[_Wide, list[Any]] | None:
    """How the request is to be split and the list of its elements; None where it is handled in one piece."""
    for wide in _WIDE.get(request.message_key, ()):
        elements = getattr(request, wide.asked[0])
        if elements and _weight(elements, wide.asked[1:], ELEMENTS_PER_PART) > ELEMENTS_PER_PART:
            return wide, elements
    return None


def handle_in_parts(
    services: Services,
    request: Request,
    split: tuple[_Wide, list[Any]],
    handle: Callable[[Request], Response | Pending[Response] | None],
) -> Pending[Response]:
    """The joined answer, in time. `handle` is called for each part; what it raises is the answer."""
    return _InParts(services, request, *split, handle).answer


class _InParts:
    """A request under way."""

    def __init__(
        self,
        services: Services,
        request: Request,
        wide: _Wide,
        elements: list[Any],
        handle: Callable[[Request], Response | Pending[Response] | None],
    ) -> None:
        self.answer: Pending[Response] = Pending(parks=True)
        self._services = services
        self._request = request
        self._wide = wide
        self._handle = handle
        self._rest = _parts(elements, wide.asked[1:], ELEMENTS_PER_PART)
        self._joins = 0
        self._joined: Response | None = None
        self._later()

    def _later(self) -> None:
        self._services.timers.at(self._services.clock.monotonic_ms(), self._next)

    def _next(self) -> None:
        if self.answer.done:
            return  # the connection has ended
        part = next(self._rest, None)
        if part is None:
            assert self._joined is not None
            self.answer.complete(self._joined)
            return
        request = copy(self._request)
        setattr(request, self._wide.asked[0], part.elements)
        self._joins = part.joins
        try:
            answer = self._handle(request)
        except Exception as error:  # the dispatcher tells refusals and bugs apart
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
            _append(self._joined, answer, self._wide.answered, self._joins)
        self._later()


class _Part(NamedTuple):
    """Some elements. `joins`: at how many levels the first one goes on with the last one of the part before."""

    elements: list[Any]
    joins: int


def _weight(elements: list[Any], way: Way, most: int) -> int:
    """How many elements there are at all levels; may stop to count beyond `most`."""
    count = len(elements)
    if not way or count > most:
        return count
    for element in elements:
        inner = getattr(element, way[0])
        if inner:
            count += _weight(inner, way[1:], most)
            if count > most:
                break
    return count


def _parts(elements: list[Any], way: Way, most: int) -> Iterator[_Part]:
    """The elements in order, in parts that weigh `most`; one that weighs more is cut within its own list."""
    part: list[Any] = []
    weight = 0
    for element in elements:
        inner = getattr(element, way[0]) if way else None
        own = 1 + (_weight(inner, way[1:], most) if inner else 0)
        if part and weight + own > most:
            yield _Part(part, 0)
            part, weight = [], 0
        if own <= most or not inner:
            part.append(element)
            weight += own
            continue
        for slot, piece in enumerate(_parts(inner, way[1:], most)):
            cut = copy(element)
            setattr(cut, way[0], piece.elements)
            yield _Part([cut], piece.joins + 1 if slot else 0)
    if part:
        yield _Part(part, 0)


def _append(joined: Any, answer: Any, way: Way, joins: int) -> None:
    """Put the answer's elements behind those that are there."""
    before, more = getattr(joined, way[0]), getattr(answer, way[0])
    if joins and before and more:
        _append(before[-1], more[0], way[1:], joins - 1)
        more = more[1:]
    before.extend(more)
