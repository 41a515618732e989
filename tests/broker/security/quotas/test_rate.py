"""The rate of a quota against a naive model, and the waits that Kafka's classes compute for the same values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security.quotas.rate import MOST_WAIT_MS, Rate
from ottla.broker.security.quotas.token_bucket import TokenBucket

steps = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 1_000)), max_size=60)


class _Model:
    """Every value with its time and the sample that it fell into; nothing is ever forgotten but by looking."""

    def __init__(self, samples: int, sample_ms: int) -> None:
        self.samples, self.sample_ms = samples, sample_ms
        self.made: list[list[tuple[int, float]]] = []
        self.starts: list[int] = []

    def record(self, value: float, now_ms: int) -> None:
        if not self.made or now_ms - self.starts[-1] >= self.sample_ms:
            self.made.append([])
            self.starts.append(now_ms)
        self.made[-1].append((now_ms, value))

    def rate(self, now_ms: int) -> float:
        oldest_ms = now_ms - self.samples * self.sample_ms
        kept = [
            (start, events) for start, events in zip(self.starts, self.made, strict=True) if events[-1][0] > oldest_ms
        ]
        elapsed_ms = now_ms - min((start for start, _ in kept), default=now_ms)
        whole = elapsed_ms // self.sample_ms
        window_ms = max(elapsed_ms + max(self.samples - 1 - whole, 0) * self.sample_ms, 1)
        return sum(value for _, events in kept for _, value in events) / (window_ms / 1000)


@given(steps, st.integers(1, 12), st.sampled_from([1, 500, 1_000]))
def test_a_rate_is_that_of_all_values_in_the_window(steps: list[tuple[int, int]], samples: int, sample_ms: int) -> None:
    rate, model, now_ms = Rate(samples, sample_ms), _Model(samples, sample_ms), 5_000
    for pause_ms, value in steps:
        now_ms += pause_ms
        rate.record(value, now_ms)
        model.record(value, now_ms)
    assert abs(rate.measure(now_ms)[0] - model.rate(now_ms)) < 1e-6


@given(steps, st.integers(1, 500))
def test_the_wait_would_bring_the_rate_to_the_bound(steps: list[tuple[int, int]], bound: int) -> None:
    rate, now_ms = Rate(11, 1_000), 0
    for pause_ms, value in steps:
        now_ms += pause_ms
        rate.record(value, now_ms)
        wait_ms = rate.wait_ms(bound, now_ms)
        measured, window_ms = rate.measure(now_ms)
        if measured <= bound:
            assert wait_ms == 0
        else:
            assert abs(measured * window_ms / (window_ms + wait_ms) - bound) < bound / window_ms
    assert rate.measure(now_ms + 11_000)[0] == 0


def test_the_wait_is_the_one_that_kafka_computes() -> None:
    # Kafka's ClientQuotaManagerTest: 500 per second, 11 samples; 400 each second, then 2,300 in half a one.
    rate, now_ms = Rate(11, 1_000), 0
    for _ in range(10):
        rate.record(400, now_ms)
        assert rate.wait_ms(500, now_ms) == 0
        now_ms += 1_000
    now_ms += 500
    rate.record(2_300, now_ms)
    assert rate.wait_ms(500, now_ms) == 2_100
    assert rate.measure(now_ms)[1] == 10_500


def test_a_bucket_saves_up_to_its_burst_and_may_owe() -> None:
    bucket = TokenBucket(11, 1_000)
    assert bucket.left(2, 1_000_000) == 22
    bucket.take(30, 2, 1_000_000)
    assert bucket.wait_ms(2, 1_000_000) == 4_000
    assert bucket.wait_ms(2, 1_003_000) == 1_000
    assert bucket.wait_ms(2, 1_004_000) == 0
    assert bucket.left(2, 9_000_000) == 22


@given(
    st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 3_000)), max_size=80),
    st.integers(1, 500),
    st.integers(1, 12),
)
def test_a_value_that_is_added_within_a_bound_is_one_that_nobody_waits_for(
    steps: list[tuple[int, int]], bound: int, samples: int
) -> None:
    quick, measured, now_ms = Rate(samples, 1_000), Rate(samples, 1_000), 5_000
    for pause_ms, value in steps:
        now_ms += pause_ms
        measured.record(value, now_ms)
        waits = measured.wait_ms(bound, now_ms) > 0
        if waits:
            measured.record(-value, now_ms)
        assert quick.add_within(value, bound, now_ms) is not waits
    assert quick.measure(now_ms) == measured.measure(now_ms)


def test_the_smallest_bound_has_the_longest_wait() -> None:
    rate, bucket, bound = Rate(11, 1_000), TokenBucket(11, 1_000), 5e-324
    rate.record(10, 0)
    bucket.take(10, bound, 0)
    assert (rate.wait_ms(bound, 0), bucket.wait_ms(bound, 0)) == (MOST_WAIT_MS, MOST_WAIT_MS)
