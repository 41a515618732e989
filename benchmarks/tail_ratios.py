"""What a record costs that consumers wait for, beside one that none waits for: the last part of `scripts/bench`.

A producer sends 1,000 records a second, each in a Produce of its own; what the broker uses is divided by the answers
that had records. Ratios are those to the same producer without consumers in the same round, so that what a busy machine
adds (both find the processor's caches cold) is on both sides. `page-cache`; clients and rows are those of `tails.py`,
which has more of them, and latencies.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import servers
from tabulate import tabulate
from tails import PLAIN, SESSION, Row, measure

RATE = 1000
ALONE = Row(PLAIN, 0, RATE)
AT_MOST = {Row(PLAIN, 1, RATE): 4.0, Row(SESSION, 1, RATE): 4.5, Row(PLAIN, 10, RATE): 1.3}
"""What is promised of each row: the CPU of an answer, its part of the record's Produce included, in Produces alone.

Half as much more than measured, for a busy machine. Before what waits had templates (a1df8c6) these were 6.2 for one
consumer, 5.3 in a session, and 3.5 for ten.
"""
WARM_S = 0.5


def print_ratios(rounds: int, seconds: float, against: Path | None) -> list[str]:
    """Measure and print; the promises that were missed."""
    missed: list[str] = []
    lines: list[list[str]] = []
    trees: dict[str, Path | None] = {"ottla page-cache": None}
    if against is not None:
        trees["other page-cache"] = against
    number = 0
    for name, tree in trees.items():
        found: dict[Row, list[float]] = {row: [] for row in (ALONE, *AT_MOST)}
        with servers.Ottla("page-cache", tree=tree) as server:
            for _ in range(rounds):
                for row, costs in found.items():
                    number += 1
                    costs.append(measure(server, row, number, WARM_S, seconds)["answer_us"])
        for row, costs in found.items():
            ratios = sorted(cost / alone for cost, alone in zip(costs, found[ALONE], strict=True))
            ratio, most = statistics.median(ratios), AT_MOST.get(row)
            promise = f" (≤ {most})" if most is not None and tree is None else ""
            by_round = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            lines.append([row.name, name, f"{statistics.median(costs):.1f}", f"{ratio:.2f}{promise}", by_round])
            if promise and most is not None and ratio > most:
                missed.append(f"tail, {row.name}: {ratio:.2f} times a Produce alone, promised at most {most}")
    headers = ["tail", "server", "CPU us/answer", "/ Produce alone", "by round"]
    print(f"\n{tabulate(lines, headers, disable_numparse=True, colalign=('left', 'left', *['right'] * 3))}")
    return missed
