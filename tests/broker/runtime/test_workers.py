"""Workers: what they hold on to, and work of which one piece is done at a time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from ottla.broker.runtime.workers import InlineWorkers, OneAtATime, ThreadedWorkers

WAIT_S = 30


class Large:
    """What a piece of work has read."""


def test_a_thread_that_waits_for_work_holds_nothing_of_what_it_did_last() -> None:
    posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
    workers = ThreadedWorkers(posted.put)
    try:
        large = Large()
        gone: SimpleQueue[None] = SimpleQueue()
        weakref.finalize(large, gone.put, None)
        workers.run(lambda large=large: id(large), lambda result, error: None)  # type: ignore[misc]
        del large
        posted.get(timeout=WAIT_S)()
        gc.collect()
        gone.get(timeout=WAIT_S)  # the thread lets go of it a moment after it has posted
    finally:
        workers.close()


def test_workers_are_idle_when_all_was_reported() -> None:
    posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
    workers = ThreadedWorkers(posted.put)
    try:
        assert workers.is_idle
        workers.run(lambda: 1, lambda result, error: None)
        report = posted.get(timeout=WAIT_S)
        assert not workers.is_idle
        report()
        assert workers.is_idle
    finally:
        workers.close()
    assert InlineWorkers().is_idle


class Held:
    """Workers that finish nothing until they are asked to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self.fails = False

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        if self.fails:
            raise RuntimeError("can't start new thread")
        self.jobs.append((work, done))

    def finish(self, error: BaseException | None = None) -> None:
        work, done = self.jobs.pop(0)
        done(None if error else work(), error)

    def close(self) -> None:
        self.jobs.clear()


def test_one_piece_is_under_way_and_the_others_follow_in_order() -> None:
    held, reported = Held(), []
    lane = OneAtATime(held)
    for number in range(3):
        lane.run(lambda number=number: number, lambda result, error: reported.append((result, error)))  # type: ignore[misc]
    assert len(held.jobs) == 1
    held.finish()
    assert len(held.jobs) == 1
    error = OSError("bad sector")
    held.finish(error)
    held.finish()
    assert reported == [(0, None), (None, error), (2, None)]
    assert not held.jobs


def test_a_listener_that_fails_does_not_stop_the_others() -> None:
    held, reported = Held(), []
    lane = OneAtATime(held)

    def fail(result: object, error: BaseException | None) -> None:
        raise ValueError("a bug")

    lane.run(lambda: 1, fail)
    lane.run(lambda: 2, lambda result, error: reported.append(result))
    with pytest.raises(ValueError, match="a bug"):
        held.finish()
    held.finish()
    assert reported == [2]


def test_work_that_could_not_be_given_to_a_thread_is_answered_and_does_not_stop_what_comes_later() -> None:
    held, reported = Held(), []
    lane = OneAtATime(held)
    held.fails = True
    lane.run(lambda: 1, lambda result, error: reported.append((result, str(error))))
    held.fails = False
    lane.run(lambda: 2, lambda result, error: reported.append((result, error)))
    held.finish()
    assert reported == [(None, "can't start new thread"), (2, None)]
