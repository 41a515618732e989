"""The cost of each promise: latency and throughput of every flush setting, beside what the disk itself can do.

    scripts/bench-durability                       all rows, medians of 3 interleaved rounds
    scripts/bench-durability --only "100 B"        one size of batches; or "commits"
    scripts/bench-durability --only partitions     one record to each of 1 to 200 partitions (partition_rounds.py)
    scripts/bench-durability --short               a row for each setting, as in docs/durability.md

The limit is a loop in the same directory and the same run: write one batch at the end of a file, `fdatasync`, again
(`write + fdatasync`); and the same without the sync (`write`). With 20 connections it writes 20 batches for each sync,
as a group sync does. A ratio is a row's rate divided by that of `write + fdatasync`: a setting that waits for the disk
has 1.00 if the broker adds nothing to it.

Directories are created in `OTTLA_BENCH_DIRECTORY`: use a real disk, because a tmpfs syncs nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import frames
import partition_rounds
import servers
from tabulate import tabulate
from versions import HELP, version

from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.headers import encode_request_header, response_header
from ottla.protocol.message import encode

TOPIC = "bench"
GROUP = "bench"
ACKS_ALL = -1
COMMIT_KEY, COMMIT_VERSION = 8, 7
FIND_COORDINATOR_KEY, FIND_COORDINATOR_VERSION = 10, 2
ERROR_MARK = 0x5AA5
FLUSH_MS = 100
PARTITIONS = "partitions"
TURNS_PER_ROUND = 3
LIMIT, WRITE = "write + fdatasync", "write"


@dataclass(frozen=True)
class Setting:
    """A row of docs/durability.md."""

    name: str
    acks_all: str
    overrides: dict[str, str] = field(default_factory=dict)


SYNC = Setting("sync", "sync")
PAGE_CACHE = Setting("page-cache", "page-cache")
SETTINGS = [
    SYNC,
    PAGE_CACHE,
    Setting("page-cache, flush.messages=1", "page-cache", {"log.flush.interval.messages": "1"}),
    Setting(f"page-cache, flush.ms={FLUSH_MS}", "page-cache", {"log.flush.interval.ms": str(FLUSH_MS)}),
]


@dataclass(frozen=True)
class Workload:
    """A request that is repeated. `batch_bytes` 0: an offset is committed instead."""

    name: str
    batch_bytes: int
    connections: int
    requests: int

    @property
    def settings(self) -> list[Setting]:
        """The settings that differ in their cost."""
        return SETTINGS if self.batch_bytes else [SYNC, PAGE_CACHE]


WORKLOADS = [
    Workload("100 B, 1 in flight", 170, 1, 4_000),
    Workload("100 B, 20 connections", 170, 20, 30_000),
    Workload("16 KB, 1 in flight", 16_384, 1, 4_000),
    Workload("16 KB, 20 connections", 16_384, 20, 15_000),
    Workload("commits, 1 in flight", 0, 1, 4_000),
    Workload("commits, 20 connections", 0, 20, 20_000),
]


def commit_exchange() -> frames.Exchange:
    """An OffsetCommit of one offset without a member, as of a consumer that assigns its partitions itself."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=None
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, member_id="", topics=[topic])
    header = encode_request_header(COMMIT_KEY, COMMIT_VERSION, 0, "bench")
    result = OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=0, error_code=ERROR_MARK)
    answer = OffsetCommitResponse(
        topics=[OffsetCommitResponse.OffsetCommitResponseTopic(name=TOPIC, partitions=[result])]
    )
    reported = frames.framed(response_header(COMMIT_KEY, COMMIT_VERSION, 0), encode(answer, COMMIT_VERSION))
    error_at = reported.index(ERROR_MARK.to_bytes(2, "big"))
    return frames.Exchange(frames.framed(header, encode(request, COMMIT_VERSION)), error_at)


def ask_for_coordinator(server: servers.Server) -> None:
    """Make the broker create `__consumer_offsets`."""
    request = FindCoordinatorRequest(key=GROUP, key_type=0)
    header = encode_request_header(FIND_COORDINATOR_KEY, FIND_COORDINATOR_VERSION, 0, "bench")
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(frames.framed(header, encode(request, FIND_COORDINATOR_VERSION)))
        connection.recv(65536)


def limit(batch_bytes: int, group: int, requests: int, *, syncs: bool) -> dict[str, float]:
    """The loop without a broker: `requests` batches, `group` of them written before each sync."""
    batch = bytes(batch_bytes)
    buffers = [batch] * group
    place = os.environ.get("OTTLA_BENCH_DIRECTORY")
    elapsed_us: list[float] = []
    with tempfile.TemporaryFile(prefix="ottla-bench-", dir=place, buffering=0) as file:
        fd, position = file.fileno(), 0
        began = time.perf_counter()
        for _ in range(max(1, requests // group)):
            started = time.perf_counter()
            position += os.pwritev(fd, buffers, position)
            if syncs:
                os.fdatasync(fd)
            elapsed_us.append((time.perf_counter() - started) * 1e6)
        seconds = time.perf_counter() - began
    elapsed_us.sort()
    return {
        "rate": len(elapsed_us) * group / seconds,
        "p50": elapsed_us[len(elapsed_us) // 2],
        "p99": elapsed_us[len(elapsed_us) * 99 // 100],
        "cpu_us": 0.0,
    }


def measure(workload: Workload, setting: Setting, requests: int) -> dict[str, float]:
    """Measure one setting in a new broker."""
    if workload.batch_bytes:
        batch, _ = frames.batch_of(workload.batch_bytes)
        exchange = frames.produce_exchange(TOPIC, batch, ACKS_ALL)
    else:
        exchange = commit_exchange()
    with (
        tempfile.TemporaryDirectory(prefix="ottla-frames-") as folder,
        servers.Ottla(setting.acks_all, setting.overrides) as server,
    ):
        frame = frames.write(Path(folder), "frame", exchange.frame)
        server.create_topic(TOPIC)
        if not workload.batch_bytes:
            ask_for_coordinator(server)
        servers.load(server, frame, workload.connections, 1, max(50, requests // 20), exchange.error_at)
        return servers.load(server, frame, workload.connections, 1, requests, exchange.error_at)


def run(workload: Workload, rounds: int, scale: float) -> dict[str, dict[str, float]]:
    """The medians of all rows of one workload; the rows take turns within a round."""
    requests = max(100, int(workload.requests * scale))
    size_bytes = workload.batch_bytes or len(commit_exchange().frame)
    results: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, syncs in ((LIMIT, True), (WRITE, False)):
            figures = limit(size_bytes, workload.connections, requests, syncs=syncs)
            results.setdefault(name, []).append(figures)
        for setting in workload.settings:
            results.setdefault(setting.name, []).append(measure(workload, setting, requests))
    return {
        name: {key: statistics.median(one[key] for one in figures) for key in ("rate", "p50", "p99", "cpu_us")}
        for name, figures in results.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds per workload; medians are printed (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the number of requests")
    parser.add_argument("--only", default="", help="run only workloads whose name contains this")
    parser.add_argument("--short", action="store_true", help="one row for each setting")
    parser.add_argument("--against", type=version, help=f"{HELP}: partitions only")
    options = parser.parse_args()
    servers.build()
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, kernel {platform.release()}; "
        f"load {os.getloadavg()[0]:.1f}; medians of {options.rounds} interleaved rounds; acks=all\n"
    )
    found_of: dict[str, dict[str, dict[str, float]]] = {}
    for workload in WORKLOADS:
        if options.only in workload.name:
            found_of[workload.name] = run(workload, options.rounds, options.scale)
            print(f"done: {workload.name}", file=sys.stderr)
    if found_of:
        print(short(found_of) if options.short else long(found_of))
    if options.only in PARTITIONS:
        print("\nOne small record to each of P partitions, until all are answered (p50; CPU of the broker):\n")
        found = partition_rounds.measure(options.rounds * TURNS_PER_ROUND, options.scale, options.against)
        bare = {count: partition_rounds.bare_rounds(count) for count in partition_rounds.PARTITIONS}
        print(partition_rounds.table(found, bare))
        print("\n" + partition_rounds.bare_table(bare))
    return 0


def long(found_of: dict[str, dict[str, dict[str, float]]]) -> str:
    """A row for each setting of each workload."""
    rows = []
    for workload, medians in found_of.items():
        base = medians[LIMIT]["rate"]
        for number, (name, found) in enumerate(medians.items()):
            rows.append(
                [
                    "" if number else workload,
                    name,
                    f"{found['p50']:,.0f}",
                    f"{found['p99']:,.0f}",
                    f"{found['rate']:,.0f}",
                    f"{found['rate'] / base:.2f}",
                ]
            )
    headers = ["workload", "setting", "p50 µs", "p99 µs", "requests/s", "÷ limit"]
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=("left", "left") + ("right",) * 4)


def short(found_of: dict[str, dict[str, dict[str, float]]]) -> str:
    """A row for each setting: p50 / p99 in µs and requests per second (and their ratio to the limit's)."""
    rows = []
    for name in (LIMIT, *(setting.name for setting in SETTINGS)):
        row = [name]
        for medians in found_of.values():
            found = medians.get(name)
            if found is None:
                row.append("")
                continue
            ratio = found["rate"] / medians[LIMIT]["rate"]
            row.append(f"{found['p50']:,.0f} / {found['p99']:,.0f}; {found['rate']:,.0f} ({ratio:.2f})")
        rows.append(row)
    return tabulate(rows, ["setting", *found_of], tablefmt="github", disable_numparse=True)


if __name__ == "__main__":
    sys.exit(main())
