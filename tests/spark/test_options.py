from __future__ import annotations

import pickle
import socket

import pytest
from pyspark.sql.types import StructType

from ottla.spark import option_names
from ottla.spark.errors import BrokerUnavailable, OptionError, SchemaError
from ottla.spark.option_values import Address
from ottla.spark.options import (
    Assign,
    Earliest,
    Latest,
    Offsets,
    ReadOptions,
    Subscribe,
    SubscribePattern,
    Timestamps,
    read_options,
    stream_options,
    wants_headers,
)
from ottla.spark.producer_options import producer_settings
from ottla.spark.source import OttlaDataSource
from ottla.spark.write_options import write_options

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}


def options(**given: str) -> ReadOptions:
    return read_options(LEAST | {key.replace("__", "."): value for key, value in given.items()})


def test_the_least_options_read_everything_and_fail_on_data_loss() -> None:
    read = options()
    assert read.selection == Subscribe(("t",))
    assert (read.starting, read.ending) == (Earliest(), Latest())
    assert read.client.bootstrap_servers == (Address("127.0.0.1", 9092),)
    assert (read.fail_on_data_loss, read.include_headers) == (True, False)
    assert (read.min_partitions, read.max_records_per_partition) == (None, None)
    assert read.client.check_crcs
    assert not read.client.read_committed


def test_option_names_may_come_in_any_case() -> None:
    read = read_options(
        {"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": "t", "includeheaders": "TRUE", "minPARTITIONS": "3"}
    )
    assert read.include_headers
    assert read.min_partitions == 3


def test_several_topics_and_servers_are_split_at_commas() -> None:
    read = read_options({"kafka.bootstrap.servers": "PLAINTEXT://a:1, [::1]:2", "subscribe": "x, y,x"})
    assert read.selection == Subscribe(("x", "y"))
    assert read.client.bootstrap_servers == (Address("a", 1), Address("::1", 2))
    assert [str(address) for address in read.client.bootstrap_servers] == ["a:1", "[::1]:2"]


def test_a_pattern_and_an_assignment_are_read() -> None:
    pattern = read_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": "fl.*"}).selection
    assert isinstance(pattern, SubscribePattern)
    assert pattern.pattern.pattern == "fl.*"
    assign = read_options({"kafka.bootstrap.servers": "h:1", "assign": '{"a":[2,0,2]}'}).selection
    assert assign == Assign({"a": (0, 2)})


def test_offsets_by_partition_are_read_from_json() -> None:
    read = options(startingOffsets='{"t":{"0":5,"1":-2}}', endingOffsets='{"t":{"0":9,"1":-1}}')
    assert read.starting == Offsets({("t", 0): 5, ("t", 1): -2}, "startingOffsets")
    assert read.ending == Offsets({("t", 0): 9, ("t", 1): -1}, "endingOffsets")


def test_a_time_for_all_goes_before_times_by_partition_and_these_before_offsets() -> None:
    everything = {
        "startingTimestamp": "10",
        "startingOffsetsByTimestamp": '{"t":{"0":20}}',
        "startingOffsets": '{"t":{"0":30}}',
        "endingTimestamp": "11",
        "endingOffsetsByTimestamp": '{"t":{"0":21}}',
        "endingOffsets": '{"t":{"0":31}}',
    }
    read = options(**everything)
    assert read.starting == Timestamps(10, {}, "startingTimestamp")
    assert read.ending == Timestamps(11, {}, "endingTimestamp")
    del everything["startingTimestamp"], everything["endingTimestamp"]
    read = options(**everything)
    assert read.starting == Timestamps(None, {("t", 0): 20}, "startingOffsetsByTimestamp")
    assert read.ending == Timestamps(None, {("t", 0): 21}, "endingOffsetsByTimestamp")


def test_kafka_options_steer_the_client() -> None:
    client = options(
        kafka__fetch__max__bytes="5000",
        kafka__max__partition__fetch__bytes="3000",
        kafka__isolation__level="read_committed",
        kafka__check__crcs="false",
        kafka__request__timeout__ms="7",
        kafka__client__id="me",
        kafkaConsumer__pollTimeoutMs="9",
    ).client
    assert client.fetch_max_bytes == 3000
    assert client.read_committed
    assert not client.check_crcs
    assert (client.request_timeout_ms, client.client_id, client.poll_timeout_ms) == (7, "me", 9)


def test_group_options_are_accepted_without_effect() -> None:
    plain = options()
    assert options(groupIdPrefix="g", kafka__group__id="g", kafka__session__timeout__ms="1") == plain


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


def test_options_without_effect_get_one_warning_that_names_them(caplog: pytest.LogCaptureFixture) -> None:
    given = {"groupIdPrefix": "g", "kafka.session.timeout.ms": "1", "kafka.group.id": "g", "kafka.check.crcs": "true"}
    for read in (read_options, stream_options):
        (warning,) = read(LEAST | given).warnings
        assert warning.startswith("options groupIdPrefix, kafka.group.id, kafka.session.timeout.ms have no effect: ")
        (warning,) = read(LEAST | {"kafka.client.rack": "a"}).warnings
        assert warning.startswith("option kafka.client.rack has no effect: ")
    wants_headers(LEAST | given)  # what Spark asks beside, of the same options
    assert not options().warnings
    assert not warnings_of(caplog)


def test_a_query_logs_a_warning_when_it_is_planned_and_its_stream_once(caplog: pytest.LogCaptureFixture) -> None:
    """Spark makes the reader of a stream in two processes: in one that plans, and in one that pickles it for tasks."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    quick = {"kafka.bootstrap.servers": address, "groupIdPrefix": "g", "fetchOffset.numRetries": "0"}
    schema = StructType().add("offset", "long")
    source = OttlaDataSource(LEAST | quick)
    batch, stream, pickled = source.reader(schema), source.streamReader(schema), source.streamReader(schema)
    assert pickle.loads(pickle.dumps(pickled)) is not None
    assert not warnings_of(caplog)
    with pytest.raises(BrokerUnavailable):
        batch.partitions()
    assert len(warnings_of(caplog)) == 1
    for _ in range(2):
        with pytest.raises(BrokerUnavailable):
            stream.initialOffset()
    assert len(warnings_of(caplog)) == 2


@pytest.fixture
def _no_warning_yet() -> None:
    option_names.warn_once.cache_clear()


@pytest.mark.usefixtures("_no_warning_yet")
def test_a_sinks_options_without_effect_get_one_warning_however_many_batches_there_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark makes a writer for every micro-batch, in two processes, and ends the batch in one of them."""
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    schema = StructType().add("value", "binary")
    for batch_id in range(3):
        writer = OttlaDataSource(given | {"kafka.linger.ms": "5", "kafka.retries": "3"}).streamWriter(schema, False)
        if not batch_id:
            assert not warnings_of(caplog)
        (writer.abort if batch_id == 1 else writer.commit)([], batch_id)
    (warning,) = warnings_of(caplog)
    assert warning.startswith("options kafka.linger.ms, kafka.retries have no effect: ")
    caplog.clear()
    for _ in range(3):
        OttlaDataSource(given | {"kafka.linger.ms": "5"}).writer(schema, False)
        OttlaDataSource(given).writer(schema, False)
    assert len(warnings_of(caplog)) == 1


SINK = {"kafka.bootstrap.servers": "h:1"}


def test_option_topic_wins_over_a_column_topic_of_any_type() -> None:
    """It may be what the rows are about, as in a table of topic models."""
    schema = StructType().add("value", "binary").add("topic", "integer")
    written = write_options(SINK | {"topic": "t"}, schema)
    assert (written.topic, written.columns) == ("t", {"value"})
    with pytest.raises(SchemaError, match="column topic is int; a sink needs string"):
        write_options(SINK, schema)


def test_a_sinks_column_in_another_case_is_not_written_and_gets_a_warning() -> None:
    schema = StructType().add("value", "binary").add("Key", "binary").add("TIMESTAMP", "timestamp").add("Value", "long")
    written = write_options(SINK | {"topic": "t"}, schema)
    assert written.columns == {"value"}
    assert written.warning == "column Key is not written: rename it to key, in lower case"
    written = write_options(SINK | {"topic": "t", "kafka.retries": "3"}, schema.add("key", "string"))
    assert written.columns == {"value", "key"}
    assert written.warning.startswith("option kafka.retries has no effect: ")
    assert "Key" not in written.warning


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kafka.linger.ms": "x"}, "kafka.linger.ms: 'x' is not a whole number"),
        ({"kafka.retries": "-2"}, "kafka.retries: -2 is not between -1 and"),
        ({"kafka.compression.lz4.level": "x"}, "kafka.compression.lz4.level: 'x' is not a whole number"),
        ({"kafka.enable.metrics.push": "maybe"}, "kafka.enable.metrics.push: 'maybe' is neither true nor false"),
    ],
)
def test_a_sinks_option_without_effect_needs_a_value_that_kafka_would_take(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        producer_settings({"kafka.bootstrap.servers": "h:1"} | given)


def test_limits_per_trigger_are_ignored_with_a_warning() -> None:
    ignored = options(maxOffsetsPerTrigger="5")
    assert ignored == options()
    assert ignored.warnings == ("option maxOffsetsPerTrigger is ignored in a batch query",)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"startingOffset": "earliest"}, r"unknown option startingOffset; did you mean startingOffsets\?$"),
        ({"maxoffsetpertrigger": "5"}, r"unknown option maxoffsetpertrigger; did you mean maxOffsetsPerTrigger\?$"),
        ({"fetch.max.bytes": "5"}, r"unknown option fetch.max.bytes; did you mean kafka.fetch.max.bytes\?$"),
        ({"Group.Id": "g"}, r"unknown option Group.Id; did you mean kafka.group.id\?$"),
        ({"nothing.like.it": "5"}, "unknown option nothing.like.it; known are assign, .* and kafka\\.\\*$"),
        ({"path": "/x"}, "load\\(\\) takes no path"),
        ({"assign": '{"t":[0]}'}, "exactly one of .* found subscribe and assign"),
        ({"subscribe": " , "}, "subscribe: no topic"),
        ({"provider": "ottla", "option.subscribe": "t"}, "CREATE TEMPORARY VIEW .* USING ottla"),
        ({"startingOffsets": "{"}, "startingOffsets: '{' is not JSON"),
        ({"startingOffsets": "[1]"}, "not a JSON object"),
        ({"startingOffsets": '{"t":5}'}, "topic t needs a number for each partition"),
        ({"startingOffsets": '{"t":{"x":5}}'}, "'x' is no partition of topic t"),
        ({"startingOffsets": '{"t":{"' + "9" * 5_000 + '":5}}'}, "is no partition of topic t"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "for t-0 is not a whole number"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "'-3' for t-0"),
        ({"startingOffsets": "latest"}, "cannot start at latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, r"cannot start at latest \(-1\) in t-0"),
        ({"endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"endingOffsets": '{"t":{"1":-2}}'}, r"cannot end at earliest \(-2\) in t-1"),
        ({"startingTimestamp": "soon"}, "startingTimestamp: 'soon' is not a whole number"),
        ({"startingTimestamp": "20", "endingTimestamp": "19"}, "endingTimestamp 19 is before startingTimestamp 20"),
        (
            {"startingTimestamp": "20", "endingOffsetsByTimestamp": '{"t":{"1":19}}'},
            "endingOffsetsByTimestamp 19 is before startingTimestamp 20 in t-1",
        ),
        ({"startingOffsetsByTimestampStrategy": "first"}, "neither error nor latest"),
        ({"minPartitions": "0"}, "minPartitions: 0 is not between 1"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss: 'yes' is neither true nor false"),
        ({"kafka.bootstrap.servers": "localhost"}, "'localhost' is not host:port"),
        ({"kafka.bootstrap.servers": "h:99999"}, "'h:99999' is not host:port"),
        ({"kafka.bootstrap.servers": "[::1]"}, r"'\[::1\]' is not host:port"),
        ({"kafka.bootstrap.servers": "http://h:1"}, "'http://h:1' is not host:port"),
        ({"kafka.bootstrap.servers": ","}, "no address"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol must be one of PLAINTEXT"),
        ({"kafka.ssl.cipher.suites": "x"}, "about TLS or SASL"),
        ({"kafka.auto.offset.reset": "earliest"}, "use option startingOffsets"),
        ({"kafka.value.deserializer": "x"}, "values are always binary"),
        ({"kafka.enable.auto.commit": "true"}, "commits no offsets"),
        ({"kafka.fetch.min.byte": "1"}, r"unknown option kafka.fetch.min.byte; did you mean kafka.fetch.min.bytes\?$"),
        ({"kafka.session.timeout.ms": "30s"}, "kafka.session.timeout.ms: '30s' is not a whole number"),
        ({"kafka.allow.auto.create.topics": "no"}, "kafka.allow.auto.create.topics: 'no' is neither true nor false"),
        ({"kafka.sesion.timeout.ms": "1"}, r"did you mean kafka.session.timeout.ms\?$"),
        ({"kafka.nothing.like.it": "1"}, "unknown option kafka.nothing.like.it; known are kafka.bootstrap.servers, "),
        ({"kafka.ssl.truststore.locaton": "x"}, r"did you mean kafka.ssl.truststore.location\?$"),
        ({"kafka.securty.protocol": "SSL"}, r"did you mean kafka.security.protocol\?$"),
        ({"kafka.isolation.level": "serializable"}, "kafka.isolation.level"),
        ({"kafka.request.timeout.ms": "-1"}, "kafka.request.timeout.ms: -1 is not between"),
    ],
)
def test_a_wrong_option_is_refused_by_name_in_one_line(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says) as refused:
        read_options(LEAST | given)
    assert "\n" not in str(refused.value)


def test_bootstrap_servers_and_a_selection_must_be_given() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        read_options({"subscribe": "t"})
    with pytest.raises(OptionError, match="found none of them"):
        read_options({"kafka.bootstrap.servers": "h:1"})
    with pytest.raises(OptionError, match=r"CREATE TEMPORARY VIEW .* USING ottla"):
        read_options({})  # what Spark hands over for a table of its catalog
    with pytest.raises(OptionError, match="subscribePattern: no pattern"):
        read_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": " "})
    with pytest.raises(OptionError, match="no regular expression"):
        read_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("})
    # In Java, any lower letter but g; in Python a warning, and a class that no topic's name has a match for.
    with pytest.raises(OptionError, match=r"no regular expression of Python's: Possible set intersection at position"):
        read_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": "c-[a-z&&[^g]]"})
    with pytest.raises(OptionError, match="'committed' is neither read_uncommitted nor read_committed"):
        options(kafka__isolation__level="committed")
    for wrong in ('{"t":[]}', '{"t":[-1]}', '{"t":["0"]}', '{"t":0}', "t", "[" * 100_000):
        with pytest.raises(OptionError, match=r"^assign: "):
            read_options({"kafka.bootstrap.servers": "h:1", "assign": wrong})
