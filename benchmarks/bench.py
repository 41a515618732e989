"""Ottla against the physical limit, in one run: `scripts/bench`.

Each workload is run in many short rounds, the servers in turn within a round, and the medians are printed with the
ratio of CPU time: the floor's over Ottla's, 1.00 = as cheap as the C program that does nothing but receive, check and
write. The ratio is the median of those of the single rounds: what other guests of a shared machine take from a tenth of
a second, they take from both neighbours. The floor never syncs; `page-cache` acknowledges as it does, `sync` waits for
the disk.

A server has one processor and the generator another, as if the client were elsewhere. What else a process start happens
to get (the place of its memory, of its code) stays for as long as the process runs. So the rounds are spread over
several starts of every server, and the range of the ratio over them is printed beside it.

Then comes what `sync` costs beside `page-cache` where a request writes to several partitions (`partition_rounds.py`),
and last what consumers cost that wait at the end of a log (`tail_ratios.py`).
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import partition_rounds
import servers
import tail_ratios
from first_produce import FirstProduce, first_produce
from tabulate import tabulate
from workloads import WORKLOADS, run

AGAINST = "other page-cache"
TIMED_STARTS = 5
SYNCS = "sync beside page-cache: one small record to each of some partitions, until all are answered"
SYNC_TURNS = 7
TAILS = "tails: consumers that wait at the end of a log"
TAIL_ROUNDS, TAIL_S = 3, 1.0


def start(kind: str, against: Path | None, floor_arguments: list[str]) -> servers.Server:
    if kind.startswith("floor"):
        server = servers.Floor(floor_arguments, kind.removeprefix("floor ") if " " in kind else "sendfile")
        server.name = kind
        return server
    if kind == AGAINST:
        return servers.Ottla("page-cache", tree=against)
    return servers.Ottla(kind.removeprefix("ottla "))


def start_once() -> FirstProduce:
    with servers.Ottla("sync") as server:
        return first_produce(server)


def print_starts() -> list[str]:
    """Start and idle memory; the promise that was missed."""
    servers.warm_memory()
    begun = [start_once() for _ in range(TIMED_STARTS)]
    ready = statistics.median(one.listens_ms for one in begun)
    first = statistics.median(one.accepted_ms for one in begun)
    memory = statistics.median(one.memory_mb for one in begun)
    print(f"\nstart: ready after {ready:.0f} ms (process start included)")
    print(f"first produce (acks=all, sync, new topic) accepted after {first:.0f} ms (promise: under 300)")
    print(f"idle memory: {memory:.1f} MB resident (promise: under 40)\n")
    return ["start or memory"] if first >= 300 or memory >= 40 else []


def print_syncs(options: argparse.Namespace) -> None:
    """What `sync` costs beside `page-cache` by partitions, and where that is more than is wanted."""
    found = partition_rounds.measure(SYNC_TURNS, options.scale, options.against)
    print(f"\n{SYNCS}\n\n{partition_rounds.table(found)}")
    for line in partition_rounds.too_dear(found):
        print(f"wanted, not promised: {line}")


def by_starts(ratios: Sequence[float], shares: Sequence[int]) -> list[float]:
    """The median of each start, of which `shares` says how many rounds it had."""
    left = iter(ratios)
    return [statistics.median(islice(left, share)) for share in shares if share]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21, help="rounds per workload; medians are printed (default 21)")
    parser.add_argument("--starts", type=int, default=3, help="starts of each server that share the rounds (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the number of requests")
    parser.add_argument("--only", default="", help="run only workloads whose name contains this")
    parser.add_argument("--against", type=Path, help="a checkout of another version, whose broker takes part, too")
    parser.add_argument("--check", action="store_true", help="exit 1 when a promised ratio is missed")
    options = parser.parse_args()
    if options.against is not None and not (options.against / "ottla" / "__main__.py").is_file():
        parser.error(f"--against {options.against}: there is no Ottla; name a checkout of another version")
    servers.build()
    print(
        f"Python {platform.python_version()} ({platform.python_compiler()}), {os.cpu_count()} cores, "
        f"kernel {platform.release()}; load {os.getloadavg()[0]:.1f}; medians of {options.rounds} interleaved rounds "
        f"in {options.starts} starts"
    )
    missed: list[str] = []
    if not options.only:
        missed += print_starts()
    rows = []
    for workload in WORKLOADS:
        if options.only not in workload.name:
            continue
        kinds = (
            ["floor sendfile", "floor pread", "ottla page-cache"]
            if workload.fetch
            else ["floor", "ottla page-cache", "ottla sync"]
        )
        if options.against is not None:
            kinds.insert(-1 if "ottla sync" in kinds else len(kinds), AGAINST)
        starts = {kind: partial(start, kind, options.against) for kind in kinds}
        results: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        shares = [len(range(number, options.rounds, options.starts)) for number in range(options.starts)]
        for rounds in filter(None, shares):
            servers.warm_memory()
            for kind, figures_list in run(workload, rounds, options.scale, starts, is_placed=True).items():
                results[kind] += figures_list
        medians = {
            kind: {key: statistics.median(figures[key] for figures in figures_list) for key in figures_list[0]}
            for kind, figures_list in results.items()
        }
        base = min((kind for kind in kinds if kind.startswith("floor")), key=lambda kind: medians[kind]["cpu_us"])
        for kind in kinds:
            m = medians[kind]
            pairs = zip(results[base], results[kind], strict=True)
            ratios = [floor["cpu_us"] / ours["cpu_us"] for floor, ours in pairs]
            ratio, by_start = statistics.median(ratios), by_starts(ratios, shares)
            promised = workload.promise if kind == "ottla page-cache" else 0.0
            if promised and ratio < promised:
                missed.append(f"{workload.name}: {ratio:.2f}, promised {promised}")
            rows.append(
                [
                    workload.name if kind == kinds[0] else "",
                    kind,
                    f"{m['cpu_us']:.2f}",
                    f"{ratio:.2f}" + (f" (≥ {promised})" if promised else ""),
                    f"{min(by_start):.2f} to {max(by_start):.2f}",
                    f"{m['rate']:,.0f}",
                    f"{m['mb_s']:,.0f}",
                    f"{m['p50']:.0f}",
                    f"{m['p99']:.0f}",
                    f"{m['p999']:.0f}",
                ]
            )
        print(f"done: {workload.name}", file=sys.stderr)
    headers = [
        "workload",
        "server",
        "CPU us/request",
        "floor / server",
        "by start",
        "requests/s",
        "MB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
    ]
    if rows:
        print(tabulate(rows, headers=headers, disable_numparse=True))
    if options.only in SYNCS:
        print_syncs(options)
    if options.only in TAILS:
        missed += tail_ratios.print_ratios(TAIL_ROUNDS, TAIL_S, options.against)
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
