"""The cost of requests beside a C program that does only what any broker must: the main part of `scripts/bench`.

Each workload is run in many short rounds, the servers in turn within a round, and the medians are printed with the
ratio of CPU time: the floor's divided by Ottla's, 1.00 = as cheap as the C program, which only receives, checks and
writes. The ratio is the median of those of the single rounds: time that other guests of a shared machine use in a tenth
of a second affects both neighbours. The floor never syncs; `page-cache` acknowledges as it does, `sync` waits for
the disk.

A server has one processor and the generator another, as if the client were on another machine. Other properties of a
process, such as the place of its memory and of its code, stay the same while it runs. So the rounds are spread over
several starts of every server, and the range of the ratio over the starts is printed beside it.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import servers
from held import Figure, Options, Section, at_least
from tabulate import tabulate
from workloads import WORKLOADS, Workload, run, touched_mb

TITLE = "floor: "
OURS, AGAINST = "ottla page-cache", "other page-cache"
KEYS = ("cpu_us", "rate", "mb_s", "p50", "p99", "p999")
HEADERS = ["workload", "server", "CPU us/request", "floor / server", "by start"]
HEADERS += ["requests/s", "MB/s", "p50 us", "p99 us", "p99.9 us"]


def start(kind: str, against: Path | None, floor_arguments: list[str]) -> servers.Server:
    """The server of a column."""
    if kind.startswith("floor"):
        server = servers.Floor(floor_arguments, kind.removeprefix("floor ") if " " in kind else "sendfile")
        server.name = kind
        return server
    if kind == AGAINST:
        return servers.Ottla("page-cache", tree=against)
    return servers.Ottla(kind.removeprefix("ottla "))


def by_starts(ratios: Sequence[float], shares: Sequence[int]) -> list[float]:
    """The median of each start; `shares` has the number of rounds of each."""
    left = iter(ratios)
    return [statistics.median(islice(left, share)) for share in shares if share]


def measure(workload: Workload, kinds: Sequence[str], options: Options) -> dict[str, list[dict[str, float]]]:
    """The figures of all rounds, by server."""
    starts = {kind: partial(start, kind, options.against) for kind in kinds}
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for rounds in filter(None, shares_of(options)):
        servers.warm_memory(touched_mb(workload, rounds, options.scale, len(kinds)))
        for kind, figures in run(workload, rounds, options.scale, starts, is_placed=True).items():
            results[kind] += figures
    return results


def shares_of(options: Options) -> list[int]:
    """The number of rounds of each start."""
    return [len(range(number, options.rounds, options.starts)) for number in range(options.starts)]


def print_ratios(names: Sequence[str], options: Options) -> list[Figure]:
    """Measure and print the workloads of these rows."""
    held: list[Figure] = []
    rows: list[list[str]] = []
    for workload in WORKLOADS:
        if TITLE + workload.name not in names:
            continue
        kinds = ["floor sendfile", "floor pread", OURS] if workload.fetch else ["floor", OURS, "ottla sync"]
        if options.is_check and "ottla sync" in kinds:
            kinds.remove("ottla sync")
        if options.against is not None:
            kinds.insert(-1 if "ottla sync" in kinds else len(kinds), AGAINST)
        results = measure(workload, kinds, options)
        medians = {
            kind: {key: statistics.median(one[key] for one in figures) for key in KEYS}
            for kind, figures in results.items()
        }
        base = min((kind for kind in kinds if kind.startswith("floor")), key=lambda kind: medians[kind]["cpu_us"])
        for kind in kinds:
            pairs = zip(results[base], results[kind], strict=True)
            ratios = [floor["cpu_us"] / ours["cpu_us"] for floor, ours in pairs]
            ratio, by_start = statistics.median(ratios), by_starts(ratios, shares_of(options))
            promise = ""
            if kind == OURS:
                held.append(Figure(TITLE + workload.name, ratio, at_least(workload.promise, workload.wanted)))
                promise = f" ({held[-1].bound})"
            m = medians[kind]
            rows.append(
                [
                    workload.name if kind == kinds[0] else "",
                    kind,
                    f"{m['cpu_us']:.2f}",
                    f"{ratio:.2f}{promise}",
                    f"{min(by_start):.2f} to {max(by_start):.2f}",
                    *(f"{m[key]:,.0f}" for key in KEYS[1:]),
                ]
            )
        print(f"done: {workload.name}", file=sys.stderr)
    print(tabulate(rows, headers=HEADERS, disable_numparse=True))
    return held


SECTION = Section([TITLE + workload.name for workload in WORKLOADS], print_ratios)
