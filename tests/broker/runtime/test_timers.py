"""Deadlines: order, cancelling, and callbacks that add more."""

from __future__ import annotations

import pytest

from ottla.broker.runtime.timers import AGAIN_MS, Timer, Timers


def test_callbacks_run_in_the_order_of_their_deadlines() -> None:
    timers = Timers()
    ran: list[str] = []
    timers.at(20, lambda: ran.append("late"))
    timers.at(10, lambda: ran.append("early"))
    timers.at(10, lambda: ran.append("early too"))
    assert timers.run_due(9) == 0
    assert timers.run_due(20) == 3
    assert ran == ["early", "early too", "late"]


def test_a_cancelled_timer_never_runs_and_may_be_cancelled_again() -> None:
    timers = Timers()
    ran: list[str] = []
    timer = timers.at(10, lambda: ran.append("no"))
    timers.at(11, lambda: ran.append("yes"))
    timer.cancel()
    timer.cancel()
    assert timers.next_deadline_ms() == 11
    timers.run_due(100)
    assert ran == ["yes"]
    assert len(timers) == 0


def test_a_timer_that_adds_another_one_that_is_due_does_not_run_it_in_the_same_call() -> None:
    timers = Timers()
    ran: list[int] = []

    def again() -> None:
        ran.append(len(ran))
        timers.at(0, again)

    timers.at(0, again)
    timers.run_due(5)
    assert ran == [0]
    timers.run_due(5)
    assert ran == [0, 1]


def test_an_earlier_deadline_is_announced_and_a_later_one_is_not() -> None:
    timers = Timers()
    reported: list[float] = []
    timers.on_earlier = reported.append
    timers.at(50, lambda: None)
    timers.at(60, lambda: None)
    timers.at(40, lambda: None)
    assert reported == [50, 40]


def test_many_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    timers.at(1, lambda: None)
    for deadline in range(2, 10_000):
        timers.at(deadline, lambda: None).cancel()
    assert timers.kept < 200
    assert len(timers) == 1
    assert timers.next_deadline_ms() == 1


def test_timers_that_are_cancelled_before_they_may_run_are_not_counted_twice() -> None:
    timers = Timers()
    added: list[Timer] = []
    timers.at(0, lambda: added.extend(timers.at(0, lambda: None) for _ in range(200)))
    timers.at(5, lambda: [timer.cancel() for timer in added])
    timers.run_due(5)
    assert len(timers) == 0
    assert timers.run_due(5) == 0
    assert (len(timers), timers.kept) == (0, 0)


def test_a_callback_that_raises_takes_no_other_with_it() -> None:
    timers = Timers()
    ran: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    timers.at(1, lambda: timers.at(0, lambda: ran.append("added meanwhile")))
    timers.at(2, fail)
    timers.at(3, lambda: ran.append("behind it"))
    with pytest.raises(ZeroDivisionError):
        timers.run_due(5)
    assert timers.run_due(5) == 2
    assert ran == ["added meanwhile", "behind it"]


def test_a_callback_that_must_not_be_lost_is_called_again_after_a_shortage_of_memory() -> None:
    timers = Timers()
    errors: list[Exception] = [MemoryError(), MemoryError()]
    ran: list[str] = []

    def expire() -> None:
        ran.append("expire")
        if errors:
            raise errors.pop()

    timers.surely_at(10, expire)
    timers.at(10, lambda: ran.append("other"))
    with pytest.raises(MemoryError):
        timers.run_due(10)
    timers.run_due(10)
    assert ran == ["expire", "other"]
    assert timers.next_deadline_ms() == 10 + AGAIN_MS
    with pytest.raises(MemoryError):
        timers.run_due(20 + AGAIN_MS)
    assert timers.run_due(20 + 2 * AGAIN_MS) == 1
    assert ran == ["expire", "other", "expire", "expire"]
    assert (len(timers), timers.next_deadline_ms()) == (0, None)


def test_a_bug_in_such_a_callback_is_raised_once() -> None:
    timers = Timers()
    timers.surely_at(10, lambda: 1 // 0)  # type: ignore[arg-type, return-value]  # it returns nothing
    with pytest.raises(ZeroDivisionError):
        timers.run_due(10)
    assert timers.run_due(10 * AGAIN_MS) == 0
    assert len(timers) == 0


def test_such_a_callback_may_cancel_its_timer_and_plan_the_next() -> None:
    timers = Timers()
    ran: list[str] = []

    def expire() -> None:
        ran.append("expire")
        timer.cancel()
        if len(ran) < 3:
            timers.surely_at(10, expire)

    timer = timers.surely_at(10, expire)
    for _ in range(3):
        assert timers.run_due(10) == 1
    assert ran == ["expire"] * 3
    assert (timers.run_due(10 * AGAIN_MS), len(timers)) == (0, 0)


def test_a_cancelled_one_of_them_never_runs() -> None:
    timers = Timers()
    timers.surely_at(10, lambda: pytest.fail("it was cancelled")).cancel()
    assert timers.run_due(10) == 0
    assert len(timers) == 0
