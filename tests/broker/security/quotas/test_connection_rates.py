"""Rates of new connections: of the broker, a listener, an address; on a manual clock."""

from __future__ import annotations

import pytest
from kit.clock import ManualClock

from ottla.broker.runtime.validity import Validity
from ottla.broker.security.quotas.connection_rates import MOST_WAIT_MS, NO_LIMIT, WELCOME, ConnectionRates
from ottla.broker.security.quotas.quotas import Quotas
from ottla.broker.security.quotas.throttle_counters import ThrottleCounters
from ottla.config.broker import BrokerConfig


class Door:
    """Connections that arrive at a broker with these keys."""

    def __init__(self, **keys: object) -> None:
        self.clock = ManualClock()
        config = BrokerConfig.of({key.replace("_", "."): value for key, value in keys.items()})
        self.counters = ThrottleCounters()
        self.rates = ConnectionRates(config, self.counters, self.clock.monotonic_ms)
        self.addresses: dict[str | None, float] = {}

    def waits(self, count: int, host: str = "192.0.2.1", *, listener: str = "A", rate: int = NO_LIMIT) -> list[int]:
        return [self.rates.arrive(listener, rate, host, self.addresses).wait_ms for _ in range(count)]


def test_connections_over_the_rate_of_the_broker_come_in_one_after_the_other() -> None:
    door = Door(max_connection_creation_rate=1, quota_window_num=2)
    assert door.waits(1) == [0]
    waits = door.waits(4)
    assert waits == sorted(waits)
    assert len(set(waits)) == 4, "each after the one before"
    door.clock.advance(waits[-1])
    assert door.waits(1)[0] < waits[-1]
    assert door.counters.throttled["max.connection.creation.rate"] >= 4


def test_the_rate_of_a_listener_is_its_own() -> None:
    door = Door()
    assert door.waits(3, listener="A", rate=1)[-1] == 0, "ten seconds may come at once"
    assert door.waits(30, listener="A", rate=1)[-1] > 0
    assert door.waits(1, listener="B") == [0]


def test_who_would_wait_for_too_long_is_refused() -> None:
    door = Door()
    arrivals = [door.rates.arrive("A", 1, "192.0.2.1", {}) for _ in range(200)]
    assert max(arrival.wait_ms for arrival in arrivals) <= MOST_WAIT_MS + 1_000
    assert arrivals[-1].refusal is not None
    assert arrivals[-1].wait_ms == 0


@pytest.mark.parametrize(
    ("written", "reported"), [("::ffff:192.0.2.1", "192.0.2.1"), ("2001:DB8:0::1", "2001:db8::1"), (None, None)]
)
def test_an_address_counts_whatever_way_it_is_written(written: str | None, reported: str | None) -> None:
    quotas = Quotas(BrokerConfig.of({}), Validity(), ManualClock().monotonic_ms)
    quotas.change({(("ip", written),): {"connection_creation_rate": 5.0}})
    assert quotas.address_rates == {reported: 5.0}


def test_of_several_ways_to_write_an_address_the_one_that_was_set_last_counts() -> None:
    """In the order of the metadata: a restart comes to the same."""
    quotas = Quotas(BrokerConfig.of({}), Validity(), ManualClock().monotonic_ms)
    written, other = (("ip", "2001:db8::1"),), (("ip", "2001:DB8:0::1"),)
    quotas.change({written: {"connection_creation_rate": 5.0}})
    quotas.change({other: {"connection_creation_rate": 6.0}})
    assert quotas.address_rates == {"2001:db8::1": 6.0}
    quotas.change({written: {"connection_creation_rate": 7.0}})
    assert quotas.address_rates == {"2001:db8::1": 6.0}, "as in the metadata, a change keeps its place"
    quotas.change({other: {}})
    assert quotas.address_rates == {"2001:db8::1": 7.0}
    quotas.change({written: {}})
    assert quotas.address_rates == {}


def test_an_address_over_its_rate_is_refused_after_a_while_and_not_counted() -> None:
    door = Door()
    door.addresses = {"192.0.2.1": 1, None: 2}
    assert door.waits(10) == [0] * 10, "ten seconds may come at once"
    arrival = door.rates.arrive("A", NO_LIMIT, "192.0.2.1", door.addresses)
    assert arrival.refusal is not None
    assert 0 < arrival.wait_ms <= 1_000
    assert door.waits(20, "192.0.2.2") == [0] * 20, "others have the default"
    for _ in range(50):
        door.rates.arrive("A", NO_LIMIT, "192.0.2.1", door.addresses)
    door.clock.advance(11_000)
    assert door.rates.arrive("A", NO_LIMIT, "192.0.2.1", door.addresses) == WELCOME, "refusals were not counted"
