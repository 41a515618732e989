"""The time of franz-go's TestGroupETL with Ottla by default (`sync`), with `page-cache`, and with Apache Kafka.

    PYTHONPATH=benchmarks python benchmarks/group_etl.py [--records N] [--rounds N] [--only NAME] [--check]

In this test of franz-go's own suite 500,000 records go through six chains of groups of several members, which consume,
produce and commit. The brokers take turns, in one run. Printed are the time of the test, and the CPU of the broker. The
client takes the larger part of the CPU, so run it on an idle machine: another program changes the times a lot. It also
changes the comparison: Ottla is one busy thread and Kafka many, each of which gets its share of a processor.

Needs Go 1.26+ on the PATH or in /usr/local/go/bin; fetches the release of franz-go that scripts/interop/go/go.mod names
and compiles its tests. Kafka needs Java 17+ and Maven. Exit status: 1 where a test failed, 69 where it cannot
run; with --check also 1 where Ottla as it comes takes longer than Apache Kafka, or more CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import servers
from tabulate import tabulate

MODULE = "github.com/twmb/franz-go"
GO_MOD = Path(__file__).parents[1] / "scripts" / "interop" / "go" / "go.mod"
FAILURE = re.compile(r"--- FAIL|_test\.go:\d+:|^panic|^FAIL")
AFTERWARDS = re.compile(r"NOT DELETING|completed in")
BROKERS: dict[str, Callable[[], servers.Server]] = {
    "ottla sync": lambda: servers.Ottla("sync"),
    "kafka page-cache": lambda: servers.Kafka(is_syncing=False),
    "ottla page-cache": lambda: servers.Ottla("page-cache"),
}


def build(go: str, folder: Path) -> tuple[Path, Path]:
    """The compiled tests, and the folder in which they run."""
    found = re.search(rf"{MODULE} (v\S+)", GO_MOD.read_text())
    assert found
    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    fetched = subprocess.run(
        [go, "mod", "download", "-json", f"{MODULE}@{found[1]}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode:
        raise servers.CannotRun(f"franz-go cannot be fetched: {fetched.stderr or fetched.stdout}")
    source = folder / "source"
    shutil.copytree(json.loads(fetched.stdout)["Dir"], source)
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)  # what Go keeps of modules may not be written to
    program, tests = folder / "kgo.test", source / "pkg" / "kgo"
    built = subprocess.run(
        [go, "test", "-c", "-o", str(program), "."],
        cwd=tests,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise servers.CannotRun(f"franz-go's tests cannot be built: {built.stderr[-2000:]}")
    return program, tests


def measure(program: Path, tests: Path, server: servers.Server, records: int) -> tuple[float, float] | None:
    """(seconds, CPU seconds of the broker); None where the test failed."""
    environment = {
        **os.environ,
        "KGO_SEEDS": f"{server.host}:{server.port}",
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(records),
    }
    cpu, began = server.cpu, time.perf_counter()
    done = subprocess.run(
        [str(program), "-test.run", "^TestGroupETL$", "-test.timeout", "60m"],
        cwd=tests,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        print(f"{server.name}, after {seconds:.1f} s, CPU {server.cpu - cpu:.1f} s:", file=sys.stderr)
        for line in reasons(done.stdout):
            print(line, file=sys.stderr)
        return None
    return seconds, server.cpu - cpu


def reasons(text: str) -> list[str]:
    """The lines of a failed run with the reason: which tests failed, and with which errors."""
    return [line for line in text.splitlines() if FAILURE.search(line) and not AFTERWARDS.search(line)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="only brokers whose name contains this")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 when Ottla as it comes is slower than Apache Kafka"
    )
    options = parser.parse_args()
    go = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin"]))
    if go is None:
        print("group_etl: go is not installed", file=sys.stderr)
        return 69  # EX_UNAVAILABLE
    found: dict[str, list[tuple[float, float]]] = {}
    has_failed = False
    with tempfile.TemporaryDirectory(prefix="group-etl-") as folder:
        try:
            program, tests = build(go, Path(folder))
            for _ in range(options.rounds):
                for name, start in BROKERS.items():
                    if options.only not in name:
                        continue
                    with start() as server:
                        figures = measure(program, tests, server, options.records)
                    if figures is None:
                        has_failed = True
                        continue
                    print(f"{name}: {figures[0]:.1f} s, CPU {figures[1]:.1f} s", file=sys.stderr)
                    found.setdefault(name, []).append(figures)
        except servers.CannotRun as reason:
            print(f"group_etl: {reason}", file=sys.stderr)
            return 69
    rows = [
        [name, *(f"{statistics.median(column):.1f}" for column in zip(*runs, strict=True))]
        for name, runs in found.items()
    ]
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}, {options.records:,} records, medians of {options.rounds}\n")
    print(tabulate(rows, ["broker", "seconds", "CPU s of the broker"], tablefmt="github"))
    missed = slower(found)
    for line in missed:
        print(f"MISSED: {line}")
    return int(has_failed or (options.check and bool(missed)))


def slower(found: dict[str, list[tuple[float, float]]]) -> list[str]:
    """The resources of which Ottla by default needs more than Apache Kafka, which syncs nothing."""
    ours, theirs = (found.get(name) for name in ("ottla sync", "kafka page-cache"))
    if not ours or not theirs:
        return ["Ottla as it comes was not compared with Apache Kafka"]
    medians = [[statistics.median(column) for column in zip(*runs, strict=True)] for runs in (ours, theirs)]
    return [
        f"TestGroupETL: {what} {mine:.1f} s, Kafka's {other:.1f} ({100 * (mine / other - 1):.0f} % above it)"
        for what, mine, other in zip(("time", "CPU of the broker"), *medians, strict=True)
        if mine > other
    ]


if __name__ == "__main__":
    sys.exit(main())
