"""Spark reads what is committed, of real transactions: in batches that begin in the middle of aborted ones, and in
streams that wait for the last stable offset.

`OTTLA_TEST_BOOTSTRAP` puts Apache Kafka in the broker's place.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kit.broker import BrokerProcess
from kit.mixed_transactions import Mixed, mixed_transactions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COMMITTED = {"kafka.isolation.level": "read_committed"}


def read(spark: SparkSession, broker: BrokerProcess, mixed: Mixed, options: dict[str, str]) -> list[bytes]:
    """The values of a batch, by offset."""
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    rows = reader.options(subscribe=mixed.topic, **options).load().select("offset", "value").collect()
    return [bytes(row.value) for row in sorted(rows, key=lambda row: row.offset)]


async def test_a_batch_has_what_is_committed(spark: SparkSession, broker: BrokerProcess, topic: str) -> None:
    async with mixed_transactions(broker.bootstrap, topic) as mixed:
        for options in (COMMITTED, {**COMMITTED, "minPartitions": "20"}):
            assert await asyncio.to_thread(read, spark, broker, mixed, options) == mixed.committed
        assert await asyncio.to_thread(read, spark, broker, mixed, {}) == mixed.every


async def test_a_stream_that_becomes_read_committed_reads_nothing_twice(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Its position is after the last stable offset then."""

    def run(options: dict[str, str]) -> list[bytes]:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest", **options}
        frame = spark.readStream.format("ottla").options(subscribe=topic, **given).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start(str(tmp_path / "data")).awaitTermination(120)
        rows = spark.read.parquet(str(tmp_path / "data")).select("offset", "value").collect()
        return [bytes(row.value) for row in sorted(rows, key=lambda row: row.offset)]

    async with mixed_transactions(broker.bootstrap, topic) as mixed:
        assert await asyncio.to_thread(run, {}) == mixed.every
        for loss in ("true", "false"):
            assert await asyncio.to_thread(run, {**COMMITTED, "failOnDataLoss": loss}) == mixed.every
        assert mixed.writer is not None
        await mixed.writer.send_and_wait(topic, b"later", partition=0)
        await mixed.writer.commit_transaction()
        assert await asyncio.to_thread(run, COMMITTED) == [*mixed.every, b"later"]


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_stream_goes_on_behind_a_transaction_that_ended(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path, is_commit: bool
) -> None:
    def run(mixed: Mixed) -> list[bytes]:
        """Read what there is now, and return all that was read until now."""
        options = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest", **COMMITTED}
        frame = spark.readStream.format("ottla").options(subscribe=mixed.topic, **options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start(str(tmp_path / "data")).awaitTermination(120)
        rows = spark.read.parquet(str(tmp_path / "data")).select("offset", "value").collect()
        return [bytes(row.value) for row in sorted(rows, key=lambda row: row.offset)]

    async with mixed_transactions(broker.bootstrap, topic) as mixed:
        assert await asyncio.to_thread(run, mixed) == mixed.committed
        assert await asyncio.to_thread(run, mixed) == mixed.committed
        assert mixed.writer is not None
        await (mixed.writer.commit_transaction() if is_commit else mixed.writer.abort_transaction())
        rest = mixed.every[-2:] if is_commit else mixed.every[-1:]
        assert await asyncio.to_thread(run, mixed) == mixed.committed + rest
