"""The time of a start, the memory of an idle broker, and the time of `ottla --version`: a part of `scripts/bench`.

A start makes some twenty syncs, one after the other, so the disk's time for one is printed beside it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import servers
from first_produce import FirstProduce, first_produce
from held import Figure, Options, Section, at_most

FIRST_PRODUCE, MEMORY, VERSION = "start: first produce", "start: idle memory", "start: ottla --version"
AT_MOST = {FIRST_PRODUCE: at_most(150), MEMORY: at_most(35), VERSION: at_most(80)}
"""Milliseconds until a record of a new topic is accepted (acks=all, `sync`), MB resident, milliseconds."""
STARTS = 7
SYNCS = 50
WARM_MB = 1000


def start_once() -> FirstProduce:
    with servers.Ottla("sync") as server:
        return first_produce(server)


def version_ms() -> float:
    """The time of the command that only prints its version."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "ottla", "--version"], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1e3


def sync_ms() -> float:
    """The time of a sync of a file with a few new bytes."""
    elapsed = []
    with tempfile.TemporaryFile(
        prefix="ottla-bench-", dir=os.environ.get("OTTLA_BENCH_DIRECTORY"), buffering=0
    ) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(100))
            os.fsync(file.fileno())
            elapsed.append((time.perf_counter() - began) * 1e3)
    return statistics.median(elapsed)


def print_starts(names: Sequence[str], _: Options) -> list[Figure]:
    """Measure and print these rows."""
    held = []
    if FIRST_PRODUCE in names or MEMORY in names:
        servers.warm_memory(WARM_MB)
        begun = [start_once() for _ in range(STARTS)]
        ready = statistics.median(one.listens_ms for one in begun)
        first = [one.accepted_ms for one in begun]
        found = {
            FIRST_PRODUCE: statistics.median(first),
            MEMORY: statistics.median(one.memory_mb for one in begun),
        }
        print(f"start: ready after {ready:.0f} ms (process start included)")
        print(
            f"first produce (acks=all, sync, new topic) accepted after {found[FIRST_PRODUCE]:.0f} ms, "
            f"{min(first):.0f} to {max(first):.0f} in {STARTS} starts; a sync of a file takes {sync_ms():.2f} ms here"
        )
        print(f"idle memory: {found[MEMORY]:.1f} MB resident")
        units = {FIRST_PRODUCE: "ms", MEMORY: "MB"}
        held += [Figure(name, found[name], AT_MOST[name], units[name]) for name in found if name in names]
    if VERSION in names:
        took = [version_ms() for _ in range(STARTS)]
        print(f"ottla --version: {statistics.median(took):.0f} ms, {min(took):.0f} to {max(took):.0f}")
        held.append(Figure(VERSION, statistics.median(took), AT_MOST[VERSION], "ms"))
    return held


SECTION = Section(list(AT_MOST), print_starts)
