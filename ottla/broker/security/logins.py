"""The results of logins: counted for metrics, and written to the audit log if there is one.

A login uses a SASL mechanism, or, on listeners without SASL, the TLS handshake, under the name TLS. A failed handshake
counts under TLS on both kinds. The labels of the counters are bounded: listeners and mechanisms are those of the
configuration, and a client that names none of these mechanisms counts under NO_MECHANISM.

The categories follow Apache Kafka's `Selector`. All calls on the broker's thread.
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
    """The logins of one broker. `audit` is the audit log, None if there is none."""

    def __init__(self, config: BrokerConfig, metrics: Metrics, audit: Audit | None) -> None:
        self._metrics = metrics
        self._audit = audit
        for listener in config.listeners:
            # They exist from the start, so that an alarm sees the first failure as a step from 0 to 1.
            if listener.protocol.is_encrypted:
                metrics.login(listener.name, TLS)
            if listener.protocol.has_sasl:
                for mechanism in config.on_listener(listener.name).sasl_enabled_mechanisms:
                    metrics.login(listener.name, mechanism)

    def succeeded_by_tls(self, peer: Peer, *, has_certificate: bool) -> None:
        """Note a handshake on a listener without SASL. A client without a certificate counts as authenticated, as in
        Kafka, but is not in the audit log: it has no name.
        """
        counters = self._counters(peer, TLS)
        counters.successful += 1
        counters.successful_without_reauthentication += 1
        if has_certificate and self._audit is not None:
            self._audit.authentication(peer, TLS)

    def succeeded(self, peer: Peer, mechanism: str, *, knows_reauthentication: bool) -> None:
        """Note the first login of a client. `knows_reauthentication`: it can log in again (KIP-368)."""
        counters = self._counters(peer, mechanism)
        counters.successful += 1
        if not knows_reauthentication:
            counters.successful_without_reauthentication += 1
        if self._audit is not None:
            self._audit.authentication(peer, mechanism)

    def succeeded_again(self, peer: Peer, mechanism: str, elapsed_us: int) -> None:
        """Note that a client has logged in again, and how long that took."""
        counters = self._counters(peer, mechanism)
        counters.successful_reauthentications += 1
        counters.reauthentication_times.observe(elapsed_us)
        if self._audit is not None:
            self._audit.authentication(peer, mechanism)

    def failed(
        self, peer: Peer, mechanism: str, reason: str, *, is_again: bool = False, user: str | None = None
    ) -> None:
        """Note a failed login; of `user`, if the client named one that exists. `reason` contains nothing of the secret
        that the client has sent.
        """
        counters = self._counters(peer, mechanism)
        if is_again:
            counters.failed_reauthentications += 1
        else:
            counters.failed += 1
        if self._audit is not None:
            self._audit.authentication(peer, mechanism, error=reason, name=user)

    def expired(self, peer: Peer, mechanism: str) -> None:
        """Note a connection that is closed, because its client sent a request after the session had expired."""
        self._counters(peer, mechanism).expired_connections_killed += 1

    def _counters(self, peer: Peer, mechanism: str) -> LoginCounters:
        return self._metrics.login(peer.endpoint.listener, mechanism)
