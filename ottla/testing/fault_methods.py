"""The methods of an embedded broker that make requests fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

from ottla.testing.faults import ALWAYS, Fault, Faults, api_named, error_named

if TYPE_CHECKING:
    from ottla.protocol.errors import ErrorCode


class Limits(TypedDict, total=False):
    """Which requests of its API a fault is for; by default all of them."""

    topic: str
    """Those that name this topic. A request that names it among others is hit as a whole."""
    group: str
    """Those that name this group."""
    client_id: str
    """Those of this client."""
    after: int
    """So many that fit are let through first."""
    times: int | None
    """So many are hit then; None: all."""


class FaultMethods:
    """Each method adds a fault for the requests of an API that arrive from now on, and returns it.

    `api` is Kafka's name: `Produce`, `Fetch`, `OffsetCommit`. `limits` are keyword arguments: see `Limits`. A fault
    ends with its `times`, by `Fault.remove`, at the end of its `with` block, or by `faults.clear`. The first fault that
    fits a request hits it. All raise ValueError for a name that Kafka does not have, and for numbers below their least.
    """

    faults: Faults

    def fail(self, api: str, error: str | int, **limits: Unpack[Limits]) -> Fault:
        """Refuse requests with an error code: `broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)`.

        They are not handled. An API without an error in its answer (and a Produce with acks=0) loses its connection.
        """
        return self._add(api, limits, error=error_named(error))

    def delay(self, api: str, seconds: float, **limits: Unpack[Limits]) -> Fault:
        """Handle requests, and hold back their answers for so long, by the broker's clock."""
        if not seconds > 0:
            raise ValueError(f"seconds={seconds}: must be more than 0")
        return self._add(api, limits, delay_ms=seconds * 1000)

    def cut(self, api: str, *, handled: bool = False, **limits: Unpack[Limits]) -> Fault:
        """Close the connection in place of an answer. With `handled` the request is handled first, so that its client
        cannot know whether it was: a producer without idempotence writes its records twice.
        """
        return self._add(api, limits, cuts=True, is_handled=handled)

    def _add(
        self,
        api: str,
        limits: Limits,
        *,
        error: ErrorCode | None = None,
        delay_ms: float = 0,
        cuts: bool = False,
        is_handled: bool = False,
    ) -> Fault:
        times = limits.get("times")
        if times is not None and times < 1:
            raise ValueError(f"times={times}: a number of requests, 1 or more; None for all")
        fault = Fault(
            api_named(api),
            error=error,
            delay_ms=delay_ms,
            cuts=cuts,
            is_handled=is_handled,
            topic=limits.get("topic"),
            group=limits.get("group"),
            client_id=limits.get("client_id"),
            skipped=limits.get("after", 0),
            times=ALWAYS if times is None else times,
        )
        self.faults.add(fault)
        return fault
