"""Ottla against the physical limit, in one run: `scripts/bench`.

Each workload is run in many short rounds, the servers in turn within a round, and the medians are printed with the
ratio of CPU time: the floor's over Ottla's, 1.00 = as cheap as the C program that does nothing but receive, check and
write. The ratio is the median of those of the single rounds: what other guests of a shared machine take from a tenth of
a second, they take from both neighbours. The floor never syncs; `page-cache` acknowledges as it does, `sync` waits for
the disk.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import frames
import servers
from tabulate import tabulate

TOPIC = "bench"
ACKS_ALL = -1


@dataclass(frozen=True)
class Workload:
    """One row group: what is sent, how, how often in a round, and the least ratio promised (0 = printed only)."""

    name: str
    batch_bytes: int
    connections: int
    inflight: int
    requests: int
    fetch: bool = False
    promise: float = 0.0


WORKLOADS = [
    Workload("produce 1 MB, 5 in flight", 1_000_000, 1, 5, 25, promise=0.7),
    Workload("produce 16 KB, 5 in flight", 16_384, 1, 5, 2_000, promise=0.5),
    Workload("produce 100 B, 1 in flight (round trip)", 170, 1, 1, 2_000),
    Workload("produce 100 B, 20 connections x 5", 170, 20, 5, 15_000),
    Workload("produce 100 B, 100 in flight", 170, 1, 100, 20_000),
    Workload("fetch 64 KB, 1 in flight", 65_536, 1, 1, 2_000, fetch=True, promise=0.8),
    Workload("fetch 1 MB, 1 in flight", 1_000_000, 1, 1, 200, fetch=True, promise=0.8),
]
AGAINST = "other page-cache"
STARTS = 5
FETCH_SPAN = 256_000_000  # bytes that a fetch workload walks through again and again; fits into the page cache


def first_produce(acks_all: str) -> tuple[float, float, float]:
    """Milliseconds from process start to the ready line and to the first accepted produce; idle memory in MB."""
    batch, _ = frames.batch_of(170)
    exchange = frames.produce_exchange(TOPIC, batch, ACKS_ALL)
    with servers.Ottla(acks_all) as server:
        assert isinstance(server, servers.Ottla)
        memory = servers.resident_mb(server.process.pid)
        ready = server.ready_seconds
        begun = time.perf_counter()
        ask_for_topic(server)
        with socket.create_connection((server.host, server.port)) as connection:
            connection.sendall(exchange.frame)
            answer = connection.recv(4096)
        assert answer[exchange.error_at : exchange.error_at + 2] == b"\0\0", "the first produce was refused"
        return ready * 1e3, (ready + time.perf_counter() - begun) * 1e3, memory


def ask_for_topic(server: servers.Server) -> None:
    """Metadata with automatic creation, as every producer begins."""
    from ottla.protocol.api.metadata import MetadataRequest
    from ottla.protocol.headers import encode_request_header
    from ottla.protocol.message import encode

    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=True)
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(frames.framed(encode_request_header(3, 9, 0, "bench"), encode(request, 9)))
        connection.recv(65536)


def run(
    workload: Workload, rounds: int, scale: float, kinds: list[str], against: Path | None
) -> dict[str, list[dict[str, float]]]:
    """All rounds of one workload: figures per server kind."""
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    requests = max(10, int(workload.requests * scale))
    batch, count = frames.batch_of(workload.batch_bytes)
    produce = frames.produce_exchange(TOPIC, batch, ACKS_ALL)
    with tempfile.TemporaryDirectory(prefix="ottla-frames-") as folder:
        place = Path(folder)
        produce_frame = frames.write(place, "produce", produce.frame)
        head, tail = frames.fetch_response_ends(TOPIC, batch)
        fetch = frames.fetch_exchange(TOPIC, len(batch))
        fetch_frame = frames.write(place, "fetch", fetch.frame)
        floor_arguments = [
            str(frames.write(place, "answer", frames.produce_response(TOPIC))),
            str(produce.records_at),
            str(produce.records_tail),
            str(frames.write(place, "head", head)),
            str(frames.write(place, "tail", tail)),
            str(fetch.offset_at),
            str(count),
            str(len(batch)),
        ]
        with contextlib.ExitStack() as running:
            loads: dict[str, Callable[[int], dict[str, float]]] = {}
            for kind in kinds:
                server = running.enter_context(start(kind, floor_arguments, against))
                server.create_topic(TOPIC)
                if workload.fetch:
                    batches = FETCH_SPAN // len(batch)
                    servers.load(server, produce_frame, 1, 5, batches, produce.error_at)
                    loads[kind] = partial(
                        _fetch, server, fetch_frame, workload, fetch, records=count, span=count * batches
                    )
                else:
                    loads[kind] = partial(_produce, server, produce_frame, workload, produce)
                loads[kind](requests)  # warm
            # What syncs makes the file system busy beyond its own turn: it comes when the others are done.
            syncing = [kind for kind in kinds if kind.endswith("sync")]
            for together in ([kind for kind in kinds if kind not in syncing], syncing):
                for _ in range(rounds):
                    for kind in together:
                        results[kind].append(loads[kind](requests))
    return results


def _produce(
    server: servers.Server, frame: Path, workload: Workload, exchange: frames.Exchange, requests: int
) -> dict[str, float]:
    return servers.load(server, frame, workload.connections, workload.inflight, requests, exchange.error_at)


def _fetch(
    server: servers.Server,
    frame: Path,
    workload: Workload,
    exchange: frames.Exchange,
    requests: int,
    *,
    records: int,
    span: int,
) -> dict[str, float]:
    """Batches of `records` each, one after the other, from the beginning again behind `span` records."""
    where = (exchange.error_at, exchange.offset_at, records, span)
    return servers.load(server, frame, workload.connections, workload.inflight, requests, *where)


def start(kind: str, floor_arguments: list[str], against: Path | None) -> servers.Server:
    if kind.startswith("floor"):
        server = servers.Floor(floor_arguments, kind.removeprefix("floor ") if " " in kind else "sendfile")
        server.name = kind
        return server
    if kind == AGAINST:
        return servers.Ottla("page-cache", tree=against)
    return servers.Ottla(kind.removeprefix("ottla "))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21, help="rounds per workload; medians are printed (default 21)")
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
        f"kernel {platform.release()}; load {os.getloadavg()[0]:.1f}; medians of {options.rounds} interleaved rounds"
    )
    servers.warm_memory()
    missed: list[str] = []
    if not options.only:
        starts = [first_produce("sync") for _ in range(STARTS)]
        ready, first, memory = (statistics.median(column) for column in zip(*starts, strict=True))
        print(f"\nstart: ready after {ready:.0f} ms (process start included)")
        print(f"first produce (acks=all, sync, new topic) accepted after {first:.0f} ms (promise: under 300)")
        print(f"idle memory: {memory:.1f} MB resident (promise: under 80)\n")
        if first >= 300 or memory >= 80:
            missed.append("start or memory")
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
        results = run(workload, options.rounds, options.scale, kinds, options.against)
        medians = {
            kind: {key: statistics.median(figures[key] for figures in figures_list) for key in figures_list[0]}
            for kind, figures_list in results.items()
        }
        base = min((kind for kind in kinds if kind.startswith("floor")), key=lambda kind: medians[kind]["cpu_us"])
        for kind in kinds:
            m = medians[kind]
            pairs = zip(results[base], results[kind], strict=True)
            ratio = statistics.median(floor["cpu_us"] / ours["cpu_us"] for floor, ours in pairs)
            promised = workload.promise if kind == "ottla page-cache" else 0.0
            if promised and ratio < promised:
                missed.append(f"{workload.name}: {ratio:.2f}, promised {promised}")
            rows.append(
                [
                    workload.name if kind == kinds[0] else "",
                    kind,
                    f"{m['cpu_us']:.2f}",
                    f"{ratio:.2f}" + (f" (≥ {promised})" if promised else ""),
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
        "requests/s",
        "MB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
    ]
    print(tabulate(rows, headers=headers, disable_numparse=True))
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
