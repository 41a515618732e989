"""Logins as they end: counted for metrics, and written to the audit log where there is one.

A login is by a mechanism of SASL; by the TLS handshake, under the name TLS, on listeners without SASL. A handshake that
fails counts under TLS on both. The labels of the counters are bounded: listeners and mechanisms are those of the
configuration, and a client that names no mechanism of them counts under NO_MECHANISM.

What counts as what follows Apache Kafka's `Selector`. All calls on the broker's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.peer import Peer
    from ottla.broker.runtime.metrics import LoginCounters, Metrics
    from ottla.broker.security.audit import Audit
    from ottla.config.broker import BrokerConfig

TLS: Final = "TLS"
NO_MECHANISM: Final = ""


class Logins:
    """Those of one broker. `audit` is the audit log, None where there is none."""

    def __init__(self, config: BrokerConfig, metrics: Metrics, audit: Audit | None) -> None:
        self._metrics = metrics
        self._audit = audit
        for listener in config.listeners:
            # From the start on, so that the first failure is a step from 0 to 1 for an alarm.
            if listener.protocol.is_encrypted:
                metrics.login(listener.name, TLS)
            if listener.protocol.has_sasl:
                for mechanism in config.on_listener(listener.name).sasl_enabled_mechanisms:
                    metrics.login(listener.name, mechanism)

    def succeeded_by_tls(self, peer: Peer, *, has_certificate: bool) -> None:
        """A handshake is done on a listener without SASL. A client without a certificate has authenticated to the
        counters only, as in Kafka: there is nothing to write of who it is.
        """
        counters = self._counters(peer, TLS)
        counters.successful += 1
        counters.successful_without_reauthentication += 1
        if has_certificate and self._audit is not None:
            self._audit.authentication(peer, TLS)

    def succeeded(self, peer: Peer, mechanism: str, *, knows_reauthentication: bool) -> None:
        """A client has logged in for the first time. `knows_reauthentication`: it can log in again (KIP-368)."""
        counters = self._counters(peer, mechanism)
        counters.successful += 1
        if not knows_reauthentication:
            counters.successful_without_reauthentication += 1
        if self._audit is not None:
            self._audit.authentication(peer, mechanism)

    def succeeded_again(self, peer: Peer, mechanism: str, elapsed_us: int) -> None:
        """A client has logged in again, for which it took so long."""
        counters = self._counters(peer, mechanism)
        counters.successful_reauthentications += 1
        counters.reauthentication_times.observe(elapsed_us)
        if self._audit is not None:
            self._audit.authentication(peer, mechanism)

    def failed(
        self, peer: Peer, mechanism: str, reason: str, *, is_again: bool = False, user: str | None = None
    ) -> None:
        """A client has not logged in; as `user`, where it named one that exists. `reason` has nothing of what it has
        sent as its secret.
        """
        counters = self._counters(peer, mechanism)
        if is_again:
            counters.failed_reauthentications += 1
        else:
            counters.failed += 1
        if self._audit is not None:
            self._audit.authentication(peer, mechanism, error=reason, name=user)

    def expired(self, peer: Peer, mechanism: str) -> None:
        """A connection is closed, because its session is over and its client went on."""
        self._counters(peer, mechanism).expired_connections_killed += 1

    def _counters(self, peer: Peer, mechanism: str) -> LoginCounters:
        return self._metrics.login(peer.endpoint.listener, mechanism)
