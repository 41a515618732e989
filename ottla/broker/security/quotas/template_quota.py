"""The quota of one client's requests that request templates answer: a connection has one.

It charges what a `RequestQuota` charges, to the same accounts, in fewer steps. A template answers only requests within
the quotas: a request that would exceed one takes the slow path, which charges it, answers, and mutes the connection.
Only for the time, which is known when the answer is ready, the connection is muted here (`end`).

    begin                               requests have the thread
    may_produce, may_fetch              charge them; False: nothing but time was charged, and the slow path answers
    end, or owe if no client waits      other work gets the thread

The time of a request that waits with others, and its share of an append, is owed until the next request or the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.security.quotas.accounts import NS_PER_PERCENT_SECOND
from ottla.broker.security.quotas.limits import FETCH, PRODUCE, REQUEST
from ottla.broker.security.quotas.rate import Rate

if TYPE_CHECKING:
    from ottla.broker.peer import Peer
    from ottla.broker.security.quotas.accounts import Account, Accounts

TOUCH_MS = 1_000
"""Accounts are marked as used after this time, not with every request."""
PRODUCE_KEY = 0


class TemplateQuota:
    """See the module. All calls on the broker's thread."""

    __slots__ = (
        *("_began_ns", "_fetch_account", "_fetch_rate", "_forgotten", "_now_ms", "_owed_ns", "_produced"),
        *("_produce_account", "_produce_rate", "_request_account", "_request_rate", "_touched_ms"),
        *("accounts", "client_id", "is_timed", "peer", "quotas"),
    )

    def __init__(self, quotas: Accounts, peer: Peer, client_id: str, accounts: dict[str, Account]) -> None:
        self.quotas = quotas
        self.peer = peer
        self.client_id = client_id
        self.accounts = accounts
        self.is_timed = REQUEST in accounts
        self._produce_account, self._produce_rate = _found(accounts, PRODUCE)
        self._fetch_account, self._fetch_rate = _found(accounts, FETCH)
        self._request_account, self._request_rate = _found(accounts, REQUEST)
        self._forgotten = quotas.forgotten
        self._now_ms = self._touched_ms = quotas.now_ms()
        self._began_ns: int | None = None
        """None while the client has no request on the thread."""
        self._owed_ns = 0
        self._produced = 0

    def is_same(self, other: TemplateQuota) -> bool:
        """Whether both belong to the same client and charge the same accounts."""
        return self.client_id == other.client_id and self.accounts == other.accounts

    def begin(self) -> bool:
        """Begin to measure: requests of the client have the thread now. False if its accounts were forgotten and may
        have been replaced: then a request has to take the slow path, and the templates are dropped.
        """
        quotas = self.quotas
        self._now_ms = now_ms = quotas.now_ms()
        if quotas.forgotten != self._forgotten:
            if not all(account.is_kept for account in self.accounts.values()):
                return False
            self._forgotten = quotas.forgotten
        if now_ms - self._touched_ms >= TOUCH_MS:
            self._touched_ms = now_ms
            quotas.touch(self.accounts.values(), now_ms)
        self._produced = 0
        if self.is_timed:
            now_ns = quotas.now_ns() - quotas.paid_ns
            if self._began_ns is not None:  # nested: a Fetch has the batches appended that were gathered before
                self._owed_ns += now_ns - self._began_ns
            self._began_ns = now_ns
        return True

    def may_produce(self, size_bytes: int) -> bool:
        """Charge the bytes of Produce requests if they are within the quota. Returns whether they are."""
        rate, account = self._produce_rate, self._produce_account
        if rate is None or account is None:
            return True
        if not rate.add_within(size_bytes, account.bound, self._now_ms):
            return False
        self._produced += size_bytes
        return True

    def take_back(self) -> None:
        """Undo the charge of the Produce requests since `begin`: they take the slow path after all, which charges."""
        if self._produced and self._produce_rate is not None:
            self._produce_rate.record(-self._produced, self._now_ms)
        self._produced = 0

    def fetch_bytes(self, most_bytes: int) -> int:
        """The most bytes to read for a Fetch: not more than could ever be answered without a wait."""
        account = self._fetch_account
        return most_bytes if account is None else int(min(most_bytes, self.quotas.window_bytes(account.bound)))

    def may_fetch(self, size_bytes: int) -> bool:
        """Charge the bytes of records if they and the time so far are within the quotas. Returns whether they are."""
        if self.is_timed and not self._charge_time():
            return False
        rate, account = self._fetch_rate, self._fetch_account
        return rate is None or account is None or rate.add_within(size_bytes, account.bound, self._now_ms)

    def may_answer_now(self, size_bytes: int) -> bool:
        """`begin` and `may_fetch`, for a Fetch that has been waiting."""
        return self.begin() and self.may_fetch(size_bytes)

    def owe(self) -> None:
        """Stop measuring: other work gets the thread. The time until now is charged later."""
        if self._began_ns is not None:
            self._owed_ns += self.held_ns() - self._began_ns
            self._began_ns = None

    def end(self, api_key: int = PRODUCE_KEY) -> int:
        """Charge the time of answered requests of this API. If it exceeds the quota, mute the connection for the
        returned milliseconds, which the answers have to contain.
        """
        rate, account = self._request_rate, self._request_account
        if rate is None or account is None:
            return 0
        if self._began_ns is None:
            self._now_ms = self.quotas.now_ms()  # it has been waiting
        is_within = self._charge_time()
        self._began_ns = None
        if is_within:
            return 0
        wait_ms = min(rate.wait_ms(account.bound, self._now_ms), self.quotas.most_request_throttle_ms)
        if wait_ms > 0:
            self.quotas.note_throttle(self.peer, self.client_id, api_key, REQUEST, wait_ms)
            self.peer.throttle(wait_ms)
        return wait_ms

    def held_ns(self) -> int:
        """The clock that measures requests (`Accounts.held_ns`)."""
        return self.quotas.held_ns()

    def now_ns(self) -> int:
        """The clock that measures a shared append."""
        return self.quotas.now_ns()

    def pay(self, held_ns: int) -> None:
        """Owe its share of an append that several requests share."""
        self.quotas.paid_ns += held_ns
        self._owed_ns += held_ns

    def _charge_time(self) -> bool:
        """Charge the time so far, and what is owed. Returns whether that is within the quota."""
        rate, account = self._request_rate, self._request_account
        assert rate is not None
        assert account is not None
        quotas = self.quotas
        now_ns = quotas.now_ns() - quotas.paid_ns
        held_ns = self._owed_ns
        if self._began_ns is not None:
            held_ns += now_ns - self._began_ns
            self._began_ns = now_ns
        self._owed_ns = 0
        share = held_ns / NS_PER_PERCENT_SECOND
        if rate.add_within(share, account.bound, self._now_ms):
            return True
        rate.record(share, self._now_ms)
        return False


def _found(accounts: dict[str, Account], kind: str) -> tuple[Account | None, Rate | None]:
    account = accounts.get(kind)
    if account is None:
        return None, None
    assert isinstance(account.meter, Rate)
    return account, account.meter
