"""Checks that the broker's keys about groups fit together: defaults within bounds, sessions longer than heartbeats.

    misfit_of_groups(numbers.__getitem__)      ("group.streams.num.standby.replicas", "must be at most ..."), or None

Source: `verifyStreamsGroupConfigs` and its siblings in Kafka 4.4's `GroupCoordinatorConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

AT_MOST = (
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ("group.streams.min.task.offset.interval.ms", "group.streams.task.offset.interval.ms"),
    ("group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas"),
)
"""Keys whose value is at most that of another one."""


def misfit_of_groups(number_of: Callable[[str], int]) -> tuple[str, str] | None:
    """The first key that does not fit the others, and the reason; None if all fit. `number_of` gives a key's value."""
    return next(_misfits(number_of), None)


def _misfits(number_of: Callable[[str], int]) -> Iterator[tuple[str, str]]:
    for protocol in ("consumer", "streams"):
        session, heartbeat = f"group.{protocol}.session.timeout.ms", f"group.{protocol}.heartbeat.interval.ms"
        for name in ("session.timeout.ms", "heartbeat.interval.ms"):
            yield from _outside(number_of, f"group.{protocol}.", name)
        if number_of(heartbeat) >= number_of(session):
            yield heartbeat, f"must be less than {session}, which is {number_of(session)}"
    for protocol in ("consumer", "share", "streams"):
        yield from _outside(number_of, f"group.{protocol}.", "assignment.interval.ms")
    for low, high in AT_MOST:
        if number_of(low) > number_of(high):
            yield low, f"must be at most {high}, which is {number_of(high)}"


def _outside(number_of: Callable[[str], int], prefix: str, name: str) -> Iterator[tuple[str, str]]:
    """A default outside of the bounds that a group's own value must keep to."""
    low, key, high = (f"{prefix}{bound}{name}" for bound in ("min.", "", "max."))
    least, value, most = map(number_of, (low, key, high))
    if least > most:
        yield high, f"must be at least {low}, which is {least}"
    if not least <= value <= most:
        yield key, f"must be from {least} ({low}) to {most} ({high})"
