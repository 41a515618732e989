"""Work in steps: long work stops now and then, so that other requests run in between.

Such work is a generator that yields between its steps, and returns its result. `in_steps` runs it. If the first step
ends the work, its result is returned; else a `Pending` is, and each further step runs in its own turn of the loop. The
handlers of long answers work like this (`Context.in_steps`), and so does their encoding (`requests/dispatch.py`); a
step takes about a millisecond. What a step has read may change before the next one: code that iterates over a
collection copies it first.

Knows no loop: the request runs each step in a later turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from ottla.broker.runtime.pending import Pending, follow

logger = logging.getLogger(__name__)

E = TypeVar("E")
R = TypeVar("R")
S = TypeVar("S")

ELEMENTS_PER_STEP: Final = 500
"""Elements of an answer take up to 4 us each: 2 ms."""

Steps: TypeAlias = Generator[None, None, R]


class SteppedRequest(Protocol):
    """The request for which the work is done (`Context`)."""

    def later(self, step: Callable[[], None]) -> object:
        """Run `step` when other requests have had their turn."""

    def begin_step(self) -> None:
        """A step after the first one begins: the request has the broker's thread again."""

    def end_step(self) -> None:
        """A step after the first one has ended."""


def in_steps(steps: Steps[R | Pending[R]] | Steps[R], request: SteppedRequest) -> R | Pending[R]:
    """The result of `steps`, now or as a `Pending`. A result that is a `Pending` itself is awaited. An error of the
    first step is raised here; an error of a later one becomes the answer.
    """
    try:
        next(steps)
    except StopIteration as end:
        result: R | Pending[R] = end.value
        return result
    return _SteppedWork(steps, request).result


def run_in_turns(
    steps: Iterator[None], later: Callable[[Callable[[], None]], None] | None, done: Callable[[], None]
) -> None:
    """Run work that belongs to no request: the first step now, each other one in its own turn of the loop by `later`,
    or all of them now without it. `done` is called at the end, also after a bug, which is logged.
    """

    def go_on() -> None:
        try:
            for _ in steps:
                if later is not None:
                    later(go_on)
                    return
        except Exception:  # a bug: what waits for `done` must not wait forever
            logger.exception("bug: work in steps has failed")
        done()

    go_on()


class _SteppedWork(Generic[R]):
    """Work that took more than one step. It must be in no reference cycle: a long answer in a cycle would be freed by
    the garbage collector only, which would have to visit each of its objects.
    """

    __slots__ = ("_request", "_steps", "result")

    def __init__(self, steps: Steps[R | Pending[R]] | Steps[R], request: SteppedRequest) -> None:
        self.result: Pending[R] = Pending(parks=True)
        self._steps = steps
        self._request = request
        self.result.on_cancel(steps.close)
        request.later(self._go_on)

    def _go_on(self) -> None:
        if self.result.done:
            return  # the connection has ended
        request = self._request
        request.begin_step()
        try:
            next(self._steps)
        except StopIteration as end:
            request.end_step()
            follow(self.result, end.value)
        except Exception as error:  # the gate distinguishes refusals and bugs
            request.end_step()
            self.result.fail(error)
        else:
            request.end_step()
            request.later(self._go_on)


class Pace:
    """Decides when a step has done enough: `count` elements, over all lists of an answer. A step ends only when there
    is more to do, so that work that fits into one step needs no other turn.
    """

    __slots__ = ("_count", "_left")

    def __init__(self, count: int = ELEMENTS_PER_STEP) -> None:
        self._count = self._left = count

    def is_up(self, elements: int = 1) -> bool:
        """Whether the step was full before these elements, so that it ends and they begin the next one."""
        is_full = self._left <= 0
        self._left = (self._count if is_full else self._left) - elements
        return is_full

    def made(self, make: Callable[[E], S], elements: Iterable[E]) -> Steps[list[S]]:
        """The list of `make(element)` for all elements; for `yield from`."""
        result: list[S] = []
        rest = iter(elements)
        while more := list(islice(rest, self._left if self._left > 0 else self._count)):
            if self._left <= 0:
                self._left = self._count
                yield
            result += map(make, more)
            self._left -= len(more)
        return result
