"""Members of share groups beside a Consumer, with confluent-kafka and Apache Kafka beside them: `scripts/bench-share`.

A topic of one partition has records of 100 bytes. In each run a new group reads it: one Consumer that commits by itself
(the defaults), or one or several members of a share group, which accept each record. Each consumer is a process
(`share_member.py`). A first part of the records is not measured: imports, joining, code that adapts itself. CPU is that
of the broker, and of all clients, for each record; a ratio compares with the Consumer of the same broker and round, and
is the median of the rounds: of the rates, and of the CPU of broker and clients together.

The latency rows have the time from the send of a single record by a plain socket until the program has it. The next
request for records, which waits at the broker then, has brought the acknowledgement of the record before.

The brokers take turns within a round. `sync` answers an acknowledgement when it is on disk, `page-cache` when it is in
the page cache, as Apache Kafka does.

    scripts/bench-share                              Ottla in both settings
    scripts/bench-share --kafka                      and Apache Kafka 4.4.0 (Java 17+ and Maven)
    scripts/bench-share --against df30891a           and another version, with its own client
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import servers
from client_costs import value_pool
from share_member import CLIENTS, COUNT
from tabulate import tabulate
from versions import HELP, version

KAFKA = "4.4.0"
"""The first release whose share groups are compared: they are served without further settings."""
TOPIC = "shared"
RUN_LIMIT_S = 600
BASE = "Consumer"


@dataclass(frozen=True)
class Row:
    """Which clients, and how many of them in the group."""

    client: str
    members: int = 1

    @property
    def name(self) -> str:
        """The name in the table."""
        return self.client if self.members == 1 else f"{self.client}, {self.members} members"


ROWS = [*map(Row, CLIENTS), *(Row(client, 3) for client in CLIENTS if client != BASE)]


@dataclass(frozen=True)
class Contender:
    """A broker, and the checkout whose clients read from it; None: this one."""

    server: servers.Server
    tree: Path | None = None

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.server.host}:{self.server.port}"


async def write_records(address: str, records: int) -> None:
    """Write the topic that all groups read."""
    from ottla.client import Admin, Producer

    async with Admin(address) as admin:
        await admin.create_topic(TOPIC, partitions=1)
    values = value_pool()
    async with Producer(address) as producer:
        for first in range(0, records, len(values)):
            await producer.send_many(TOPIC, values[: records - first])


async def begin_with_the_first_record(address: str, group: str) -> None:
    """Let a share group read what was written before."""
    from ottla.client import Admin, ConfigChange, ConfigResource

    async with Admin(address) as admin:
        change = ConfigChange.set("share.auto.offset.reset", "earliest")
        await admin.alter_configs({ConfigResource.group(group): [change]})


def run(contender: Contender, row: Row, number: int, warm: int, records: int) -> dict[str, float]:
    """Measure one run of a row, by a new group."""
    group = f"group-{number}"
    asyncio.run(begin_with_the_first_record(contender.address, group))
    with tempfile.NamedTemporaryFile(prefix="ottla-bench-") as counts:
        counts.truncate(COUNT.size * row.members)
        found = outputs(
            _member(contender, row.client, TOPIC, group, counts.name, place, warm, records)
            for place in range(row.members)
        )
    first = min(found, key=lambda one: one["ended"])  # the one that has read the last record
    seconds = first["ended"] - min(one["began"] for one in found)
    return {
        "rate": first["records"] / seconds,
        "broker_us": max(one["broker_cpu"] for one in found) / records * 1e6,
        "client_us": sum(one["cpu"] for one in found) / records * 1e6,
    }


def run_latency(contender: Contender, row: Row, number: int, records: int) -> dict[str, float]:
    """Measure the times of single records, in a new topic."""
    group, topic = f"group-{number}", f"single-{number}"
    contender.server.create_topic(topic)
    asyncio.run(begin_with_the_first_record(contender.address, group))
    return outputs([_member(contender, row.client, topic, group, "", 0, 0, records)])[0]


def _member(contender: Contender, *words: object) -> subprocess.Popen[str]:
    client, topic, group, *rest = words
    arguments = [client, contender.address, topic, group, *rest, contender.server.pid]
    environment = dict(os.environ)
    tree = contender.tree or servers.HERE.parent
    environment["PYTHONPATH"] = os.pathsep.join([str(tree), str(servers.HERE)])
    return subprocess.Popen(
        [sys.executable, str(servers.HERE / "share_member.py"), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=tree,
    )


def outputs(started: Iterable[subprocess.Popen[str]]) -> list[dict[str, float]]:
    """What the members print, once all have ended."""
    members = list(started)
    try:
        texts = [member.communicate(timeout=RUN_LIMIT_S)[0] for member in members]
    finally:
        for member in members:
            member.kill()
            member.wait()
    if any(member.returncode for member in members):
        sys.exit("a consumer has failed")
    return [json.loads(text) for text in texts]


def ratios(figures: list[dict[str, float]], base: list[dict[str, float]]) -> tuple[float, float]:
    """The rate and the CPU of a record beside those of the base in the same rounds: medians."""
    rates = [one["rate"] / other["rate"] for one, other in zip(figures, base, strict=True)]
    costs = [_cpu(one) / _cpu(other) for one, other in zip(figures, base, strict=True)]
    return statistics.median(rates), statistics.median(costs)


def _cpu(figures: dict[str, float]) -> float:
    return figures["broker_us"] + figures["client_us"]


def print_throughput(found: dict[tuple[str, Row], list[dict[str, float]]]) -> None:
    """Print medians by row and broker."""
    table = []
    for (broker, row), runs in found.items():
        median = {key: statistics.median(one[key] for one in runs) for key in runs[0]}
        rate, cpu = ratios(runs, found.get((broker, Row(BASE)), runs))
        table.append(
            [
                *(broker, row.name, f"{median['rate']:,.0f}", f"{rate:.2f}"),
                *(f"{median['broker_us']:.2f}", f"{median['client_us']:.2f}", f"{cpu:.2f}"),
            ]
        )
    heads = ["broker", "clients", "records/s", "ratio", "broker us/record", "client us/record", "CPU ratio"]
    print(tabulate(table, heads, tablefmt="github", disable_numparse=True, colalign=("left", "left", *["right"] * 5)))


def print_latency(found: dict[tuple[str, Row], list[dict[str, float]]]) -> None:
    """Print medians by row and broker."""
    table = []
    for (broker, row), runs in found.items():
        base = found.get((broker, Row(BASE)), runs)
        ratio = statistics.median(one["p50"] / other["p50"] for one, other in zip(runs, base, strict=True))
        p50, p99 = (statistics.median(one[key] for one in runs) for key in ("p50", "p99"))
        table.append([broker, row.name, f"{p50:.2f}", f"{p99:.2f}", f"{ratio:.2f}"])
    heads = ["broker", "one record at a time", "p50 ms", "p99 ms", "ratio"]
    print(tabulate(table, heads, tablefmt="github", disable_numparse=True, colalign=("left", "left", *["right"] * 3)))


def contenders(options: argparse.Namespace, running: contextlib.ExitStack) -> dict[str, Contender]:
    """The brokers, which run until the end of the stack."""
    found = {}
    for promise in ("sync", "page-cache"):
        if promise in options.promises:
            found[f"ottla {promise}"] = Contender(running.enter_context(servers.Ottla(promise)))
            if options.against is not None:
                server = running.enter_context(servers.Ottla(promise, tree=options.against))
                found[f"other {promise}"] = Contender(server, options.against)
    if options.kafka:
        found["kafka"] = Contender(running.enter_context(servers.Kafka(is_syncing=False, version=KAFKA)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds per row; medians are printed (default 3)")
    parser.add_argument("--records", type=int, default=200_000, help="measured in each run (default 200,000)")
    parser.add_argument("--singles", type=int, default=1_000, help="records of each latency run (default 1,000)")
    parser.add_argument("--only", default="", help="only rows whose name contains this, and the Consumer")
    parser.add_argument("--promises", nargs="+", default=["sync", "page-cache"], choices=["sync", "page-cache"])
    parser.add_argument("--kafka", action="store_true", help=f"Apache Kafka {KAFKA}, too")
    parser.add_argument("--against", type=version, help=HELP)
    options = parser.parse_args()
    warm = options.records // 4
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, kernel {platform.release()}; load "
        f"{os.getloadavg()[0]:.1f}; {options.records:,} records, medians of {options.rounds} interleaved rounds\n"
    )
    rows = [row for row in ROWS if options.only in row.name or row == Row(BASE)]
    throughput: dict[tuple[str, Row], list[dict[str, float]]] = {}
    latency: dict[tuple[str, Row], list[dict[str, float]]] = {}
    with contextlib.ExitStack() as running:
        brokers = contenders(options, running)
        for broker in brokers.values():
            asyncio.run(write_records(broker.address, 2 * (warm + options.records)))
        number = 0
        for rounds in range(-1 if options.kafka else 0, options.rounds):  # a JVM compiles while it runs: round -1
            for row in rows:
                for name, broker in brokers.items():
                    number += 1
                    if rounds >= 0:
                        figures = run(broker, row, number, warm, options.records)
                        throughput.setdefault((name, row), []).append(figures)
                    elif name == "kafka":
                        run(broker, row, number, warm, options.records)
                    if row.members == 1 and options.singles and rounds >= 0:
                        singles = run_latency(broker, row, number, options.singles)
                        latency.setdefault((name, row), []).append(singles)
            print(f"done: round {rounds + 1}", file=sys.stderr)
    by_broker = sorted(throughput, key=lambda key: list(brokers).index(key[0]))
    print_throughput({key: throughput[key] for key in by_broker})
    if latency:
        print()
        print_latency({key: latency[key] for key in by_broker if key in latency})


if __name__ == "__main__":
    main()
