"""The cost of a delivery to consumers that wait at the end of a log, beside Apache Kafka: `scripts/bench-tails`.

One producer sends records of 100 bytes at a fixed rate to a topic of one partition; each consumer gets all of them and
immediately sends its next Fetch. A *delivery* is one record to one consumer. Its CPU time is that of the broker, with
the Produces, divided by the deliveries, and by the answers that had records. "In one answer" is the number of
records in such an answer: if it is well above 1, the consumers (or the broker) could not follow one by one, and
rows with different numbers are compared by answers. Without consumers a delivery is a record: this is the part of
Produce in the other rows. e2e is the time from the producer's send to the consumer's
receive, of all records that were sent while it was measured; the run waits for them afterwards.

Three kinds of clients: `tails.c`, which needs little of the two cores, without a fetch session (as librdkafka)
and in one (as Java's consumers), and librdkafka itself (`tail_clients.py`). The brokers take turns within a round;
all of them acknowledge records in the page cache. Kafka is warmed up with every row by a run that is not counted: a JVM
compiles while it runs, and requests that waited meanwhile would be in the times of later ones.

    scripts/bench-tails                              all rows beside Apache Kafka (Java 17+ and Maven)
    scripts/bench-tails --check                      exit status 1 where its p50, p99 or CPU is below Ottla's
    scripts/bench-tails --only "50 consumers" --no-kafka --against a1df8c6
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import frames
import servers
from tabulate import tabulate
from versions import HELP, version

BATCH_BYTES = 170
FETCH_BYTES = 1 << 20
ACKS_ALL = -1
SESSION_ID_MARK, EPOCH_MARK = 0x11AA22BB, 0x33CC44DD
JVM_WARM_S = 10
WARM_UP_S = 1.0
BESIDE_KAFKA = {"p50": "e2e p50", "p99": "e2e p99", "cpu_us": "CPU of a delivery"}
"""The figures that are below Kafka's in every row."""


@dataclass(frozen=True)
class Row:
    """Which clients, how many consumers, and records per second."""

    clients: str
    consumers: int
    rate: int

    @property
    def name(self) -> str:
        plural = "" if self.consumers == 1 else "s"
        return f"{self.clients}: {self.consumers} consumer{plural}, {self.rate:,}/s"


PLAIN, SESSION, LIBRDKAFKA = "no session", "session", "librdkafka"
ROWS = [
    Row(PLAIN, 0, 1000),
    Row(PLAIN, 1, 1000),
    Row(PLAIN, 1, 100),
    Row(PLAIN, 10, 1000),
    Row(PLAIN, 50, 100),
    Row(PLAIN, 50, 1000),
    Row(PLAIN, 200, 100),
    Row(SESSION, 1, 1000),
    Row(SESSION, 50, 100),
    Row(SESSION, 200, 100),
    Row(LIBRDKAFKA, 1, 1000),
    Row(LIBRDKAFKA, 10, 100),
    Row(LIBRDKAFKA, 50, 100),
]


def topic_id(server: servers.Server, topic: str) -> UUID:
    from ottla.client import Admin

    async def find() -> UUID:
        async with Admin(bootstrap_servers=f"{server.host}:{server.port}") as admin:
            return (await admin.describe_topics([topic]))[topic].topic_id

    return asyncio.run(find())


def plain_fetch(topic: str) -> tuple[bytes, int, int, int, int]:
    """A Fetch without a session: the frame, the position of its offset, and that of the records in the answer."""
    exchange = frames.fetch_exchange(topic, FETCH_BYTES)
    head, _ = frames.fetch_response_ends(topic, bytes(100))
    return exchange.frame, exchange.offset_at, len(head) - 1, 0, 0


def session_fetch(topic: UUID) -> tuple[bytes, int, int, int, int]:
    """The same with session id and epoch 0 in it, and their positions."""
    marked = frames.session_fetch(topic, FETCH_BYTES, SESSION_ID_MARK, EPOCH_MARK, frames.OFFSET_MARK)
    session_at, epoch_at = (marked.index(struct.pack(">i", mark)) for mark in (SESSION_ID_MARK, EPOCH_MARK))
    offset_at = marked.index(struct.pack(">q", frames.OFFSET_MARK))
    frame = frames.session_fetch(topic, FETCH_BYTES, 0, 0, 0)
    # Length 4, correlation id 4, tags 1, throttle time 4, error 2, session id 4, topics 1, topic id 16, partitions 1,
    # partition 4, error 2, three offsets 24, aborted transactions 1, preferred replica 4.
    return frame, offset_at, 72, session_at, epoch_at


def measure(server: servers.Server, row: Row, number: int, warm_s: float, seconds: float) -> dict[str, float]:
    """Measure one run of one row, in a new topic."""
    topic = f"tails-{number}"
    server.create_topic(topic)
    if row.clients == LIBRDKAFKA:
        program = [sys.executable, str(servers.HERE / "tail_clients.py"), f"{server.host}:{server.port}", topic]
        return _run(server, [*program, *map(str, (row.consumers, row.rate, warm_s, seconds))], seconds)
    batch, _ = frames.batch_of(BATCH_BYTES)
    produce = frames.produce_exchange(topic, batch, ACKS_ALL)
    fetch = plain_fetch(topic) if row.clients == PLAIN else session_fetch(topic_id(server, topic))
    with tempfile.TemporaryDirectory(prefix="ottla-frames-") as folder:
        produce_frame = frames.write(Path(folder), "produce", produce.frame)
        fetch_frame = frames.write(Path(folder), "fetch", fetch[0])
        words = [str(servers.BUILD / "tails"), server.host, str(server.port), str(produce_frame), produce.error_at]
        return _run(
            server, [*words, fetch_frame, *fetch[1:], row.consumers, row.rate, max(warm_s, 0.5), seconds], seconds
        )


def _run(server: servers.Server, words: list[object], seconds: float) -> dict[str, float]:
    """Run the clients, and charge the server with its CPU time between the lines "begin" and "end"."""
    with subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True) as clients:
        assert clients.stdout is not None
        clients.stdout.readline()
        before = server.cpu
        clients.stdout.readline()
        used = server.cpu - before
        figures = clients.stdout.read().split()
    if clients.returncode or len(figures) != 4:
        sys.exit(f"{server.name}: the clients ended with status {clients.returncode}")
    deliveries, answers, p50, p99 = map(float, figures)
    return {
        "cpu_us": used / max(deliveries, 1) * 1e6,
        "answer_us": used / max(answers, 1) * 1e6,
        "cores": used / seconds,
        "in_one": deliveries / max(answers, 1),
        "p50": p50,
        "p99": p99,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds per row; medians are printed (default 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a row is measured (default 5)")
    parser.add_argument("--only", default="", help="run only rows whose name contains this")
    parser.add_argument("--against", type=version, help=HELP)
    parser.add_argument("--acks-all", default="page-cache", help="`ottla.acks.all` of Ottla's brokers")
    parser.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    parser.add_argument("--check", action="store_true", help="exit 1 when a row is not better than Kafka's")
    options = parser.parse_args()
    servers.build()
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, kernel {platform.release()}; "
        f"load {os.getloadavg()[0]:.1f}; medians of {options.rounds} interleaved rounds of {options.seconds:g} s\n"
    )
    with contextlib.ExitStack() as running:
        brokers: dict[str, servers.Server] = {"ottla": running.enter_context(servers.Ottla(options.acks_all))}
        if options.against is not None:
            brokers["other"] = running.enter_context(servers.Ottla(options.acks_all, tree=options.against))
        if not options.no_kafka:
            try:
                brokers["kafka"] = running.enter_context(servers.Kafka(is_syncing=False))
            except servers.CannotRun as reason:
                print(f"without Apache Kafka: {reason}")
        rows: list[list[str]] = []
        missed: list[str] = []
        runs = 0
        for row in ROWS:
            if options.only not in row.name:
                continue
            results: dict[str, list[dict[str, float]]] = {name: [] for name in brokers}
            if "kafka" in brokers:
                runs += 1
                measure(brokers["kafka"], row, runs, JVM_WARM_S, WARM_UP_S)
            for _ in range(options.rounds):
                for name, server in brokers.items():
                    runs += 1
                    results[name].append(measure(server, row, runs, WARM_UP_S, options.seconds))
            rows += lines(row, results)
            missed += not_better(row, results)
            print(f"done: {row.name}", file=sys.stderr)
    headers = [
        "row",
        "broker",
        "CPU us/delivery",
        "CPU / Ottla's",
        "us/answer",
        "cores",
        "in one answer",
        "e2e p50 us",
        "p99 us",
    ]
    print(tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=("left", "left", *["right"] * 7)))
    for line in missed:
        print(f"MISSED: {line}")
    return int(options.check and bool(missed or "kafka" not in brokers))


def not_better(row: Row, results: dict[str, list[dict[str, float]]]) -> list[str]:
    """The rows in which Kafka's median is below Ottla's, and the command that measures the row alone."""
    if "kafka" not in results:
        return []
    found = []
    for key, what in BESIDE_KAFKA.items():
        if key != "cpu_us" and not row.consumers:
            continue
        ours, theirs = (statistics.median(one[key] for one in results[name]) for name in ("ottla", "kafka"))
        if ours >= theirs:
            beyond = 100 * (ours / theirs - 1)
            found.append(
                f"{row.name}: {what} {ours:,.0f} us, Kafka's {theirs:,.0f} ({beyond:.0f} % above it). "
                f'This row alone: scripts/bench-tails --check --only "{row.name}"'
            )
    return found


def lines(row: Row, results: dict[str, list[dict[str, float]]]) -> list[list[str]]:
    """Medians of each broker, and the median (least to most) of the rounds' ratios to Ottla."""
    made: list[list[str]] = []
    for name, runs in results.items():
        median = {key: statistics.median(figures[key] for figures in runs) for key in runs[0]}
        ratios = sorted(a["cpu_us"] / b["cpu_us"] for a, b in zip(runs, results["ottla"], strict=True))
        ratio = "1" if name == "ottla" else f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        made.append(
            [
                "" if made else row.name,
                name,
                f"{median['cpu_us']:.1f}",
                ratio,
                f"{median['answer_us']:.1f}",
                f"{median['cores']:.2f}",
                f"{median['in_one']:.2f}",
                f"{median['p50']:,.0f}",
                f"{median['p99']:,.0f}",
            ]
        )
    return made


if __name__ == "__main__":
    sys.exit(main())
