"""The quota of one request on the slow path: its charges, and how long its connection is muted for them (KIP-219)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.security.quotas.accounts import NS_PER_PERCENT_SECOND
from ottla.broker.security.quotas.limits import FETCH, MUTATION, PRODUCE, REQUEST
from ottla.broker.security.quotas.rate import Rate
from ottla.broker.security.quotas.template_quota import TemplateQuota
from ottla.broker.security.quotas.token_bucket import TokenBucket
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.peer import Peer
    from ottla.broker.security.quotas.accounts import Account, Accounts
    from ottla.protocol.message import Response


class RequestQuota:
    """The charges of one request, and how long its connection is muted for them. Its time begins when this is made."""

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
        quotas: Accounts,
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
        self._began_ns: int | None = quotas.held_ns()
        """When its current time on the thread began; None while it waits."""
        self._throttle_ms = self._request_ms = self._mutation_ms = self._mutation_at_ms = 0
        self.is_timed = REQUEST in accounts
        """Whether its time is charged; not that of a Produce without an answer."""

    def produced(self, size_bytes: int) -> None:
        """Charge a Produce request."""
        self._throttle(PRODUCE, self._charge(PRODUCE, size_bytes))

    def fetch_bytes(self, most_bytes: int) -> int:
        """The most bytes to read for a Fetch: not more than could ever be answered without a wait."""
        account = self._accounts.get(FETCH)
        return most_bytes if account is None else int(min(most_bytes, self._quotas.window_bytes(account.bound)))

    def may_fetch(self, size_bytes: int) -> bool:
        """Charge the bytes of records; return whether they may be sent. If not, they cost nothing."""
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
        """Charge partitions that are created or deleted. Raises KafkaError if the quota is used up and the version of
        the request has that error.
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
            self._mutation_ms, self._mutation_at_ms = owed_ms, now_ms
        if self._is_strict:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def hold(self) -> None:
        """Charge the time so far: the request leaves the thread."""
        self._charge_time()
        self._began_ns = None

    def go_on(self) -> None:
        """Begin to measure again: the request has the thread again."""
        if self._began_ns is None:
            self._began_ns = self._quotas.held_ns()

    def now_ns(self) -> int:
        """The clock that measures a shared append."""
        return self._quotas.now_ns()

    def pay(self, held_ns: int) -> None:
        """Charge its share of an append that several requests share (`partitions/append_shares.py`)."""
        if self.is_timed:
            self._quotas.paid_ns += held_ns
            self._charge_ns(held_ns)

    def for_templates(self) -> TemplateQuota | None:
        """The quota of such requests when a template answers them; None if they have none."""
        accounts = {kind: account for kind, account in self._accounts.items() if kind != MUTATION}
        return TemplateQuota(self._quotas, self._peer, self._client_id, accounts) if accounts else None

    def settle(self, response: Response | None) -> None:
        """Charge the time of the answered request, mute the connection, and set the throttle time in the answer."""
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
        now_ns = self._quotas.held_ns()
        held_ns, self._began_ns = now_ns - self._began_ns, now_ns
        self._charge_ns(held_ns)

    def _charge_ns(self, held_ns: int) -> None:
        wait_ms = self._charge(REQUEST, held_ns / NS_PER_PERCENT_SECOND)
        self._request_ms = max(self._request_ms, min(wait_ms, self._quotas.most_request_throttle_ms))

    def _charge(self, kind: str, value: float) -> int:
        account = self._accounts.get(kind)
        if account is None:
            return 0
        rate, now_ms = account.meter, self._quotas.now_ms()
        assert isinstance(rate, Rate)
        rate.record(value, now_ms)
        return rate.wait_ms(account.bound, now_ms)

    def _throttle(self, kind: str, throttle_ms: int) -> None:
        if throttle_ms <= 0:
            return
        self._quotas.note_throttle(self._peer, self._client_id, self._api_key, kind, throttle_ms)
        if throttle_ms > self._throttle_ms:
            self._throttle_ms = throttle_ms
            self._peer.throttle(throttle_ms)
