"""What the simulator's clients expect where they are over a quota, and where they are not."""

from __future__ import annotations

from typing import cast

import pytest
from kit.clock import ManualClock
from kit.simulator.clients import Line
from kit.simulator.model import Violation
from kit.simulator.quota_meter import PLENTY, TICK, QuotaAccount, QuotaMeter

from ottla.broker.security.quotas.limits import PRODUCE, REQUEST
from ottla.protocol.api.produce import ProduceResponse

RATE = 100.0


class Client:
    """A client whose requests are answered at once, or `after_ms`."""

    def __init__(self, kind: str = PRODUCE, rate: float = RATE) -> None:
        self.clock = ManualClock()
        self.bounds: dict[str, set[float | None]] = {kind: {rate}}
        account = QuotaAccount("client", lambda one: self.bounds.get(one, {None}))
        self.meter = QuotaMeter(account, self.clock)

    def produce(self, size_bytes: int, throttle_ms: int = 0, *, after_ms: int = 0) -> None:
        answered = self.meter.metered(0, size_bytes, lambda _: None, is_alone=True)
        assert answered is not None
        self.clock.advance(after_ms)
        answered(ProduceResponse(responses=[], throttle_time_ms=throttle_ms))


def test_one_that_has_taken_more_than_eleven_seconds_worth_has_to_wait() -> None:
    client = Client()
    client.produce(1_100)
    with pytest.raises(Violation, match="need not wait"):
        client.produce(1)


def test_what_was_taken_ten_seconds_ago_need_not_count_any_more() -> None:
    client = Client()
    client.produce(1_100)
    client.clock.advance(10_000)
    client.produce(1_100)


def test_what_may_have_been_charged_at_another_time_or_by_another_quota_is_not_counted() -> None:
    client = Client()
    client.produce(1_100, after_ms=1)
    client.bounds[PRODUCE].add(None)
    client.produce(1_100)
    client.bounds[PRODUCE] = {RATE}
    client.produce(1_100)


@pytest.mark.parametrize(("throttle_ms", "is_right"), [(2_000, True), (2_010, False)])
def test_it_waits_for_what_it_took_beyond_ten_seconds_worth(throttle_ms: int, is_right: bool) -> None:
    client = Client()
    if is_right:
        client.produce(1_200, throttle_ms)
        return
    with pytest.raises(Violation, match="has to wait 2010 ms for 1200 bytes"):
        client.produce(1_200, throttle_ms)


def test_one_that_is_far_below_its_quota_never_waits() -> None:
    client = Client(rate=PLENTY)
    with pytest.raises(Violation, match="within all of its quotas"):
        client.produce(1_200, 1)


def test_the_time_of_requests_counts() -> None:
    client = Client(REQUEST, TICK)
    for _ in range(11):
        client.produce(1)
    with pytest.raises(Violation, match="need not wait: request_percentage"):
        client.produce(1)


class MutedLine:
    is_throttled = is_answered = True


def test_it_is_not_muted_for_longer_than_its_throttle_time() -> None:
    client = Client()
    client.produce(1_200, 2_000)
    client.clock.advance(2_000)
    client.meter.look(cast("Line", MutedLine()))
    client.clock.advance(1)
    with pytest.raises(Violation, match="muted 1 ms longer"):
        client.meter.look(cast("Line", MutedLine()))
