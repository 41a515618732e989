"""Ottla beside other brokers, in one run: `scripts/bench-peers`.

The same generator sends the same prepared frames; the brokers take turns within a round. Printed are medians and the
ratio of CPU time: the other broker's divided by Ottla's with the same setting, above 1.00 = Ottla is cheaper. There are
two settings, each compared only with itself: `page-cache` acknowledges records in the page cache, as Kafka does; `sync`
records on disk, as Kafka does with `flush.messages=1`.

Two peers are started by default: Apache Kafka (`scripts/interop/apache-kafka`: Java 17+ and Maven; one node in KRaft
mode, 1 GB of heap), and Tansu's broker in Rust (`tansu.py`: by pip), which keeps its log in memory only and is compared
with `page-cache`, although it promises less. Any other broker is named with the command that starts it, in which {port}
and {directory} are replaced:

    scripts/bench-peers --peer 'NAME=PROGRAM --listen 127.0.0.1:{port} --data {directory}'

The rows of security (`--only TLS`, `SCRAM`, `SASL_SSL`, `ACLs`, `quotas`; `secured.py`) have a client in Python, with
TLS and SASL: their rates and latencies include that client, their CPU is the broker's.

A JVM compiles while it runs: each broker gets `--warm` rounds of every workload that are not counted.

    scripts/bench-peers --save --peer ...      starts and plain workloads alone; docs/peers/figures.json and peers.svg
    scripts/bench-peers --plot                 draws docs/peers/peers.svg again, and measures nothing
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import secured
import servers
from first_produce import FirstProduce, first_produce
from peers_plot import save_plot
from tabulate import tabulate
from tansu import Tansu
from transactions import LOADS, MOST_PRODUCERS, BenchProducer, TransactionLoad, round_of
from transactions import TOPIC as TRANSACTIONS_TOPIC
from workloads import WORKLOADS, groups, run

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "peers" / "figures.json"
STARTS = 3
SYNCING_SCALE = 0.1
"""The part of the requests for brokers that sync each batch separately: ten times as many would take an hour."""


@dataclass(frozen=True)
class Contender:
    """A broker that is measured: its name, which ends with "sync" if it acknowledges only records on disk."""

    name: str
    start: Callable[[], servers.Server]


class Row(NamedTuple):
    """The figures of one broker in one workload.

    Attributes:
        ratio: its CPU time divided by that of Ottla with the same setting, the median of the rounds.
        figures: medians of the rounds, by name: `cpu_us`, `rate`, `mb_s`, `p50`, `p99`.
    """

    workload: str
    broker: str
    ratio: float
    figures: dict[str, float]


def contenders(options: argparse.Namespace) -> list[Contender]:
    """Ottla, Kafka and Tansu unless they cannot run here, and the brokers that --peer names."""
    found = [
        Contender("ottla page-cache", lambda: servers.Ottla("page-cache")),
        Contender("ottla sync", lambda: servers.Ottla("sync")),
    ]
    if not options.no_kafka:
        try:
            with servers.Kafka(is_syncing=False):
                pass
        except servers.CannotRun as reason:
            print(f"without Apache Kafka: {reason}")
        else:
            found.append(Contender("kafka page-cache", lambda: servers.Kafka(is_syncing=False)))
            found.append(Contender("kafka sync", lambda: servers.Kafka(is_syncing=True)))
    if not options.no_tansu:
        try:
            with Tansu():
                pass
        except servers.CannotRun as reason:
            print(f"without Tansu: {reason}")
        else:
            found.append(Contender("tansu memory", Tansu))
    for peer in options.peer:
        name, _, command = peer.partition("=")
        found.append(Contender(name, partial(servers.Command, name, shlex.split(command))))
    return found


def starts_of(brokers: list[Contender]) -> dict[str, FirstProduce]:
    """Measure and print the time from the start of the process to the first accepted record of a new topic, in an
    empty directory: medians.
    """
    found = {}
    for broker in brokers:
        begun = []
        for _ in range(STARTS):
            with broker.start() as server:
                begun.append(first_produce(server))
        columns = zip(*((one.listens_ms, one.accepted_ms, one.memory_mb) for one in begun), strict=True)
        found[broker.name] = FirstProduce(*(statistics.median(column) for column in columns))
    rows = [
        [name, f"{one.listens_ms:,.0f}", f"{one.accepted_ms:,.0f}", f"{one.memory_mb:,.0f}"]
        for name, one in found.items()
    ]
    headers = ["broker", "listens after ms", "first record accepted after ms", "idle memory MB"]
    print(f"\nstart, medians of {STARTS}, empty directory, new topic, acks=all")
    print(tabulate(rows, headers=headers, disable_numparse=True), end="\n\n")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11, help="rounds per workload; medians are printed (default 11)")
    parser.add_argument("--warm", type=int, default=15, help="rounds before them that are not counted (default 15)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the number of requests")
    parser.add_argument("--only", default="", help="run only workloads whose name contains this, and no starts")
    parser.add_argument("--check", action="store_true", help="exit 1 when a broker takes less CPU than Ottla in a row")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="one more broker")
    parser.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    parser.add_argument("--no-tansu", action="store_true", help="leave Tansu out")
    parser.add_argument("--save", action="store_true", help="plain workloads, kept and drawn in docs/peers")
    parser.add_argument("--plot", action="store_true", help="only draw what is in docs/peers")
    options = parser.parse_args()
    if options.plot:
        save_plot(json.loads(FIGURES.read_text()), FIGURES.parent)
        return 0
    if options.save and options.only:
        parser.error("--save keeps the figures of one run of all plain workloads: it does not go with --only")
    for peer in options.peer:
        if "=" not in peer or "{port}" not in peer:
            parser.error(f"--peer {peer}: it should be NAME=COMMAND with {{port}} in the command")
    servers.build()
    try:
        return compare(contenders(options), options)
    except servers.CannotRun as reason:
        print(f"bench-peers: {reason}", file=sys.stderr)
        return 1


def compare(brokers: list[Contender], options: argparse.Namespace) -> int:
    """Measure and print. Raises CannotRun when a broker does not start."""
    machine = (
        f"Python {platform.python_version()} ({platform.python_compiler()}), {os.cpu_count()} cores, "
        f"kernel {platform.release()}; load {os.getloadavg()[0]:.1f}; "
        f"medians of {options.rounds} interleaved rounds after {options.warm} to warm up"
    )
    print(machine)
    servers.warm_memory()
    starts = {} if options.only else starts_of(brokers)
    rows: list[Row] = []
    for workload in WORKLOADS:
        if options.only not in workload.name:
            continue
        for together in groups([one.name for one in brokers]):
            is_syncing = together[0].endswith("sync")
            if is_syncing and workload.fetch:
                continue
            starting = {one.name: partial(_start, one) for one in brokers if one.name in together}
            scale = options.scale * (SYNCING_SCALE if is_syncing else 1)
            results = run(workload, options.rounds, scale, starting, options.warm)
            rows += [_row(workload.name, broker, results[broker], results[together[0]]) for broker in together]
        print(f"done: {workload.name}", file=sys.stderr)
    if not options.save:
        rows += _transaction_rows(brokers, options)
        rows += _secured_rows(brokers, options)
    _print(rows)
    if options.save:
        _save(machine, starts, rows)
    missed = cheaper(rows)
    for line in missed:
        print(f"MISSED: {line}")
    return int(options.check and bool(missed))


def _print(rows: list[Row]) -> None:
    table = []
    for _, of_workload in itertools.groupby(rows, key=lambda row: row.workload):
        for number, (workload, broker, ratio, figures) in enumerate(of_workload):
            cpu_us, rate, mb_s, p50, p99 = (figures[key] for key in ("cpu_us", "rate", "mb_s", "p50", "p99"))
            texts = [f"{cpu_us:.2f}", f"{ratio:.2f}", f"{rate:,.0f}", f"{mb_s:,.0f}", f"{p50:,.0f}", f"{p99:,.0f}"]
            table.append(["" if number else workload, broker, *texts])
    headers = ["workload", "broker", "CPU us/request", "CPU / Ottla's", "requests/s", "MB/s", "p50 us", "p99 us"]
    print(tabulate(table, headers=headers, disable_numparse=True))


def _save(machine: str, starts: dict[str, FirstProduce], rows: list[Row]) -> None:
    """Write the figures to docs/peers, and draw them."""
    figures: dict[str, Any] = {
        "taken": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "machine": machine,
        "starts": {
            name: {"first record, ms": round(one.accepted_ms), "idle memory, MB": round(one.memory_mb)}
            for name, one in starts.items()
        },
        "rows": [
            {
                "workload": row.workload,
                "broker": row.broker,
                "ratio": round(row.ratio, 2),
                **{key: round(value, 2) for key, value in row.figures.items()},
            }
            for row in rows
        ],
    }
    FIGURES.parent.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"written: {FIGURES}, {save_plot(figures, FIGURES.parent)}")


def cheaper(rows: list[Row]) -> list[str]:
    """Rows in which another broker takes less CPU than Ottla, and the option that measures each alone."""
    return [
        f"{row.workload}: {row.broker} takes {row.figures['cpu_us']:.2f} us, Ottla {100 * (1 / row.ratio - 1):.0f} % "
        f'more. This row alone: --only "{row.workload}"'
        for row in rows
        if not row.broker.startswith("ottla") and row.ratio < 1
    ]


def _transaction_rows(brokers: list[Contender], options: argparse.Namespace) -> list[Row]:
    """Transactions from begin to commit: a request of these rows is a whole transaction. Without Tansu, whose markers
    no reader sees, and brokers that refuse them."""
    loads = [load for load in LOADS if options.only in load.name]
    rows: list[Row] = []
    if not loads:
        return rows
    for together in groups([one.name for one in brokers if not one.name.startswith("tansu")]):
        scale = options.scale * (SYNCING_SCALE if together[0].endswith("sync") else 1)
        with contextlib.ExitStack() as running:
            servers_of: dict[str, servers.Server] = {}
            producers_of: dict[str, list[BenchProducer]] = {}
            for one in brokers:
                if one.name not in together:
                    continue
                server = servers_of[one.name] = running.enter_context(one.start())
                server.create_topic(TRANSACTIONS_TOPIC, MOST_PRODUCERS)
                producers_of[one.name] = [
                    BenchProducer(server.host, server.port, number, "bench") for number in range(MOST_PRODUCERS)
                ]
            for load in loads:
                results = _rounds_of(load, servers_of, producers_of, scale, options)
                ours = results[next(iter(servers_of))]
                rows += [_row(load.name, broker, results[broker], ours) for broker in servers_of]
                print(f"done: {load.name}", file=sys.stderr)
    return rows


def _secured_rows(brokers: list[Contender], options: argparse.Namespace) -> list[Row]:
    """The rows of security: Ottla beside Apache Kafka, both with the same settings. A log-in is a request of its row.
    Rows that write are measured with `sync`, too.
    """
    rows: list[Row] = []
    has_kafka = any(one.name == "kafka page-cache" for one in brokers)
    with secured.settings(options.only) as found:
        for setting, promise in itertools.product(found, ("page-cache", "sync")):
            is_syncing = promise == "sync"
            loads = [load for load in setting.loads if not is_syncing or (load.batch_bytes and not load.is_fetch)]
            if not loads:
                continue
            keys, scale = dict(setting.keys), options.scale * (SYNCING_SCALE if is_syncing else 1)
            with contextlib.ExitStack() as running:
                servers_of: dict[str, servers.Server] = {}
                ours = f"ottla {promise}"
                servers_of[ours] = running.enter_context(servers.Ottla(promise, keys))
                if has_kafka:
                    kafka = servers.Kafka(is_syncing=is_syncing, overrides=keys)
                    servers_of[f"kafka {promise}"] = running.enter_context(kafka)
                for server in servers_of.values():
                    secured.prepare(server, setting)
                for load in loads:
                    results = secured.rounds_of(
                        load, servers_of, setting, rounds=options.rounds, warm=options.warm, scale=scale
                    )
                    rows += [_row(load.name, broker, figures, results[ours]) for broker, figures in results.items()]
                    print(f"done: {load.name}, {promise}", file=sys.stderr)
    return rows


def _rounds_of(
    load: TransactionLoad,
    servers_of: dict[str, servers.Server],
    producers_of: dict[str, list[BenchProducer]],
    scale: float,
    options: argparse.Namespace,
) -> dict[str, list[dict[str, float]]]:
    """The figures of the rounds of one load, by broker: the brokers in turn, after the warm-up rounds."""
    count = max(load.producers, int(load.count * scale))
    results: dict[str, list[dict[str, float]]] = {name: [] for name in servers_of}
    for number in range(options.warm + options.rounds):
        for name, server in servers_of.items():
            figures = round_of(load, producers_of[name], count, server)
            if number >= options.warm:
                results[name].append(figures)
    return results


def _start(contender: Contender, _: list[str]) -> servers.Server:
    """A contender's server; the arguments for the floor are ignored."""
    return contender.start()


def _row(workload: str, broker: str, theirs: list[dict[str, float]], ours: list[dict[str, float]]) -> Row:
    """The medians of a broker's rounds, and the median of the rounds' ratios."""
    figures = {key: statistics.median(one[key] for one in theirs) for key in ("cpu_us", "rate", "mb_s", "p50", "p99")}
    ratio = statistics.median(a["cpu_us"] / b["cpu_us"] for a, b in zip(theirs, ours, strict=True))
    return Row(workload, broker, ratio, figures)


if __name__ == "__main__":
    sys.exit(main())
