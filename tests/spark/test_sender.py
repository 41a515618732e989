"""The sender against a broker that fails as a test says, and keeps what it took."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kit.scripted_broker import ScriptedBroker, ScriptedLog, ScriptedTopic

from ottla.arrow.encoder import Rows, encode_rows
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.init_producer_id import InitProducerIdResponse
from ottla.protocol.api.metadata import MetadataResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.records.batch import decode_batch, parse_header
from ottla.spark.errors import BrokerUnavailable, WriteFailed
from ottla.spark.producer_options import producer_settings
from ottla.spark.sender import MAX_IN_FLIGHT, Batch, Sender

HANG_UP, LOST_ANSWER = "hang up", "lost answer"


class Partition:
    """What a partition keeps: the values, and the next sequence of each producer."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.batches: list[bytes] = []
        self.seen: dict[tuple[int, int], int] = {}
        self.next: dict[int, int] = {}

    def append(self, records: memoryview) -> ErrorCode:
        header = parse_header(records)
        name = (header.producer_id, header.base_sequence)
        if header.producer_id >= 0:
            if name in self.seen:
                return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            if header.base_sequence != self.next.get(header.producer_id, header.base_sequence):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.seen[name] = len(self.values)
            self.next[header.producer_id] = header.last_sequence + 1
        self.batches.append(bytes(records))
        self.values += [record.value for record in decode_batch(records)]
        return ErrorCode.NONE


class Log:
    """The broker's side of Produce: appends, and does to the n-th request what `faults` says."""

    def __init__(self, scripted: ScriptedBroker) -> None:
        self.partitions: dict[int, Partition] = defaultdict(Partition)
        self.faults: dict[int, ErrorCode | str] = {}
        self.always: ErrorCode | None = None
        self.max_message_bytes: int | None = None
        self.requests: list[ProduceRequest] = []
        self.producer_ids = 100
        for key in (ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID):
            scripted.versions[key] = (REGISTRY[key].min_version, REGISTRY[key].max_version)
        scripted.answers[ApiKey.PRODUCE] = self.produce
        scripted.answers[ApiKey.INIT_PRODUCER_ID] = self.init_producer_id

    def init_producer_id(self, request: Request, version: int) -> Response:
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0)

    def produce(self, request: Request, version: int) -> Response | None:
        assert isinstance(request, ProduceRequest)
        fault = self.always or self.faults.get(len(self.requests))
        self.requests.append(request)
        if fault == HANG_UP:
            return None
        answers = []
        for data in request.topic_data[0].partition_data:
            if self.max_message_bytes is not None and len(data.records) > self.max_message_bytes:
                code = ErrorCode.MESSAGE_TOO_LARGE
            else:
                code = fault if isinstance(fault, ErrorCode) else self.partitions[data.index].append(data.records)
            answers.append(
                ProduceResponse.PartitionProduceResponse(index=data.index, error_code=int(code), base_offset=0)
            )
        if fault == LOST_ANSWER:
            return None
        name = request.topic_data[0].name
        topic = ProduceResponse.TopicProduceResponse(name=name, partition_responses=answers)
        return ProduceResponse(responses=[topic])


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    scripted = ScriptedBroker()
    scripted.topics["t"] = ScriptedTopic({index: ScriptedLog() for index in range(3)})
    with scripted.running():
        yield scripted


@pytest.fixture
def log(broker: ScriptedBroker) -> Log:
    return Log(broker)


class Clock:
    """Time that passes by sleeping only. `events` are what happens when it is a second; each once."""

    def __init__(self, events: dict[float, Callable[[], None]] | None = None) -> None:
        self.now = 0.0
        self.events = events or {}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for second in [second for second in self.events if second <= self.now]:
            self.events.pop(second)()

    def monotonic(self) -> float:
        return self.now


def write(broker: ScriptedBroker, count: int = 60, clock: Clock | None = None, **given: str) -> int:
    """Write values 0 to `count`, each to partition i % 3, in batches of a few records; return what is acknowledged."""
    options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.batch.size": "200"}
    options |= {key.replace("__", "."): value for key, value in given.items()}
    client, producer = producer_settings(options)
    clock = clock or Clock()
    sender = Sender(client, producer, monotonic=clock.monotonic, sleep=clock.sleep)
    try:
        rows = Rows(None, pa.array([b"%d" % i for i in range(count)], pa.large_binary()), None)
        sender.find(["t"])
        partitions = np.arange(count) % sender.partition_count("t")
        bodies = encode_rows(rows, partitions, batch_bytes=producer.batch_bytes, most_bytes=producer.max_request_bytes)
        sender.send([Batch("t", body, 1_700_000_000_000) for body in bodies])
        sender.flush()
        return sender.acknowledged
    finally:
        sender.close()


def expected(count: int = 60) -> dict[int, list[bytes]]:
    return {partition: [b"%d" % i for i in range(partition, count, 3)] for partition in range(3)}


def kept(log: Log) -> dict[int, Any]:
    return {index: partition.values for index, partition in sorted(log.partitions.items())}


def test_everything_is_written_once_in_order_with_a_batch_of_each_partition_in_a_request(
    broker: ScriptedBroker, log: Log
) -> None:
    assert write(broker) == 60
    assert kept(log) == expected()
    first = log.requests[0]
    assert (first.acks, len(first.topic_data[0].partition_data)) == (-1, 3)
    header = parse_header(first.topic_data[0].partition_data[0].records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (101, 0, 0)
    assert header.max_timestamp == 1_700_000_000_000


def test_a_task_writes_on_the_connection_of_its_first_requests(broker: ScriptedBroker, log: Log) -> None:
    """A micro-batch is many short tasks; with TLS and SASL, connections are most of their work."""
    assert write(broker) == 60
    assert broker.count(ApiKey.API_VERSIONS) == 1


@pytest.mark.parametrize(
    "fault",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        HANG_UP,
        LOST_ANSWER,
    ],
)
@pytest.mark.parametrize("when", [0, 1, 2])
def test_what_passes_is_sent_again_and_kept_once(
    fault: ErrorCode | str, when: int, broker: ScriptedBroker, log: Log
) -> None:
    log.faults = {when: fault, when + 3: fault}
    assert write(broker) == 60
    assert kept(log) == expected()


def test_no_more_requests_are_in_flight_than_a_broker_remembers(broker: ScriptedBroker, log: Log) -> None:
    log.faults = {0: LOST_ANSWER}
    write(broker, 600)
    assert kept(log) == expected(600)
    assert MAX_IN_FLIGHT == 5


def test_a_broker_that_forgot_the_producer_gets_the_rest_from_a_new_one(broker: ScriptedBroker, log: Log) -> None:
    def forget(request: Request, version: int) -> Response | None:
        if len(log.requests) == 2:
            for partition in log.partitions.values():
                partition.next = dict.fromkeys(partition.next, 0)
                partition.seen.clear()
        return log.produce(request, version)

    broker.answers[ApiKey.PRODUCE] = forget
    assert write(broker) == 60
    assert log.producer_ids > 101
    assert {index: list(dict.fromkeys(values)) for index, values in kept(log).items()} == expected()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"),
        (ErrorCode.INVALID_RECORD, "t-0: the broker answered INVALID_RECORD"),
    ],
)
def test_what_does_not_pass_is_reported_at_once(code: ErrorCode, says: str, broker: ScriptedBroker, log: Log) -> None:
    log.always = code
    with pytest.raises(WriteFailed, match=says):
        write(broker)
    assert len(log.requests) <= MAX_IN_FLIGHT


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_batch_that_is_too_large_for_the_topic_is_split(
    acks: str, codec: str, broker: ScriptedBroker, log: Log
) -> None:
    log.max_message_bytes = 100
    assert write(broker, 600, kafka__batch__size="4000", kafka__acks=acks, kafka__compression__type=codec) == 600
    if acks == "1":  # in which case failures may change the order, as in Kafka's producer
        assert {index: sorted(values) for index, values in kept(log).items()} == {
            index: sorted(values) for index, values in expected(600).items()
        }
    else:
        assert kept(log) == expected(600)


@pytest.mark.parametrize("fault", [ErrorCode.NOT_LEADER_OR_FOLLOWER, HANG_UP, LOST_ANSWER])
def test_the_parts_of_a_split_batch_are_kept_once_whatever_happens_to_them(
    fault: ErrorCode | str, broker: ScriptedBroker, log: Log
) -> None:
    log.max_message_bytes = 150
    log.faults = dict.fromkeys(range(1, 12, 2), fault)
    assert write(broker, 300, kafka__batch__size="1000") == 300
    assert kept(log) == expected(300)


def test_once_a_batch_was_split_the_next_ones_of_the_topic_are_smaller(broker: ScriptedBroker, log: Log) -> None:
    log.max_message_bytes = 150
    client, producer = producer_settings({"kafka.bootstrap.servers": broker.bootstrap, "kafka.batch.size": "1000"})
    rows = Rows(None, pa.array([b"%d" % i for i in range(100)], pa.large_binary()), None)
    with closing(Sender(client, producer)) as sender:
        sender.find(["t"])
        refused = []
        for _ in range(2):
            log.requests.clear()
            assert sender.batch_bytes("other") == 1000
            bodies = encode_rows(rows, np.zeros(100, np.int64), batch_bytes=sender.batch_bytes("t"), most_bytes=10_000)
            sender.send([Batch("t", body, 0) for body in bodies])
            sender.flush()
            sizes = [len(request.topic_data[0].partition_data[0].records) for request in log.requests]
            refused.append(sum(size > 150 for size in sizes))
    assert refused[0] > 0
    assert refused[1] == 0
    assert kept(log)[0] == [b"%d" % i for i in range(100)] * 2


def test_a_split_batch_keeps_times_and_headers(broker: ScriptedBroker, log: Log) -> None:
    log.max_message_bytes = 130
    headers = [[("name", b"%d" % i), ("\N{SNOWMAN}", None)] for i in range(9)]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = Rows(
        pa.array([b"k%d" % i if i % 2 else None for i in range(9)], pa.large_binary()),
        pa.array([b"v%d" % i if i != 4 else None for i in range(9)], pa.large_binary()),
        pa.array([[{"key": key, "value": value} for key, value in row] for row in headers], kind),
        np.array([500, 100, 900, 300, 200, 800, 400, 700, 600]),
    )
    client, producer = producer_settings({"kafka.bootstrap.servers": broker.bootstrap})
    with closing(Sender(client, producer)) as sender:
        bodies = encode_rows(rows, np.zeros(9, np.int64), batch_bytes=10_000, most_bytes=10_000)
        sender.find(["t"])
        sender.send([Batch("t", body, 1_700_000_000_000) for body in bodies])
        sender.flush()
    written = [(batch, decode_batch(batch)) for batch in log.partitions[0].batches]
    assert len(written) > 2
    records = [record for _, batch in written for record in batch]
    assert [record.timestamp for record in records] == [500, 100, 900, 300, 200, 800, 400, 700, 600]
    assert [record.key for record in records] == rows.keys.to_pylist()  # type: ignore[union-attr]  # it has keys
    assert [record.value for record in records] == rows.values.to_pylist()
    assert [list(record.headers) for record in records] == headers
    for batch, held in written:
        header = parse_header(batch)
        assert header.max_timestamp == max(record.timestamp for record in held)
        assert [record.offset for record in held] == list(range(header.record_count))


def test_a_record_that_is_too_large_alone_is_an_error_with_its_partition_size_and_limit(
    broker: ScriptedBroker, log: Log
) -> None:
    log.max_message_bytes = 65
    says = (
        r"t-0: a record of \d\d bytes is larger than the topic's max\.message\.bytes; raise that of topic t, or write"
    )
    with pytest.raises(WriteFailed, match=says):
        write(broker)

    def describe_configs(request: Request, version: int) -> Response:
        assert isinstance(request, DescribeConfigsRequest)
        (asked,) = request.resources
        assert (asked.resource_type, asked.resource_name, asked.configuration_keys) == (2, "t", ["max.message.bytes"])
        found = DescribeConfigsResponse.DescribeConfigsResourceResult(
            name="max.message.bytes", value="65", read_only=False, is_sensitive=False
        )
        result = DescribeConfigsResponse.DescribeConfigsResult(resource_type=2, resource_name="t", configs=[found])
        return DescribeConfigsResponse(results=[result])

    broker.versions[ApiKey.DESCRIBE_CONFIGS] = (1, 4)
    broker.answers[ApiKey.DESCRIBE_CONFIGS] = describe_configs
    with pytest.raises(WriteFailed, match=r"a record of \d\d bytes is larger than the topic's max\.message\.bytes 65;"):
        write(broker)


def test_without_progress_the_time_is_bounded(broker: ScriptedBroker, log: Log) -> None:
    log.always = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(WriteFailed, match=r"60 records not written within kafka\.delivery\.timeout\.ms 1000: t-\d: .*"):
        write(broker, kafka__delivery__timeout__ms="1000")
    assert 10 <= len(log.requests) <= 20  # one every 100 ms


def test_a_topic_deleted_meanwhile_is_reported(broker: ScriptedBroker, log: Log) -> None:
    def delete(request: Request, version: int) -> Response | None:
        broker.topics.clear()
        log.always = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return log.produce(request, version)

    broker.answers[ApiKey.PRODUCE] = delete
    with pytest.raises(WriteFailed, match="topic t was deleted while it was written to"):
        write(broker)


def test_an_unknown_topic_is_reported_by_name(broker: ScriptedBroker, log: Log) -> None:
    broker.topics.clear()
    clock = Clock()
    with pytest.raises(WriteFailed, match=r"cannot write to topic t: .*UNKNOWN_TOPIC_OR_PARTITION"):
        write(broker, clock=clock)
    assert clock.now == 3  # a mistake in the query is not waited for like a broker


def test_a_topic_that_does_not_exist_is_named_among_those_that_do(broker: ScriptedBroker) -> None:
    broker.topics["u"] = ScriptedTopic({0: ScriptedLog()})
    client, producer = producer_settings({"kafka.bootstrap.servers": broker.bootstrap})
    clock = Clock()
    says = r"^cannot write to topic none: the broker answered UNKNOWN_TOPIC_OR_PARTITION"
    with closing(Sender(client, producer, monotonic=clock.monotonic, sleep=clock.sleep)) as sender:
        with pytest.raises(WriteFailed, match=says):
            sender.find(["t", "none", "u"])
        asked = [[topic.name for topic in request.topics] for _, _, request in broker.requests[1:]]  # type: ignore[attr-defined]  # MetadataRequests
        assert asked == [["none", "t", "u"], *[["none"]] * 4]
        sender.find(["u", "t"])
        assert [sender.partition_count(topic) for topic in ("t", "u")] == [3, 1]


def test_a_broker_may_take_its_time_to_create_many_topics(broker: ScriptedBroker) -> None:
    topics = [f"new-{i}" for i in range(10)]

    def create_another(request: Request, version: int) -> Response:
        response = broker.metadata(request, version)
        created = len(broker.topics)
        broker.topics[f"new-{created}"] = ScriptedTopic({0: ScriptedLog()})
        return response

    broker.topics = {}
    broker.answers[ApiKey.METADATA] = create_another
    client, producer = producer_settings({"kafka.bootstrap.servers": broker.bootstrap})
    clock = Clock()
    with closing(Sender(client, producer, monotonic=clock.monotonic, sleep=clock.sleep)) as sender:
        sender.find(topics)
        assert {sender.partition_count(topic) for topic in topics} == {1}


def test_a_topic_that_may_not_be_written_to_is_named_once(broker: ScriptedBroker) -> None:
    def refuse(request: Request, version: int) -> Response:
        code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = MetadataResponse.MetadataResponseTopic(error_code=code, name="t", partitions=[])
        return MetadataResponse(brokers=[], topics=[topic])

    broker.answers[ApiKey.METADATA] = refuse
    with pytest.raises(WriteFailed, match=r"^cannot write to topic t: the broker answered TOPIC_AUTHORIZATION_FAILED"):
        write(broker)


def test_a_leader_elsewhere_is_followed(broker: ScriptedBroker, log: Log) -> None:
    other = ScriptedBroker()
    elsewhere = Log(other)
    other.topics = broker.topics

    def move(request: Request, version: int) -> Response | None:
        broker.topics["t"].leader_port = other.port
        log.always = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return log.produce(request, version)

    broker.answers[ApiKey.PRODUCE] = move
    with other.running():
        assert write(broker) == 60
    assert kept(elsewhere) == expected()


def test_no_broker_is_an_error_when_the_time_is_up(broker: ScriptedBroker, log: Log) -> None:
    broker.stop()
    clock = Clock()
    said = r"nothing written within kafka\.delivery\.timeout\.ms 45000: cannot reach 127\.0\.0\.1"
    with pytest.raises(BrokerUnavailable, match=said):
        write(broker, clock=clock, kafka__delivery__timeout__ms="45000")
    assert 45 <= clock.now < 46


def test_a_broker_that_does_not_answer_is_named_when_the_time_is_up(broker: ScriptedBroker, log: Log) -> None:
    broker.answers[ApiKey.PRODUCE] = lambda request, version: time.sleep(0.1)
    limits = {"kafka__delivery__timeout__ms": "500", "kafka__request__timeout__ms": "20"}
    said = rf"^60 records not written within kafka\.delivery\.timeout\.ms 500: 127\.0\.0\.1:{broker.port}"
    with pytest.raises(BrokerUnavailable, match=said):
        write(broker, **limits)


def comes_up_later(broker: ScriptedBroker, when: ExitStack, after: float) -> tuple[Clock, list[Log]]:
    """Stop the broker at once, and start it at its port when `after` seconds have passed on the clock."""
    broker.stop()
    logs: list[Log] = []

    def come() -> None:
        later = ScriptedBroker(broker.port)
        later.topics = broker.topics
        logs.append(Log(later))
        when.enter_context(later.running())

    return Clock({after: come}), logs


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_broker_that_is_away_when_a_task_begins_is_waited_for(
    acks: str, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as running:
        clock, logs = comes_up_later(broker, running, 30)
        assert write(broker, clock=clock, kafka__acks=acks) == 60
        assert kept(logs[0]) == expected()
    assert clock.now >= 30
    said = [message for message in caplog.messages if message.endswith("the task waits for it")]
    assert len(said) == 1


@pytest.mark.parametrize("question", [ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID])
@pytest.mark.parametrize("problem", [HANG_UP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_first_question_without_an_answer_is_asked_until_there_is_one(
    question: ApiKey, problem: ErrorCode | str, broker: ScriptedBroker, log: Log
) -> None:
    usual = broker.answers[question]
    clock = Clock()

    def later(request: Request, version: int) -> Any:
        if clock.now >= 30:
            return usual(request, version)
        if problem == HANG_UP:
            return None
        code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if question is ApiKey.INIT_PRODUCER_ID:
            return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        topic = MetadataResponse.MetadataResponseTopic(error_code=code, name="t", partitions=[])
        return MetadataResponse(brokers=[], topics=[topic])

    broker.answers[question] = later
    assert write(broker, clock=clock) == 60
    assert kept(log) == expected()


def test_a_new_producer_id_is_waited_for_like_everything_else(broker: ScriptedBroker, log: Log) -> None:
    """The broker lost what this producer wrote, and for 30 seconds has no id for a new one."""
    clock = Clock()

    def forget(request: Request, version: int) -> Response | None:
        if len(log.requests) == 2:
            for partition in log.partitions.values():
                partition.next = dict.fromkeys(partition.next, 0)
                partition.seen.clear()
            broker.answers[ApiKey.INIT_PRODUCER_ID] = none_for_now
        return log.produce(request, version)

    def none_for_now(request: Request, version: int) -> Response | None:
        return None if clock.now < 30 else log.init_producer_id(request, version)

    broker.answers[ApiKey.PRODUCE] = forget
    assert write(broker, clock=clock) == 60
    assert clock.now >= 30
    assert log.producer_ids > 101
    assert {index: list(dict.fromkeys(values)) for index, values in kept(log).items()} == expected()


def test_a_producer_id_that_does_not_come_is_given_up_on(broker: ScriptedBroker, log: Log) -> None:
    broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda request, version: None
    clock = Clock()
    with pytest.raises(BrokerUnavailable, match=r"within kafka\.delivery\.timeout\.ms 120000: .*closed the connection"):
        write(broker, clock=clock)
    assert 120 <= clock.now < 121


@pytest.mark.parametrize("newest", range(3, 14))
def test_every_version_of_produce_writes_the_same(newest: int, broker: ScriptedBroker, log: Log) -> None:
    broker.versions[ApiKey.PRODUCE] = (3, newest)
    assert write(broker) == 60
    assert kept(log) == expected()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(codec: str, broker: ScriptedBroker, log: Log) -> None:
    write(broker, kafka__compression__type=codec)
    assert kept(log) == expected()
    header = parse_header(log.requests[0].topic_data[0].partition_data[0].records)
    assert header.compression.name.lower() == codec


def test_zstd_needs_a_broker_that_knows_it(broker: ScriptedBroker, log: Log) -> None:
    broker.versions[ApiKey.PRODUCE] = (3, 6)
    with pytest.raises(WriteFailed, match="does not take zstd"):
        write(broker, kafka__compression__type="zstd")


def test_without_idempotence_there_is_no_producer_id(broker: ScriptedBroker, log: Log) -> None:
    write(broker, kafka__acks="1")
    header = parse_header(log.requests[0].topic_data[0].partition_data[0].records)
    assert (header.producer_id, header.base_sequence, log.requests[0].acks) == (-1, -1, 1)


def test_requests_stay_below_their_size(broker: ScriptedBroker, log: Log) -> None:
    write(broker, kafka__max__request__size="300")
    for request in log.requests:
        sizes = [len(data.records) for data in request.topic_data[0].partition_data]
        assert len(sizes) == 1 or sum(sizes) <= 300
    assert kept(log) == expected()
