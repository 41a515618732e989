"""A task of the sink, from Arrow batches to the requests at a broker, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.scripted_broker import ScriptedBroker, ScriptedLog, ScriptedTopic
from pyspark.sql.types import StructType

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.init_producer_id import InitProducerIdResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.message import Request, Response
from ottla.protocol.records.batch import decode_batch
from ottla.spark.errors import OptionError
from ottla.spark.rows import by_topic
from ottla.spark.source import OttlaDataSource


class Kept:
    """What the broker keeps: the values of each topic, in their order."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.values: dict[str, list[bytes | None]] = {}
        for key in (ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID):
            broker.versions[key] = (REGISTRY[key].min_version, REGISTRY[key].max_version)
        broker.answers[ApiKey.PRODUCE] = self.produce
        broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda request, version: InitProducerIdResponse(
            producer_id=7, producer_epoch=0
        )

    def produce(self, request: Request, version: int) -> Response:
        assert isinstance(request, ProduceRequest)
        responses = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                self.values.setdefault(topic.name, []).extend(record.value for record in decode_batch(data.records))
            answers = [
                ProduceResponse.PartitionProduceResponse(index=data.index, error_code=0, base_offset=0)
                for data in topic.partition_data
            ]
            responses.append(ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=answers))
        return ProduceResponse(responses=responses)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    scripted = ScriptedBroker()
    with scripted.running():
        yield scripted


def write(broker: ScriptedBroker, topics: Sequence[str], rows: int, chunk: int = 100) -> None:
    """Write rows 0 to `rows` as a task does, row i to the topic i % len(topics)."""
    schema = StructType().add("value", "binary").add("topic", "string")
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    writer = OttlaDataSource(options).writer(schema, overwrite=False)
    batches = (
        pa.record_batch(
            [
                pa.array([b"%d" % i for i in range(first, min(first + chunk, rows))], pa.binary()),
                pa.array([topics[i % len(topics)] for i in range(first, min(first + chunk, rows))], pa.string()),
            ],
            names=["value", "topic"],
        )
        for first in range(0, rows, chunk)
    )
    writer.write(batches)


def test_the_topics_of_the_rows_share_their_requests(broker: ScriptedBroker) -> None:
    """A request to each of a thousand topics would be a sync of the broker's disk each."""
    kept = Kept(broker)
    topics = [f"customer-{i:03}" for i in range(200)]
    broker.topics = {topic: ScriptedTopic({0: ScriptedLog()}) for topic in topics}
    write(broker, topics, 1000)
    assert {topic: len(values) for topic, values in kept.values.items()} == dict.fromkeys(topics, 5)
    assert kept.values["customer-007"] == [b"7", b"207", b"407", b"607", b"807"]
    assert (broker.count(ApiKey.METADATA), broker.count(ApiKey.PRODUCE)) == (1, 1)


def test_the_name_of_a_topic_is_checked_before_a_broker_gets_it(broker: ScriptedBroker) -> None:
    Kept(broker)
    with pytest.raises(OptionError, match="topic: 'no name' cannot be a topic's name"):
        write(broker, ["a", "no name"], 9)
    assert not broker.requests


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=60))
@settings(max_examples=examples(100), deadline=None)
def test_rows_are_divided_by_topic_in_their_order(names: list[str]) -> None:
    rows = pa.table({"value": list(range(len(names))), "topic": names})
    divided = {topic: table["value"].to_pylist() for topic, table in by_topic(rows).items()}
    assert list(divided) == list(dict.fromkeys(names))
    assert divided == {name: [i for i, other in enumerate(names) if other == name] for name in divided}
