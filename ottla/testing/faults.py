"""Faults that a test injects: requests that are refused, answered late, or lose their connection.

A `Fault` says which requests it is for, what happens to them, and how often. The gate of an embedded broker
(`faulty_gate.py`) looks for the first fault that fits each request. Everything here is called on any thread.
"""

from __future__ import annotations

import difflib
import threading
from typing import TYPE_CHECKING, Final

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self

CLIENT_ID: Final = "ottla-testing"
"""The client id of the clients of an embedded broker's own methods. Faults do not hit it, unless they name it."""
ALWAYS: Final = -1
"""The number of times of a fault that stays until it is removed."""


class Fault:
    """One fault. A context manager: it is removed at the end of a `with` block.

    Attributes:
        api: the API of the requests that it is for.
        error: the error code of the answer; None if the request is handled.
        delay_ms: how long the answer is held back.
        cuts: whether the connection is closed in place of an answer; with `is_handled`, after the request was handled.
        topic, group, client_id: what a request must name; None for any.
        skipped: how many requests that fit are let through first.
        times: how many are hit after these; ALWAYS for all.
        hits: how many it has hit by now.
    """

    def __init__(
        self,
        api: ApiKey,
        *,
        error: ErrorCode | None = None,
        delay_ms: float = 0,
        cuts: bool = False,
        is_handled: bool = False,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
        skipped: int = 0,
        times: int = ALWAYS,
    ) -> None:
        if skipped < 0:
            raise ValueError(f"after={skipped}: a number of requests, 0 or more")
        self.api = api
        self.error = error
        self.delay_ms = delay_ms
        self.cuts = cuts
        self.is_handled = is_handled
        self.topic = topic
        self.group = group
        self.client_id = client_id
        self.skipped = skipped
        self.times = times
        self.hits = 0
        self._to_skip = skipped
        self._on_removal: Callable[[Fault], None] = _ignore

    def is_for(self, client_id: str | None) -> bool:
        """Whether it is for this client: the broker's own clients of a test are hit only by their name."""
        return client_id != CLIENT_ID if self.client_id is None else self.client_id == client_id

    @property
    def is_over(self) -> bool:
        """Whether it has hit as many requests as it should."""
        return self.hits == self.times

    def remove(self) -> None:
        """Hit no further request. A second call does nothing."""
        self._on_removal(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def added_to(self, on_removal: Callable[[Fault], None]) -> None:
        """Note who removes it."""
        self._on_removal = on_removal

    def take(self) -> bool:
        """Count a request that fits. Returns whether it is hit."""
        if self._to_skip:
            self._to_skip -= 1
            return False
        if self.is_over:
            return False
        self.hits += 1
        return True

    def __repr__(self) -> str:
        if self.error is not None:
            what = self.error.name
        elif self.cuts:
            what = "the answer is lost" if self.is_handled else "the connection is cut"
        else:
            what = f"the answer comes {self.delay_ms:g} ms late"
        given = {"topic": self.topic, "group": self.group, "client_id": self.client_id}
        where = "".join(f", {name} {value!r}" for name, value in given.items() if value is not None)
        return f"<Fault: {REGISTRY[self.api].name}{where}: {what}, {self.hits} hit>"


class Faults:
    """The faults of one broker. `on_change`, if set, is called when one was added or removed."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._all: tuple[Fault, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._all)

    def add(self, fault: Fault) -> None:
        """Add a fault: it hits requests that arrive from now on."""
        fault.added_to(self._remove)
        with self._lock:
            self._all = (*self._all, fault)
        self._changed()

    def clear(self) -> None:
        """Remove all."""
        with self._lock:
            self._all = ()
        self._changed()

    def _remove(self, fault: Fault) -> None:
        with self._lock:
            self._all = tuple(one for one in self._all if one is not fault)
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def hit(
        self, api: int, client_id: str | None, topics: Callable[[], Iterable[str]], groups: Callable[[], Iterable[str]]
    ) -> Fault | None:
        """The first fault that hits a request, which it counts; None if the request is let through.

        `topics` and `groups` return the names in the request; they are called only if a fault asks for one.
        """
        for fault in self._all:
            if (
                fault.api == api
                and not fault.is_over
                and fault.is_for(client_id)
                and (fault.topic is None or fault.topic in topics())
                and (fault.group is None or fault.group in groups())
                and fault.take()
            ):
                return fault
        return None


def api_named(name: str) -> ApiKey:
    """The API of a name as Kafka writes it: `Produce`, `OffsetCommit`. Raises ValueError."""
    by_name = {api.name: api.key for api in REGISTRY.values()}
    found = by_name.get(name)
    if found is None:
        raise ValueError(f"unknown API {name!r}{_near(name, by_name)}")
    return ApiKey(found)


def error_named(error: str | int) -> ErrorCode:
    """The error code of a name or a number as Kafka has it: `NOT_LEADER_OR_FOLLOWER`, 6. Raises ValueError."""
    if isinstance(error, str):
        found = ErrorCode.__members__.get(error)
        if found is None:
            raise ValueError(f"unknown error {error!r}{_near(error, ErrorCode.__members__)}")
    else:
        found = ErrorCode.of(error)
        if found != error:
            raise ValueError(f"unknown error code {error}")
    if found is ErrorCode.NONE:
        raise ValueError("the error NONE is no fault")
    return found


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _ignore(_: Fault) -> None:
    """Do nothing: the fault was not added."""
