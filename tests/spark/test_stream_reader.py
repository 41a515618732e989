"""The reader of a stream as Spark's driver process uses it, without Spark."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable
from typing import Any

import pytest
from kit.scripted_broker import ScriptedBroker, ScriptedLog, ScriptedTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from ottla.spark.errors import BrokerUnavailable, OptionError, SchemaError
from ottla.spark.source import OttlaDataSource
from ottla.spark.stream_reader import OttlaStreamReader, RefusedStream

SCHEMA = StructType().add("offset", "long")


def reader(schema: StructType = SCHEMA, **given: str) -> Any:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "fetchOffset.numRetries": "0"}
    options |= {key.replace("__", "."): value for key, value in given.items()}
    return OttlaDataSource(options).streamReader(schema)


def test_a_broker_that_was_never_there_is_reported_at_once_with_any_trigger(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(seconds: float) -> None:
        raise AssertionError("the stream waits for a broker that has never answered")

    monkeypatch.setattr("ottla.spark.stream_reader.time.sleep", wait)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    for trigger in (lambda _: None, OttlaStreamReader.prepareForTriggerAvailableNow):
        stream = reader(kafka__bootstrap__servers=address)
        trigger(stream)
        with pytest.raises(BrokerUnavailable, match=f"cannot reach {address}"):
            stream.initialOffset()
        with pytest.raises(BrokerUnavailable, match=f"cannot reach {address}"):
            stream.latestOffset({"t": {"0": 1}}, ReadAllAvailable())


def test_a_stream_that_waits_for_a_broker_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    broker = ScriptedBroker()
    broker.topics["t"] = ScriptedTopic({0: ScriptedLog([], 5, 5)})
    given = {"kafkaConsumer__pollTimeoutMs": "200", "kafka__retry__backoff__ms": "10"}
    with broker.running():
        stream = reader(kafka__bootstrap__servers=broker.bootstrap, **given)
        start = stream.initialOffset()
    with pytest.raises(BrokerUnavailable, match="Connection refused"):
        stream.latestOffset(start, ReadAllAvailable())
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warning.endswith("Connection refused; the stream waits for it")


CALLS: dict[str, Callable[[Any], object]] = {
    "initialOffset": lambda stream: stream.initialOffset(),
    "getDefaultReadLimit": lambda stream: stream.getDefaultReadLimit(),
    "latestOffset": lambda stream: stream.latestOffset({}, ReadAllAvailable()),
    "prepareForTriggerAvailableNow": lambda stream: stream.prepareForTriggerAvailableNow(),
    "partitions": lambda stream: stream.partitions({}, {}),
    "read": lambda stream: stream.read(None),
}


@pytest.mark.parametrize("call", CALLS)
def test_wrong_options_are_reported_by_what_spark_asks_first(call: str) -> None:
    """Spark's process covers what `streamReader` itself raises by an UnboundLocalError of its own."""
    refused = reader(endingOffsets="latest")
    assert isinstance(refused, RefusedStream)
    for stream in (refused, pickle.loads(pickle.dumps(refused))):
        with pytest.raises(OptionError, match="endingOffsets: a stream has no end"):
            CALLS[call](stream)
        stream.stop()


def test_a_wrong_schema_is_reported_too() -> None:
    with pytest.raises(SchemaError, match="column offset is bigint"):
        reader(StructType().add("offset", "integer")).initialOffset()


def test_the_trace_of_what_is_wrong_ends_where_spark_called() -> None:
    with pytest.raises(OptionError) as raised:
        OttlaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "x": "y"}).schema()
    ours = [entry.path.name for entry in raised.traceback if "ottla" in entry.path.parts]
    assert "source.py" in ours
    assert "options.py" not in ours
