"""The switch of all quotas: what is set in the metadata, handed to those who enforce it.

A start imports this much. `clients` is None, and `address_rates` empty, as long as no such quota is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.security.quotas.throttle_counters import ThrottleCounters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.broker.runtime.validity import Validity
    from ottla.broker.security.audit import Audit
    from ottla.broker.security.quotas.client_quotas import ClientQuotas
    from ottla.broker.security.quotas.limits import Entity
    from ottla.config.broker import BrokerConfig


class Quotas:
    """See the module. All calls on the broker's thread."""

    __slots__ = ("_client_entities", "_config", "_now_ms", "_validity", "address_rates", "audit", "clients", "counters")

    def __init__(self, config: BrokerConfig, validity: Validity, now_ms: Callable[[], float]) -> None:
        self._config = config
        self._validity = validity
        self._now_ms = now_ms
        self.counters = ThrottleCounters()
        self.audit: Audit | None = None
        """Learns who was throttled; None where there is no audit log."""
        self.clients: ClientQuotas | None = None
        self._client_entities: dict[Entity, dict[str, float]] = {}
        self.address_rates: dict[str | None, float] = {}
        """Connections per second by address; that of None is every other address's."""

    def load(self, entities: Mapping[Entity, Mapping[str, float]]) -> None:
        """These quotas count from now on. Templates that were learnt before know nothing of them, and are forgotten."""
        addresses: dict[str | None, float] = {}
        clients: dict[Entity, dict[str, float]] = {}
        for entity, values in entities.items():
            if entity[0][0] == "ip":
                addresses[_canonical(entity[0][1])] = values["connection_creation_rate"]
            else:
                clients[entity] = dict(values)
        self.address_rates = addresses
        if clients == self._client_entities:
            return
        self._client_entities = clients
        if not clients:
            self.clients = None
        else:
            if self.clients is None:
                from ottla.broker.security.quotas.client_quotas import ClientQuotas

                self.clients = ClientQuotas(self._config, self.counters, self._now_ms, audit=self.audit)
            self.clients.set(clients)
        self._validity.change()


def _canonical(address: str | None) -> str | None:
    """An address as sockets report it, whatever way it was written."""
    if address is None:
        return None
    import ipaddress  # few have such a quota

    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # a host name, which Kafka has looked up before the directory was taken over
        return address
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)
