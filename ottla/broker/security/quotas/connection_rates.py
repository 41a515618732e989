"""The rates of new connections: to the broker, by a listener, from an address (KIP-402, KIP-612).

    max.connection.creation.rate                    of the broker, and of each listener
    listener.name.NAME.max.connection.creation.rate  of one listener
    connection_creation_rate                        of an address, or of every address: a client quota of entity `ip`

A connection over the broker's or a listener's rate waits, as one that Kafka's acceptor has not accepted yet: those of a
listener come in one after the other. A connection over the rate of its address is not counted and is closed, but only
after the time that it would have had to wait, or it would come again immediately (Kafka's ConnectionQuotas).

Difference from Apache Kafka: a connection that would have to wait longer than MOST_WAIT_MS is closed, too. In Kafka it
waits in the system's backlog; here each takes a descriptor.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.security.quotas.rate import Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.broker.security.quotas.throttle_counters import ThrottleCounters
    from ottla.config.broker import BrokerConfig

MOST_WAIT_MS: Final = 30_000
"""After this time clients give a request up."""
MAX_ADDRESSES: Final = 10_000
"""Above this number the address whose last connection is the oldest is forgotten."""
NO_LIMIT: Final = (1 << 31) - 1
_BROKER = ""


class Arrival(NamedTuple):
    """The decision about a new connection: it is read after `wait_ms`, or closed then if there is a `refusal`."""

    wait_ms: int
    refusal: str | None = None


WELCOME: Final = Arrival(0)


class ConnectionRates:
    """See the module. All calls on the broker's thread."""

    def __init__(self, config: BrokerConfig, counters: ThrottleCounters, now_ms: Callable[[], float]) -> None:
        self._config = config
        self._counters = counters
        self._now_ms = now_ms
        self._samples, self._sample_ms = config.quota_window_num, config.quota_window_size_seconds * 1000
        self._rates: dict[str, Rate] = {}
        """The rates of the broker and of each listener."""
        self._free_ms: dict[str, int] = {}
        """When the next connection may come in."""
        self._addresses: OrderedDict[str, Rate] = OrderedDict()

    def arrive(self, listener: str, listener_rate: int, host: str, addresses: Mapping[str | None, float]) -> Arrival:
        """Count a connection from `host`. `listener_rate` is the listener's limit; `addresses` are the quotas."""
        now_ms = int(self._now_ms())
        bounds = {_BROKER: self._config.max_connection_creation_rate, listener: listener_rate}
        limited = {name: bound for name, bound in bounds.items() if bound < NO_LIMIT}
        free_ms = max([now_ms, *(self._free_ms.get(name, 0) for name in limited)])
        if free_ms - now_ms > MOST_WAIT_MS:
            return Arrival(0, f"more than max.connection.creation.rate={min(limited.values())} come in by {listener}")
        address_bound = addresses.get(host, addresses.get(None)) if addresses else None
        if address_bound is not None:
            wait_ms = self._charge_address(host, address_bound, free_ms)
            if wait_ms:
                self._counters.note("connection_creation_rate", wait_ms)
                reason = f"more than connection_creation_rate={address_bound:g} come from {host}"
                return Arrival(free_ms - now_ms + wait_ms, reason)
        wait_ms = 0
        for name, bound in limited.items():
            rate = self._rates.get(name)
            if rate is None:
                rate = self._rates[name] = Rate(self._samples, self._sample_ms)
            rate.record(1, free_ms)
            wait_ms = max(wait_ms, min(rate.wait_ms(bound, free_ms), self._sample_ms))
        for name in limited:
            self._free_ms[name] = free_ms + wait_ms
        wait_ms += free_ms - now_ms
        if wait_ms:
            self._counters.note("max.connection.creation.rate", wait_ms)
            return Arrival(wait_ms)
        return WELCOME

    def _charge_address(self, host: str, bound: float, now_ms: int) -> int:
        """How long the connection has to wait. If it has to, it is not counted."""
        addresses = self._addresses
        rate = addresses.get(host)
        if rate is None:
            rate = addresses[host] = Rate(self._samples, self._sample_ms)
            if len(addresses) > MAX_ADDRESSES:
                addresses.popitem(last=False)
        else:
            addresses.move_to_end(host)
        rate.record(1, now_ms)
        wait_ms = min(rate.wait_ms(bound, now_ms), self._sample_ms)
        if wait_ms:
            rate.record(-1, now_ms)
        return wait_ms
