"""Which time counts against clients that have to show life, by a clock that the test moves."""

from __future__ import annotations

from kit.clock import ManualClock

from ottla.broker.runtime.listening_time import MOST_MS, ListeningTime

MOST = int(MOST_MS)


def test_all_time_counts_under_a_simulation() -> None:
    clock = ManualClock()
    time = ListeningTime(clock.monotonic_ms)
    clock.advance(90_000)
    assert time.now_ms() == clock.monotonic_ms()


def test_all_time_counts_while_the_loop_runs() -> None:
    clock = ManualClock()
    time = ListeningTime(clock.monotonic_ms)
    time.listen()
    for _ in range(90):
        clock.advance(MOST)
        time.now_ms()
    assert time.now_ms() == clock.monotonic_ms()


def test_a_stop_of_the_loop_counts_for_a_moment() -> None:
    clock = ManualClock()
    time = ListeningTime(clock.monotonic_ms)
    time.listen()
    before_ms = time.now_ms()
    clock.advance(90_000)
    assert time.now_ms() == time.now_ms() == before_ms + MOST


def test_time_goes_on_where_each_turn_is_long() -> None:
    clock = ManualClock()
    time = ListeningTime(clock.monotonic_ms)
    time.listen()
    before_ms = time.now_ms()
    for _ in range(10):
        clock.advance(5_000)
        time.now_ms()
    assert time.now_ms() == before_ms + 10 * MOST


def test_no_time_counts_while_nobody_is_heard() -> None:
    clock = ManualClock()
    time = ListeningTime(clock.monotonic_ms)
    before_ms = time.now_ms()
    time.hold()
    clock.advance(90_000)
    assert time.now_ms() == before_ms
    clock.advance(90_000)
    time.listen()
    assert time.now_ms() == before_ms
    clock.advance(1)
    assert time.now_ms() == before_ms + 1


def test_what_is_due_is_due_by_the_clock_after_all_that_did_not_count() -> None:
    clock = ManualClock()
    time = ListeningTime(clock.monotonic_ms)
    time.hold()
    clock.advance(90_000)
    time.listen()
    assert time.clock_ms(time.now_ms() + 7) == clock.monotonic_ms() + 7


def test_a_clock_that_was_moved_on_purpose_counts() -> None:
    clock = ManualClock()
    time = ListeningTime(clock.monotonic_ms)
    time.listen()
    before_ms = time.now_ms()
    clock.advance(90_000)
    time.count(90_000)
    assert time.now_ms() == before_ms + 90_000
    clock.advance(7)
    assert time.now_ms() == before_ms + 90_007
