"""The broker core in seeded worlds of crashes, power cuts and disk faults: no promise is broken, and bugs are found.

`scripts/simulate` runs more of them, replays one, and counts how many seeds each planted bug takes.
"""

from __future__ import annotations

import warnings

import pytest
from kit.seeds import seed_of
from kit.simulator.run import REPLAY, find_bug, recorded_seeds, run_many, stories, summarise
from kit.simulator.world import World

KNOWN_SEEDS = 80
PIECE = 40
SEEDS_OF_THE_RUN = 60
SEEDS_FOR_A_BUG = 300
RARE_BUGS = {
    "failed append not taken back",
    "cleaner swaps before it syncs",
    "a lost end taken for a cleaned one",
    "an overtaken sync's error ignored",
    "markers before the decision",
    "a decided end not finished",
    "a new producer goes on with the open transaction",
    "cleaner leaves the recovery point behind",
    "an abort beyond what is cleaned not seen",
    "all of an aborted producer is cleaned",
    "markers cleaned as tombstones",
    "pending offsets are not looked at",
    "redo: a failed sync tried again",
    "clean marker without a sync of the volume",
}
"""They take hundreds of seeds (`scripts/simulate --bugs` counts them): a run of the tests has no time for that."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("first", "count"),
    [
        *(pytest.param(first, PIECE, id=f"known-{first}") for first in range(0, KNOWN_SEEDS, PIECE)),
        pytest.param(seed_of("worlds"), SEEDS_OF_THE_RUN, id="of-the-run"),
    ],
)
def test_no_world_breaks_a_promise(first: int, count: int) -> None:
    summary = summarise(run_many(first, count, processes=1))  # the other cores have other tests
    assert [(REPLAY.format(seed=one.seed), one.violation) for one in summary.violations] == []
    assert summary.operations >= 200 * summary.seeds
    assert summary.losses.total() >= 3 * summary.seeds


def test_the_same_seed_is_the_same_world() -> None:
    """To the last byte: with ids from elsewhere one world in twenty goes another way, and may not be replayed."""
    worlds = World(7), World(7)
    first, second = [world.run() for world in worlds]
    assert (first.operations, first.losses, first.sites) == (second.operations, second.losses, second.sites)
    assert worlds[0].machine.files.written_state() == worlds[1].machine.files.written_state()


@pytest.mark.parametrize("bug", sorted(stories().keys() - RARE_BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    found = find_bug(bug, SEEDS_FOR_A_BUG)
    assert found is not None
    if found != recorded_seeds().get(bug):
        stale = f"seed {found} shows {bug!r} first, not the recorded one: scripts/simulate --bugs --record"
        warnings.warn(pytest.PytestWarning(stale), stacklevel=1)


def test_enough_bugs_are_planted() -> None:
    assert len(stories()) >= 15
    assert stories().keys() >= RARE_BUGS
