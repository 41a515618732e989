"""Acknowledgements on their way to the broker: runs of offsets with one type each, and their form in requests. Pure.

A broker handles the acknowledgements of a partition in one request together: if one of them is refused, none counts. So
runs whose lock has ended are taken out before (`split_expired`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.protocol.api.share_fetch import AcknowledgeType


class Run(NamedTuple):
    """Offsets, both inclusive, with one `AcknowledgeType`. `lock_until`: when their lock ends, by the loop's clock."""

    first_offset: int
    last_offset: int
    kind: AcknowledgeType
    lock_until: float


def runs_of(offsets: Sequence[int], kind: AcknowledgeType, lock_until: float) -> list[Run]:
    """Return the runs of offsets, which are in ascending order."""
    if not offsets:
        return []
    if offsets[-1] - offsets[0] == len(offsets) - 1:  # no gap between them, the usual case
        return [Run(offsets[0], offsets[-1], kind, lock_until)]
    found: list[Run] = []
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            found.append(Run(first, last, kind, lock_until))
            first = offset
        last = offset
    found.append(Run(first, last, kind, lock_until))
    return found


def split_expired(runs: Iterable[Run], now: float) -> tuple[list[Run], list[Run]]:
    """Return the runs whose lock lasts, and those whose lock has ended."""
    lasting: list[Run] = []
    ended: list[Run] = []
    for run in runs:
        (lasting if run.lock_until > now else ended).append(run)
    return lasting, ended


def batches_of(runs: Iterable[Run]) -> list[tuple[int, int, list[int]]]:
    """Return runs as a request has them: first offset, last offset, and the type of all offsets or of each.

    Neighbouring runs become one batch, as in Kafka's `Acknowledgements.getAcknowledgementBatches`.
    """
    found: list[tuple[int, int, list[int]]] = []
    neighbours: list[Run] = []
    for run in sorted(runs):
        if neighbours and run.first_offset != neighbours[-1].last_offset + 1:
            found.append(_batch(neighbours))
            neighbours = []
        neighbours.append(run)
    if neighbours:
        found.append(_batch(neighbours))
    return found


def _batch(runs: list[Run]) -> tuple[int, int, list[int]]:
    first_offset, last_offset = runs[0].first_offset, runs[-1].last_offset
    if len({run.kind for run in runs}) == 1:
        return first_offset, last_offset, [int(runs[0].kind)]
    types: list[int] = []
    for run in runs:
        types += [int(run.kind)] * (run.last_offset - run.first_offset + 1)
    return first_offset, last_offset, types
