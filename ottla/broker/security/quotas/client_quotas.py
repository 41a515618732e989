"""The enforcement of client quotas: usage and waiting times (KIP-13, 124, 219, 546, 599).

Created with the first quota; without a quota none of this exists, and no request pays for it. A request of a client
under a quota gets a `RequestQuota` on the slow path; requests that templates answer are charged by a `TemplateQuota`
(`template_quota.py`) to the same accounts.

    Produce       its bytes, when it arrives; the connection is muted from then on
    Fetch         the bytes of the records; one that would exceed the quota is answered empty and costs nothing
    any request   the time for which it held the broker's thread, in percent of one processor
    topics        partitions that are created and deleted (`TokenBucket`); newer versions are refused, older ones wait

Differences from Apache Kafka: a Fetch is charged the bytes of its records, not of its whole answer. A Fetch whose
account is empty gets its first batch whatever its size, or a consumer would wait forever for a batch that is larger
than its quota's window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.security.quotas.accounts import Accounts
from ottla.broker.security.quotas.limits import KINDS, Limits
from ottla.broker.security.quotas.request_quota import RequestQuota

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.broker.peer import Peer
    from ottla.broker.security.audit import Audit
    from ottla.broker.security.quotas.accounts import Account
    from ottla.broker.security.quotas.limits import Entity
    from ottla.broker.security.quotas.throttle_counters import ThrottleCounters
    from ottla.config.broker import BrokerConfig

STRICT_FROM = {19: 6, 20: 5, 37: 3}
"""CreateTopics, DeleteTopics, CreatePartitions: from these versions on THROTTLING_QUOTA_EXCEEDED is an answer."""
EXEMPT = frozenset((17, 27, 36))
"""SaslHandshake and SaslAuthenticate, and WriteTxnMarkers, which brokers of a cluster send each other. No other request
before the login is charged either, mainly ApiVersions: the user is not known yet, and in Kafka no request reaches the
quotas before the login (`SaslServerAuthenticator`)."""


class ClientQuotas(Accounts):
    """The accounts, and the quotas that decide which clients have one. All calls on the broker's thread."""

    def __init__(
        self,
        config: BrokerConfig,
        counters: ThrottleCounters,
        now_ms: Callable[[], float],
        *,
        audit: Audit | None = None,
    ) -> None:
        super().__init__(config, counters, now_ms, audit=audit)
        self._all_limits = {kind: Limits(kind) for kind in KINDS}
        self._limits: dict[str, Limits] = {}
        """The limits of the kinds for which any quota is set."""

    def change(self, entities: Mapping[Entity, Mapping[str, float]]) -> None:
        """Set the quotas of these entities. Their usage so far stays."""
        for limits in self._all_limits.values():
            limits.change(entities)
        self._limits = {kind: limits for kind, limits in self._all_limits.items() if limits}

    def request(self, peer: Peer, client_id: str | None, api_key: int, version: int) -> RequestQuota | None:
        """The quota to which a request of the client is charged; None if it is under no quota."""
        if api_key in EXEMPT or (peer.authentication is not None and not peer.authentication.is_complete):
            return None
        user, client_id = peer.principal.name, client_id or ""
        accounts: dict[str, Account] = {}
        for kind, limits in self._limits.items():
            limit = limits.of(user, client_id)
            if limit is not None:
                accounts[kind] = self.account(kind, limit)
        if not accounts:
            return None
        strict_from = STRICT_FROM.get(api_key)
        is_strict = strict_from is not None and version >= strict_from
        return RequestQuota(self, peer, accounts, client_id, api_key, is_strict=is_strict)
