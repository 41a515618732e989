"""What a thread waits at: no wake is lost, none of another wait counts, and few descriptors are used."""

from __future__ import annotations

import gc
import os
import threading
from collections import deque
from pathlib import Path

import pytest

from ottla.client.blocking.thread_waiter import LOOK_S, MOST_BELLS, Bells, ThreadWaiter

RUN_LIMIT_S = 60
HAS_EVENTFD = hasattr(os, "eventfd")
needs_eventfd = pytest.mark.skipif(not HAS_EVENTFD, reason="this system has no eventfd, and threads wait at locks")


@pytest.fixture(autouse=True)
def restored():
    yield
    Bells.begin()


@pytest.fixture(params=["with descriptors", "without"])
def bells(request, monkeypatch):
    if request.param == "without":
        monkeypatch.setattr(os, "eventfd", none_left, raising=False)
    Bells.begin()
    return Bells.of_this_process


def none_left(*_):
    raise OSError("too many open files")


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_wake_before_the_wait_is_not_lost_and_a_second_one_does_no_harm(bells):
    waiter = ThreadWaiter()
    waiter.wake()
    waiter.wake()
    assert waiter.wait(RUN_LIMIT_S)
    assert not waiter.wait(0)
    assert not waiter.wait(-1)


def test_a_wake_ends_the_wait_of_another_thread(bells):
    waiter = ThreadWaiter()
    woken = []
    thread = threading.Thread(target=lambda: woken.append(waits_until_woken(waiter)))
    thread.start()
    waiter.wake()
    thread.join(RUN_LIMIT_S)
    assert woken == [True]


def waits_until_woken(waiter):
    return any(waiter.wait(LOOK_S) for _ in range(RUN_LIMIT_S))


def test_a_wake_that_was_not_slept_for_does_not_end_the_next_wait(bells):
    waiter = ThreadWaiter()
    waiter.wake()
    assert waiter.wait(RUN_LIMIT_S)  # by a look, and the bell has rung nevertheless
    waiter.release()
    following = ThreadWaiter()
    assert not following.wait(0)
    following.wake()
    assert following.wait(0)


def test_many_threads_each_hear_their_own_wakes(bells):
    wakes = deque()
    heard = []
    threads_count, rounds = 2 * MOST_BELLS, 20

    def run(number):
        for _ in range(rounds):
            waiter = ThreadWaiter()
            said = []
            wakes.append((waiter, said))
            while not said:
                waiter.wait(LOOK_S)
            waiter.release()
        heard.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(threads_count)]
    before = descriptors() if HAS_EVENTFD else 0
    for thread in threads:
        thread.start()
    for _ in range(threads_count * rounds):
        while not wakes:
            pass
        waiter, said = wakes.popleft()
        said.append(True)
        waiter.wake()
    for thread in threads:
        thread.join(RUN_LIMIT_S)
    assert sorted(heard) == list(range(threads_count))
    if HAS_EVENTFD:
        assert descriptors() - before <= 2 * MOST_BELLS + 4  # two threads may make one at the same time


@needs_eventfd
def test_bells_are_used_again():
    Bells.begin()
    waiter = ThreadWaiter()
    before = descriptors()
    for _ in range(10):
        waiter.release()
        waiter = ThreadWaiter()
        waiter.wake()
        assert waiter.wait(0)
    assert descriptors() == before
    assert not Bells.of_this_process.idle
    waiter.release()
    assert len(Bells.of_this_process.idle) == 1


@needs_eventfd
def test_a_forked_child_takes_no_ring_of_its_parent():
    Bells.begin()
    ThreadWaiter().release()
    assert len(Bells.of_this_process.idle) == 1
    child = os.fork()
    if not child:
        os._exit(len(Bells.of_this_process.idle))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_eventfd
def test_the_descriptors_of_a_bell_that_was_not_given_back_are_closed_and_another_takes_its_place():
    Bells.begin()
    before = descriptors()
    for _ in range(2):
        waiters = [ThreadWaiter() for _ in range(MOST_BELLS + 3)]
        assert descriptors() == before + 2 * MOST_BELLS
        del waiters
        assert descriptors() == before


@needs_eventfd
def test_garbage_that_wakes_when_its_bell_is_closed_writes_into_no_other_file(tmp_path):
    class Late:
        """Garbage that refers to itself, which the collector finalizes behind the bell."""

        def __init__(self, waiter):
            self.itself = self
            self.waiter = waiter

        def __del__(self):
            # One of them has the number of the descriptor that was closed just now.
            others = [(tmp_path / str(number)).open("wb") for number in range(20)]
            self.waiter.wake()
            for other in others:
                other.close()

    Bells.begin()
    waiter = ThreadWaiter()
    Late(waiter)
    del waiter
    gc.collect()
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0] * 20
