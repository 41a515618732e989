"""The cost of a record for which consumers wait, beside one for which none waits: a part of `scripts/bench`.

A producer sends records at a fixed rate, one in each Produce; the broker's CPU time is divided by the answers
that had records. Ratios are those to a producer of 1,000 records a second without consumers in the same round, so that
a busy machine affects both sides (both find the processor's caches cold). For 200 consumers the figure is the
part of a core that they need if each gets all records: the broker's CPU of a delivery, times the number of all.
`page-cache`; clients and rows are those of `tails.py`, which has more of them, and latencies.

Requests that wait had no templates in a1df8c6, so the bound of the CPU of an answer is a part of the CPU of that
version, in the same rounds. That needs this repository's history. `--against` measures one more version in the rounds.
"""

from __future__ import annotations

import contextlib
import statistics
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

import servers
from held import CannotMeasure, Figure, Options, Section, at_most
from tabulate import tabulate
from tails import PLAIN, SESSION, Row, measure
from versions import commit_of, version

TITLE = "tails: "
RATE = 1000
OURS, OTHER, BEFORE = "ottla page-cache", "other page-cache", "a1df8c6"
ALONE = Row(PLAIN, 0, RATE)
ONE, FIFTY = Row(PLAIN, 1, RATE), Row(PLAIN, 50, 100)
AT_MOST = {ONE: at_most(4.0), Row(SESSION, 1, RATE): at_most(4.5), Row(PLAIN, 10, RATE): at_most(1.3)}
"""The bound of each row: the CPU of an answer, with its part of the record's Produce, divided by that of a Produce.

The bounds are 1.5 times the measured values, for a busy machine. Before waiting requests had templates (a1df8c6) these
were 6.2 for one consumer, 5.3 in a session, and 3.5 for ten.
"""
CORES_AT_MOST = {Row(PLAIN, 200, 100): at_most(1.0), Row(SESSION, 200, 100): at_most(1.0)}
BESIDE_AT_MOST = {ONE: at_most(0.55, wanted=0.33), FIFTY: at_most(0.33)}
"""The bound of the CPU of an answer, divided by that of a1df8c6."""
ROUNDS, SECONDS = 3, 1.0
WARM_S = 0.5

RATIOS = {TITLE + row.name: row for row in AT_MOST}
CORES = {f"{TITLE}{row.name}, cores": row for row in CORES_AT_MOST}
BESIDE = {f"{TITLE}{row.name}, beside {BEFORE}": row for row in BESIDE_AT_MOST}
"""The rows with a bound, by their names."""


def print_ratios(names: Sequence[str], options: Options) -> list[Figure]:
    """Measure and print these rows."""
    compared = [BESIDE[name] for name in names if name in BESIDE]
    rows = list(dict.fromkeys([ALONE, *({**RATIOS, **CORES, **BESIDE}[name] for name in names)]))
    trees: dict[str, Path | None] = {OURS: None}
    if options.against is not None:
        trees[BEFORE if (commit_of(options.against) or "").startswith(BEFORE) else OTHER] = options.against
    elif compared:
        try:
            trees[BEFORE] = version(BEFORE)
        except ArgumentTypeError as reason:
            raise CannotMeasure(f"tails beside {BEFORE}: {reason}") from reason
    found: dict[str, dict[Row, list[dict[str, float]]]] = {name: {} for name in trees}
    number = 0
    with contextlib.ExitStack() as running:
        brokers = {name: running.enter_context(servers.Ottla("page-cache", tree=tree)) for name, tree in trees.items()}
        for _ in range(ROUNDS):
            for row in rows:
                for name, server in brokers.items():
                    if options.against is None and name == BEFORE and row not in (ALONE, *compared):
                        continue
                    number += 1
                    found[name].setdefault(row, []).append(measure(server, row, number, WARM_S, SECONDS))
    print(table(found))
    return _held(names, found[OURS]) + (_beside(names, found) if BEFORE in found else [])


def _held(names: Sequence[str], found: dict[Row, list[dict[str, float]]]) -> list[Figure]:
    """The figures of this version."""
    held = []
    for name in names:
        if (row := RATIOS.get(name)) is not None:
            ratio = statistics.median(ratios(found[row], found[ALONE]))
            held.append(Figure(name, ratio, AT_MOST[row], "of a Produce alone"))
        elif (row := CORES.get(name)) is not None:
            cores = statistics.median(cores_of(row, one) for one in found[row])
            held.append(Figure(name, cores, CORES_AT_MOST[row], "cores"))
    return held


def _beside(names: Sequence[str], found: dict[str, dict[Row, list[dict[str, float]]]]) -> list[Figure]:
    """The figures as ratios to those of the version before."""
    held = []
    for name in names:
        if (row := BESIDE.get(name)) is not None:
            ratio = statistics.median(ratios(found[OURS][row], found[BEFORE][row]))
            held.append(Figure(name, ratio, BESIDE_AT_MOST[row], f"of {BEFORE}'s CPU"))
    return held


def cores_of(row: Row, figures: dict[str, float]) -> float:
    """The cores that all deliveries of this row need: more than a broker that lags has used so far."""
    return figures["cpu_us"] / 1e6 * row.consumers * row.rate


def ratios(each: Sequence[dict[str, float]], other: Sequence[dict[str, float]]) -> list[float]:
    """The ratios of the CPU of an answer, one for each round, in ascending order."""
    return sorted(one["answer_us"] / beside["answer_us"] for one, beside in zip(each, other, strict=True))


def table(found: dict[str, dict[Row, list[dict[str, float]]]]) -> str:
    """A line for each row and broker."""
    lines: list[list[str]] = []
    for row in found[OURS]:
        for name, of in found.items():
            if row not in of:
                continue
            cost = statistics.median(one["answer_us"] for one in of[row])
            cores = statistics.median(cores_of(row, one) if row.consumers else one["cores"] for one in of[row])
            alone = ratios(of[row], of[ALONE])
            beside = "" if name == OURS else f"{statistics.median(ratios(found[OURS][row], of[row])):.2f}"
            by_round = f"{alone[0]:.2f} to {alone[-1]:.2f}"
            shown = [f"{cost:.1f}", f"{statistics.median(alone):.2f}", by_round, f"{cores:.2f}", beside]
            lines.append([row.name if name == OURS else "", name, *shown])
    headers = ["tail", "server", "CPU us/answer", "/ Produce alone", "by round", "cores", "this / other"]
    return tabulate(lines, headers, disable_numparse=True, colalign=("left", "left", *["right"] * 5))


SECTION = Section([*RATIOS, *CORES, *BESIDE], print_ratios)
