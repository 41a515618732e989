"""Runs of records in flight: neighbouring offsets in the same state, which are divided and joined.

Plain data and pure functions, for `in_flight.py`, which keeps them in order and without gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ottla.broker.share.deliveries import Acknowledgement, RecordState, StateBatch

NEVER_MS = float("inf")


class Run:
    """Neighbouring offsets in the same state. `member_id` and `deadline_ms` are those of an acquisition."""

    __slots__ = ("deadline_ms", "delivery_count", "first_offset", "last_offset", "member_id", "state")

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        state: RecordState,
        delivery_count: int,
        member_id: str = "",
        deadline_ms: float = NEVER_MS,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.deadline_ms = deadline_ms

    def is_like(self, other: Run) -> bool:
        """Whether the two differ in their offsets only."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
        )


def pieces(runs: Sequence[Run], said: Acknowledgement) -> Iterator[tuple[Run, int]]:
    """Runs, divided where the type of acknowledgement changes, each with its type. `said` ends with the last one."""
    if len(said.types) == 1:
        yield from ((run, said.types[0]) for run in runs)
        return
    left = iter(runs)
    run = next(left)
    last_offset = run.first_offset - 1
    for kind, some in groupby(said.types[run.first_offset - said.first_offset :]):
        last_offset += len(list(some))
        while run.last_offset <= last_offset:
            yield run, kind
            following = next(left, None)
            if following is None:
                return
            run = following
        if run.first_offset <= last_offset:
            rest = Run(last_offset + 1, run.last_offset, run.state, run.delivery_count, run.member_id, run.deadline_ms)
            run.last_offset = last_offset
            yield run, kind
            run = rest


def add_change(changes: list[StateBatch], run: Run) -> None:
    """Note the state of a run, with that of its neighbour if they are alike."""
    first_offset = run.first_offset
    if changes:
        before = changes[-1]
        if (
            before.last_offset + 1 == first_offset
            and before.state is run.state
            and before.delivery_count == run.delivery_count
        ):
            first_offset = before.first_offset
            changes.pop()
    changes.append(StateBatch(first_offset, run.last_offset, run.state, run.delivery_count))
