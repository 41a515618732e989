"""All connections of one broker: their limits, and the sweep for silent ones.

Limits: `max.connections` (also of a listener) and what RLIMIT_NOFILE leaves beside the logs' files,
`max.connections.per.ip` (and overrides), rates of new connections (`security/quotas/connection_rates.py`),
`connections.max.idle.ms` for a connection without traffic and without a request in flight,
`ottla.handshake.timeout.ms` for a client that does not authenticate,
`ottla.partial.frame.timeout.ms` for a request that stays incomplete, and `ottla.connections.max.unsent.bytes` for
answers that clients do not take (docs/limits.md has all limits). Kafka stops accepting at `max.connections`; Ottla
accepts and closes, so that the client sees a closed connection and does not hang.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, cast

from ottla.broker.net.connection import Connection
from ottla.broker.net.read_pauses import THROTTLED
from ottla.broker.net.shared import SharedState
from ottla.broker.runtime.descriptors import shares_of
from ottla.broker.security.logins import TLS
from ottla.config.declare import INT_MAX

if TYPE_CHECKING:
    from ottla.broker.net.shared import Dispatcher, Door
    from ottla.broker.net.tls_layer import Identity
    from ottla.broker.runtime.timers import Timer
    from ottla.broker.security.quotas.connection_rates import ConnectionRates
    from ottla.broker.services import Services

LOG = logging.getLogger("ottla.connection")

REFUSALS_SAID_EVERY_MS = 1_000
SWEEP_MOST_MS = 10_000
SWEEP_LEAST_MS = 20


class _Refusal(asyncio.Protocol):
    """The protocol of a connection for which there was no memory: one for all, which exists before."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        cast("asyncio.Transport", transport).abort()


REFUSAL: Final = _Refusal()


class Connections:
    """The registry. `sends_maps`: transports send a mapped view without Python code reading it (uvloop).
    `descriptors`: how many the process may open, None for no limit. `doors` and `tls`: those of the listeners that have
    them, by name.
    """

    def __init__(
        self,
        services: Services,
        dispatcher: Dispatcher,
        *,
        sends_maps: bool = False,
        descriptors: int | None = None,
        doors: Mapping[str, Door] | None = None,
        tls: Mapping[str, Identity] | None = None,
    ) -> None:
        config = services.config
        self._tls = dict(tls or {})
        self.descriptors = descriptors
        self.room = shares_of(config, descriptors).connections
        """The number of connections for which there are descriptors."""
        self._refused_at_ms: int | None = None
        self._refused_quietly = 0
        self.services = services
        self.shared = SharedState(services, dispatcher, sends_maps=sends_maps, doors=doors)
        self._all: dict[Connection, None] = {}
        """In order of arrival. A set takes twice the memory."""
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._rates: ConnectionRates | None = None
        """Created when a rate is limited for the first time."""
        self._sweep_timer: Timer | None = None
        self._is_draining = False
        self.on_empty: Callable[[], None] | None = None
        """Called when the last connection has ended."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._all))

    def protocol(self, listener: str) -> Connection:
        """A connection that came in by `listener`."""
        return Connection(self.shared, self, listener)

    def accept(self, listener: str) -> asyncio.BaseProtocol:
        """The protocol that the loop drives for a connection that came in by `listener`: itself, or its TLS layer.

        If there is no memory for one, the connection is closed. Raises nothing: uvloop would never accept again.
        """
        try:
            return self._accept(listener)
        except MemoryError:
            self.services.memory_reserve.let_go()
        except Exception:  # a bug, logged: the listener must continue
            LOG.exception("bug: a connection to the listener %s has no protocol", listener)
        return REFUSAL

    def _accept(self, listener: str) -> asyncio.BaseProtocol:
        connection = self.protocol(listener)
        tls = self._tls.get(listener)
        if tls is None:
            return connection
        from ottla.broker.net.tls_layer import TlsLayer  # no other start needs it

        connection.handshake_since_ms = self.shared.now_ms()
        return TlsLayer(connection, tls, self.services.logins)

    def add(self, connection: Connection) -> str | None:
        """Count a new connection; return the reason if it may not stay (logged, counted as refused)."""
        config = self.services.config
        host, listener = connection.peer.host, connection.peer.endpoint.listener
        reason = None
        if self._is_draining:
            reason = "the broker is stopping"
        elif len(self._all) >= config.max_connections:
            reason = f"there are max.connections={config.max_connections} already"
        elif len(self._all) >= self.room:
            reason = f"there are {self.room} already, all that RLIMIT_NOFILE={self.descriptors} leaves beside the logs"
        else:
            # Read again each time: both keys may change while the broker runs.
            limits = dict(_host_limit(text) for text in config.max_connections_per_ip_overrides)
            limit = limits.get(host, config.max_connections_per_ip)
            if self._by_host[host] >= limit:
                reason = f"there are max.connections.per.ip={limit} from {host} already"
            elif self._by_listener[listener] >= (of_listener := config.listener_max_connections(listener)):
                reason = f"there are listener.name.{listener.lower()}.max.connections={of_listener} already"
            else:
                reason = self._limit_rate(connection)
        if reason is not None:
            self.services.metrics.connections_refused += 1
            self._say_refused(connection, reason)
            return reason
        self.services.metrics.connections_opened += 1
        self._all[connection] = None
        self._by_host[host] += 1
        self._by_listener[listener] += 1
        if self._sweep_timer is None:
            self._plan_sweep()
        return None

    def _limit_rate(self, connection: Connection) -> str | None:
        """Let it wait if too many come, or close it after a while; return the reason if it is refused immediately."""
        services, peer = self.services, connection.peer
        listener_rate = services.config.listener_connection_rate(peer.endpoint.listener)
        addresses = services.quotas.address_rates
        if listener_rate == services.config.max_connection_creation_rate == INT_MAX and not addresses:
            return None
        if self._rates is None:
            # Imported here: few brokers have such a limit.
            from ottla.broker.security.quotas.connection_rates import ConnectionRates

            self._rates = ConnectionRates(services.config, services.quotas.counters, self.shared.now_ms)
        wait_ms, refusal = self._rates.arrive(peer.endpoint.listener, listener_rate, peer.host, addresses)
        if refusal is not None and not wait_ms:
            return refusal
        if wait_ms:
            connection.throttle(wait_ms)
        if refusal is not None:
            services.metrics.connections_refused += 1
            self._say_refused(connection, f"{refusal}; it is closed in {wait_ms} ms")
            connection.close_after(wait_ms, refusal)
        return None

    def _say_refused(self, connection: Connection, reason: str) -> None:
        """Log a refusal, at most once a second: a refused client comes again immediately."""
        if self.services.quotas.audit is not None:
            self.services.quotas.audit.connection_refused(connection.peer, reason)
        now_ms = self.shared.now_ms()
        if self._refused_at_ms is not None and now_ms - self._refused_at_ms < REFUSALS_SAID_EVERY_MS:
            self._refused_quietly += 1
            return
        more = f" ({self._refused_quietly} more since the last such line)" if self._refused_quietly else ""
        self._refused_at_ms, self._refused_quietly = now_ms, 0
        LOG.warning("%s: refused: %s%s", connection, reason, more)

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended; does nothing if it was refused."""
        self.services.answer_memory.note_taken(connection)
        if connection not in self._all:
            return
        self.services.metrics.connections_closed += 1
        del self._all[connection]
        if self.shared.last_reader is connection:
            self.shared.last_reader = None
        host = connection.peer.host
        self._by_listener[connection.peer.endpoint.listener] -= 1
        self._by_host[host] -= 1
        if self._by_host[host] <= 0:
            del self._by_host[host]
        if not self._all and self.on_empty is not None:
            self.on_empty()

    def refuse_all(self) -> None:
        """Refuse new connections."""
        self._is_draining = True

    def drain(self) -> None:
        """Refuse new connections, read nothing more, let each one end when its requests are answered."""
        self.refuse_all()
        for connection in list(self._all):
            connection.drain()

    def abort(self) -> None:
        """End all connections now."""
        for connection in list(self._all):
            connection.abort()

    def sweep(self) -> None:
        """Close connections that were silent, or whose request or handshake was incomplete, for too long."""
        now_ms = self.shared.now_ms()
        idle_ms = self.services.config.connections_max_idle_ms
        partial_ms = self.services.config.ottla_partial_frame_timeout_ms
        handshake_ms = self.services.config.ottla_handshake_timeout_ms
        for connection in list(self._all):
            if connection.has_received or connection.has_sent:
                connection.has_received = connection.has_sent = False
                connection.last_active_ms = now_ms
            since_ms = connection.reader.partial_since_ms
            is_throttled = connection.pause_reasons & THROTTLED
            owes_ms = connection.handshake_since_ms
            if owes_ms is not None and now_ms - owes_ms > handshake_ms:
                if connection.closing is None:
                    self.services.logins.failed(connection.peer, TLS, "timeout")
                connection.close(f"no handshake within ottla.handshake.timeout.ms={handshake_ms}")
            elif since_ms is not None and now_ms - since_ms > partial_ms and not is_throttled:
                connection.close(f"a request is incomplete for more than ottla.partial.frame.timeout.ms={partial_ms}")
            elif idle_ms >= 0 and now_ms - connection.last_active_ms > idle_ms and not connection.is_waiting:
                connection.close(f"silent for connections.max.idle.ms={idle_ms}", level=logging.DEBUG)

    def _plan_sweep(self) -> None:
        config = self.services.config
        bounds = [config.ottla_partial_frame_timeout_ms, config.ottla_handshake_timeout_ms, SWEEP_MOST_MS * 4]
        if config.connections_max_idle_ms >= 0:
            bounds.append(config.connections_max_idle_ms)
        interval_ms = max(SWEEP_LEAST_MS, min(bounds) // 4)
        self._sweep_timer = self.services.timers.at(self.shared.now_ms() + interval_ms, self._sweep_and_plan)

    def _sweep_and_plan(self) -> None:
        self._sweep_timer = None
        self.sweep()
        if self._all:
            self._plan_sweep()


def _host_limit(text: str) -> tuple[str, int]:
    """`host:count` of max.connections.per.ip.overrides; the host may be an IPv6 address."""
    host, _, count = text.rpartition(":")
    return host.strip("[]"), int(count)
