"""Handing things to a thread that sleeps, and steps to a loop: nothing is lost, nothing comes twice."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections import deque
from collections.abc import Callable

import pytest

from ottla import hand_over
from ottla.hand_over import HandOver, Posts

DEADLINE_S = 60
THINGS = 20_000


def taken(queue: HandOver[int | None]) -> tuple[threading.Thread, list[int]]:
    """A thread that takes all until None."""
    found: list[int] = []

    def take() -> None:
        while (thing := queue.get()) is not None:
            found.append(thing)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return thread, found


def is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_a_thread_gets_all_things_in_their_order_and_each_once() -> None:
    queue: HandOver[int | None] = HandOver()
    thread, found = taken(queue)
    for thing in range(THINGS):
        queue.put(thing)
    queue.put(None)
    thread.join(DEADLINE_S)
    assert found == list(range(THINGS))


class Interrupted(deque[Callable[[], object]]):
    """A queue whose giver is interrupted when the thing is in it, and nobody has been woken yet."""

    def append(self, step: Callable[[], object], /) -> None:
        super().append(step)
        raise KeyboardInterrupt


def test_what_was_given_by_a_giver_that_is_interrupted_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over, "deque", Interrupted)
    posts, taken = Posts(), []
    with pytest.raises(KeyboardInterrupt):
        posts.put(lambda: taken.append(1))
    assert is_readable(posts.descriptor)
    posts.run()
    assert taken == [1]


def test_what_several_threads_give_comes_whole() -> None:
    queue: HandOver[int | None] = HandOver()
    thread, found = taken(queue)

    def give(first: int) -> None:
        for thing in range(first, THINGS, 4):
            queue.put(thing)

    givers = [threading.Thread(target=give, args=(first,)) for first in range(4)]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join(DEADLINE_S)
    queue.put(None)
    thread.join(DEADLINE_S)
    assert sorted(found) == list(range(THINGS))


def test_who_was_told_of_a_thing_that_is_taken_waits_for_the_next_one() -> None:
    queue: HandOver[int] = HandOver()
    queue.put(1)
    assert queue.get() == 1
    threading.Thread(target=queue.put, args=(2,)).start()
    assert queue.get() == 2


def test_a_signal_ends_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    queue: HandOver[int] = HandOver()
    looks: list[int] = []

    def interrupted(descriptor: int) -> int:
        looks.append(descriptor)
        if len(looks) == 1:
            raise InterruptedError
        queue.put(3)
        return 1

    monkeypatch.setattr(os, "eventfd_read", interrupted)
    assert queue.get() == 3
    assert len(looks) == 2


def test_a_loop_runs_all_steps_that_are_there_when_it_looks() -> None:
    posts, ran = Posts(), list[int]()
    for step in range(3):
        posts.put(lambda step=step: ran.append(step))  # type: ignore[misc]  # a default binds it
    assert is_readable(posts.descriptor)
    posts.run()
    assert ran == [0, 1, 2]
    assert not is_readable(posts.descriptor)
    posts.run()
    assert ran == [0, 1, 2]


def test_a_step_that_is_posted_by_another_one_has_the_loop_look_again() -> None:
    posts, ran = Posts(), list[int]()

    def first() -> None:
        posts.put(lambda: ran.append(2))
        ran.append(1)

    posts.put(first)
    posts.run()
    assert ran == [1]
    assert is_readable(posts.descriptor)
    posts.run()
    assert ran == [1, 2]


@pytest.mark.parametrize("error", [MemoryError(), SystemExit(1)], ids=repr)
def test_a_step_that_fails_is_reported_and_keeps_no_other_one_back(error: BaseException) -> None:
    posts, ran = Posts(), list[int]()

    def fail() -> None:
        raise error

    steps: list[Callable[[], None]] = [fail, lambda: ran.append(1)]
    for step in steps:
        posts.put(step)
    with pytest.raises(type(error)):
        posts.run()
    assert is_readable(posts.descriptor)
    posts.run()
    assert ran == [1]


def test_steps_are_run_ahead_once_and_the_loop_has_nothing_left() -> None:
    posts, ran = Posts(), list[int]()
    for step in range(3):
        posts.put(lambda step=step: ran.append(step))  # type: ignore[misc]  # a default binds it
    posts.run_ahead()
    assert ran == [0, 1, 2]
    assert is_readable(posts.descriptor)
    posts.run()
    assert ran == [0, 1, 2]
    assert not is_readable(posts.descriptor)


def test_a_step_that_another_one_posts_is_not_run_ahead() -> None:
    posts, ran = Posts(), list[int]()
    posts.put(lambda: posts.put(lambda: ran.append(1)))
    posts.run_ahead()
    assert ran == []
    posts.run()
    assert ran == [1]


@pytest.mark.parametrize("error", [MemoryError(), SystemExit(1)], ids=repr)
def test_a_step_that_fails_ahead_is_reported_by_the_loop_before_the_next_one(error: BaseException) -> None:
    posts, ran = Posts(), list[int]()

    def fail() -> None:
        raise error

    steps: list[Callable[[], None]] = [lambda: ran.append(0), fail, lambda: ran.append(1)]
    for step in steps:
        posts.put(step)
    posts.run_ahead()
    assert ran == [0]
    with pytest.raises(type(error)):
        posts.run()
    assert ran == [0]
    assert is_readable(posts.descriptor)
    posts.run()
    assert ran == [0, 1]


def test_each_thread_finds_the_posts_of_its_own_loop() -> None:
    posts, found = Posts(), list[Posts | None]()

    def look() -> None:
        found.append(Posts.of_this_thread())
        posts.belong_to_this_thread()
        found.append(Posts.of_this_thread())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [None, posts]
    assert Posts.of_this_thread() is None


def test_a_descriptor_is_open_for_as_long_as_somebody_may_give_something() -> None:
    """A thread that the disk holds gives back its round after the stop: not into another file of that number."""
    posts = Posts()
    put, descriptor = posts.put, posts.descriptor
    del posts
    put(lambda: None)
    assert is_readable(descriptor)
    del put
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_no_descriptor_is_an_error_of_who_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "eventfd", none_left)
    with pytest.raises(OSError, match="Too many open files"):
        HandOver()
    monkeypatch.delattr(os, "eventfd")
    with pytest.raises(OSError, match="no eventfd"):
        HandOver()
