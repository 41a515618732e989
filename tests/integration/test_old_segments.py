"""A segment that a Kafka before 0.11 wrote lies in the directory: clients of all ages read it, and the log goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_NOT_AVAILABLE
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, TopicPartition
from kit.broker import BrokerProcess
from kit.exchange import batch, fetch_request, produce_request
from kit.old_segments import MIXED_COUNT, mixed_segment
from kit.wire import Wire

from ottla.client.blocking import Consumer
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.records.formats import decode_any, iter_any
from ottla.protocol.records.legacy import iter_messages
from ottla.protocol.records.record import Record
from ottla.storage.formats import layout

WAIT_S = 30
TOPIC = "old"
SEGMENT = mixed_segment()
RECORDS = SEGMENT.records


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that was stopped, and found the old segment in the topic's place when it started again."""
    directory = tmp_path_factory.mktemp("old-segments")
    with BrokerProcess(directory) as running:
        with Wire(running.port) as wire:
            topic = CreateTopicsRequest.CreatableTopic(
                name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            assert wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5).topics[0].error_code == 0
        running.stop()
        place = directory / f"{TOPIC}-0"
        forget_indexes(place)
        layout.log_file(place, 0).write_bytes(SEGMENT.data)
        running.start()
        yield running


def forget_indexes(place: Path) -> None:
    for suffix in (layout.INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX):
        (place / layout.offset_file_name(0, suffix)).unlink()


def fetched(wire: Wire, version: int, offset: int) -> bytes:
    data = wire.call(fetch_request(TOPIC, offset), version).responses[0].partitions[0]
    assert data.error_code == 0
    return bytes(data.records)


def records_of(data: bytes) -> list[Record]:
    return [record for position, _ in iter_any(data) for record in decode_any(memoryview(data)[position:])]


@pytest.mark.parametrize("version", [4, 11, 12])
def test_newer_clients_get_old_messages_as_they_are(broker: BrokerProcess, version: int) -> None:
    with Wire(broker.port) as wire:
        for _ in range(3):  # the second like the first: by the short way
            assert fetched(wire, version, 0).startswith(SEGMENT.data)
        assert records_of(fetched(wire, version, 33))[-1].offset >= MIXED_COUNT - 1


@pytest.mark.parametrize("version", range(4))
def test_older_clients_get_all_of_it_in_their_format(broker: BrokerProcess, version: int) -> None:
    with Wire(broker.port) as wire:
        data = fetched(wire, version, 0)
    assert {header.magic for _, header in iter_messages(data)} == ({0, 1} if version >= 2 else {0})
    got = records_of(data)[:MIXED_COUNT]
    assert [(record.offset, record.key, record.value) for record in got] == [
        (record.offset, record.key, record.value) for record in RECORDS
    ]
    if version >= 2:
        assert [record.timestamp for record in got] == [record.timestamp for record in RECORDS]


def test_kafka_python_reads_it(broker: BrokerProcess) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=WAIT_S * 1000)
    with closing(consumer):
        place = TopicPartition(TOPIC, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        got = [next(consumer) for _ in range(MIXED_COUNT)]
    assert [(one.offset, one.key, one.value) for one in got] == [(one.offset, one.key, one.value) for one in RECORDS]


def test_librdkafka_reads_it(broker: BrokerProcess) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "none", "check.crcs": True}
    consumer = ConfluentConsumer({**settings, "enable.auto.commit": False})
    with closing(consumer):
        consumer.assign([ConfluentPartition(TOPIC, 0, OFFSET_BEGINNING)])
        got = []
        while len(got) < MIXED_COUNT:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            kind, stamp = message.timestamp()
            stamp = -1 if kind == TIMESTAMP_NOT_AVAILABLE else stamp
            got.append(Record(message.offset(), stamp, message.key(), message.value()))
    assert got == RECORDS


@pytest.mark.parametrize("start", [0, 33, 44])
def test_the_bundled_client_reads_it(broker: BrokerProcess, start: int) -> None:
    with Consumer(bootstrap_servers=broker.bootstrap, check_crcs=True) as consumer:
        consumer.assign([(TOPIC, 0)])
        consumer.seek((TOPIC, 0), start)
        got: list[Record] = []
        while len(got) < MIXED_COUNT - start:
            for records in consumer.getmany(timeout_ms=WAIT_S * 1000).values():
                got += [Record(*record[2:]) for record in records]
    assert got[: MIXED_COUNT - start] == RECORDS[start:]


def test_records_are_found_by_time(broker: BrokerProcess) -> None:
    with Wire(broker.port) as wire:
        for record in RECORDS:
            if record.timestamp < 0:
                continue
            asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=record.timestamp)
            topic = ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[asked])
            answer = wire.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5).topics[0].partitions[0]
            assert (answer.error_code, answer.offset, answer.timestamp) == (0, record.offset, record.timestamp)


def test_the_log_goes_on_behind_it(broker: BrokerProcess) -> None:
    with Wire(broker.port) as wire:
        stored = wire.call(produce_request(TOPIC, batch(2)), 9).responses[0].partition_responses[0]
        assert stored.error_code == 0
        assert stored.base_offset >= MIXED_COUNT
        assert records_of(fetched(wire, 12, stored.base_offset))[0].value == b"v"
