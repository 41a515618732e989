"""The demo's part of Spark: a quiet local session, and one query for the check and one for the table."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TASKS = 8

FLIGHT = "carrier STRING, month INT, dep_delay DOUBLE, arr_delay DOUBLE, distance DOUBLE"

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # a short run: compile fast, not well
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass
class Summary:
    """A summary of the records, from the source or from Spark; both must be equal."""

    counts: dict[int, int] = field(default_factory=dict)
    distinct: dict[int, int] = field(default_factory=dict)
    firsts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    checksum: int = 0
    key_checksum: int = 0
    time_sum_ms: int = 0
    delays: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    """By carrier and month: flights, arrived, sum of arrival delays, of departure delays, of distances."""


def quiet_session(log: Path) -> Any:
    """Start Spark; the standard error of Java and its workers goes into `log`."""
    from pyspark.sql import SparkSession

    # The settings come too late if the machine's own name cannot be resolved: Spark would not start.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("ottla demo")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    with log.open("w") as file:
        terminal = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            session = builder.getOrCreate()
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
    session.sparkContext.setLogLevel("ERROR")
    return session


def read_summary(spark: Any, bootstrap: str, topic: str) -> Summary:
    """Read the topic twice: once for offsets and bytes, once for the delays."""
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    records = reader.option("subscribe", topic).option("minPartitions", str(TASKS)).load()
    found = Summary()
    for row in records.groupBy("partition").agg(*_proofs()).collect():
        found.counts[row.partition] = row.records
        found.distinct[row.partition] = row.offsets
        found.firsts[row.partition] = row.first
        found.ends[row.partition] = row.last + 1
        found.checksum += row.checksum
        found.key_checksum += row.key_checksum
        found.time_sum_ms += row.time_sum_ms
    for row in _delays(records).collect():
        sums = (row.arrival, row.departure, row.distance)
        found.delays[row.carrier, row.month] = (row.flights, row.arrived, *(int(value or 0) for value in sums))
    return found


def _proofs() -> list[Any]:
    from pyspark.sql import functions as f

    return [
        f.count("*").alias("records"),
        f.countDistinct("offset").alias("offsets"),
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.sum(f.crc32("value")).alias("checksum"),
        f.sum(f.crc32("key")).alias("key_checksum"),
        f.sum(f.unix_millis("timestamp")).alias("time_sum_ms"),
    ]


def _delays(records: Any) -> Any:
    from pyspark.sql import functions as f

    flight = records.select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    return flight.groupBy("carrier", "month").agg(
        f.count("*").alias("flights"),
        f.count("arr_delay").alias("arrived"),
        f.sum("arr_delay").alias("arrival"),
        f.sum("dep_delay").alias("departure"),
        f.sum("distance").alias("distance"),
    )
