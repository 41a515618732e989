"""What a client under quotas may expect of its connection: to wait where it is over them, for the throttle times of its
answers at most, and not where it is within them.

A rate counts what was charged within 10 to 11 seconds (`Rate`). So a client that is answered without a throttle time
has taken no more than the quota allows for 11 seconds. One that has to wait does so for what it took beyond 10 seconds'
worth, at that rate, and not longer. Between the two nothing is said. A request is charged when it starts, which the
client knows only where its answer comes in the same millisecond; what it does not know counts for neither.

Several connections may be of one client, by its id: they have one account (`QuotaAccount`). Each waits for the throttle
times of its own answers alone. Which of two requests on different connections was charged first is certain only where
one was answered before the other was sent; else neither counts for the other.

The time of a request is a number of ticks (`quota_worlds.py`), at least one for each Produce.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kit.simulator.model import Violation

from ottla.broker.security.quotas.limits import FETCH, PRODUCE, REQUEST
from ottla.protocol.api import ApiKey
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Answered, Line

KINDS: Final = (PRODUCE, FETCH, REQUEST)
PLENTY: Final = 1e12
"""More than any client takes."""
LEAST_WINDOW_S: Final = 10
LONGEST_WINDOW_S: Final = 11
KEPT_MS: Final = 13_000
"""After so long nothing counts any more: samples of a second each may overlap both ends of the window."""
TICK_NS: Final = 100_000
TICK: Final = TICK_NS / 1e7
"""In the unit of `request_percentage`: percent of a second."""
NEVER_MS: Final = float("inf")

Bounds = Mapping[str, set[float | None]]
"""By kind, what the quota may be."""


@dataclass
class _Request:
    """A request, with the bytes that are charged to `producer_byte_rate`."""

    produced: int
    bounds: Bounds
    sent_ms: float
    charged_before: int
    """How many charges of the client were certain when it was sent."""
    answered_ms: float = NEVER_MS
    knows_throttle: bool = True
    """Whether it gets an answer."""

    @property
    def is_waiting(self) -> bool:
        """Whether its answer may still come."""
        return self.knows_throttle and self.answered_ms == NEVER_MS


class _Charge(NamedTuple):
    """A value that was charged: when, its number among all of the client, and by which connection."""

    at_ms: float
    number: int
    meter: QuotaMeter
    value: float


class QuotaAccount:
    """What one client has taken, on all of its connections. `possible` says what its quota of a kind may be."""

    def __init__(self, client_id: str, possible: Callable[[str], set[float | None]]) -> None:
        self.client_id = client_id
        self.possible = possible
        self.reconnect()

    def reconnect(self) -> None:
        """The broker has restarted, and knows nothing of what was taken before."""
        self.requests: list[_Request] = []
        self.charge_count = 0
        self._charges: dict[str, deque[_Charge]] = {kind: deque() for kind in KINDS}

    def charge(self, kind: str, value: float, sent: _Request, meter: QuotaMeter) -> float:
        """Add what a request was charged now. Return the sum of what had certainly been charged by then, within the
        shortest window, and of this.
        """
        charges = self._charges[kind]
        charges.append(_Charge(sent.sent_ms, self.charge_count, meter, value))
        self.charge_count += 1
        while charges[0].at_ms <= sent.sent_ms - LEAST_WINDOW_S * 1000:
            charges.popleft()
        return sum(one.value for one in charges if one.meter is meter or one.number < sent.charged_before)

    def note(self, sent: _Request) -> None:
        """A request is sent now."""
        self.requests.append(sent)
        oldest_ms = min((one.sent_ms for one in self.requests if one.is_waiting), default=sent.sent_ms)
        self.requests = [one for one in self.requests if one.answered_ms > oldest_ms - KEPT_MS]


class QuotaMeter:
    """One connection of a client."""

    def __init__(self, account: QuotaAccount, clock: ManualClock) -> None:
        self._account = account
        self.client_id = account.client_id
        self._clock = clock
        self.throttled = 0
        """How many answers have said that it has to wait."""
        self.reconnect()

    def reconnect(self) -> None:
        """The broker has restarted."""
        self._account.reconnect()
        self._muted_until_ms = 0.0
        self._knows_throttle = True
        """Whether each request gets an answer that says for how long the connection is muted: not with acks=0."""

    def metered(self, key: int, size_bytes: int, then: Answered | None, *, is_alone: bool) -> Answered | None:
        """`then`, once the throttle time in the answer to a request, which is sent now, is found to be right."""
        produced, now_ms = size_bytes if key == ApiKey.PRODUCE else 0, self._clock.monotonic_ms()
        sent = _Request(produced, self._bounds(), now_ms, self._account.charge_count)
        if then is None:
            self._knows_throttle = sent.knows_throttle = False
        self._account.note(sent)
        if then is None:
            return None

        def answered(response: Response) -> None:
            throttle_ms = getattr(response, "throttle_time_ms", 0)
            now_ms = sent.answered_ms = self._clock.monotonic_ms()
            self._muted_until_ms = max(self._muted_until_ms, now_ms + throttle_ms)
            self.throttled += throttle_ms > 0
            if throttle_ms:
                self._require_over(sent, throttle_ms)
            if sent.sent_ms == now_ms and self._bounds() == sent.bounds:
                self._require_within(sent, response, is_throttled=throttle_ms > 0, is_alone=is_alone)
            then(response)

        return answered

    def look(self, line: Line) -> None:
        """Whether the connection is muted for longer than the throttle times of its answers. Raises Violation."""
        if line.is_throttled and self._knows_throttle and line.is_answered:
            late_ms = self._clock.monotonic_ms() - self._muted_until_ms
            if late_ms > 0:
                raise Violation(f"client {self.client_id} is muted {late_ms:.0f} ms longer than its throttle time")

    def _bounds(self) -> Bounds:
        return {kind: self._account.possible(kind) for kind in KINDS}

    def _require_over(self, sent: _Request, throttle_ms: int) -> None:
        """It has to wait: then it may be over a quota. For bytes of Produce requests it is known how long at most."""
        bounds = {kind: sent.bounds[kind] | self._account.possible(kind) for kind in KINDS}
        low = [kind for kind in KINDS if any(one is not None and one < PLENTY for one in bounds[kind])]
        if not low:
            raise Violation(f"client {self.client_id} has to wait, and is within all of its quotas: {bounds}")
        if sent.produced and low == [PRODUCE]:
            least = min(one for one in bounds[PRODUCE] if one is not None)
            most = sum(one.produced for one in self._account.requests)
            if throttle_ms > (most / least - LEAST_WINDOW_S) * 1000 + 1:
                raise Violation(
                    f"client {self.client_id} has to wait {throttle_ms} ms for {most} bytes, {PRODUCE} is {least:g}"
                )

    def _require_within(self, sent: _Request, response: Response, *, is_throttled: bool, is_alone: bool) -> None:
        """It has been charged now: where it need not wait, it is not over a quota."""
        if sent.produced:
            self._charge(PRODUCE, sent.produced, sent, is_throttled=is_throttled)
            if is_alone:
                self._charge(REQUEST, TICK, sent, is_throttled=is_throttled)
        elif isinstance(response, FetchResponse):
            size_bytes = sum(len(one.records or b"") for topic in response.responses for one in topic.partitions)
            is_first = not self._account.charge(FETCH, 0, sent, self)  # it may be larger than the quota
            self._charge(FETCH, size_bytes, sent, is_throttled=is_throttled or is_first)

    def _charge(self, kind: str, value: float, sent: _Request, *, is_throttled: bool) -> None:
        (bound, *others) = sent.bounds[kind]
        if bound is None or others:
            return
        total = self._account.charge(kind, value, sent, self)
        if not is_throttled and total > bound * LONGEST_WINDOW_S:
            raise Violation(
                f"client {self.client_id} has taken {total:g} in 10 seconds and need not wait: {kind} is {bound:g}"
            )
