"""The cost of a promise by the number of logs in a round of syncs: one small record to each of P partitions.

A request has a batch for each of P partitions (acks=all) and the next one follows when it is answered, so that each
is one group sync. Brokers with `ottla.acks.all` `sync` and `page-cache` run side by side and take turns, on the
same disk. Figures are medians of the turns, ratios those of `sync` over `page-cache` of the same turn.
Beside them is the least ratio of CPU that the kernel allows: the cost that the redo log's write and sync add to a loop
of writes without a broker. A second table has that loop, with each kind of sync.
`scripts/bench-durability --only partitions` prints them, `--against` the same of another version beside them, and
`scripts/bench --check` compares the ratios from 16 partitions on with a bound.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import frames
import servers
from held import Figure, Options, Section, at_most
from tabulate import tabulate

from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.headers import encode_request_header, response_header
from ottla.protocol.message import encode
from ottla.storage.files.volume import open_volume
from ottla.storage.formats.redo_format import ENTRY_HEAD_BYTES

PARTITIONS = (1, 4, 16, 64, 200)
RECORD_BYTES = 170
REDO_ENTRY_BYTES = ENTRY_HEAD_BYTES + 6
"""The bytes that the redo log adds to each record: the head of an entry and the name of a partition's directory."""
ACKS_ALL = -1
ERROR_MARK = 0x5AA5
TURN_S = 0.25
"""The approximate time of a turn."""
TIME, CPU = "p50", "cpu_us"
AT_MOST = {
    (64, TIME): at_most(2.2),
    (200, TIME): at_most(2.2),
    (16, CPU): at_most(1.8),
    (64, CPU): at_most(1.8),
    (200, CPU): at_most(1.8),
}
"""By partitions, the bound of a round: the cost of `sync` divided by that of `page-cache`, if a sync takes 0.2 ms."""
TITLE = "sync beside page-cache: "
ROWS = {f"{TITLE}{count} partitions, {'time' if key == TIME else 'CPU'}": (count, key) for count, key in AT_MOST}
TURNS = 7

Figures = dict[str, float]


def exchange_of(topic: str, partitions: int) -> frames.Exchange:
    """A Produce of one small batch to each of the first `partitions`."""
    batch, _ = frames.batch_of(RECORD_BYTES)
    wanted = [ProduceRequest.PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    request = ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=30_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=wanted)],
    )
    header = encode_request_header(0, frames.PRODUCE_VERSION, 0, "bench")
    results = [
        ProduceResponse.PartitionProduceResponse(index=index, error_code=0 if index else ERROR_MARK, base_offset=0)
        for index in range(partitions)
    ]
    answer = ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name=topic, partition_responses=results)])
    answered = frames.framed(response_header(0, frames.PRODUCE_VERSION, 0), encode(answer, frames.PRODUCE_VERSION))
    error_at = answered.index(ERROR_MARK.to_bytes(2, "big"))
    return frames.Exchange(frames.framed(header, encode(request, frames.PRODUCE_VERSION)), error_at)


def measure(
    rounds: int, scale: float, against: Path | None, counts: Sequence[int] = PARTITIONS
) -> dict[int, dict[str, list[Figures]]]:
    """By number of partitions and broker, the figures of each turn, for `table` and `held`."""
    trees: dict[str, Path | None] = {"": None}
    if against is not None:
        trees["before: "] = against
    found: dict[int, dict[str, list[Figures]]] = {count: {} for count in counts}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-frames-")))
        brokers = {
            tree + acks_all: stack.enter_context(servers.Ottla(acks_all, tree=place))
            for tree, place in trees.items()
            for acks_all in ("page-cache", "sync")
        }
        for count in counts:
            topic = f"p{count}"
            exchange = exchange_of(topic, count)
            frame = frames.write(folder, topic, exchange.frame)
            for server in brokers.values():
                server.create_topic(topic, count)
                servers.load(server, frame, 1, 1, 20, exchange.error_at)
            requests = {
                name: max(10, int(TURN_S * scale * servers.load(server, frame, 1, 1, 20, exchange.error_at)["rate"]))
                for name, server in brokers.items()
            }
            for _ in range(rounds):
                for name, server in brokers.items():
                    figures = servers.load(server, frame, 1, 1, requests[name], exchange.error_at)
                    found[count].setdefault(name, []).append(figures)
    return found


def bare_rounds(count: int, rounds: int = 200) -> dict[str, Figures]:
    """Rounds without a broker, by what follows a write to each of `count` files: nothing, an `fdatasync` of each, a
    sync of the volume (if it can be synced), or the redo log's work, one more write and one `fdatasync`. Medians
    of the time (`p50`) and the CPU time of a round (`cpu_us`), in microseconds.
    """
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=os.environ.get("OTTLA_BENCH_DIRECTORY")) as folder:
        names = [Path(folder) / str(number) for number in range(count)]
        opened = [os.open(name, os.O_RDWR | os.O_CREAT) for name in names]
        redo_log = os.open(Path(folder) / "redo", os.O_RDWR | os.O_CREAT)
        volume = open_volume(names[0])
        record = bytes(RECORD_BYTES)
        redo_record = bytes(count * (RECORD_BYTES + REDO_ENTRY_BYTES))
        os.pwrite(redo_log, bytes(rounds * len(redo_record)), 0)  # it grows rarely
        os.fsync(redo_log)
        ways: dict[str, Callable[[int], object]] = {
            "writes alone": lambda number: None,
            "fdatasync of each": lambda number: sync_each(opened),
            **({"syncfs": lambda number: volume.sync()} if volume is not None else {}),
            "redo log": lambda number: write_redo(redo_log, redo_record, number),
        }
        figures: dict[str, Figures] = {}
        position = 0
        for name, sync in ways.items():
            elapsed_us, cpu_us = [], []
            for number in range(rounds if name != "fdatasync of each" else max(5, rounds // count)):
                begun_ns, begun_cpu_ns = time.perf_counter_ns(), time.process_time_ns()
                for fd in opened:
                    os.pwrite(fd, record, position)
                sync(number)
                elapsed_us.append((time.perf_counter_ns() - begun_ns) / 1000)
                cpu_us.append((time.process_time_ns() - begun_cpu_ns) / 1000)
                position += RECORD_BYTES
            figures[name] = {"p50": statistics.median(elapsed_us), "cpu_us": statistics.median(cpu_us)}
        if volume is not None:
            volume.close()
        for fd in (*opened, redo_log):
            os.close(fd)
    return figures


def sync_each(opened: list[int]) -> None:
    """Sync each of these files."""
    for fd in opened:
        os.fdatasync(fd)


def write_redo(redo_log: int, record: bytes, number: int) -> None:
    """Write the record of a round after the one before it, and sync."""
    os.pwrite(redo_log, record, number * len(record))
    os.fdatasync(redo_log)


def bare_table(bare: dict[int, dict[str, Figures]]) -> str:
    """The table of the results of `bare_rounds`."""
    names = list(next(iter(bare.values())))
    rows = [
        [str(count), *(f"{figures[name]['p50'] / 1e3:.2f}; {figures[name]['cpu_us'] / 1e3:.2f}" for name in names)]
        for count, figures in bare.items()
    ]
    headers = ["files", *names]
    text = tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=("right",) * len(headers))
    return f"The same number of writes without a broker, and what follows them (ms, CPU ms of a round):\n\n{text}"


def held(found: dict[int, dict[str, list[Figures]]], names: Sequence[str]) -> list[Figure]:
    """The medians of the turns' ratios of these rows."""
    figures = []
    for name in names:
        count, key = ROWS[name]
        ratios = _ratios(found[count]["sync"], found[count]["page-cache"], key)
        figures.append(Figure(name, statistics.median(ratios), AT_MOST[count, key]))
    return figures


def print_ratios(names: Sequence[str], options: Options) -> list[Figure]:
    """Measure and print these rows."""
    counts = [count for count in PARTITIONS if any(ROWS[name][0] == count for name in names)]
    if len(names) == len(ROWS) and not options.is_check:
        counts = list(PARTITIONS)
    found = measure(TURNS, options.scale, options.against, counts)
    print("sync beside page-cache: one small record to each of some partitions, until all are answered\n")
    print(table(found, {count: bare_rounds(count) for count in counts}))
    return held(found, names)


def _ratios(sync: list[Figures], cached: list[Figures], key: str) -> list[float]:
    return [one[key] / other[key] for one, other in zip(sync, cached, strict=True)]


def table(found: dict[int, dict[str, list[Figures]]], bare: dict[int, dict[str, Figures]]) -> str:
    """A row for each number of partitions and tree. `bare`: the results of `bare_rounds`."""
    rows = []
    for count, by_name in found.items():
        added_us = bare[count]["redo log"]["cpu_us"] - bare[count]["writes alone"]["cpu_us"]
        for tree in [name.removesuffix("sync") for name in by_name if name.endswith("sync")]:
            sync, cached = by_name[f"{tree}sync"], by_name[f"{tree}page-cache"]
            cached_us = statistics.median(one["cpu_us"] for one in cached)
            times, cpu = (_ratios(sync, cached, key) for key in ("p50", "cpu_us"))
            rows.append(
                [
                    f"{tree}{count}",
                    *(f"{statistics.median(one['p50'] for one in each) / 1e3:.2f}" for each in (cached, sync)),
                    f"{statistics.median(times):.2f} ({min(times):.2f}-{max(times):.2f})",
                    *(f"{statistics.median(one['cpu_us'] for one in each) / 1e3:.2f}" for each in (cached, sync)),
                    f"{statistics.median(cpu):.2f} ({min(cpu):.2f}-{max(cpu):.2f})",
                    f"{1 + added_us / cached_us:.2f}",
                ]
            )
    figures = ["page-cache, ms", "sync, ms", "ratio", "page-cache, CPU ms", "sync, CPU ms", "ratio", "least"]
    headers = ["partitions", *figures]
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=("right",) * len(headers))


SECTION = Section(list(ROWS), print_ratios)
