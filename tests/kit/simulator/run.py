"""Many seeds, in several processes, and what they add up to."""

from __future__ import annotations

import gc
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from kit.simulator import (  # noqa: F401  # they register what is planted
    acl_bugs,
    bugs,
    directory_bugs,
    epoch_bugs,
    look_up_bugs,
    page_cache_bugs,
    quota_bugs,
    redo_bugs,
    settings_bugs,
    share_bugs,
    shortage_bugs,
    streams_bugs,
    transaction_bugs,
    transaction_trace_bugs,
    turn_bugs,
)
from kit.simulator.outcome import Outcome
from kit.simulator.planting import bug_of, planted, stories
from kit.simulator.sites import OTHER, SITES
from kit.simulator.world import World

__all__ = [
    "REPLAY",
    "Summary",
    "find_bug",
    "recorded_seeds",
    "run_many",
    "run_seeds",
    "seeds_to_find",
    "stories",
    "summarise",
    "write_recorded_seeds",
]

SEEDS_PER_TASK = 40
REPLAY = "scripts/simulate --replay {seed}"
RECORDED: Final = Path(__file__).with_name("found_by.json")
"""The first seed from 0 on that shows each planted bug, as `scripts/simulate --bugs --record` wrote it."""


@dataclass
class Summary:
    """What a number of worlds have shown together."""

    seeds: int = 0
    operations: int = 0
    seconds: float = 0.0
    losses: Counter[str] = field(default_factory=Counter)
    sites: Counter[str] = field(default_factory=Counter)
    violations: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count a world in."""
        self.seeds += 1
        self.operations += outcome.operations
        self.losses += outcome.losses
        self.sites += outcome.sites
        if outcome.violation is not None:
            self.violations.append(outcome)

    @property
    def missed_sites(self) -> list[str]:
        """Sites at which no machine has stopped."""
        return [row[0] for row in self.site_rows() if not any(row[1:]) and row[0] != OTHER]

    def site_rows(self) -> list[tuple[str, int, int, int]]:
        """(site, stops while it served, while it stopped, while it started), for a table."""
        names = [*SITES, OTHER, "between calls"]
        return [
            (name, self.sites[name], self.sites[f"stopping, {name}"], self.sites[f"recovery, {name}"]) for name in names
        ]


def run_seeds(seeds: Iterable[int], bug: str | None = None, *, stop_at_first: bool = False) -> list[Outcome]:
    """Run worlds one after another in this process."""
    outcomes = []
    with nullcontext() if bug is None else planted(bug):
        for seed in seeds:
            outcome = _world(seed, bug).run()
            outcomes.append(outcome)
            if stop_at_first and outcome.violation is not None:
                break
    return outcomes


def _world(seed: int, bug: str | None) -> World:
    """Bugs that are not of disks are looked for where a file system does nothing new, those that are not of
    transactions or rights where there are none.
    """
    if bug is None:
        return World(seed)
    one = bug_of(bug)
    return World(
        seed,
        theme=one.theme,
        volume_syncs=0.5 if one.theme else 0,
        transactions=1 if one.has_transactions else 0,
        acls=1 if one.has_acls else 0,
        page_cache=1 if one.has_page_cache else 0,
        quotas=1 if one.has_quotas else 0,
        shared_ids=1 if one.has_shared_ids else 0,
        turns=1 if one.has_turns else 0,
        settings=1 if one.has_settings else 0,
        directories=1 if one.has_directories else 0,
        times=1 if one.has_times else 0,
        epochs=1 if one.has_epochs else 0,
        descriptors=1 if one.has_shortages else 0,
        shares=1 if one.has_shares else 0,
        letters=1 if one.has_letters else 0,
        streams=1 if one.has_streams else 0,
    )


def run_many(first: int, count: int, processes: int | None = None) -> Iterator[list[Outcome]]:
    """Run `count` seeds from `first` on, in as many processes as there are cores; outcomes in pieces, as they come."""
    workers = processes or os.cpu_count() or 1
    pieces = [range(at, min(at + SEEDS_PER_TASK, first + count)) for at in range(first, first + count, SEEDS_PER_TASK)]
    # A process for each piece: what its worlds leave behind goes with it, which is cheaper than collecting garbage.
    with get_context("fork").Pool(workers, maxtasksperchild=1) as pool:
        yield from pool.imap(_run_piece, pieces, chunksize=1)


def _run_piece(seeds: range) -> list[Outcome]:
    gc.disable()
    return [World(seed).run() for seed in seeds]


def summarise(pieces: Iterable[list[Outcome]]) -> Summary:
    """Add everything up."""
    summary = Summary()
    begun = time.monotonic()
    for outcomes in pieces:
        for outcome in outcomes:
            summary.add(outcome)
    summary.seconds = time.monotonic() - begun
    return summary


def recorded_seeds() -> dict[str, int]:
    """The seeds of `RECORDED`, by the names of the bugs."""
    seeds: dict[str, int] = json.loads(RECORDED.read_text())
    return seeds


def write_recorded_seeds(seeds: Mapping[str, int]) -> None:
    """Replace `RECORDED`; bugs that are planted no more are left out."""
    known = {name: seeds[name] for name in sorted(stories()) if name in seeds}
    RECORDED.write_text(json.dumps(known, indent=2) + "\n")


def find_bug(bug: str, most: int) -> int | None:
    """A seed whose world shows a planted bug, None when no seed below `most` does.

    The recorded one is tried before all others. It saves time and decides nothing: a change of the broker or of the
    simulator can make another world of it, in which the bug does not show.
    """
    recorded = recorded_seeds().get(bug)
    first = [] if recorded is None else [recorded]
    outcome = run_seeds([*first, *range(most)], bug, stop_at_first=True)[-1]
    return None if outcome.violation is None else outcome.seed


def seeds_to_find(bug: str, most: int) -> int | None:
    """How many seeds it takes until a planted bug shows, None when it does not within `most`."""
    outcomes = run_seeds(range(most), bug, stop_at_first=True)
    return len(outcomes) if outcomes[-1].violation is not None else None
