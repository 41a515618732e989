"""Real clients of other times against the broker: what they write is read by those of today, and the other way round.

Which releases, and what they were seen to do: docs/tested-clients.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.broker import BrokerProcess
from kit.exchange import STAMP_MS, fetch_request, produce_request
from kit.old_clients import Client, Job, run
from kit.wire import Wire

from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import decode_batch, encode_batch, iter_batches
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import Record

NEW = [Record(number, STAMP_MS + number, b"new", b"new %d" % number, (("h", b"x"),)) for number in range(3)]
OLD_VALUES = ["old 0", "old 1 " * 40, "old 2"]

# Python 3.12 took away how the `six` in kafka-python finds its modules; there are no later wheels of librdkafka 2.0.
KAFKA_PYTHON_1 = Client("kafka_python", ("kafka-python==1.4.7",), (3, 11))
KAFKA_PYTHON_2 = Client("kafka_python", ("kafka-python==2.0.2",), (3, 11))
KAFKA_PYTHON = Client("kafka_python")
AIOKAFKA_0_8 = Client("aiokafka_", ("aiokafka==0.8.1", "kafka-python==2.0.2"), (3, 11))
LIBRDKAFKA_2_0 = Client("confluent", ("confluent-kafka==2.0.2",), (3, 11))
LIBRDKAFKA = Client("confluent")
PYKAFKA = Client("pykafka_", ("pykafka==2.8.0", "setuptools<81"))  # it asks for pkg_resources

SPOKEN = [
    (KAFKA_PYTHON_1, [("0.8.2", "gzip"), ("0.9", "lz4"), ("0.10.0", "none"), ("0.10.1", "snappy"), ("0.11", "lz4")]),
    (KAFKA_PYTHON_2, [("0.9", "snappy"), ("0.10.0", "lz4"), ("auto", "none")]),
    (KAFKA_PYTHON, [("0.9", "gzip"), ("0.10.0", "snappy"), ("auto", "none")]),
    (AIOKAFKA_0_8, [("0.9", "gzip"), ("0.10", "snappy"), ("auto", "none")]),
    (LIBRDKAFKA_2_0, [("0.8.2", "lz4"), ("0.9.0", "gzip"), ("0.10.0", "snappy"), ("0.11.0", "none"), ("auto", "lz4")]),
    (LIBRDKAFKA, [("0.10.0", "lz4"), ("0.11.0", "gzip")]),
    (PYKAFKA, [("0.8.2", "snappy"), ("0.9.0", "lz4"), ("0.10.0", "gzip"), ("1.0.0", "none")]),
]
GROUPS = [
    (KAFKA_PYTHON_1, "0.9"),
    (KAFKA_PYTHON_1, "0.10.1"),
    (KAFKA_PYTHON_2, "auto"),
    (AIOKAFKA_0_8, "0.9"),
    (LIBRDKAFKA_2_0, "0.9.0"),
    (LIBRDKAFKA_2_0, "auto"),
    (PYKAFKA, "0.9.0"),
]
FIRST_WITH_TIMESTAMPS = (0, 10)


def create(wire: Wire, topic: str) -> None:
    creatable = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    assert wire.call(CreateTopicsRequest(topics=[creatable], timeout_ms=30_000), 5).topics[0].error_code == 0


def write_new(wire: Wire, topic: str, codec: str) -> None:
    """Again while the topic is on its way, as it may be in Kafka."""
    batch = bytes(encode_batch(NEW, compression=Compression.named(codec)))
    for _ in range(200):
        code = wire.call(produce_request(topic, batch), 9).responses[0].partition_responses[0].error_code
        if code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            break
    assert code == 0


def read_new(wire: Wire, topic: str) -> list[Record]:
    """All records, segment by segment."""
    found: list[Record] = []
    while True:
        data = wire.call(fetch_request(topic, len(found)), 12).responses[0].partitions[0]
        view = memoryview(data.records)
        if not view:
            return found
        found += [record for position, _ in iter_batches(view) for record in decode_batch(view[position:])]


def has_timestamps(version: str) -> bool:
    return version == "auto" or tuple(int(part) for part in version.split("."))[:2] >= FIRST_WITH_TIMESTAMPS


def prove(client: Client, bootstrap: str, topic: str, spoken: list[tuple[str, str]], *, in_group: bool = False) -> None:
    """Each version with its codec in a topic of its own: 3 records of today, then 3 of the old client."""
    jobs = []
    for number, (version, codec) in enumerate(spoken):
        name = f"{topic}-{number}"
        jobs.append(Job(name, version, codec, OLD_VALUES, 6, name if in_group else ""))
    with Wire(int(bootstrap.rpartition(":")[2])) as wire:
        for job in jobs:
            create(wire, job.topic)
            write_new(wire, job.topic, job.codec)
        for job, outcome in zip(jobs, run(client, bootstrap, jobs), strict=True):
            if client is not PYKAFKA:
                assert outcome.offsets == [3, 4, 5], job
            assert [(offset, key, value) for offset, _, key, value in outcome.read] == [
                *((number, "new", f"new {number}") for number in range(3)),
                *((3 + number, "old", value) for number, value in enumerate(OLD_VALUES)),
            ], job
            if client is not PYKAFKA:
                stamps = [STAMP_MS + number if has_timestamps(job.version) else None for number in range(3)]
                assert [stamp for _, stamp, _, _ in outcome.read[:3]] == stamps, job
            read = read_new(wire, job.topic)
            assert read[:3] == NEW, job
            assert [(record.offset, record.key, record.value) for record in read[3:]] == [
                (3 + number, b"old", value.encode()) for number, value in enumerate(OLD_VALUES)
            ], job
            if client is not PYKAFKA:
                assert {record.timestamp > 0 for record in read[3:]} == {has_timestamps(job.version)}, job


@pytest.mark.parametrize(("client", "spoken"), SPOKEN, ids=lambda one: one.name if isinstance(one, Client) else "")
def test_old_and_new_clients_read_each_other(
    broker: BrokerProcess, topic: str, client: Client, spoken: list[tuple[str, str]]
) -> None:
    prove(client, broker.bootstrap, topic[-150:].strip("-"), spoken)


@pytest.mark.parametrize(("client", "version"), GROUPS, ids=lambda one: one.name if isinstance(one, Client) else one)
def test_a_group_of_an_old_client_goes_on_where_it_has_committed(
    broker: BrokerProcess, topic: str, client: Client, version: str
) -> None:
    prove(client, broker.bootstrap, topic[-150:].strip("-"), [(version, "gzip")], in_group=True)


@pytest.fixture(scope="module")
def broker_of_2_8(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with ProfiledBroker(tmp_path_factory.mktemp("broker-2.8")) as running:
        yield running


class ProfiledBroker(BrokerProcess):
    """`ottla serve --profile kafka-2.8`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)

    def command(self) -> list[str]:
        return [*super().command(), "--profile", "kafka-2.8"]


@pytest.mark.parametrize(
    "client", [KAFKA_PYTHON_2, KAFKA_PYTHON, AIOKAFKA_0_8, LIBRDKAFKA_2_0, LIBRDKAFKA], ids=lambda one: one.name
)
def test_clients_speak_to_the_profile_of_kafka_2_8_as_to_that_release(
    broker_of_2_8: BrokerProcess, topic: str, client: Client
) -> None:
    prove(client, broker_of_2_8.bootstrap, topic[-150:].strip("-"), [("auto", "gzip")], in_group=True)
