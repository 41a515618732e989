"""The switch of all quotas: it passes the quotas in the metadata to the code that enforces them.

A start imports this module only. `clients` is None, and `address_rates` empty, as long as no such quota is set. The
cost of a change depends on what it changes: ten thousand other entities may have quotas.
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

    __slots__ = (
        *("_address_spellings", "_client_entities", "_config", "_now_ms", "_validity"),
        *("address_rates", "audit", "clients", "counters"),
    )

    def __init__(self, config: BrokerConfig, validity: Validity, now_ms: Callable[[], float]) -> None:
        self._config = config
        self._validity = validity
        self._now_ms = now_ms
        self.counters = ThrottleCounters()
        self.audit: Audit | None = None
        """Records throttled clients; None if there is no audit log."""
        self.clients: ClientQuotas | None = None
        self._client_entities: dict[Entity, dict[str, float]] = {}
        self.address_rates: dict[str | None, float] = {}
        """Connections per second by address; None: the rate of every other address."""
        self._address_spellings: dict[str | None, dict[str | None, float]] = {}
        """The same for each spelling of an address; the rate that was set last counts."""

    def change(self, entities: Mapping[Entity, Mapping[str, float]]) -> None:
        """Set the quotas of these entities, or none; other entities keep theirs. Templates that were learnt before do
        not know them, and are forgotten.
        """
        changed: dict[Entity, dict[str, float]] = {}
        present = self._client_entities
        for entity, values in entities.items():
            if entity[0][0] == "ip":
                self._change_address(entity[0][1], values.get("connection_creation_rate"))
            elif present.get(entity, {}) != values:
                changed[entity] = dict(values)
        if not changed:
            return
        for entity, quotas in changed.items():
            if quotas:
                present[entity] = quotas
            else:
                del present[entity]
        if not present:
            self.clients = None
        else:
            if self.clients is None:
                from ottla.broker.security.quotas.client_quotas import ClientQuotas

                self.clients = ClientQuotas(self._config, self.counters, self._now_ms, audit=self.audit)
            self.clients.change(changed)
        self._validity.change()

    def _change_address(self, written: str | None, rate: float | None) -> None:
        address = _canonical(written)
        spellings = self._address_spellings.setdefault(address, {})
        if rate is None:
            spellings.pop(written, None)
        else:
            spellings[written] = rate
        if spellings:
            self.address_rates[address] = next(reversed(spellings.values()))
        else:
            del self._address_spellings[address]
            self.address_rates.pop(address, None)


def _canonical(address: str | None) -> str | None:
    """An address in the spelling in which sockets report it."""
    if address is None:
        return None
    import ipaddress  # few have such a quota

    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # a host name: Kafka resolved it, before Ottla took the directory over
        return address
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)
