"""The quotas of clients, enforced: what each has taken, and how long it has to wait (KIP-13, 124, 219, 546, 599).

Made with the first quota; without one nothing of this exists, and no request pays for it. A request of a client that is
under a quota gets a `RequestQuota`, takes the slow path, and is not learnt: bytes and time are charged in one place.

    Produce       its bytes, when it arrives; the connection is muted from then on
    Fetch         the bytes of the records; one that would be over the quota is answered empty and costs nothing
    any request   the time for which it held the broker's thread, in percent of one processor
    topics        partitions that are created and deleted (`TokenBucket`); newer versions are refused, older ones wait

Accounts are bounded: clients choose their ids. Those not used for an hour go, and the longest unused one where there
are MAX_ACCOUNTS; a client that would profit from that could as well take another id.

Differences from Apache Kafka: a Fetch is charged the bytes of its records, not of its whole answer; one that finds its
account empty is given its first batch whatever its size, or a consumer would wait for ever for a batch that is larger
than its quota's window; the time of the appends that the requests of a turn share is nobody's.
"""

from __future__ import annotations

from collections import OrderedDict
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.security.quotas.limits import FETCH, KINDS, MUTATION, PRODUCE, REQUEST, Limits
from ottla.broker.security.quotas.rate import Rate
from ottla.broker.security.quotas.token_bucket import TokenBucket
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.broker.peer import Peer
    from ottla.broker.security.audit import Audit
    from ottla.broker.security.quotas.limits import Entity, Limit
    from ottla.broker.security.quotas.throttle_counters import ThrottleCounters
    from ottla.config.broker import BrokerConfig
    from ottla.protocol.message import Response

MAX_ACCOUNTS = 10_000
"""Some 2 KB each."""
IDLE_MS = 3_600_000
"""Kafka's InactiveSensorExpirationTimeSeconds."""
MOST_NAME_CHARACTERS = 256
"""Clients whose ids are the same so far share an account: an id may have 32,767 bytes."""
MOST_THROTTLE_MS = (1 << 31) - 1
STRICT_FROM = {19: 6, 20: 5, 37: 3}
"""CreateTopics, DeleteTopics, CreatePartitions: from these versions on THROTTLING_QUOTA_EXCEEDED is an answer."""
EXEMPT = frozenset((17, 36))
"""SaslHandshake and SaslAuthenticate. Nor is anything else charged before the login, ApiVersions above all: who it is,
is not known yet, and in Kafka no request gets as far as the quotas before (`SaslServerAuthenticator`)."""
_NS_PER_PERCENT_SECOND = 1e7


class Account:
    """What one client, user, or both have taken of one kind. `meter` is a bucket for changes of partitions."""

    __slots__ = ("bound", "meter", "used_ms")

    def __init__(self, bound: float, meter: Rate | TokenBucket, used_ms: int) -> None:
        self.bound = bound
        self.meter = meter
        self.used_ms = used_ms


class ClientQuotas:
    """See the module. All calls on the broker's thread.

    `now_ns` is the clock that the time of requests is measured by.
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
        self._limits: dict[str, Limits] = {}
        self._accounts: OrderedDict[tuple[str, str, str], Account] = OrderedDict()

    @property
    def account_count(self) -> int:
        """How many accounts are kept."""
        return len(self._accounts)

    @property
    def most_request_throttle_ms(self) -> int:
        """A client over its time waits no longer than this for one request (Kafka's ClientRequestQuotaManager)."""
        return self._sample_ms

    def set(self, entities: Mapping[Entity, Mapping[str, float]]) -> None:
        """The quotas have changed. What was taken so far stays."""
        self._limits = {kind: limits for kind in KINDS if (limits := Limits(kind, entities))}

    def now_ms(self) -> int:
        """The time that rates are measured by, in whole milliseconds as Kafka's."""
        return int(self._now_ms())

    def request(self, peer: Peer, client_id: str | None, api_key: int, version: int) -> RequestQuota | None:
        """What a request of the client is charged to; None where it is under no quota."""
        if api_key in EXEMPT or (peer.authentication is not None and not peer.authentication.is_complete):
            return None
        user, client_id = peer.principal.name, client_id or ""
        accounts: dict[str, Account] = {}
        for kind, limits in self._limits.items():
            limit = limits.of(user, client_id)
            if limit is not None:
                accounts[kind] = self._account(kind, limit)
        if not accounts:
            return None
        strict_from = STRICT_FROM.get(api_key)
        is_strict = strict_from is not None and version >= strict_from
        return RequestQuota(self, peer, accounts, client_id, api_key, is_strict=is_strict)

    def window_bytes(self, bound: float) -> float:
        """What may be fetched in a window that is empty before (Kafka's getMaxValueInQuotaWindow)."""
        return bound * max(self._samples - 1, 1) * self._sample_ms / 1000

    def _account(self, kind: str, limit: Limit) -> Account:
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
            account = accounts[key] = Account(limit.bound, meter, now_ms)
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


class RequestQuota:
    """What one request takes, and how long its connection is muted for that. Its time begins when it is made."""

    __slots__ = (
        "_accounts",
        "_api_key",
        "_began_ns",
        "_client_id",
        "_is_strict",
        "_mutation_at_ms",
        "_mutation_ms",
        "_peer",
        "_quotas",
        "_request_ms",
        "_throttle_ms",
        "is_timed",
    )

    def __init__(
        self,
        quotas: ClientQuotas,
        peer: Peer,
        accounts: dict[str, Account],
        client_id: str,
        api_key: int,
        *,
        is_strict: bool,
    ) -> None:
        self._quotas = quotas
        self._peer = peer
        self._accounts = accounts
        self._client_id = client_id
        self._api_key = api_key
        self._is_strict = is_strict
        self._began_ns: int | None = quotas.now_ns()
        """None while it waits."""
        self._throttle_ms = self._request_ms = self._mutation_ms = self._mutation_at_ms = 0
        self.is_timed = REQUEST in accounts
        """False for one whose time is not charged: a Produce without an answer."""

    def produced(self, size_bytes: int) -> None:
        """Charge a Produce request."""
        self._throttle(PRODUCE, self._charge(PRODUCE, size_bytes))

    def fetch_bytes(self, most_bytes: int) -> int:
        """How much may be read for a Fetch: no more than could ever be answered without waiting."""
        account = self._accounts.get(FETCH)
        return most_bytes if account is None else int(min(most_bytes, self._quotas.window_bytes(account.bound)))

    def may_fetch(self, size_bytes: int) -> bool:
        """Charge so many bytes of records, and say whether they may be sent; else they cost nothing."""
        self._charge_time()
        account = self._accounts.get(FETCH)
        fetch_ms = 0
        if account is not None:
            assert isinstance(account.meter, Rate)
            now_ms = self._quotas.now_ms()
            was_empty = account.meter.measure(now_ms)[0] <= 0
            fetch_ms = self._charge(FETCH, size_bytes)
            if was_empty and not self._request_ms:
                fetch_ms = 0
        if not fetch_ms and not self._request_ms:
            return True
        if account is not None:
            account.meter.record(-size_bytes, self._quotas.now_ms())  # type: ignore[union-attr]  # a Rate, see above
            self._throttle(FETCH, fetch_ms)
        return False

    def mutated(self, partitions: int) -> None:
        """Charge partitions that are created or deleted. Raises KafkaError where the quota is used up, and the version
        of the request knows that error.
        """
        account = self._accounts.get(MUTATION)
        if account is None:
            return
        bucket, now_ms = account.meter, self._quotas.now_ms()
        assert isinstance(bucket, TokenBucket)
        owed_ms = bucket.wait_ms(account.bound, now_ms) if self._is_strict else 0
        if not owed_ms:
            bucket.take(partitions, account.bound, now_ms)
            if self._is_strict:
                return
            owed_ms = bucket.wait_ms(account.bound, now_ms)
        if owed_ms:
            self._mutation_ms, self._mutation_at_ms = min(owed_ms, MOST_THROTTLE_MS), now_ms
        if self._is_strict:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def hold(self) -> None:
        """The request lets go of the thread: charge its time so far."""
        self._charge_time()
        self._began_ns = None

    def go_on(self) -> None:
        """The request has the thread again."""
        if self._began_ns is None:
            self._began_ns = self._quotas.now_ns()

    def settle(self, response: Response | None) -> None:
        """The request is answered: charge its time, mute the connection, and say so in the answer."""
        self._charge_time()
        self._throttle(REQUEST, self._request_ms)
        if self._mutation_ms:
            left_ms = self._mutation_ms - (self._quotas.now_ms() - self._mutation_at_ms)
            self._throttle(MUTATION, left_ms)
        if response is not None and self._throttle_ms and hasattr(response, "throttle_time_ms"):
            setattr(response, "throttle_time_ms", self._throttle_ms)  # noqa: B010  (few have none)

    def _charge_time(self) -> None:
        if self._began_ns is None or not self.is_timed:
            return
        now_ns = self._quotas.now_ns()
        held_ns, self._began_ns = now_ns - self._began_ns, now_ns
        wait_ms = self._charge(REQUEST, held_ns / _NS_PER_PERCENT_SECOND)
        self._request_ms = max(self._request_ms, min(wait_ms, self._quotas.most_request_throttle_ms))

    def _charge(self, kind: str, value: float) -> int:
        account = self._accounts.get(kind)
        if account is None:
            return 0
        rate, now_ms = account.meter, self._quotas.now_ms()
        assert isinstance(rate, Rate)
        rate.record(value, now_ms)
        return min(rate.wait_ms(account.bound, now_ms), MOST_THROTTLE_MS)

    def _throttle(self, kind: str, throttle_ms: int) -> None:
        if throttle_ms <= 0:
            return
        self._quotas.counters.note(kind, throttle_ms)
        if self._quotas.audit is not None:
            self._quotas.audit.throttled(self._peer, self._client_id, self._api_key, kind, throttle_ms)
        if throttle_ms > self._throttle_ms:
            self._throttle_ms = throttle_ms
            self._peer.throttle(throttle_ms)
