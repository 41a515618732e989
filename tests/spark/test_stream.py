"""Streams from a real broker into files, through what a person does: start, stop, start again, and what goes wrong.

An *archive* is a Parquet folder with a checkpoint beside it; it must hold every (partition, offset) once.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kit.broker import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PATIENCE_S = 120
QUICK = {"fetchOffset.retryIntervalMs": "20", "fetchOffset.numRetries": "1", "kafka.retry.backoff.ms": "20"}


class Archive:
    """A stream of one topic into a folder, that a test starts as often as it likes."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, topic: str, folder: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.topic = topic
        self.folder = folder

    def start(
        self,
        through: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        trigger: dict[str, Any] | None = None,
        **given: str,
    ) -> StreamingQuery:
        options = {"kafka.bootstrap.servers": self.broker.bootstrap, "startingOffsets": "earliest", **QUICK}
        if not any(key.startswith(("subscribe", "assign")) for key in given):
            options["subscribe"] = self.topic
        options |= {key.replace("__", "."): value for key, value in given.items()}
        frame = through(self.spark.readStream.format("ottla").options(**options).load())
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.trigger(**(trigger or {"availableNow": True})).start(str(self.folder / "data"))

    def run(self, **given: Any) -> StreamingQuery:
        """Start a stream that ends by itself, and wait for it."""
        query = self.start(**given)
        finish(query)
        return query

    def records(self) -> list[tuple[int, int, bytes]]:
        """What the archive holds, ordered; a record that is there twice is in the list twice."""
        rows = self.spark.read.parquet(str(self.folder / "data")).select("partition", "offset", "value").collect()
        return sorted((row.partition, row.offset, bytes(row.value)) for row in rows)


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(PATIENCE_S), query.status


def batches(query: StreamingQuery) -> list[int]:
    """The sizes of the micro-batches that had records."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def failure_of(query: StreamingQuery) -> str:
    """Wait for a stream to fail; return Spark's message."""
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as failed:
        finish(query)
    return str(failed.value)


def create(broker: BrokerProcess, topic: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (made,) = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
    made.result()


def delete(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (done,) = admin.delete_topics([topic]).values()
    done.result()


def fill(broker: BrokerProcess, topic: str, offsets: range, partitions: int = 3) -> list[tuple[int, int, bytes]]:
    """Write a record at each of `offsets` to every partition, in many small batches; return what an archive holds."""
    # One request at a time keeps the order; an idempotent producer would too, and take half a second to start.
    settings = {"bootstrap.servers": broker.bootstrap, "max.in.flight": 1, "batch.num.messages": 50}
    producer = Producer(settings)
    places = [(partition, offset) for partition in range(partitions) for offset in offsets]
    expected = [(partition, offset, b"%d/%d" % (partition, offset)) for partition, offset in places]
    for partition, _, value in expected:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0
    return expected


@pytest.fixture
def archive(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Iterator[Archive]:
    """An archive of a topic with three partitions."""
    topic = f"stream-{uuid.uuid4().hex[:8]}"
    create(broker, topic)
    yield Archive(spark, broker, topic, tmp_path)
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def own_archive(spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path) -> Iterator[Archive]:
    """The same, of a broker that the test may stop and damage."""
    create(own_broker, "own")
    yield Archive(spark, own_broker, "own", tmp_path / "archive")
    for query in spark.streams.active:
        query.stop()


def wait_for(path: Path) -> None:
    """Wait until a task says by a file that it has come so far."""
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"no task made {path.name}"
        time.sleep(0.01)


def pausing(folder: Path) -> Callable[[DataFrame], DataFrame]:
    """The first task that gets rows makes the file `paused` and goes on when there is a file `go-on`."""

    def pass_on(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            if not (folder / "go-on").exists():
                (folder / "paused").touch()
                deadline = time.monotonic() + PATIENCE_S
                while not (folder / "go-on").exists():
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
            yield frame

    return lambda frame: frame.mapInArrow(pass_on, frame.schema)


def dying(folder: Path) -> Callable[[DataFrame], DataFrame]:
    """The worker of the first task that gets rows is killed in the middle of it, once."""

    def pass_on(frames: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal

        for frame in frames:
            yield frame
            try:
                (folder / "killed").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    return lambda frame: frame.mapInArrow(pass_on, frame.schema)


def test_each_run_takes_what_came_since_the_last_one(archive: Archive) -> None:
    expected = fill(archive.broker, archive.topic, range(400))
    assert sum(batches(archive.run())) == 1200
    assert batches(archive.run()) == []
    expected += fill(archive.broker, archive.topic, range(400, 410))
    assert sum(batches(archive.run())) == 30
    assert archive.records() == sorted(expected)


def test_a_limit_cuts_the_backlog_into_equal_batches_without_a_tiny_last_one(archive: Archive) -> None:
    expected = fill(archive.broker, archive.topic, range(500))
    query = archive.run(maxOffsetsPerTrigger="375")
    assert batches(query) == [375, 375, 375, 375]
    assert archive.records() == sorted(expected)
    last = json.loads(query.lastProgress.sources[0].endOffset)
    assert last[archive.topic] == {"0": 500, "1": 500, "2": 500}
    assert json.loads(query.lastProgress.sources[0].latestOffset) == last


def test_a_stream_starts_at_latest_by_default(archive: Archive) -> None:
    fill(archive.broker, archive.topic, range(10))
    archive.run(startingOffsets="latest")  # what the option's default is, see test_stream_planner
    expected = fill(archive.broker, archive.topic, range(10, 12))
    archive.run()  # the checkpoint goes before startingOffsets
    assert archive.records() == sorted(expected)


def test_a_broker_that_restarts_in_the_middle_of_a_micro_batch_is_waited_for(own_archive: Archive) -> None:
    expected = fill(own_archive.broker, "own", range(3000))
    folder = own_archive.folder
    folder.mkdir()
    # Small fetches, so that the rest of the range is fetched after the restart.
    query = own_archive.start(through=pausing(folder), kafka__fetch__max__bytes="1")
    wait_for(folder / "paused")
    own_archive.broker.kill()
    own_archive.broker.start()
    (folder / "go-on").touch()
    finish(query)
    assert own_archive.records() == sorted(expected)


def test_a_stream_outlives_a_broker_that_is_away_between_batches(own_archive: Archive) -> None:
    expected = fill(own_archive.broker, "own", range(10))
    query = own_archive.start(trigger={"processingTime": "0 seconds"})
    query.processAllAvailable()
    own_archive.broker.restart()
    expected += fill(own_archive.broker, "own", range(10, 20))
    query.processAllAvailable()
    query.stop()
    assert own_archive.records() == sorted(expected)


def test_a_killed_task_is_run_again_and_leaves_nothing_twice(archive: Archive) -> None:
    expected = fill(archive.broker, archive.topic, range(1000))
    archive.run(through=dying(archive.folder), kafka__fetch__max__bytes="1")
    assert (archive.folder / "killed").exists()
    assert archive.records() == sorted(expected)


def test_a_stream_stopped_in_the_middle_of_a_batch_goes_on_where_it_was(archive: Archive) -> None:
    expected = fill(archive.broker, archive.topic, range(1000))
    query = archive.start(through=pausing(archive.folder), maxOffsetsPerTrigger="600")
    wait_for(archive.folder / "paused")
    query.stop()
    expected += fill(archive.broker, archive.topic, range(1000, 1100))
    (archive.folder / "go-on").touch()
    assert batches(archive.run(maxOffsetsPerTrigger="600"))[0] == 600  # the batch that was planned, no other
    assert archive.records() == sorted(expected)


def test_partitions_that_appear_are_read_from_their_beginning(archive: Archive) -> None:
    expected = fill(archive.broker, archive.topic, range(5))
    archive.run()
    admin = AdminClient({"bootstrap.servers": archive.broker.bootstrap})
    (grown,) = admin.create_partitions([NewPartitions(archive.topic, 5)]).values()
    grown.result()
    fill(archive.broker, archive.topic, range(5, 10), partitions=5)  # offsets 0 to 4 in the new ones
    archive.run()
    values = [value for _, _, value in archive.records()]
    assert len(values) == len(set(values)) == 5 * 3 + 5 * 5
    assert {(p, o) for p, o, _ in archive.records()} == {(p, o) for p in range(3) for o in range(10)} | {
        (p, o) for p in (3, 4) for o in range(5)
    }
    assert expected[0] in archive.records()


def test_a_topic_that_was_deleted_is_an_error_and_skipped_only_when_configured(archive: Archive) -> None:
    expected = fill(archive.broker, archive.topic, range(5))
    archive.run()
    delete(archive.broker, archive.topic)
    reported = failure_of(archive.start())
    assert f"DataLoss: {archive.topic}-0 does not exist any more; the stream was at offset 5" in reported
    archive.run(failOnDataLoss="false")
    assert archive.records() == sorted(expected)


def test_a_topic_created_again_is_not_taken_for_the_old_one(archive: Archive) -> None:
    old = fill(archive.broker, archive.topic, range(5))
    archive.run()
    delete(archive.broker, archive.topic)
    create(archive.broker, archive.topic)
    new = fill(archive.broker, archive.topic, range(8))
    assert f"topic {archive.topic} was deleted and created again" in failure_of(archive.start())
    archive.run(failOnDataLoss="false")
    assert archive.records() == sorted(old + new)  # the new one whole, not from offset 5 on


def test_a_topic_deleted_in_the_middle_of_a_batch_is_an_error(archive: Archive) -> None:
    fill(archive.broker, archive.topic, range(3000))
    query = archive.start(through=pausing(archive.folder), kafka__fetch__max__bytes="1")
    wait_for(archive.folder / "paused")
    delete(archive.broker, archive.topic)
    (archive.folder / "go-on").touch()
    assert "DataLoss: " in failure_of(query)


def test_records_that_retention_took_before_they_were_read_are_an_error(archive: Archive) -> None:
    fill(archive.broker, archive.topic, range(10))
    archive.run()
    later = fill(archive.broker, archive.topic, range(10, 30))
    from confluent_kafka import TopicPartition

    gone = [TopicPartition(archive.topic, 1, 15)]
    admin = AdminClient({"bootstrap.servers": archive.broker.bootstrap})
    (done,) = admin.delete_records(gone).values()
    done.result()
    reported = failure_of(archive.start())
    assert f"DataLoss: {archive.topic}-1: offset 10 is gone, the log starts at 15" in reported
    archive.run(failOnDataLoss="false")
    left = [row for row in later if row[0] != 1 or row[1] >= 15]
    assert [row for row in archive.records() if row[1] >= 10] == sorted(left)


def test_a_start_outside_of_the_log_is_an_error_before_anything_is_read(archive: Archive) -> None:
    fill(archive.broker, archive.topic, range(5))
    starts = json.dumps({archive.topic: {"0": 0, "1": 6, "2": 0}})
    assert f"{archive.topic}-1: offset 6 does not exist, the log ends at 5" in failure_of(
        archive.start(startingOffsets=starts)
    )


def test_a_damaged_batch_ends_the_stream_and_is_never_skipped(own_archive: Archive) -> None:
    fill(own_archive.broker, "own", range(100))
    own_archive.broker.stop()
    (log,) = (own_archive.broker.directory / "own-1").glob("*.log")
    data = bytearray(log.read_bytes())
    data[data.index(b"1/60")] ^= 0xFF
    log.write_bytes(data)
    own_archive.broker.start()
    for loss in ("true", "false"):
        reported = failure_of(own_archive.start(failOnDataLoss=loss))
        assert "ProtocolFailure: own-1, at offset " in reported
        assert "the broker answered CORRUPT_MESSAGE" in reported


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"endingOffsets": "latest"}, "OptionError: endingOffsets: a stream has no end"),
        ({"maxOffsetPerTrigger": "1"}, "unknown option maxoffsetpertrigger; did you mean maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "0"}, "OptionError: maxOffsetsPerTrigger: 0 is not between"),
        ({"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"}, "OptionError: minOffsetsPerTrigger 2 is more"),
        ({"maxTriggerDelay": "soon"}, "OptionError: maxTriggerDelay: 'soon' is no time"),
        ({"topic": "t"}, "OptionError: option topic is for writing"),
        ({"subscribe": "there-is-no-such-topic"}, "OptionError: unknown topic there-is-no-such-topic"),
    ],
)
def test_what_is_wrong_with_options_is_reported(given: dict[str, str], says: str, archive: Archive) -> None:
    with pytest.raises(
        Exception, match=says
    ) as reported:  # an AnalysisException at load(), or the stream's at its start
        archive.run(**given)
    assert "UnboundLocalError" not in str(reported.value)
