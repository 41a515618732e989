"""Quotas frame by frame: throttle times, empty answers and refusals. Apache Kafka 4.1 passes these tests, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.broker import BrokerProcess
from kit.exchange import batch, fetch_request, produce_request
from kit.wire import Wire

from ottla import Admin
from ottla.client import NewTopic
from ottla.protocol.api.create_partitions import CreatePartitionsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import Request, encode

PER_SECOND = 1_000
WINDOW_S, SAMPLES = 10, 11
PRODUCE_VERSION, FETCH_VERSION = 9, 12
ATTEMPTS = 200
"""Kafka acknowledges a quota before it counts."""


def limit(broker: BrokerProcess, client_id: str, **quotas: float) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.alter_quotas({(("client-id", client_id),): quotas})


def make_topic(broker: BrokerProcess, topic: str) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic)])


def test_the_throttle_time_of_a_produce_is_what_brings_its_rate_to_the_quota(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker, topic)
    limit(broker, topic, producer_byte_rate=PER_SECOND)
    request = produce_request(topic, batch(value=b"x" * 20_000))
    size_bytes = len(encode_request_header(0, PRODUCE_VERSION, 1, topic)) + len(encode(request, PRODUCE_VERSION))
    for _ in range(ATTEMPTS):
        with Wire(broker.port, topic) as wire:
            answer = wire.call(request, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == 0
        if answer.throttle_time_ms:
            break
    # (size / 10 s - quota) / quota * 10 s, with a quota of a byte per millisecond.
    assert answer.throttle_time_ms == size_bytes - WINDOW_S * PER_SECOND


@pytest.fixture(params=["a connection for each request", "one connection"])
def ask(request: pytest.FixtureRequest, broker: BrokerProcess, topic: str) -> Iterator[Callable[[Request, int], Any]]:
    """Asks with the topic's name as client id. What follows on one connection may be answered from templates."""
    if request.param == "one connection":
        with Wire(broker.port, topic) as wire:
            yield wire.call
        return

    def call(message: Request, version: int) -> Any:
        with Wire(broker.port, topic) as wire:
            return wire.call(message, version)

    yield call


def test_a_producer_waits_for_what_all_its_requests_have_brought(
    broker: BrokerProcess, topic: str, ask: Callable[[Request, int], Any]
) -> None:
    make_topic(broker, topic)
    limit(broker, topic, producer_byte_rate=PER_SECOND)
    request = produce_request(topic, batch(value=b"x" * 700))
    size_bytes = len(encode_request_header(0, PRODUCE_VERSION, 1, topic)) + len(encode(request, PRODUCE_VERSION))
    throttled = [ask(request, PRODUCE_VERSION).throttle_time_ms]
    while not throttled[-1] and len(throttled) < ATTEMPTS:
        throttled.append(ask(request, PRODUCE_VERSION).throttle_time_ms)
    assert throttled[-1]
    assert len(throttled) * size_bytes > WINDOW_S * PER_SECOND


def test_a_fetch_gives_what_a_window_has_room_for_and_is_empty_over_it(
    broker: BrokerProcess, topic: str, ask: Callable[[Request, int], Any]
) -> None:
    make_topic(broker, topic)
    records = batch(value=b"x" * 4_000)
    with Wire(broker.port) as wire:
        for _ in range(3):
            wire.call(produce_request(topic, records), PRODUCE_VERSION)
    limit(broker, topic, consumer_byte_rate=PER_SECOND)
    given: list[int] = []
    for _ in range(ATTEMPTS):
        answer = ask(fetch_request(topic, 0), FETCH_VERSION)
        assert answer.error_code == 0
        if answer.throttle_time_ms:
            assert answer.responses == []
            if given:
                break
        else:
            given.append(len(answer.responses[0].partitions[0].records))
    # The third does not fit into the window. Kafka cuts it, and charges what is around the records, too.
    assert 2 * len(records) <= given[-1] <= WINDOW_S * PER_SECOND
    assert answer.throttle_time_ms


def creation(*names: str, partitions: int) -> CreateTopicsRequest:
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        for name in names
    ]
    return CreateTopicsRequest(topics=topics)


@pytest.mark.parametrize("version", [5, 6])
def test_changes_of_partitions_are_refused_or_made_to_wait(broker: BrokerProcess, topic: str, version: int) -> None:
    limit(broker, topic, controller_mutation_rate=1)
    burst = SAMPLES
    names = ["x", "y"]
    for attempt in range(ATTEMPTS):
        names = [f"{topic[-150:]}-{attempt}-{name}" for name in "ab"]
        with Wire(broker.port, topic) as wire:
            made = wire.call(creation(*names, partitions=burst + 4), version)
        if made.throttle_time_ms:
            break
    codes = {one.name: one.error_code for one in made.topics}
    # Of the first topic four are owed, of the second all, in seconds; some time has passed by the answer.
    if version == 5:
        assert codes == {names[0]: 0, names[1]: 0}
        assert 4_000 < made.throttle_time_ms <= (4 + burst + 4) * 1_000
    else:
        assert codes == {names[0]: 0, names[1]: ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        assert 0 < made.throttle_time_ms <= 4_000
        refuse_more(broker, topic, names[0])


def refuse_more(broker: BrokerProcess, client_id: str, topic: str) -> None:
    growth = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=50, assignments=None)
    with Wire(broker.port, client_id) as wire:
        grown: Any = wire.call(CreatePartitionsRequest(topics=[growth], timeout_ms=10_000, validate_only=False), 3)
    with Wire(broker.port, client_id) as wire:
        deleted: Any = wire.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    assert grown.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert deleted.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert grown.throttle_time_ms > 0
    assert deleted.throttle_time_ms > 0
