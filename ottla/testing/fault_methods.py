"""The methods of an embedded broker that make requests fail."""

from __future__ import annotations

from ottla.testing.faults import ALWAYS, Fault, Faults, api_named, error_named


class FaultMethods:
    """Each method adds a fault for the requests of an API that arrive from now on, and returns it.

    `api` is Kafka's name: `Produce`, `Fetch`, `OffsetCommit`. `topic`, `group` and `client_id` limit it to requests
    that name these; a request that names a topic among others is hit as a whole. `after` requests that fit are let
    through first, and then `times` are hit, None for all. A fault ends with its `times`, by `Fault.remove`, at the end
    of its `with` block, or by `faults.clear`. The first fault that fits a request hits it. All raise ValueError for a
    name that Kafka does not have.
    """

    faults: Faults

    def fail(
        self,
        api: str,
        error: str | int,
        *,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
        after: int = 0,
        times: int | None = None,
    ) -> Fault:
        """Refuse requests with an error code: `broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)`.

        They are not handled. An API without an error in its answer (and a Produce with acks=0) loses its connection.
        """
        return self._add(
            Fault(
                api_named(api),
                error=error_named(error),
                topic=topic,
                group=group,
                client_id=client_id,
                skipped=after,
                times=_times(times),
            )
        )

    def delay(
        self,
        api: str,
        seconds: float,
        *,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
        after: int = 0,
        times: int | None = None,
    ) -> Fault:
        """Handle requests, and hold back their answers for so long, by the broker's clock."""
        if seconds <= 0:
            raise ValueError(f"seconds={seconds}: must be more than 0")
        return self._add(
            Fault(
                api_named(api),
                delay_ms=seconds * 1000,
                topic=topic,
                group=group,
                client_id=client_id,
                skipped=after,
                times=_times(times),
            )
        )

    def cut(
        self,
        api: str,
        *,
        handled: bool = False,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
        after: int = 0,
        times: int | None = None,
    ) -> Fault:
        """Close the connection in place of an answer. With `handled` the request is handled first, so that its client
        cannot know whether it was: a producer without idempotence writes its records twice.
        """
        return self._add(
            Fault(
                api_named(api),
                cuts=True,
                is_handled=handled,
                topic=topic,
                group=group,
                client_id=client_id,
                skipped=after,
                times=_times(times),
            )
        )

    def _add(self, fault: Fault) -> Fault:
        self.faults.add(fault)
        return fault


def _times(times: int | None) -> int:
    if times is not None and times < 1:
        raise ValueError(f"times={times}: a number of requests, 1 or more; None for all")
    return ALWAYS if times is None else times
