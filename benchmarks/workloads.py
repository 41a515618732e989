"""The requests of the load generator, and the rounds in which several servers get them in turn.

Used by `bench.py` (with the floor) and `peers.py` (with other brokers): the same frames, the same generator, the
servers in turn within a round, so that other guests of a shared machine affect all servers alike.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import frames
import servers

TOPIC = "bench"
ACKS_ALL = -1


@dataclass(frozen=True)
class Workload:
    """One row group: the frames, connections and requests in a round, the least ratio promised, and the goal."""

    name: str
    batch_bytes: int
    connections: int
    inflight: int
    requests: int
    fetch: bool = False
    promise: float = 0.0
    wanted: float | None = None


WORKLOADS = [
    Workload("produce 1 MB, 5 in flight", 1_000_000, 1, 5, 25, promise=0.7),
    Workload("produce 16 KB, 5 in flight", 16_384, 1, 5, 2_000, promise=0.5),
    Workload("produce 100 B, 1 in flight (round trip)", 170, 1, 1, 2_000, promise=0.55),
    Workload("produce 100 B, 20 connections x 5", 170, 20, 5, 15_000, promise=0.42, wanted=0.45),
    Workload("produce 100 B, 100 in flight", 170, 1, 100, 20_000, promise=0.12),
    Workload("fetch 64 KB, 1 in flight", 65_536, 1, 1, 2_000, fetch=True, promise=0.8),
    Workload("fetch 1 MB, 1 in flight", 1_000_000, 1, 1, 600, fetch=True, promise=0.8),
]
FETCH_SPAN = 256_000_000  # bytes that a fetch workload walks through again and again; fits into the page cache
SPARE_MB = 500
"""Other memory that a start of all servers may touch for the first time: their own, and the kernel's."""

Start = Callable[[list[str]], servers.Server]
"""Starts a server; takes the arguments that only the floor needs."""


def run(
    workload: Workload,
    rounds: int,
    scale: float,
    starts: Mapping[str, Start],
    warm_rounds: int = 1,
    *,
    is_placed: bool = False,
) -> dict[str, list[dict[str, float]]]:
    """All rounds of one workload: figures per server, under its name in `starts`.

    `is_placed`: each server that never syncs runs on one processor, and the generator on another. Otherwise the
    kernel puts the two on one or on two processors, by the server's first requests. To wake a process on another
    processor costs several times what is measured, so a server's figures would show its place. (A server that
    syncs has threads, which may run beside it.)

    Servers whose name ends with "sync" run after the others: their syncs keep the file system busy beyond
    their own turn.
    """
    results: dict[str, list[dict[str, float]]] = {name: [] for name in starts}
    places = servers.processors() if is_placed else None
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
            loads: dict[str, Callable[..., dict[str, float]]] = {}
            for name, start in starts.items():
                server = running.enter_context(start(floor_arguments))
                server.create_topic(TOPIC)
                if workload.fetch:
                    batches = FETCH_SPAN // len(batch)
                    servers.load(server, produce_frame, 1, 5, batches, produce.error_at)
                    loads[name] = partial(
                        _fetch, server, fetch_frame, workload, fetch, records=count, span=count * batches
                    )
                else:
                    loads[name] = partial(_produce, server, produce_frame, workload, produce)
                if places is not None and not name.endswith("sync"):
                    server.keep_to(places[0])
                    loads[name] = partial(loads[name], processor=places[1])
                for _ in range(warm_rounds):
                    loads[name](requests)
            for together in groups(list(starts)):
                for _ in range(rounds):
                    for name in together:
                        results[name].append(loads[name](requests))
    return results


def touched_mb(workload: Workload, rounds: int, scale: float, brokers: int) -> int:
    """The approximate MB of memory that the rounds of a start touch for the first time."""
    written = FETCH_SPAN if workload.fetch else workload.batch_bytes * int(workload.requests * scale) * (rounds + 1)
    return SPARE_MB + written * brokers // 1_000_000


def _produce(
    server: servers.Server,
    frame: Path,
    workload: Workload,
    exchange: frames.Exchange,
    requests: int,
    *,
    processor: int | None = None,
) -> dict[str, float]:
    connections, inflight = workload.connections, workload.inflight
    return servers.load(server, frame, connections, inflight, requests, exchange.error_at, processor=processor)


def _fetch(
    server: servers.Server,
    frame: Path,
    workload: Workload,
    exchange: frames.Exchange,
    requests: int,
    *,
    records: int,
    span: int,
    processor: int | None = None,
) -> dict[str, float]:
    """Batches of `records` each, one after the other, from the beginning again after `span` records."""
    where = (exchange.error_at, exchange.offset_at, records, span)
    return servers.load(server, frame, workload.connections, workload.inflight, requests, *where, processor=processor)


def groups(names: Sequence[str]) -> list[list[str]]:
    """The servers that are measured in turn with one another: those that never sync, then those that do."""
    syncing = [name for name in names if name.endswith("sync")]
    return [[name for name in names if name not in syncing], syncing]
