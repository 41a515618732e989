"""Spark scans: format `ottla` beside an upper bound and a confluent-kafka reader, interleaved in one session.

The upper bound is a Python data source that sends the same Arrow batch again and again without reading or decoding
anything: the most that Spark can receive from Python. Each round runs every reader on every topic; the figures are
medians. Every query counts rows and sums the lengths of the values, and all seven columns are sent to Spark, as for
any query.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ottla.spark.columns import COLUMNS

ROOT = Path(__file__).parents[1]
PARTITIONS = 4
TASKS = 8
SIZES = {100: 1_000_000, 300: 400_000}
CODECS = ("none", "lz4", "zstd")
READERS = ("ceiling", "ottla", "confluent")
PRODUCER_BATCH_BYTES = 16 * 1024
AIM = 0.5


class Part(InputPartition):
    """A range of one partition: (partition, start, end)."""


class Ranges(DataSourceReader):
    """Divides `records` offsets of every partition into TASKS ranges in all."""

    def __init__(self, options: dict[str, str], schema: Any) -> None:
        self.schema = schema
        self.bootstrap = options["bootstrap"]
        self.topic = options["topic"]
        self.records = int(options["records"])

    def partitions(self) -> list[InputPartition]:
        per_partition = self.records // PARTITIONS
        cuts = np.linspace(0, per_partition, TASKS // PARTITIONS + 1).astype(int).tolist()
        return [
            Part((partition, start, end)) for partition in range(PARTITIONS) for start, end in itertools.pairwise(cuts)
        ]


class CeilingReader(Ranges):
    """Reads one Arrow batch as format `ottla` would, and sends it again and again until it has sent enough rows."""

    def read(self, partition: Any) -> Any:

        from ottla.spark.columns import arrow_schema_of
        from ottla.spark.options import read_options
        from ottla.spark.planner import OffsetRange
        from ottla.spark.reading import read_range
        from ottla.spark.stream_offsets import NO_ID

        index, start, end = partition.value
        options = read_options({"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic})
        schema = arrow_schema_of(self.schema)
        batch = next(read_range(OffsetRange(self.topic, NO_ID, index, start, end), options, schema))
        left = end - start
        while left:
            part = batch if left >= len(batch) else batch.slice(0, left)
            yield part
            left -= len(part)


class ConfluentReader(Ranges):
    """The usual method in Python: librdkafka's records, one object each, converted to Arrow columns."""

    def read(self, partition: Any) -> Any:
        from confluent_kafka import Consumer, TopicPartition

        index, start, end = partition.value
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.topic, index, start)])
        left = end - start
        while left:
            messages = consumer.consume(min(10_000, left), 60)
            left -= len(messages)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([message.key() for message in messages], pa.binary()),
                    pa.array([message.value() for message in messages], pa.binary()),
                    pa.array([self.topic] * len(messages), pa.string()),
                    pa.array([index] * len(messages), pa.int32()),
                    pa.array([message.offset() for message in messages], pa.int64()),
                    pa.array([message.timestamp()[1] * 1000 for message in messages], pa.timestamp("us", "UTC")),
                    pa.array([0] * len(messages), pa.int32()),
                ],
                names=["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
            )


class Ceiling(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        return CeilingReader(dict(self.options), schema)


class Confluent(Ceiling):
    @classmethod
    def name(cls) -> str:
        return "confluent"

    def reader(self, schema: Any) -> DataSourceReader:
        return ConfluentReader(dict(self.options), schema)


def fill(bootstrap: str, topic: str, codec: str, size: int, count: int) -> None:
    """Write `count` records with a nine-byte key and `size` bytes, in batches like those of producers."""
    from ottla.arrow.encoder import Rows, encode_rows
    from ottla.spark.producer_options import producer_settings
    from ottla.spark.sender import Batch, Sender

    settings = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.compression.type": codec,
        "kafka.batch.size": str(PRODUCER_BATCH_BYTES),
    }
    client, producer = producer_settings(settings)
    rng = random.Random(size)
    words = [b"%06x" % rng.getrandbits(24) for _ in range(4096)]  # compresses about as JSON does
    values = [b" ".join(rng.choices(words, k=size // 7 + 1))[:size] for _ in range(5000)]
    chunk = 50_000
    with closing(Sender(client, producer)) as sender:
        for first in range(0, count, chunk):
            keys = pa.array([b"%09d" % i for i in range(first, first + chunk)], pa.large_binary())
            rows = Rows(keys, pa.array(values * (chunk // len(values)), pa.large_binary()), None)
            bodies = encode_rows(
                rows, np.arange(chunk) % PARTITIONS, batch_bytes=producer.batch_bytes, most_bytes=1 << 20
            )
            sender.send([Batch(topic, body, 1_700_000_000_000) for body in bodies])
        sender.flush()


def scan(spark: Any, reader: str, bootstrap: str, topic: str, size: int, count: int) -> float:
    """Scan a topic once; return the seconds."""
    given = {"bootstrap": bootstrap, "topic": topic, "records": str(count)}
    if reader == "ottla":
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "minPartitions": str(TASKS)}
    frame = spark.read.format(reader).options(**given).load()
    started = time.perf_counter()
    found = frame.selectExpr("count(*)", "sum(length(value))").first()
    elapsed = time.perf_counter() - started
    if tuple(found) != (count, count * size):
        sys.exit(f"{reader} saw {tuple(found)} in {topic}, not {(count, count * size)}")
    return elapsed


def session() -> Any:
    from pyspark.sql import SparkSession

    from ottla.spark import register
    from ottla.spark.java import prepare_environment

    prepare_environment(Path(sys.prefix))
    builder = SparkSession.builder.master("local[2]").appName("ottla benchmark")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    spark.dataSource.register(Ceiling)
    spark.dataSource.register(Confluent)
    return spark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after one that warms up")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many records")
    parser.add_argument("--check", action="store_true", help=f"fail when ottla is below {AIM} of the ceiling")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    import tempfile

    from kit.broker import BrokerProcess

    topics = [(f"scan-{size}-{codec}", size, codec) for size in SIZES for codec in CODECS]
    counts = {size: max(200_000, int(count * args.scale) // 200_000 * 200_000) for size, count in SIZES.items()}
    times: dict[tuple[str, str], list[float]] = {(topic, name): [] for topic, _, _ in topics for name in READERS}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        overrides = {"num.partitions": str(PARTITIONS), "log.retention.ms": "-1", "ottla.acks.all": "page-cache"}
        with BrokerProcess(Path(folder), overrides) as broker:
            for topic, size, codec in topics:
                fill(broker.bootstrap, topic, codec, size, counts[size])
            spark = session()
            for round_number in range(args.rounds + 1):
                for topic, size, _ in topics:
                    for name in READERS:
                        elapsed = scan(spark, name, broker.bootstrap, topic, size, counts[size])
                        if round_number:
                            times[topic, name].append(elapsed)
            spark.stop()
    report(topics, counts, times)
    worst = min(ratio(times, topic) for topic, _, _ in topics)
    if args.check and worst < AIM:
        sys.exit(f"ottla is at {worst:.2f} of the ceiling, less than {AIM}")


def ratio(times: dict[tuple[str, str], list[float]], topic: str) -> float:
    """The speed of format ottla divided by that of the upper bound."""
    return statistics.median(times[topic, "ceiling"]) / statistics.median(times[topic, "ottla"])


def report(topics: list[Any], counts: dict[int, int], times: dict[tuple[str, str], list[float]]) -> None:
    print(f"{'value, codec':<16}{'reader':<11}{'M rows/s':>9}{'MB/s':>8}{'of ceiling':>12}")
    for topic, size, codec in topics:
        ceiling = statistics.median(times[topic, "ceiling"])
        for name in READERS:
            elapsed = statistics.median(times[topic, name])
            rows = counts[size] / elapsed
            print(
                f"{size} B, {codec:<9}{name:<11}{rows / 1e6:>9.2f}{rows * size / 1e6:>8.0f}{ceiling / elapsed:>12.2f}"
            )


if __name__ == "__main__":
    main()
