"""The bundled client beside aiokafka, and the blocking one beside kafka-python, in one run: `scripts/bench-client`.

First it prints the cost of a record beside confluent-kafka (`client_costs.py`); `--beside` chooses one of the two.

Each workload is run in rounds, the clients in turn within a round, so that a drift of the machine hits both; medians
are printed. Both sides run on uvloop with the same batch sizes, linger, acks and checksums, in this process, against an
Ottla with `ottla.acks.all=page-cache` in another. CPU is that of this process, without the broker's. A
ratio above 1 means that the bundled client sends or reads more records per second, or per second of CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import client_bytecodes
import client_costs
import servers
import uvloop
from tabulate import tabulate

VALUE_BYTES = 100
BATCH_BYTES = 64 * 1024
LINGER_MS = 5
FETCH_BYTES = 1024 * 1024
CODECS = ("none", "gzip", "lz4", "zstd")

Run = Callable[[str, str, int, str], Awaitable[None]]
"""(address, topic, records, codec): sends or reads this number of records."""


def value_pool() -> list[bytes]:
    """Values of 100 bytes that look like measurements, so that codecs can compress them."""
    chance = random.Random(1)
    rows = (
        f'{{"sensor":{chance.randrange(1000)},"at":{1_700_000_000_000 + n},"celsius":{chance.gauss(20, 5):.3f}}}'
        for n in range(4096)
    )
    return [row.encode().ljust(VALUE_BYTES, b" ")[:VALUE_BYTES] for row in rows]


VALUES = value_pool()


# Producers -------------------------------------------------------------------------------------------------------


async def produce_ours(address: str, topic: str, records: int, codec: str) -> None:
    from ottla.client import Producer

    async with Producer(address, batch_size=BATCH_BYTES, linger_ms=LINGER_MS, compression_type=codec) as producer:
        send, values, mask = producer.send, VALUES, len(VALUES) - 1
        for n in range(records):
            await send(topic, values[n & mask])


async def produce_aiokafka(address: str, topic: str, records: int, codec: str) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(
        bootstrap_servers=address,
        max_batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
        compression_type=None if codec == "none" else codec,
        acks="all",
        enable_idempotence=True,
    ) as producer:
        send, values, mask = producer.send, VALUES, len(VALUES) - 1
        for n in range(records):
            await send(topic, values[n & mask])
        await producer.flush()


async def produce_blocking(address: str, topic: str, records: int, codec: str) -> None:
    from ottla.client.blocking import Producer

    def run() -> None:
        with Producer(address, batch_size=BATCH_BYTES, linger_ms=LINGER_MS, compression_type=codec) as producer:
            send, values, mask = producer.send, VALUES, len(VALUES) - 1
            for n in range(records):
                send(topic, values[n & mask])

    await asyncio.to_thread(run)


async def produce_kafka_python(address: str, topic: str, records: int, codec: str) -> None:
    from kafka import KafkaProducer

    def run() -> None:
        producer = KafkaProducer(
            bootstrap_servers=address,
            batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
            compression_type=None if codec == "none" else codec,
            acks="all",
        )
        send, values, mask = producer.send, VALUES, len(VALUES) - 1
        for n in range(records):
            send(topic, values[n & mask])
        producer.flush()
        producer.close()

    await asyncio.to_thread(run)


# Consumers -------------------------------------------------------------------------------------------------------


def _looked_at(polled: Mapping[Any, Iterable[Any]]) -> int:
    """The number of records, after creating each: a sequence of Ottla's client creates a record when it is taken."""
    return sum(1 for records in polled.values() for record in records if record.value)


async def getmany_ours(address: str, topic: str, records: int, codec: str) -> None:
    from ottla.client import Consumer

    async with Consumer(address, auto_offset_reset="earliest", max_partition_fetch_bytes=FETCH_BYTES) as consumer:
        consumer.assign([(topic, 0)])
        while records > 0:
            records -= _looked_at(await consumer.getmany(timeout_ms=1000))


async def getmany_aiokafka(address: str, topic: str, records: int, codec: str) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with AIOKafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", max_partition_fetch_bytes=FETCH_BYTES
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while records > 0:
            records -= _looked_at(await consumer.getmany(timeout_ms=1000))


async def iterate_ours(address: str, topic: str, records: int, codec: str) -> None:
    from ottla.client import Consumer

    async with Consumer(address, auto_offset_reset="earliest", max_partition_fetch_bytes=FETCH_BYTES) as consumer:
        consumer.assign([(topic, 0)])
        async for _ in consumer:
            records -= 1
            if not records:
                break


async def iterate_aiokafka(address: str, topic: str, records: int, codec: str) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with AIOKafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", max_partition_fetch_bytes=FETCH_BYTES
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        async for _ in consumer:
            records -= 1
            if not records:
                break


async def iterate_blocking(address: str, topic: str, records: int, codec: str) -> None:
    from ottla.client.blocking import Consumer

    def run(left: int) -> None:
        with Consumer(address, auto_offset_reset="earliest", max_partition_fetch_bytes=FETCH_BYTES) as consumer:
            consumer.assign([(topic, 0)])
            for _ in consumer:
                left -= 1
                if not left:
                    break

    await asyncio.to_thread(run, records)


async def iterate_kafka_python(address: str, topic: str, records: int, codec: str) -> None:
    from kafka import KafkaConsumer, TopicPartition

    def run(left: int) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=address, auto_offset_reset="earliest", max_partition_fetch_bytes=FETCH_BYTES
        )
        consumer.assign([TopicPartition(topic, 0)])
        for _ in consumer:
            left -= 1
            if not left:
                break
        consumer.close()

    await asyncio.to_thread(run, records)


# The run ---------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """A workload, the function of each side, and the measured values: (records per second, CPU us per record)."""

    name: str
    other: str
    codec: str
    runs: tuple[Run, Run]
    is_reading: bool = False
    measured: tuple[list[tuple[float, float]], list[tuple[float, float]]] = field(default_factory=lambda: ([], []))

    def medians(self, side: int) -> tuple[float, float]:
        rates, costs = zip(*self.measured[side], strict=True)
        return statistics.median(rates), statistics.median(costs)


def rows() -> list[Row]:
    made = [Row(f"send, {c}", "aiokafka", c, (produce_ours, produce_aiokafka)) for c in CODECS]
    made += [Row(f"getmany, {c}", "aiokafka", c, (getmany_ours, getmany_aiokafka), is_reading=True) for c in CODECS]
    made += [Row("iterate, none", "aiokafka", "none", (iterate_ours, iterate_aiokafka), is_reading=True)]
    made += [Row("blocking send, none", "kafka-python", "none", (produce_blocking, produce_kafka_python))]
    made += [
        Row("blocking iterate, none", "kafka-python", "none", (iterate_blocking, iterate_kafka_python), is_reading=True)
    ]
    return made


async def measure(run: Run, address: str, topic: str, records: int, codec: str) -> tuple[float, float]:
    gc.collect()
    began, cpu_began = time.perf_counter(), time.process_time()
    await run(address, topic, records, codec)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    return records / seconds, cpu / records * 1e6


async def run_all(address: str, chosen: list[Row], rounds: int, records: int) -> None:
    for codec in {row.codec for row in chosen if row.is_reading}:
        await produce_ours(address, f"read-{codec}", records, codec)
    for row in chosen:  # once unmeasured: imports, caches and code that adapts itself
        for run in row.runs:
            await run(address, f"read-{row.codec}" if row.is_reading else "warm", 2000, row.codec)
    for number in range(rounds):
        for row in chosen:
            sides = (0, 1) if number % 2 == 0 else (1, 0)
            for side in sides:
                topic = f"read-{row.codec}" if row.is_reading else f"write-{side}"
                row.measured[side].append(await measure(row.runs[side], address, topic, records, row.codec))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_000_000, help="beside the Python clients: a tenth of them")
    parser.add_argument("--beside", choices=("all", "confluent", "python"), default="all", help="which clients")
    parser.add_argument("--only", default="", help="only workloads whose name has this text")
    parser.add_argument("--check", action="store_true", help="fail when a row against aiokafka is below 1")
    parser.add_argument("--instructions", action="store_true", help="count those of a single record, and end")
    parser.add_argument("--bytecodes", action="store_true", help="count those of a record, and end")
    options = parser.parse_args()
    if options.instructions:
        client_costs.count_instructions(options.only)
        return
    if options.bytecodes:
        client_bytecodes.print_counts(options.only)
        return
    if options.beside != "python":
        client_costs.compare(options.records, options.rounds, lambda name: options.only in name)
        print()
    if options.beside != "confluent":
        compare_python(options)


def compare_python(options: argparse.Namespace) -> None:
    """Run the rows beside the clients in Python, and print them."""
    records = max(1, options.records // 10)
    chosen = [row for row in rows() if options.only in row.name]
    with servers.Ottla("page-cache") as server:
        uvloop.run(run_all(f"{server.host}:{server.port}", chosen, options.rounds, records))
    table = []
    for row in chosen:
        (rate, cost), (other_rate, other_cost) = row.medians(0), row.medians(1)
        table.append(
            [
                *(row.name, row.other, f"{rate:,.0f}", f"{other_rate:,.0f}", f"{rate / other_rate:.2f}"),
                *(f"{cost:.2f}", f"{other_cost:.2f}", f"{other_cost / cost:.2f}"),
            ]
        )
    heads = ["workload", "against", "records/s", "theirs", "ratio", "CPU us/record", "theirs", "ratio"]
    print(f"{records:,} records of {VALUE_BYTES} bytes, medians of {options.rounds} rounds, uvloop,")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, ottla.acks.all=page-cache\n")
    print(tabulate(table, heads, tablefmt="github", disable_numparse=True, colalign=("left", "left", *["right"] * 6)))
    if options.check:
        lost = [line[0] for line in table if line[1] == "aiokafka" and float(line[7]) < 1]
        if lost:
            raise SystemExit(f"dearer than aiokafka: {', '.join(lost)}")


if __name__ == "__main__":
    main()
