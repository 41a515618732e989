"""The demo's streams: the flights archived to Parquet, and delays by carrier and day kept up to date in a topic.

Both run to the end of the available records (Trigger.AvailableNow) in several micro-batches, side by side. `demo.py`
then reads their results and compares them with the source.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DELAYS_TOPIC = "flights.delays"
BATCH_RECORDS = 120_000
LATENESS = "14 days"
"""The maximum delay of a record after the latest flight: partitions are read side by side, some days apart."""

FLIGHT = "carrier STRING, arr_delay DOUBLE"
DELAY = "carrier STRING, day DATE, flights BIGINT, arrived BIGINT, arrival BIGINT"


@dataclass
class Archived:
    """The content of the archive."""

    records: int
    distinct: int
    checksum: int
    key_checksum: int


def start_archive(spark: Any, bootstrap: str, topic: str, folder: Path) -> Any:
    """Start the stream that writes every record to Parquet, once."""
    shutil.rmtree(folder, ignore_errors=True)
    writer = _read(spark, bootstrap, topic).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    return writer.start(str(folder / "flights"))


def start_delays(spark: Any, bootstrap: str, topic: str, folder: Path) -> Any:
    """Start the stream that counts flights and delays by carrier and day, and appends changes to a topic."""
    from pyspark.sql import functions as f

    from ottla.spark import each_batch

    shutil.rmtree(folder, ignore_errors=True)
    flights = _read(spark, bootstrap, topic).select(
        "timestamp", f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")
    )
    windows = (
        flights.withWatermark("timestamp", LATENESS)
        .groupBy(f.window("timestamp", "1 day"), "flight.carrier")
        .agg(
            f.count("*").alias("flights"),
            f.count("flight.arr_delay").alias("arrived"),
            f.coalesce(f.sum("flight.arr_delay"), f.lit(0)).cast("bigint").alias("arrival"),
        )
    )
    row = windows.select("carrier", f.to_date("window.start").alias("day"), "flights", "arrived", "arrival")
    records = row.select(
        f.concat_ws(" ", "carrier", "day").alias("key"),
        f.to_json(f.struct("carrier", "day", "flights", "arrived", "arrival")).alias("value"),
    )
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": DELAYS_TOPIC, "kafka.compression.type": "lz4"}
    writer = records.writeStream.outputMode("update").foreachBatch(each_batch(sink))
    return writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()


def dropped_rows(query: Any) -> int:
    """Return the number of rows of a stream that the watermark dropped."""
    return sum(operator.numRowsDroppedByWatermark for step in query.recentProgress for operator in step.stateOperators)


def rows_read(query: Any) -> int:
    """Return the number of records that a stream has read."""
    return sum(step.numInputRows for step in query.recentProgress)


def read_archive(spark: Any, folder: Path) -> Archived:
    """Read the archive."""
    from pyspark.sql import functions as f

    rows = spark.read.parquet(str(folder / "flights"))
    found = rows.agg(
        f.count("*").alias("records"),
        f.countDistinct("partition", "offset").alias("places"),
        f.sum(f.crc32("value")).alias("checksum"),
        f.sum(f.crc32("key")).alias("key_checksum"),
    ).first()
    return Archived(found.records, found.places, found.checksum, found.key_checksum)


def read_delays(spark: Any, bootstrap: str) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Read the topic of delays: the latest value of each key; by carrier and day (days since 1970)."""
    from pyspark.sql import functions as f

    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    records = reader.option("subscribe", DELAYS_TOPIC).load()
    latest = records.groupBy("key").agg(f.max_by("value", "offset").alias("value"))  # a key has one partition
    rows = latest.select(f.from_json(f.col("value").cast("string"), DELAY).alias("row")).select(
        "row.*", f.unix_date("row.day").alias("number")
    )
    return {(row.carrier, row.number): (row.flights, row.arrived, row.arrival) for row in rows.collect()}


def _read(spark: Any, bootstrap: str, topic: str) -> Any:
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(BATCH_RECORDS))
    return reader.option("subscribe", topic).load()
