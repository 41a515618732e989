"""The price of writing once with Spark: the sink with `exactlyOnceName` beside the one without, in one session.

Three shapes: a task of few rows by itself, without Spark (`--tasks-only`: no more than that); a batch query with many
rows, where the rows cost most; micro-batches of a stream with few rows, where the requests of each task do. Times of
micro-batches are Spark's own (`addBatch` of their progress), the medians of all but the first. The broker has its
defaults: what is acknowledged is on disk.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType
from spark_scan import session

from ottla.spark.exactly_once import write_once
from ottla.spark.progress import Attempt
from ottla.spark.write_options import write_options
from ottla.spark.writer import write_rows

ROOT = Path(__file__).parents[1]
TASKS = 4
SINGLE_TASKS = 200
BATCH_ROWS = 2_000_000
STREAM_BATCHES = 20
STREAM_ROWS = 1000
SINKS = ("at least once", "exactly once")


def options(bootstrap: str, sink: str, topic: str) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    return given | {"exactlyOnceName": topic} if sink == "exactly once" else given


def write_task(bootstrap: str, sink: str, batch: int) -> float:
    """Write STREAM_ROWS values as one task does, in this process; return the seconds."""
    given = write_options(
        options(bootstrap, sink, "task-" + sink.replace(" ", "-")), StructType().add("value", "binary")
    )
    rows = pa.record_batch([pa.array([b"x" * 100] * STREAM_ROWS, pa.binary())], names=["value"])
    started = time.perf_counter()
    if sink == "exactly once":
        write_once(iter([rows]), given, Attempt(sink, "query", batch, 0, "run", "write", is_alone=True))
    else:
        write_rows(iter([rows]), given)
    return time.perf_counter() - started


def write_batch(spark: Any, bootstrap: str, sink: str, rows: int) -> float:
    """Write `rows` values of 100 bytes in TASKS tasks; return the seconds."""
    frame = spark.range(0, rows, 1, TASKS).selectExpr("cast(id AS string) AS key", "rpad(id, 100, 'x') AS value")
    writer = frame.write.format("ottla").options(**options(bootstrap, sink, "batch-" + sink.replace(" ", "-")))
    started = time.perf_counter()
    writer.mode("append").save()
    return time.perf_counter() - started


def write_stream(spark: Any, bootstrap: str, sink: str, source: str, checkpoint: Path) -> list[float]:
    """Copy a topic in micro-batches of STREAM_ROWS; return the seconds of each but the first."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    reader = spark.readStream.format("ottla").options(**given, maxOffsetsPerTrigger=str(STREAM_ROWS))
    writer = reader.load().select("value").writeStream.format("ottla")
    writer = writer.options(**options(bootstrap, sink, "stream-" + sink.replace(" ", "-")))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    if len(progress) != STREAM_BATCHES:
        sys.exit(f"{len(progress)} micro-batches, not {STREAM_BATCHES}")
    return [one["durationMs"]["addBatch"] / 1000 for one in progress[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds, after one that warms up")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many rows of the batch query")
    parser.add_argument("--tasks-only", action="store_true", help="measure single tasks, without Spark")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    from kit.broker import BrokerProcess

    rows = int(BATCH_ROWS * args.scale)
    batches: dict[str, list[float]] = {sink: [] for sink in SINKS}
    streams: dict[str, list[float]] = {sink: [] for sink in SINKS}
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder,
        BrokerProcess(Path(folder) / "data", {"num.partitions": str(TASKS)}) as broker,
    ):
        report_tasks(broker.bootstrap)
        if args.tasks_only:
            return
        spark = session()
        source = spark.range(0, STREAM_BATCHES * STREAM_ROWS, 1, TASKS)
        source = source.selectExpr("rpad(id, 100, 'x') AS value", f"cast(id % {TASKS} AS int) AS partition")
        plain = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "source"}
        source.write.format("ottla").options(**plain).mode("append").save()
        for number in range(args.rounds + 1):
            for sink in SINKS:
                elapsed = write_batch(spark, broker.bootstrap, sink, rows)
                checkpoint = Path(folder) / f"{sink}-{number}"
                each = write_stream(spark, broker.bootstrap, sink, "source", checkpoint)
                if number:
                    batches[sink].append(elapsed)
                    streams[sink] += each
        spark.stop()
    report(rows, batches, streams)


def report_tasks(bootstrap: str) -> None:
    times: dict[str, list[float]] = {sink: [] for sink in SINKS}
    for batch in range(SINGLE_TASKS):
        for sink in SINKS:
            times[sink].append(write_task(bootstrap, sink, batch))
    for sink in SINKS:
        print(f"{sink:<15}{statistics.median(times[sink]) * 1000:.1f} ms for a task of {STREAM_ROWS} rows")


def report(rows: int, batches: dict[str, list[float]], streams: dict[str, list[float]]) -> None:
    print(f"{'sink':<15}{rows / 1e6:g} M rows, {TASKS} tasks{'':<8}micro-batch of {STREAM_ROWS} rows, {TASKS} tasks")
    for sink in SINKS:
        batch, stream = statistics.median(batches[sink]), statistics.median(streams[sink])
        print(f"{sink:<15}{batch:>6.2f} s, {rows / batch / 1e6:.2f} M rows/s{stream * 1000:>15.0f} ms")


if __name__ == "__main__":
    main()
