"""The usage of quotas: one account for each client, user, or both, and kind of quota.

The number of accounts is bounded, since clients choose their ids. Accounts not used for an hour are removed, and the
longest unused one when there are MAX_ACCOUNTS; a client that would profit from that could as well take another id.
"""

from __future__ import annotations

from collections import OrderedDict
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.security.quotas.limits import MUTATION
from ottla.broker.security.quotas.rate import Rate
from ottla.broker.security.quotas.token_bucket import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.broker.peer import Peer
    from ottla.broker.security.audit import Audit
    from ottla.broker.security.quotas.limits import Limit
    from ottla.broker.security.quotas.throttle_counters import ThrottleCounters
    from ottla.config.broker import BrokerConfig

MAX_ACCOUNTS = 10_000
"""Some 2 KB each."""
IDLE_MS = 3_600_000
"""Kafka's InactiveSensorExpirationTimeSeconds."""
MOST_NAME_CHARACTERS = 256
"""Clients whose ids agree in so many characters share an account: an id may have 32,767 bytes."""
NS_PER_PERCENT_SECOND = 1e7


class Account:
    """The usage of one kind by one client, user, or both. For changes of partitions `meter` is a token bucket."""

    __slots__ = ("bound", "is_kept", "key", "meter", "used_ms")

    def __init__(self, key: tuple[str, str, str], bound: float, meter: Rate | TokenBucket, used_ms: int) -> None:
        self.key = key
        self.bound = bound
        self.meter = meter
        self.used_ms = used_ms
        self.is_kept = True
        """False after it is forgotten: the next request of the client gets another one."""


class Accounts:
    """See the module. All calls on the broker's thread.

    `now_ns` is the clock that measures the time of requests.
    """

    def __init__(
        self,
        config: BrokerConfig,
        counters: ThrottleCounters,
        now_ms: Callable[[], float],
        now_ns: Callable[[], int] = perf_counter_ns,
        *,
        audit: Audit | None = None,
    ) -> None:
        self._samples, self._sample_ms = config.quota_window_num, config.quota_window_size_seconds * 1000
        self._mutation_samples = config.controller_quota_window_num
        self._mutation_sample_ms = config.controller_quota_window_size_seconds * 1000
        self.counters = counters
        self._now_ms = now_ms
        self.now_ns = now_ns
        self.audit = audit
        self.forgotten = 0
        """How many accounts have been forgotten."""
        self.paid_ns = 0
        """The charged time of appends that several requests shared."""
        self._accounts: OrderedDict[tuple[str, str, str], Account] = OrderedDict()

    @property
    def account_count(self) -> int:
        """How many accounts are kept."""
        return len(self._accounts)

    @property
    def most_request_throttle_ms(self) -> int:
        """The longest wait for one request of a client over its time (Kafka's ClientRequestQuotaManager)."""
        return self._sample_ms

    def now_ms(self) -> int:
        """The time for rates, in whole milliseconds as Kafka's."""
        return int(self._now_ms())

    def held_ns(self) -> int:
        """The clock that measures the time of requests. It stops during shared appends that are charged already, in
        whichever request they are made.
        """
        return self.now_ns() - self.paid_ns

    def touch(self, accounts: Iterable[Account], now_ms: int) -> None:
        """Mark these accounts as used, so that they are not forgotten."""
        for account in accounts:
            if account.is_kept:
                self._accounts.move_to_end(account.key)
                account.used_ms = now_ms

    def note_throttle(self, peer: Peer, client_id: str, api_key: int, kind: str, throttle_ms: int) -> None:
        """Note that a client has to wait, for the metrics and the audit log."""
        self.counters.note(kind, throttle_ms)
        if self.audit is not None:
            self.audit.throttled(peer, client_id, api_key, kind, throttle_ms)

    def window_bytes(self, bound: float) -> float:
        """The bytes that may be fetched in an empty window (Kafka's getMaxValueInQuotaWindow)."""
        return bound * max(self._samples - 1, 1) * self._sample_ms / 1000

    def account(self, kind: str, limit: Limit) -> Account:
        """The account of a client under `limit`, to which its request is charged."""
        accounts, now_ms = self._accounts, self.now_ms()
        key = (kind, limit.user[:MOST_NAME_CHARACTERS], limit.client_id[:MOST_NAME_CHARACTERS])
        account = accounts.get(key)
        if account is None:
            self._forget_idle(now_ms)
            meter: Rate | TokenBucket
            if kind == MUTATION:
                meter = TokenBucket(self._mutation_samples, self._mutation_sample_ms)
            else:
                meter = Rate(self._samples, self._sample_ms)
            account = accounts[key] = Account(key, limit.bound, meter, now_ms)
        else:
            accounts.move_to_end(key)
        account.bound, account.used_ms = limit.bound, now_ms
        return account

    def _forget_idle(self, now_ms: int) -> None:
        accounts = self._accounts
        while accounts:
            key, oldest = next(iter(accounts.items()))
            if len(accounts) < MAX_ACCOUNTS and now_ms - oldest.used_ms < IDLE_MS:
                return
            del accounts[key]
            oldest.is_kept = False
            self.forgotten += 1
