"""Whether and when there is another attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client_core.retries import Attempts, Backoff


def test_pauses_double_up_to_the_largest():
    backoff = Backoff(100, 1000)
    assert [backoff.pause_s(failures) for failures in (0, 1, 2, 3, 4, 5, 10_000)] == [0.1, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [Backoff(50, 50).pause_s(failures) for failures in (1, 2, 9)] == [0.05, 0.05, 0.05]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 100), st.floats(0, 1))
def test_a_pause_varies_by_its_spread_alone(first_ms, largest_ms, failures, chance):
    plain = Backoff(first_ms, largest_ms).pause_s(failures)
    assert Backoff(first_ms, largest_ms).pause_s(failures, chance) == plain
    assert 0.8 * plain - 1e-9 <= Backoff(first_ms, largest_ms, 0.2).pause_s(failures, chance) <= 1.2 * plain + 1e-9


@pytest.mark.parametrize("most_retries", [0, 1, 3])
def test_attempts_end_after_so_many_retries(most_retries):
    attempts = Attempts(Backoff(10, 10), most_retries=most_retries)
    assert [attempts.failed(0.0) for _ in range(most_retries + 1)] == [*([0.01] * most_retries), None]


def test_no_attempt_begins_when_the_time_is_over():
    attempts = Attempts(Backoff(100, 100), give_up_at=10.0)
    assert attempts.failed(9.8) == 0.1
    assert attempts.failed(9.95) is None


def test_a_last_attempt_may_begin_at_the_end_of_the_time():
    attempts = Attempts(Backoff(100, 100), give_up_at=10.0, last_at_the_end=True)
    assert attempts.failed(9.95) == 0.1
    assert attempts.failed(10.0) is None
    assert attempts.failures == 2
