"""Spark writes to topics of a real broker, by `write` and `writeStream`; another client reads what is there."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kit.broker import BrokerProcess

from ottla.spark import each_batch, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


MILLISECONDS = "unix_millis(timestamp) AS ms"


@pytest.fixture
def target(broker: BrokerProcess) -> str:
    """A topic with five partitions."""
    topic = f"sink-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (made,) = admin.create_topics([NewTopic(topic, 5, 1)]).values()
    made.result()
    return topic


def save(frame: DataFrame, broker: BrokerProcess, mode: str = "append", **given: str) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    options |= {key.replace("__", "."): value for key, value in given.items()}
    frame.write.format("ottla").options(**options).mode(mode).save()


def read_all(broker: BrokerProcess, topic: str, count: int) -> list[Any]:
    """The first `count` messages as another client sees them, and that there are no more."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    assert sum(consumer.get_watermark_offsets(_place(topic, index))[1] for index in partitions) == count
    consumer.assign([_place(topic, index) for index in partitions])
    found: list[Any] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), 60)
        assert messages
        found += messages
    return found


def _place(topic: str, partition: int) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(topic, partition, 0)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_rows_become_records_in_the_partitions_where_java_puts_their_keys(
    codec: str, spark: SparkSession, broker: BrokerProcess, target: str
) -> None:
    rows = spark.range(5000).selectExpr("concat('key-', id) AS key", "cast(concat('value-', id) AS binary) AS value")
    save(rows, broker, topic=target, kafka__compression__type=codec)
    found = {message.key(): message for message in read_all(broker, target, 5000)}
    assert {key: message.value() for key, message in found.items()} == {
        b"key-%d" % i: b"value-%d" % i for i in range(5000)
    }
    # librdkafka's murmur2 partitioner is its own implementation of Java's
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    placed: dict[bytes, int] = {}
    for key in sorted(found)[::50]:
        producer.produce(target, b"", key=key, on_delivery=lambda _, m: placed.update({m.key(): m.partition()}))
    assert producer.flush(60) == 0
    assert {key: found[key].partition() for key in placed} == placed
    assert len(set(placed.values())) == 5


def test_headers_partition_and_nulls_arrive_as_they_are(
    spark: SparkSession, broker: BrokerProcess, target: str
) -> None:
    rows = spark.createDataFrame(
        [
            ("k", b"v", [("a", b"1"), ("b", None)], 3),
            (None, None, None, 4),
            ("", b"", [], 0),
        ],
        "key string, value binary, headers array<struct<key:string,value:binary>>, partition int",
    )
    save(rows, broker, topic=target)
    found = sorted((m.partition(), m.key(), m.value(), m.headers()) for m in read_all(broker, target, 3))
    assert found == [(0, b"", b"", None), (3, b"k", b"v", [("a", b"1"), ("b", None)]), (4, None, None, None)]


def test_records_get_the_time_of_their_writing_unless_includetimestamp_says_otherwise(
    spark: SparkSession, broker: BrokerProcess, target: str
) -> None:
    """Spark's own sink passes a column `timestamp` over, and so does this one when nothing is said."""
    rows = spark.sql(
        "SELECT col1 AS value, timestamp_millis(col2) AS timestamp FROM VALUES "
        "('whole', 1356998400123L), ('first', 0L), ('null', null)"
    )
    before = time.time_ns() // 1_000_000
    save(rows.selectExpr("value", "timestamp + interval 999 microseconds AS timestamp"), broker, topic=target)
    times = {message.value(): message.timestamp() for message in read_all(broker, target, 3)}
    assert all(before <= milliseconds <= time.time_ns() // 1_000_000 for _, milliseconds in times.values())
    save(
        rows.selectExpr("value", "timestamp + interval 999 microseconds AS timestamp"),
        broker,
        topic=f"{target}-2",
        includeTimestamp="true",
    )
    times = {message.value(): message.timestamp() for message in read_all(broker, f"{target}-2", 3)}
    assert times[b"whole"] == (TIMESTAMP_CREATE_TIME, 1356998400123)
    assert times[b"first"] == (TIMESTAMP_CREATE_TIME, 0)
    assert before <= times[b"null"][1] <= time.time_ns() // 1_000_000


def test_a_topic_is_copied_with_its_times(spark: SparkSession, broker: BrokerProcess, target: str) -> None:
    rows = spark.range(2000).selectExpr("cast(id AS string) AS value", "timestamp_millis(id * 86400000) AS timestamp")
    save(rows, broker, topic=target, includeTimestamp="true", kafka__compression__type="lz4")
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    save(
        reader.option("subscribe", target).load().drop("partition"),
        broker,
        topic=f"{target}-2",
        includetimestamp="TRUE",
    )
    copied = reader.option("subscribe", f"{target}-2").load()
    found = {
        int(row.value): row.ms for row in copied.selectExpr("cast(value AS string) AS value", MILLISECONDS).collect()
    }
    assert found == {day: day * 86_400_000 for day in range(2000)}


def test_a_time_before_1970_is_reported(spark: SparkSession, broker: BrokerProcess, target: str) -> None:
    rows = spark.range(1).selectExpr("'v' AS value", "timestamp_millis(-1) AS timestamp")
    with pytest.raises(Exception, match="WriteFailed: column timestamp holds a time before 1970"):
        save(rows, broker, topic=target, includeTimestamp="true")


def in_threads(count: int, work: Callable[[int], None], spark: SparkSession | None) -> list[BaseException]:
    """Run `work` in as many threads at once, each of which calls `register` if there is a session."""
    start = threading.Barrier(count)
    problems: list[BaseException] = []

    def run(number: int) -> None:
        try:
            if spark is not None:
                register(spark)
            start.wait(60)
            work(number)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    return problems


def test_eight_threads_write_at_once(spark: SparkSession, broker: BrokerProcess, target: str) -> None:
    """Spark looks a sink up in the session that is active in the thread, and a new thread has none."""

    def write(number: int) -> None:
        rows = spark.range(500).selectExpr(f"'{number}' AS key", "cast(id AS string) AS value")
        save(rows, broker, topic=target)

    assert in_threads(8, write, spark) == []
    found = sorted((message.key(), int(message.value())) for message in read_all(broker, target, 4000))
    assert found == [(b"%d" % number, value) for number in range(8) for value in range(500)]


def test_a_pool_of_threads_is_registered_by_its_initializer(
    spark: SparkSession, broker: BrokerProcess, target: str
) -> None:
    with ThreadPoolExecutor(2, initializer=register, initargs=(spark,)) as pool:
        frames = [spark.range(10).selectExpr("cast(id AS string) AS value") for _ in range(4)]
        list(pool.map(lambda frame: save(frame, broker, topic=target), frames))
    assert len(read_all(broker, target, 40)) == 40


def test_what_spark_does_without_a_registered_thread(spark: SparkSession, broker: BrokerProcess, target: str) -> None:
    """Should a Spark find the sink from any thread, `register` in threads and its section in the docs can go."""
    rows = spark.range(1).selectExpr("'v' AS value")
    problems = in_threads(1, lambda _: save(rows, broker, topic=target), None)
    assert ["DATA_SOURCE_NOT_FOUND" in str(problem) for problem in problems] == [True]
    append = each_batch({"kafka.bootstrap.servers": broker.bootstrap, "topic": target})  # has the rows' session at hand
    assert in_threads(1, lambda _: append(rows, 0), None) == []
    assert len(read_all(broker, target, 1)) == 1


def test_reading_needs_no_registered_thread_and_a_stream_that_writes_does(
    spark: SparkSession, broker: BrokerProcess, target: str, tmp_path: Path
) -> None:
    source = f"{target}-source"
    save(spark.range(10).selectExpr("cast(id AS string) AS value"), broker, topic=source)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": source, "startingOffsets": "earliest"}

    def work(_: int) -> None:
        assert spark.read.format("ottla").options(**options).load().count() == 10
        rows = spark.readStream.format("ottla").options(**options).load().select("value")
        batches = rows.writeStream.foreachBatch(
            each_batch({"kafka.bootstrap.servers": broker.bootstrap, "topic": target})
        )
        batches = batches.option("checkpointLocation", str(tmp_path / "each")).trigger(availableNow=True)
        assert batches.start().awaitTermination(120)
        register(spark)
        stream = rows.writeStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
        stream = stream.option("checkpointLocation", str(tmp_path / "sink")).trigger(availableNow=True)
        assert stream.option("topic", target).start().awaitTermination(120)

    assert in_threads(1, work, None) == []
    assert len(read_all(broker, target, 20)) == 20


def test_rows_name_their_topic_unless_the_option_does(spark: SparkSession, broker: BrokerProcess, target: str) -> None:
    others = [f"{target}-{name}" for name in ("x", "y")]
    rows = spark.createDataFrame([(others[i % 2], str(i)) for i in range(10)], "topic string, value string")
    save(rows, broker)  # the broker creates topics on demand, as Kafka does
    assert sorted(m.value() for m in read_all(broker, others[1], 5)) == [b"1", b"3", b"5", b"7", b"9"]
    save(rows, broker, topic=target)
    assert len(read_all(broker, target, 10)) == 10
    assert len(read_all(broker, others[0], 5)) == 5


def test_rows_without_a_key_are_spread(spark: SparkSession, broker: BrokerProcess, target: str) -> None:
    save(spark.range(20_000).selectExpr("repeat('v', 100) AS value"), broker, topic=target)
    counts: dict[int, int] = {}
    for message in read_all(broker, target, 20_000):
        counts[message.partition()] = counts.get(message.partition(), 0) + 1
    assert len(counts) == 5
    assert max(counts.values()) < 2 * min(counts.values())


def test_what_was_read_can_be_written_as_it_is(spark: SparkSession, broker: BrokerProcess, target: str) -> None:
    rows = spark.range(100).selectExpr("'k' AS key", "cast(id AS string) AS value", "int(id % 5) AS partition")
    save(rows, broker, topic=target)
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    read = reader.option("subscribe", target).option("includeHeaders", "true").load()
    save(read, broker, topic=target, kafka__batch__size="1")
    found = read_all(broker, target, 200)
    twice = sorted((i % 5, b"%d" % i) for i in range(100) for _ in "ab")
    assert sorted((m.partition(), m.value()) for m in found) == twice


def test_a_stream_writes_each_row_and_goes_on_after_a_restart(
    spark: SparkSession, broker: BrokerProcess, target: str, tmp_path: Path
) -> None:
    source = f"{target}-source"
    for part in range(2):
        rows = spark.range(part * 50, part * 50 + 50).selectExpr("cast(id AS string) AS value")
        save(rows, broker, topic=source)
        reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
        stream = reader.option("subscribe", source).option("startingOffsets", "earliest").load().select("value")
        writer = stream.writeStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
        writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
    found = sorted(int(message.value()) for message in read_all(broker, target, 100))
    assert found == list(range(100))


def test_update_mode_goes_through_each_batch(
    spark: SparkSession, broker: BrokerProcess, target: str, tmp_path: Path
) -> None:
    """Spark refuses update mode to every data source in Python; changed rows can be written all the same."""
    source = f"{target}-source"
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": target}
    for count in (30, 60):
        save(spark.range(30).selectExpr("cast(id % 3 AS string) AS value"), broker, topic=source)
        reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
        stream = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
        counts = stream.groupBy("value").count().selectExpr("value AS key", "cast(count AS string) AS value")
        writer = counts.writeStream.outputMode("update").foreachBatch(each_batch(options))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        assert writer.start().awaitTermination(120)
        latest = {m.key(): m.value() for m in read_all(broker, target, count // 10)}
        assert latest == {b"%d" % i: b"%d" % (count // 3) for i in range(3)}


def test_a_killed_task_writes_again_and_loses_nothing(
    spark: SparkSession, broker: BrokerProcess, target: str, tmp_path: Path
) -> None:
    def die_once(frames: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal

        for frame in frames:
            yield frame
            try:
                (tmp_path / "killed").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    rows = spark.range(0, 30_000, 1, 2).selectExpr("cast(id AS string) AS value")
    save(rows.mapInArrow(die_once, "value string"), broker, topic=target)
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    written = reader.option("subscribe", target).load()
    assert written.select("value").distinct().count() == 30_000


def test_a_broker_that_restarts_while_it_is_written_to_is_waited_for(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    def announce(frames: Iterator[Any]) -> Iterator[Any]:
        import time

        for number, frame in enumerate(frames):
            yield frame
            if number == 12:  # more than a chunk of the writer: some of it is on its way
                (tmp_path / "begun").touch()
                while not (tmp_path / "go-on").exists():
                    time.sleep(0.01)

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    rows = spark.range(0, 2000, 1, 1).selectExpr("cast(id AS string) AS key", "rpad(id, 10000, ' ') AS value")
    frame = rows.mapInArrow(announce, "key string, value string")
    ended = threading.Event()

    def restart() -> None:
        while not (tmp_path / "begun").exists() and not ended.wait(0.01):
            pass
        own_broker.kill()
        own_broker.start()
        (tmp_path / "go-on").touch()

    restarting = threading.Thread(target=restart)
    restarting.start()
    try:
        save(frame, own_broker, topic="restarted")
    finally:
        ended.set()
        restarting.join(60)
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = [int(message.value()) for message in read_all(own_broker, "restarted", 2000)]
    assert sorted(found) == list(range(2000))


@pytest.fixture
def narrow(broker: BrokerProcess) -> str:
    """A topic that takes batches of at most 2000 bytes."""
    topic = f"narrow-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (made,) = admin.create_topics([NewTopic(topic, 2, 1, config={"max.message.bytes": "2000"})]).values()
    made.result()
    return topic


def test_batches_that_are_too_large_for_the_topic_are_split(
    spark: SparkSession, broker: BrokerProcess, narrow: str
) -> None:
    rows = spark.range(0, 3000, 1, 1).selectExpr("cast(id % 2 AS int) AS partition", "concat(id, ' ', uuid()) AS value")
    save(rows, broker, topic=narrow)
    found: dict[int, list[int]] = {0: [], 1: []}
    for message in read_all(broker, narrow, 3000):
        found[message.partition()].append(int(message.value().split()[0]))
    assert found == {0: list(range(0, 3000, 2)), 1: list(range(1, 3000, 2))}


def test_a_record_that_is_too_large_for_the_topic_is_an_error_that_names_the_limit(
    spark: SparkSession, broker: BrokerProcess, narrow: str
) -> None:
    rows = spark.range(0, 50, 1, 1).selectExpr("0 AS partition", "repeat('x', if(id = 20, 3000, 10)) AS value")
    with pytest.raises(Exception) as raised:  # noqa: PT011  # whatever Spark wraps it in
        save(rows, broker, topic=narrow)
    says = r"WriteFailed: \S+-0: a record of 30\d\d bytes is larger than the topic's max\.message\.bytes 2000; raise"
    assert re.search(says, str(raised.value))


@pytest.mark.parametrize(
    ("select", "given", "says"),
    [
        ("'v' AS value", {"topicc": "t", "topic": "t"}, "OptionError: unknown option topicc; did you mean topic?"),
        ("'v' AS value", {"verbose": "t", "topic": "t"}, "OptionError: unknown option verbose; known are topic"),
        (
            "'v' AS value",
            {"topic": "t", "includeTimestamp": "yes"},
            "includeTimestamp: 'yes' is neither true nor false",
        ),
        (
            "'v' AS value",
            {"topic": "t", "includeTimestamp": "true"},
            "SchemaError: there is no column timestamp, which",
        ),
        (
            "'v' AS value, id AS timestamp",
            {"topic": "t", "includeTimestamp": "true"},
            "SchemaError: column timestamp is bigint; a sink needs timestamp",
        ),
        (
            "'v' AS value, cast(now() AS timestamp_ntz) AS timestamp",
            {"topic": "t", "includeTimestamp": "true"},
            "SchemaError: column timestamp is timestamp_ntz; a sink needs timestamp",
        ),
        (
            "'v' AS value",
            {"kafka__batch__sizes": "1", "topic": "t"},
            "option kafka.batch.sizes; did you mean kafka.batch.size?",
        ),
        ("'v' AS value", {}, "OptionError: no topic: give option topic, or the rows a column topic"),
        ("'v' AS value", {"topic": "a b"}, "OptionError: topic: 'a b' cannot be a topic's name"),
        ("'v' AS value", {"subscribe": "t"}, "OptionError: option subscribe is for reading"),
        ("'v' AS value", {"topic": "t", "kafka__acks": "0"}, "kafka.acks: 0 would lose records silently"),
        (
            "'v' AS value",
            {"topic": "t", "kafka__transactional__id": "x"},
            "kafka.transactional.id cannot be set: option exactlyOnceName names",
        ),
        ("'v' AS value", {"topic": "t", "kafka__compression__type": "rar"}, "kafka.compression.type: 'rar' is none"),
        ("id AS value", {"topic": "t"}, "SchemaError: column value is bigint; a sink needs string or binary"),
        ("id", {"topic": "t"}, "SchemaError: there is no column value, which becomes"),
        ("'v' AS value, id AS partition", {"topic": "t"}, "column partition is bigint; a sink needs int"),
    ],
)
def test_what_is_wrong_with_options_and_columns_is_reported_on_the_driver(
    select: str, given: dict[str, str], says: str, spark: SparkSession, broker: BrokerProcess
) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # whatever Spark wraps it in
        save(spark.range(1).selectExpr(*[part.strip() for part in select.split(",")]), broker, **given)
    assert says in str(raised.value)


def test_a_table_of_the_catalog_is_not_written_to_and_the_error_says_what_is(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    """Spark would take it, and hand none of its options to the writer."""
    spark.sql("CREATE TABLE values_table (value string) USING ottla")
    try:
        with pytest.raises(Exception, match=r"OptionError: no options: .* A table of the catalog cannot be written to"):
            spark.sql("INSERT INTO values_table VALUES ('v')")
    finally:
        spark.sql("DROP TABLE values_table")
    given = f"OPTIONS (`kafka.bootstrap.servers` '{broker.bootstrap}', topic 't')"
    with pytest.raises(Exception, match=r"OptionError: no options: .* A table of the catalog cannot be written to"):
        spark.sql(f"CREATE TABLE values_table USING ottla {given} AS SELECT 'v' AS value")


def test_a_topic_is_not_overwritten(spark: SparkSession, broker: BrokerProcess, target: str) -> None:
    with pytest.raises(Exception, match="a topic is not overwritten, records are appended to it"):
        save(spark.range(1).selectExpr("'v' AS value"), broker, mode="overwrite", topic=target)


def test_a_row_that_cannot_be_written_is_reported(spark: SparkSession, broker: BrokerProcess, target: str) -> None:
    rows = spark.range(1).selectExpr("'v' AS value", "5 AS partition", "cast(null AS string) AS topic")
    outside = (
        rf"WriteFailed: column partition says 5, topic {target} has partitions 0 to 4; without the column, the key"
    )
    with pytest.raises(Exception, match=outside):
        save(rows, broker, topic=target)
    with pytest.raises(Exception, match="WriteFailed: column topic is null in a row"):
        save(rows, broker)
    large = spark.range(1).selectExpr("repeat('v', 2000000) AS value")
    with pytest.raises(Exception, match=r"is larger than kafka\.max\.request\.size 1048576"):
        save(large, broker, topic=target)
