"""Leader epochs out of batches: they never go back, so what does is damage."""

from __future__ import annotations

import pytest
from kit.logs import batch

from ottla.protocol.records.batch import parse_header, set_offset_and_epoch
from ottla.storage.log.epoch_runs import EpochRuns


def entries(epochs: list[int], known: set[int] | None = None) -> list[tuple[int, int]]:
    runs = EpochRuns()
    for offset, epoch in enumerate(epochs):
        data = batch(b"v")
        set_offset_and_epoch(data, offset, epoch)
        runs.note(parse_header(data))
    return [tuple(entry) for entry in runs.entries(known or ())]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ([], []),
        ([0, 0, 0], [(0, 0)]),
        ([0, 0, 2, 2, 3], [(0, 0), (2, 2), (3, 4)]),
        ([1, 1, 9, 1, 1], [(1, 0)]),
        ([1, 1, 0, 1, 1], [(1, 0)]),
        ([9, 1, 1, 1], [(1, 1)]),
        ([1, 1, 5, 3, 3], [(1, 0), (3, 3)]),
        ([-1, -1, 2], [(2, 2)]),
        ([1, -5, 1], [(1, 0)]),
        ([1, 1, 9], [(1, 0), (9, 2)]),
    ],
)
def test_what_goes_back_is_left_out(epochs: list[int], expected: list[tuple[int, int]]) -> None:
    assert entries(epochs) == expected


def test_a_lone_epoch_that_the_checkpoint_does_not_know_is_left_out() -> None:
    assert entries([1, 1, 9], {0, 1}) == [(1, 0)]
    assert entries([1, 1, 9, 9], {0, 1}) == [(1, 0), (9, 2)], "a checkpoint may be damaged, too"
