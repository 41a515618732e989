"""Spark reads topics of a real broker through `format("ottla")`.

`OTTLA_TEST_BOOTSTRAP` puts Apache Kafka in the broker's place.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kit.broker import BrokerProcess
from kit.scripted_broker import ScriptedBroker, ScriptedLog, ScriptedTopic

import pyspark_ottla
from ottla.protocol.api import ApiKey
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.spark import register
from ottla.spark.source import OttlaDataSource, RangeReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START_MS = 1_700_000_000_000
COUNT = 3000


def produce(broker: BrokerProcess, topic: str, codec: str, count: int = COUNT) -> None:
    """Record i: partition i % 3, time START_MS + i, null keys and values and headers now and then."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    (made,) = admin.create_topics([NewTopic(topic, 3, 1, config=settings)]).values()
    made.result()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": codec,
            "linger.ms": 5,
            "max.in.flight": 1,  # keeps the order over retries; an idempotent producer takes half a second to start
        }
    )
    for i in range(count):
        producer.produce(
            topic,
            key=key_of(i),
            value=value_of(i),
            partition=i % 3,
            timestamp=START_MS + i,
            headers=[("n", b"%d" % i), ("none", None)] if i % 4 == 0 else [],
        )
    assert producer.flush(60) == 0


def key_of(i: int) -> bytes | None:
    return None if i % 7 == 0 else b"key-%d" % i


def value_of(i: int) -> bytes | None:
    return None if i % 11 == 0 else b"value-%d" % i * 5


@pytest.fixture(scope="module")
def numbers(broker: BrokerProcess) -> str:
    """A topic with COUNT records, read by most tests."""
    topic = f"numbers-{uuid.uuid4().hex[:8]}"
    produce(broker, topic, "lz4")
    return topic


def load(spark: SparkSession, broker: BrokerProcess, schema: str | None = None, **given: str) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**{key.replace("__", "."): value for key, value in given.items()}).load()


def test_the_columns_are_those_of_sparks_own_kafka_source(spark: SparkSession, broker: BrokerProcess) -> None:
    plain = load(spark, broker, subscribe="any").dtypes
    assert plain == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    with_headers = load(spark, broker, subscribe="any", includeHeaders="true").dtypes
    assert with_headers == [*plain, ("headers", "array<struct<key:string,value:binary>>")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_arrives_once_and_whole(
    codec: str, spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    produce(broker, topic, codec)
    rows = load(spark, broker, subscribe=topic, includeHeaders="true", minPartitions="5").toArrow().to_pylist()
    expected: list[dict[str, Any]] = [
        {
            "key": key_of(i),
            "value": value_of(i),
            "topic": topic,
            "partition": i % 3,
            "offset": i // 3,
            "timestamp": EPOCH + timedelta(milliseconds=START_MS + i),
            "timestampType": 0,
            "headers": [{"key": "n", "value": b"%d" % i}, {"key": "none", "value": None}] if i % 4 == 0 else None,
        }
        for i in range(COUNT)
    ]
    assert sorted(rows, key=lambda row: row["timestamp"]) == expected


def test_one_task_per_partition_and_more_with_min_partitions(
    spark: SparkSession, broker: BrokerProcess, numbers: str
) -> None:
    assert load(spark, broker, subscribe=numbers).rdd.getNumPartitions() == 3
    split = load(spark, broker, subscribe=numbers, minPartitions="8")
    assert split.rdd.getNumPartitions() == 8
    assert split.count() == COUNT
    assert load(spark, broker, subscribe=numbers, maxRecordsPerPartition="500").rdd.getNumPartitions() == 6


def test_a_users_schema_picks_columns(spark: SparkSession, broker: BrokerProcess, numbers: str) -> None:
    picked = load(spark, broker, "offset bigint, value binary", subscribe=numbers)
    assert picked.columns == ["offset", "value"]
    sums = picked.selectExpr("sum(offset)", "sum(length(value))", "count(value)").first()
    assert sums is not None
    values = [value_of(i) for i in range(COUNT)]
    assert list(sums) == [
        sum(i // 3 for i in range(COUNT)),
        sum(len(value or b"") for value in values),
        sum(value is not None for value in values),
    ]


def test_offsets_and_times_bound_what_is_read(spark: SparkSession, broker: BrokerProcess, numbers: str) -> None:
    by_offset = load(
        spark,
        broker,
        subscribe=numbers,
        startingOffsets=f'{{"{numbers}":{{"0":10,"1":-2,"2":999}}}}',
        endingOffsets=f'{{"{numbers}":{{"0":12,"1":1,"2":-1}}}}',
    )
    found = sorted((row.partition, row.offset) for row in by_offset.collect())
    assert found == [(0, 10), (0, 11), (1, 0), (2, 999)]
    by_time = load(
        spark, broker, subscribe=numbers, startingTimestamp=f"{START_MS + 600}", endingTimestamp=f"{START_MS + 610}"
    )
    assert sorted((row.partition, row.offset) for row in by_time.select("partition", "offset").collect()) == sorted(
        (i % 3, i // 3) for i in range(600, 610)
    )


def test_an_assignment_and_a_pattern_select(spark: SparkSession, broker: BrokerProcess, numbers: str) -> None:
    assert load(spark, broker, assign=f'{{"{numbers}":[1]}}').select("partition").distinct().collect() == [(1,)]
    assert load(spark, broker, subscribePattern=f"^{numbers[:-1]}.$").count() == COUNT
    assert load(spark, broker, subscribePattern="no-topic-is-named-so").count() == 0


def test_a_table_in_sql_reads_the_topic(spark: SparkSession, broker: BrokerProcess, numbers: str) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW numbers USING ottla "
        f"OPTIONS (`kafka.bootstrap.servers` '{broker.bootstrap}', subscribe '{numbers}')"
    )
    assert spark.sql("SELECT count(*) FROM numbers WHERE key IS NULL").first() == (len(range(0, COUNT, 7)),)


def test_a_table_of_the_catalog_is_refused_with_the_way_out(
    spark: SparkSession, broker: BrokerProcess, numbers: str
) -> None:
    """Spark would take it, and hand none of its options to the reader."""
    from pyspark.errors import AnalysisException

    given = f"OPTIONS (`kafka.bootstrap.servers` '{broker.bootstrap}', subscribe '{numbers}')"
    with pytest.raises(AnalysisException, match=r"OptionError: .* CREATE TEMPORARY VIEW name USING ottla"):
        spark.sql(f"CREATE TABLE numbers_table USING ottla {given}")
    spark.sql("CREATE TABLE offsets_table (offset bigint) USING ottla")
    try:
        with pytest.raises(AnalysisException, match=r"OptionError: .* CREATE TEMPORARY VIEW name USING ottla"):
            spark.sql("SELECT * FROM offsets_table").collect()
    finally:
        spark.sql("DROP TABLE offsets_table")


def test_a_session_whose_timestamps_have_no_zone_reads_the_column_all_the_same(
    spark: SparkSession, broker: BrokerProcess, numbers: str
) -> None:
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        first = load(spark, broker, subscribe=numbers).selectExpr("min(unix_millis(timestamp))").first()
        assert load(spark, broker, subscribe=numbers).dtypes[5] == ("timestamp", "timestamp")
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert first is not None
    assert first[0] == START_MS


def test_an_end_below_the_first_record_that_is_left_makes_an_empty_partition(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    produce(broker, topic, "none", 30)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 1, 6)]).values()
    deleted.result()
    ends = f'{{"{topic}":{{"0":4,"1":4,"2":4}}}}'
    table = load(spark, broker, subscribe=topic, endingOffsets=ends)
    assert {row["partition"]: row["count"] for row in table.groupBy("partition").count().collect()} == {0: 4, 2: 4}
    starts = f'{{"{topic}":{{"0":2,"1":2,"2":2}}}}'
    with pytest.raises(Exception, match=f"DataLoss: {topic}-1: offset 2 is gone, the log starts at 6"):
        load(spark, broker, subscribe=topic, startingOffsets=starts, endingOffsets=ends).count()


def test_a_dataframe_and_a_view_show_later_records_after_another_load(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    """Should a Spark plan each action again, *Reading later records* of the page and its difference can go."""
    view = (
        f"CREATE OR REPLACE TEMPORARY VIEW later USING ottla "
        f"OPTIONS (`kafka.bootstrap.servers` '{broker.bootstrap}', subscribe '{topic}')"
    )
    produce(broker, topic, "none", 3)
    table = load(spark, broker, subscribe=topic)
    spark.sql(view)
    assert (table.count(), spark.table("later").count()) == (3, 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"later")
    assert producer.flush(60) == 0
    assert (table.count(), spark.table("later").count()) == (3, 3)
    spark.sql(view)
    assert (load(spark, broker, subscribe=topic).count(), spark.table("later").count()) == (4, 4)


def test_a_query_asks_for_the_metadata_of_a_topic_on_the_driver_and_not_in_every_task(spark: SparkSession) -> None:
    """Two brokers, so that the bootstrap server is not the leader."""
    bootstrap, leader = ScriptedBroker(), ScriptedBroker()
    records = bytes(encode_batch([Record(0, START_MS, None, b"v")]))
    logs = {index: ScriptedLog([records], 0, 1) for index in range(20)}
    bootstrap.topics["t"] = leader.topics["t"] = ScriptedTopic(logs, leader_port=leader.port)
    with bootstrap.running(), leader.running():
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap.bootstrap)
        assert reader.option("subscribe", "t").load().count() == 20
    assert leader.count(ApiKey.FETCH) == 20
    assert bootstrap.count(ApiKey.METADATA) + leader.count(ApiKey.METADATA) == 1


def test_a_query_that_stops_early_gets_its_rows(spark: SparkSession, broker: BrokerProcess, numbers: str) -> None:
    assert len(load(spark, broker, subscribe=numbers).limit(5).collect()) == 5


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"subscribe": "there-is-no-such-topic"}, "OptionError: unknown topic there-is-no-such-topic\n"),
        ({"subscribe": "a", "assign": "{}"}, "OptionError: exactly one of subscribe, subscribePattern and assign"),
        (
            {"subscribe": "a", "startingoffset": "earliest"},
            "unknown option startingoffset; did you mean startingOffsets?",
        ),
        (
            {"subscribe": "a", "kafka__bootstrap__servers": "127.0.0.1:1"},
            "BrokerUnavailable: cannot reach 127.0.0.1:1:",
        ),
    ],
)
def test_what_is_wrong_is_reported_on_the_driver(
    given: dict[str, str], says: str, spark: SparkSession, broker: BrokerProcess
) -> None:
    from pyspark.errors import AnalysisException

    quick = {"fetchOffset__retryIntervalMs": "0"}
    with pytest.raises(AnalysisException) as refused:
        load(spark, broker, **(quick | given)).count()
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("value string", "column value is binary, the schema asks for string"),
        ("valu binary", "column valu does not exist; there are key, value,"),
        ("headers array<struct<key:string,value:binary>>", "column headers needs option includeHeaders=true"),
    ],
)
def test_a_schema_that_does_not_fit_is_reported(
    schema: str, says: str, spark: SparkSession, broker: BrokerProcess, numbers: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=says):
        load(spark, broker, schema, subscribe=numbers).count()


def test_the_module_that_spark_looks_for_names_the_source() -> None:
    assert pyspark_ottla.DefaultSource is OttlaDataSource
    assert OttlaDataSource.name() == "ottla"


def test_registering_by_hand_on_top_is_harmless(spark: SparkSession, broker: BrokerProcess, numbers: str) -> None:
    register(spark)
    assert load(spark, broker, subscribe=numbers).count() == COUNT


def test_a_task_without_a_range_reads_nothing(spark: SparkSession) -> None:
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    reader = OttlaDataSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}).reader(
        StructType().add("offset", "long")
    )
    assert isinstance(reader, RangeReader)
    assert list(reader.read(InputPartition(None))) == []
