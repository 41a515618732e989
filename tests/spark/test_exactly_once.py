"""Spark writes each row once, whatever fails: tasks, their workers, the query after its last task, the broker.

`OTTLA_TEST_BOOTSTRAP` puts Apache Kafka in the broker's place.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kit.broker import BrokerProcess
from kit.to_the_end import values_of

from ottla.spark import each_batch
from ottla.spark.source import OttlaDataSource
from ottla.spark.writer import BatchWriter, StreamWriter, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


class Sink:
    """A source with two partitions, a target, a checkpoint, and a name that no other test uses."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, directory: Path) -> None:
        self.spark = spark
        self.bootstrap = broker.bootstrap
        self.directory = directory
        self.name = f"once-{uuid.uuid4().hex[:8]}"
        self.source, self.target = f"{self.name}-source", f"{self.name}-target"
        self.checkpoint = directory / "checkpoint"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        made = admin.create_topics([NewTopic(self.source, 2, 1), NewTopic(self.target, 3, 1)])
        for one in made.values():
            one.result()
        self.given = 0

    @property
    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "topic": self.target,
            "exactlyOnceName": self.name,
        }

    def give(self, count: int) -> None:
        """Write the next numbers to the source, in both of its partitions."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(self.given, self.given + count):
            producer.produce(self.source, b"%d" % number, partition=number % 2)
        assert producer.flush(60) == 0
        self.given += count

    def rows(self, options: Mapping[str, str] | None = None) -> DataFrame:
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.source, "startingOffsets": "earliest"}
        given |= options or {}
        return self.spark.readStream.format("ottla").options(**given).load().select("value")

    def run(self, rows: DataFrame | None = None, by: str = "ottla") -> None:
        """Run the query until it has written what there is. Raises what ends it."""
        writer = (self.rows() if rows is None else rows).writeStream.format(by).options(**self.options)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        assert writer.start().awaitTermination(120)

    def forget_the_last_batch(self) -> None:
        """Leave the checkpoint as a driver does that dies after the last task and before it has noted that."""
        commits = [path for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal()]
        last = max(commits, key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink()

    def check(self) -> None:
        """Each number is there once, for readers that are read_committed and for others: nothing was aborted."""
        expected = sorted(b"%d" % number for number in range(self.given))
        assert values_of(self.bootstrap, self.target) == expected
        assert values_of(self.bootstrap, self.target, is_committed=False) == expected


@pytest.fixture
def sink(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Sink:
    return Sink(spark, broker, tmp_path)


def chunk_by_chunk() -> type[Any]:
    """For writers: each frame of Spark is a chunk of the sink, which is sent before the next one is wanted."""

    class ChunkByChunk:  # in a function, so that Spark's workers get it whole: they cannot import this file
        def write(self, iterator: Iterator[Any]) -> Written:
            from ottla.spark import rows

            usual, rows.CHUNK_BYTES = rows.CHUNK_BYTES, 1
            try:
                written: Written = super().write(iterator)  # type: ignore[misc]  # the base class is the next one
            finally:
                rows.CHUNK_BYTES = usual  # the worker has other tasks
            return written

    return ChunkByChunk


def register_writing_by(way: type[Any], format_name: str, sink: Sink) -> None:
    """A format whose writers are of this class, too."""

    # mypy does not know a base class that is an argument.
    class Batch(way, BatchWriter):  # type: ignore[misc,valid-type]  # see above
        pass

    class Stream(way, StreamWriter):  # type: ignore[misc,valid-type]  # see above
        pass

    class Source(OttlaDataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
            writer = super().writer(schema, overwrite)
            writer.__class__ = Batch
            return writer

        def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802  # overrides Spark's method
            writer = super().streamWriter(schema, overwrite)
            writer.__class__ = Stream
            return writer

    sink.spark.dataSource.register(Source)


def register_dying(sink: Sink, format_name: str, *, is_committed: bool, times: int = 1) -> None:
    """A format whose tasks are killed when they have committed, before Spark hears of it, or in the middle.

    In the middle is when a part of the rows is in the topic, and the transaction is open.
    """
    directory, topic = sink.directory, sink.target

    def die() -> None:
        import os
        import signal

        for number in range(times):
            with contextlib.suppress(FileExistsError), open(directory / f"killed-{number}", "x"):
                os.kill(os.getpid(), signal.SIGKILL)

    class Dying(chunk_by_chunk()):  # type: ignore[misc]  # mypy does not know a base class that a call returns
        def write(self, iterator: Iterator[Any]) -> Written:
            written = super().write(iterator if is_committed else self.dying(iterator))
            die()
            return written

        def dying(self, iterator: Iterator[Any]) -> Iterator[Any]:
            from ottla.spark.cluster import Cluster

            yield next(iterator)
            with contextlib.closing(Cluster(self._options.client)) as cluster:  # type: ignore[attr-defined]  # the writer's
                while not any(cluster.high_watermarks([(topic, index) for index in range(3)]).values()):
                    pass
            die()
            yield from iterator

    register_writing_by(Dying, format_name, sink)


@pytest.fixture
def small_frames(spark: SparkSession) -> Iterator[None]:
    """Spark hands rows over a hundred at a time."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_batches_of_a_stream_are_written_once_over_restarts(sink: Sink) -> None:
    for count in (50, 1):
        sink.give(count)
        sink.run()
        sink.check()


def test_a_batch_that_is_written_and_not_in_the_checkpoint_is_not_written_again(sink: Sink) -> None:
    sink.give(200)
    sink.run(sink.rows({"maxOffsetsPerTrigger": "100"}))  # in two batches
    sink.forget_the_last_batch()
    sink.give(10)  # for the batch after it
    sink.run()
    sink.check()


def test_a_task_that_is_killed_after_its_commit_is_not_written_again(sink: Sink) -> None:
    register_dying(sink, "ottla_dying_stream", is_committed=True)
    sink.give(100)
    sink.run(by="ottla_dying_stream")
    assert (sink.directory / "killed-0").exists()
    sink.check()


def test_a_batch_query_writes_once_although_a_task_is_killed(sink: Sink) -> None:
    register_dying(sink, "ottla_dying_batch", is_committed=True)
    for _ in range(2):
        rows = sink.spark.range(sink.given, sink.given + 50, 1, 2).selectExpr("cast(id AS string) AS value")
        rows.write.format("ottla_dying_batch").options(**sink.options).mode("append").save()
        sink.given += 50
    assert (sink.directory / "killed-0").exists()
    sink.check()


@pytest.mark.usefixtures("small_frames")
def test_what_a_killed_task_has_not_committed_is_aborted(sink: Sink) -> None:
    register_dying(sink, "ottla_dying_in_the_middle", is_committed=False)
    sink.give(400)
    sink.run(by="ottla_dying_in_the_middle")
    expected = list(range(400))
    assert sorted(int(value) for value in values_of(sink.bootstrap, sink.target)) == expected
    every = [int(value) for value in values_of(sink.bootstrap, sink.target, is_committed=False)]
    assert len(every) > 400
    assert sorted(set(every)) == expected


def test_state_is_kept_by_a_batch_that_is_not_written_again(sink: Sink) -> None:
    """The operators before the sink commit their state when all of a task's rows were taken."""

    def counts() -> DataFrame:
        keyed = sink.rows().selectExpr("int(cast(value AS string)) % 3 AS k").groupBy("k").count()
        return keyed.selectExpr("concat(k, ':', count) AS value")

    def run() -> None:
        batches = counts().writeStream.outputMode("update").foreachBatch(each_batch(sink.options))
        batches = batches.option("checkpointLocation", str(sink.checkpoint)).trigger(availableNow=True)
        assert batches.start().awaitTermination(120)

    sink.give(30)
    run()
    sink.forget_the_last_batch()
    sink.give(30)
    run()
    expected = sorted(b"%d:%d" % (key, count) for key in range(3) for count in (10, 20))
    assert values_of(sink.bootstrap, sink.target, is_committed=False) == expected


def test_two_writes_of_a_batch_need_two_names(sink: Sink) -> None:
    def twice(batch: DataFrame, batch_id: int) -> None:
        for suffix in ("", names[-1]):
            options = {**sink.options, "exactlyOnceName": f"{sink.name}{suffix}"}
            batch.selectExpr(f"concat('{suffix}', value) AS value").write.format("ottla").options(**options).mode(
                "append"
            ).save()

    names = [""]
    sink.give(10)
    writer = sink.rows().writeStream.foreachBatch(twice).option("checkpointLocation", str(sink.checkpoint))
    with pytest.raises(Exception, match=r"batch 0 was written by another save\(\) of the same function"):
        writer.trigger(availableNow=True).start().awaitTermination(120)
    names.append("-b")
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    expected = sorted(b"%s%d" % (prefix, number) for prefix in (b"", b"-b") for number in range(10))
    assert values_of(sink.bootstrap, sink.target, is_committed=False) == expected


@pytest.mark.parametrize(("before", "after"), [("2", "4"), ("4", "2")])
def test_rows_that_are_divided_in_another_way_end_the_query(sink: Sink, before: str, after: str) -> None:
    sink.give(100)
    sink.run(sink.rows({"minPartitions": before}))
    sink.forget_the_last_batch()
    with pytest.raises(Exception, match=r"is committed with \d+ rows of this task, and now there are"):
        sink.run(sink.rows({"minPartitions": after}))


def test_a_new_query_takes_a_name_over(sink: Sink) -> None:
    sink.give(100)
    sink.run()
    first, sink.checkpoint = sink.checkpoint, sink.directory / "fresh"
    sink.run()
    found = values_of(sink.bootstrap, sink.target, is_committed=False)
    assert sorted(found) == sorted([b"%d" % number for number in range(100)] * 2)
    sink.give(1)
    sink.checkpoint = first
    with pytest.raises(
        Exception, match=r"was used by query \S+ after this query \S+; each query that runs at the same"
    ):
        sink.run()


@pytest.mark.usefixtures("small_frames")
def test_the_transactions_of_a_failed_batch_are_ended_by_the_driver(sink: Sink) -> None:
    """So that readers need not wait for the time-out, of a quarter of an hour."""
    register_dying(sink, "ottla_dying_always", is_committed=False, times=2)
    rows = sink.spark.range(0, 200, 1, 1).selectExpr("cast(id AS string) AS value")
    with pytest.raises(Exception, match="crashed"):
        rows.write.format("ottla_dying_always").options(**sink.options).mode("append").save()
    assert (sink.directory / "killed-1").exists()
    plain = {"kafka.bootstrap.servers": sink.bootstrap, "topic": sink.target}
    later = sink.spark.range(3).selectExpr("'later' AS value", "int(id) AS partition")
    later.write.format("ottla").options(**plain).mode("append").save()
    assert len(values_of(sink.bootstrap, sink.target, is_committed=False)) > 3
    assert values_of(sink.bootstrap, sink.target) == [b"later"] * 3  # an open transaction would hide one


@pytest.mark.usefixtures("small_frames")
def test_a_broker_that_is_killed_in_the_middle_loses_and_repeats_nothing(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    sink = Sink(spark, own_broker, tmp_path)
    register_writing_by(chunk_by_chunk(), "ottla_chunk_by_chunk", sink)
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"

    def announce(frames: Iterator[Any]) -> Iterator[Any]:
        import time

        for number, frame in enumerate(frames):
            yield frame
            if number == 1:
                begun.touch()
                while not go_on.exists():
                    time.sleep(0.01)  # in Spark's worker, which learns of the broker's end by this file only

    ended = threading.Event()
    sent: list[int] = []

    def restart() -> None:
        while not begun.exists() and not ended.wait(0.01):
            pass
        while not (found := values_of(sink.bootstrap, sink.target, is_committed=False)) and not ended.wait(0.01):
            pass
        sent.append(len(found))
        own_broker.kill()
        own_broker.start()
        go_on.touch()

    sink.give(400)
    restarting = threading.Thread(target=restart)
    restarting.start()
    try:
        wide = "rpad(value, 10000, ' ') AS value"  # so that a frame does not wait in a buffer for the next one
        sink.run(sink.rows().selectExpr(wide).mapInArrow(announce, "value string"), by="ottla_chunk_by_chunk")
    finally:
        ended.set()
        restarting.join(60)
    assert 0 < sent[0] < 400
    found = [int(value) for value in values_of(sink.bootstrap, sink.target)]
    assert sorted(found) == list(range(400))


def test_a_name_that_cannot_be_is_reported_on_the_driver(sink: Sink) -> None:
    sink.name = "a b"
    with pytest.raises(Exception, match="OptionError: exactlyOnceName: 'a b' cannot be a sink's name"):
        sink.run()
