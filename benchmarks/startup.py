"""The time of a start: from the process's exec to the ready line and to the first accepted produce (acks=all).

    python benchmarks/startup.py                          2,000 partitions, logs of 10 GB
    python benchmarks/startup.py --partitions 200 --gigabytes 1
    python benchmarks/startup.py --only clean,worst       some of: clean unclean killed worst create

    clean     2,000 partitions with data, a tenth of them in several segments, stopped cleanly
    unclean   the same after `kill -9`: every leader epoch grows by one
    killed    a 10 GB log, in eight partitions and in one, after `kill -9` under load; the recovery point is sound
    worst     the same logs with the recovery points deleted: every byte is checked, written again and synced; from the
              page cache, and from the disk (POSIX_FADV_DONTNEED). Beside it the time for reading and checking the bytes
              without a broker, and for writing them again and syncing
    create    topics by CreateTopics: 1 of 100 partitions, 100 of one; and for how long the loop was blocked meanwhile

Each start is a new process. Needs free disk for one and a half such logs, in `OTTLA_BENCH_DIRECTORY`.
Exit status 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import frames
from tabulate import tabulate

from ottla.broker.metadata.change_requests import NewTopic, TopicResult
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.protocol.records.checksum import crc32c
from ottla.storage.log.append import AppendEntry
from ottla.storage.log.log import Log

START_PROMISE_S = 3.0
SEVERAL = 8
PARTITIONS_OF_A_TOPIC = 100
SMALL_BATCH_BYTES = 4_000
SMALL_BATCHES = 20
SEGMENTS_OF_A_TENTH = 4
BATCH_BYTES = 16_384
BATCHES_OF_A_WRITE = 64
PIECE_BYTES = 1 << 20
LOAD_S = 3.0
PROGRESS_LINES = 6
STAMP_MS = 1_700_000_000_000
PRODUCE_VERSION = 9
ACKS_ALL = -1
KINDS = ("clean", "unclean", "killed", "worst", "create")
SETTINGS = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.retention.ms": "-1", "log.retention.bytes": "-1"}

Row = list[object]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=2_000, help="of the small logs (default %(default)s)")
    parser.add_argument("--gigabytes", type=float, default=10.0, help="size of the large log (default %(default)s)")
    parser.add_argument("--batch", type=int, default=BATCH_BYTES, help="bytes of its batches (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="starts of the small logs (default %(default)s)")
    parser.add_argument("--only", default=",".join(KINDS), help="which, with commas between (default: all)")
    parser.add_argument("--acks", default="sync", help="ottla.acks.all (default %(default)s)")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(KINDS):
        parser.error(f"--only knows {', '.join(KINDS)}, not {', '.join(sorted(unknown))}")
    size_bytes = int(options.gigabytes * 1e9)
    place = Path(os.environ.get("OTTLA_BENCH_DIRECTORY", tempfile.gettempdir()))
    needed = int(size_bytes * 1.5) if {"killed", "worst"} & set(chosen) else 1 << 30
    free = shutil.disk_usage(place).free
    if free < needed:
        sys.exit(
            f"{place} has {free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB are needed: --gigabytes makes it smaller"
        )
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        f"ottla.acks.all={options.acks}"
    )
    missed: list[str] = []
    if {"clean", "unclean"} & set(chosen):
        missed += small_logs(place, options.partitions, options.rounds, chosen, options.acks)
    if {"killed", "worst"} & set(chosen):
        for partitions in (SEVERAL, 1):
            missed += large_log(place, partitions, size_bytes, options.batch, chosen, options.acks)
    if "create" in chosen:
        creations(place, options.rounds)
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed else 0


# -- a broker in a separate process


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with its kernel part, and with threads that have ended: a start is one."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Broker:
    """`ottla serve` on a directory that outlives it; its lines, with the seconds since its exec."""

    def __init__(self, directory: Path, acks: str, **keys: str) -> None:
        settings = SETTINGS | {"log.dirs": str(directory), "ottla.acks.all": acks} | keys
        words = [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self.lines: list[tuple[float, str]] = []
        self.began_s = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ottla", "serve", *words],  # -P: not the checkout that happens to be here
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.perf_counter() - self.began_s, line.rstrip()))
            found = re.search(r"listening on \S*?([\d.]+):(\d+)", line)
            if found:
                self.port = int(found[2])
                break
        else:
            sys.exit("the broker did not start:\n" + "\n".join(line for _, line in self.lines))
        self.ready_s = time.perf_counter() - self.began_s
        self.cpu_s = cpu_seconds(self.process.pid)
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def produce(self, topic: str) -> float:
        """Seconds from exec until a Produce with acks=all was accepted."""
        exchange = frames.produce_exchange(topic, frames.batch_of(170)[0], ACKS_ALL)
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(exchange.frame)
            answer = connection.recv(4096)
        if answer[exchange.error_at : exchange.error_at + 2] != b"\0\0":
            sys.exit(f"the produce was refused: {answer!r}")
        return time.perf_counter() - self.began_s

    def end(self, number: signal.Signals) -> None:
        """Send a signal and wait."""
        self.process.send_signal(number)
        self.process.wait()


def measure(directory: Path, topic: str, acks: str, ending: signal.Signals) -> tuple[float, float, Broker]:
    """(seconds to the ready line, to the first accepted produce, the broker that has ended)."""
    broker = Broker(directory, acks)
    accepted_s = broker.produce(topic)
    broker.end(ending)
    return broker.ready_s, accepted_s, broker


# -- logs to start with


def node_at(directory: Path) -> Node:
    """A broker without sockets in this process, to fill a directory."""
    node = Node(BrokerConfig.of({"log.dirs": str(directory), "ottla.acks.all": "page-cache"}))
    node.start()
    return node


def create(node: Node, partitions_of: dict[str, int]) -> None:
    """Topics, accepted and synced."""
    results: list[TopicResult] = []
    node.services.catalog.create_topics(
        [NewTopic(name, count) for name, count in partitions_of.items()], results.extend
    )
    node.settle()
    if len(results) != len(partitions_of) or any(result.failed for result in results):
        sys.exit(f"topics could not be made: {results}")


def fill_small(directory: Path, partitions: int) -> int:
    """Many partitions with a little data, stopped cleanly; the bytes in them."""
    node = node_at(directory)
    counts = [min(PARTITIONS_OF_A_TOPIC, partitions - first) for first in range(0, partitions, PARTITIONS_OF_A_TOPIC)]
    create(node, {f"small-{number}": count for number, count in enumerate(counts)})
    batch = bytearray(frames.batch_of(SMALL_BATCH_BYTES)[0])
    for number, log in enumerate(list(node.services.log_manager.logs.values())):
        if log.topic.startswith("small-"):
            segments = SEGMENTS_OF_A_TENTH if number % 10 == 0 else 1
            for at in range(SMALL_BATCHES):
                if at and at % (SMALL_BATCHES // segments) == 0:
                    log.roll(STAMP_MS)
                append(log, [batch])
    size_bytes = sum(log.size_bytes for log in node.services.log_manager.logs.values())
    node.stop()
    return size_bytes


def fill_large(directory: Path, partitions: int, size_bytes: int, batch_bytes: int) -> None:
    """One topic of this size, stopped cleanly."""
    node = node_at(directory)
    create(node, {"large": partitions})
    batches = [bytearray(frames.batch_of(batch_bytes)[0]) for _ in range(BATCHES_OF_A_WRITE)]
    logs = [log for log in node.services.log_manager.logs.values() if log.topic == "large"]
    while sum(log.size_bytes for log in logs) < size_bytes:
        for log in logs:
            append(log, batches)
    node.stop()


def append(log: Log, batches: list[bytearray]) -> None:
    """Append the same batches again, to which an earlier append has assigned offsets."""
    for batch in batches:
        batch[:8] = bytes(8)
    results = log.append([AppendEntry(memoryview(batch), PRODUCE_VERSION) for batch in batches], STAMP_MS)
    if any(result.error_code for result in results):
        sys.exit(f"{log.name}: {results[-1]}")


# -- the measurements


def small_logs(place: Path, partitions: int, rounds: int, chosen: list[str], acks: str) -> list[str]:
    """Clean and unclean starts of many partitions."""
    rows: list[Row] = []
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ottla-start-", dir=place) as name:
        directory = Path(name)
        size_bytes = fill_small(directory, partitions)
        measure(directory, "small-0", acks, signal.SIGTERM)  # now the bytecode is compiled
        for kind, ending in (("clean", signal.SIGTERM), ("unclean", signal.SIGKILL)):
            if kind not in chosen:
                continue
            if kind == "unclean":
                measure(directory, "small-0", acks, ending)
            starts = [measure(directory, "small-0", acks, ending) for _ in range(rounds)]
            taken = [(ready_s, accepted_s, broker.cpu_s) for ready_s, accepted_s, broker in starts]
            ready_s, accepted_s, cpu_s = (statistics.median(column) for column in zip(*taken, strict=True))
            figures = [f"{figure:.2f}" for figure in (ready_s, accepted_s, cpu_s)]
            rows.append([kind, f"{partitions:,}", f"{size_bytes / 1e6:.0f} MB", *figures])
            if kind == "clean" and accepted_s >= START_PROMISE_S:
                missed.append(f"{kind} start of {partitions:,} partitions: {accepted_s:.2f} s")
    show(rows, ["start", "partitions", "logs", "ready s", "first produce s", "CPU s"])
    return missed


def large_log(
    place: Path, partitions: int, size_bytes: int, batch_bytes: int, chosen: list[str], acks: str
) -> list[str]:
    """Starts on a large log after a kill."""
    rows: list[Row] = []
    missed: list[str] = []
    shape = "1 partition" if partitions == 1 else f"{partitions} partitions"
    with tempfile.TemporaryDirectory(prefix="ottla-start-", dir=place) as name:
        directory = Path(name)
        began_s = time.perf_counter()
        fill_large(directory, partitions, size_bytes, batch_bytes)
        print(
            f"\n{size_bytes / 1e9:.1f} GB in {shape}, batches of {batch_bytes:,} bytes: "
            f"filled in {time.perf_counter() - began_s:.0f} s"
        )
        if "killed" in chosen:
            written_bytes = load_and_kill(directory, acks)
            ready_s, accepted_s, broker = measure(directory, "large", acks, signal.SIGTERM)
            what = f"kill -9 after {written_bytes / 1e6:.0f} MB of load"
            rows.append([what, f"{ready_s:.2f}", f"{accepted_s:.2f}", "", "", ""])
            show_progress(broker)
            if accepted_s >= START_PROMISE_S:
                missed.append(f"{size_bytes / 1e9:.1f} GB in {shape} after kill -9: {accepted_s:.2f} s")
        if "worst" in chosen:
            logs = sorted(directory.glob("large-*/*.log"))
            for cache in ("warm", "cold"):
                forget_recovery_points(directory)
                prepare_cache(logs, is_cold=cache == "cold")
                limit_s = read_and_check(logs)
                prepare_cache(logs, is_cold=cache == "cold")
                ready_s, accepted_s, broker = measure(directory, "large", acks, signal.SIGTERM)
                total_bytes = sum(log.stat().st_size for log in logs)
                rows.append(
                    [
                        f"recovery point 0, {cache} cache",
                        f"{ready_s:.2f}",
                        f"{accepted_s:.2f}",
                        f"{total_bytes / ready_s / 1e9:.2f}",
                        f"{total_bytes / limit_s / 1e9:.2f}",
                        f"{limit_s / ready_s:.2f}",
                    ]
                )
                show_progress(broker)
            total_bytes = sum(log.stat().st_size for log in logs)
            rows.append(
                [
                    "(the same bytes written again and synced)",
                    "",
                    "",
                    "",
                    f"{total_bytes / write_again(logs) / 1e9:.2f}",
                    "",
                ]
            )
    show(rows, ["start", "ready s", "first produce s", "GB/s", "limit GB/s", "ratio"])
    return missed


def load_and_kill(directory: Path, acks: str) -> int:
    """Produce for a while with acks=all and kill the broker under it; the bytes that were accepted."""
    broker = Broker(directory, acks)
    exchange = frames.produce_exchange("large", frames.batch_of(BATCH_BYTES)[0], ACKS_ALL)
    written_bytes, until_s = 0, time.perf_counter() + LOAD_S
    with socket.create_connection(("127.0.0.1", broker.port)) as connection:
        while time.perf_counter() < until_s:
            connection.sendall(exchange.frame * 16)
            wanted = 16 * len(frames.produce_response("large"))
            while wanted > 0:
                wanted -= len(connection.recv(wanted))
            written_bytes += 16 * BATCH_BYTES
        connection.sendall(exchange.frame * 16)
        broker.end(signal.SIGKILL)
    return written_bytes


def forget_recovery_points(directory: Path) -> None:
    """Delete the checkpoint and the mark of a clean stop, as after a kill and a lost file."""
    for name in ("recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        (directory / name).unlink(missing_ok=True)


def prepare_cache(paths: Iterable[Path], *, is_cold: bool) -> None:
    """Bring the files into the page cache, or remove them from it; they are on the disk in both cases."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
            if is_cold:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while os.read(fd, PIECE_BYTES):
                    pass
        finally:
            os.close(fd)


def read_and_check(paths: list[Path]) -> float:
    """Seconds for reading everything with one checksum over each piece, in one thread for each core."""
    began_s = time.perf_counter()

    def work(mine: list[Path]) -> None:
        room = memoryview(bytearray(PIECE_BYTES))
        for path in mine:
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(room):
                    crc32c(room[:count])

    cores = os.cpu_count() or 1
    threads = [threading.Thread(target=work, args=(paths[number::cores],)) for number in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began_s


def write_again(paths: Iterable[Path]) -> float:
    """Seconds for writing the same bytes over themselves, and syncing them."""
    began_s = time.perf_counter()
    for path in paths:
        fd = os.open(path, os.O_RDWR)
        try:
            for position in range(0, path.stat().st_size, PIECE_BYTES):
                os.pwrite(fd, os.pread(fd, PIECE_BYTES, position), position)
            os.fdatasync(fd)
        finally:
            os.close(fd)
    return time.perf_counter() - began_s


def show_progress(broker: Broker) -> None:
    """Print some of the lines of the start."""
    lines = [f"    {at_s:6.2f} s  {line[line.index('INFO') :]}" for at_s, line in broker.lines if ": recover" in line]
    shown = lines if len(lines) <= PROGRESS_LINES else [*lines[: PROGRESS_LINES - 2], "    ...", *lines[-2:]]
    print("\n".join(shown))


# -- creating topics


def creations(place: Path, rounds: int) -> None:
    """CreateTopics as clients send it, and the delays of another client's requests meanwhile."""
    rows: list[Row] = []
    for topics, partitions in ((1, 100), (100, 1), (1, 1)):
        taken: list[tuple[float, float]] = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="ottla-start-", dir=place) as name:
                broker = Broker(Path(name), "sync")
                taken.append(asyncio.run(create_beside_pings(broker.port, topics, partitions)))
                broker.end(signal.SIGTERM)
        created_s, longest_s = (statistics.median(column) for column in zip(*taken, strict=True))
        rows.append(
            [
                f"{topics} x {partitions}",
                f"{created_s * 1e3:.1f}",
                f"{created_s * 1e3 / topics / partitions:.2f}",
                f"{longest_s * 1e3:.1f}",
            ]
        )
    show(rows, ["topics x partitions", "answered after ms", "ms a partition", "longest ping beside it ms"])


async def create_beside_pings(port: int, topics: int, partitions: int) -> tuple[float, float]:
    """(seconds until CreateTopics was answered, the longest ApiVersions of another client meanwhile)."""
    from ottla.protocol.api.api_versions import ApiVersionsRequest
    from ottla.protocol.api.create_topics import CreateTopicsRequest
    from ottla.protocol.headers import encode_request_header
    from ottla.protocol.message import encode

    def frame(key: int, version: int, body: bytes) -> bytes:
        return frames.framed(encode_request_header(key, version, 0, "bench"), body)

    async def ask(pair: tuple[asyncio.StreamReader, asyncio.StreamWriter], asked: bytes) -> bytes:
        pair[1].write(asked)
        return await pair[0].readexactly(int.from_bytes(await pair[0].readexactly(4), "big"))

    wanted = [
        CreateTopicsRequest.CreatableTopic(
            name=f"new-{n}", num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        for n in range(topics)
    ]
    creation = frame(19, 5, encode(CreateTopicsRequest(topics=wanted, timeout_ms=60_000), 5))
    ping = frame(18, 0, encode(ApiVersionsRequest(), 0))
    one = await asyncio.open_connection("127.0.0.1", port)
    other = await asyncio.open_connection("127.0.0.1", port)
    await ask(other, ping)
    longest_s = 0.0

    async def pinging() -> None:
        nonlocal longest_s
        while True:
            began_s = time.perf_counter()
            await ask(other, ping)
            longest_s = max(longest_s, time.perf_counter() - began_s)

    task = asyncio.create_task(pinging())
    await asyncio.sleep(0.05)
    began_s = time.perf_counter()
    answer = await ask(one, creation)
    created_s = time.perf_counter() - began_s
    await asyncio.sleep(0.05)
    task.cancel()
    if answer.count(b"new-") != topics:
        sys.exit(f"topics could not be made: {answer[:200]!r}")
    for _, writer in (one, other):
        writer.close()
    return created_s, longest_s


def show(rows: list[Row], headers: list[str]) -> None:
    """Print a table."""
    print()
    print(tabulate(rows, headers=headers, disable_numparse=True, colalign=["left", *["right"] * (len(headers) - 1)]))


if __name__ == "__main__":
    sys.exit(main())
