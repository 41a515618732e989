"""Faults: requests that are refused, answered late, or lose their connection, with and without having been handled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from ottla import Admin, Consumer, Producer, ShareConsumer
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing import EmbeddedBroker, Fault, NotInTime

QUICK = {"retry.backoff.ms": 10, "retry.backoff.max.ms": 50, "reconnect.backoff.ms": 10}


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def broker(shared: EmbeddedBroker) -> EmbeddedBroker:
    shared.faults.clear()
    return shared


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    return broker.create_topic()


def producer_of(broker: EmbeddedBroker, **options: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **QUICK, **options})


def values_of(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def test_a_refused_produce_is_sent_again(broker: EmbeddedBroker, topic: str) -> None:
    fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    with producer_of(broker) as producer:
        assert producer.send(topic, b"tea").result().offset == 0
    assert fault.hits == 2
    assert fault.is_over
    assert values_of(broker, topic) == [b"tea"]


def test_an_error_that_no_retry_helps_reaches_the_program(broker: EmbeddedBroker, topic: str) -> None:
    with broker.fail("Produce", 29) as fault, producer_of(broker) as producer:
        with pytest.raises(KafkaError) as refused:
            producer.send(topic, b"tea").result()
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert fault.hits == 1
        fault.remove()
        producer.send(topic, b"coffee").result()
    assert values_of(broker, topic) == [b"coffee"]


def test_what_was_learnt_before_is_hit_too(broker: EmbeddedBroker, topic: str) -> None:
    with producer_of(broker) as producer:
        for _ in range(50):
            producer.send(topic, b"before").result()  # by the fast path
        with broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=3) as fault:
            producer.send(topic, b"during").result()
            assert fault.hits == 3
        producer.send(topic, b"after").result()
    assert values_of(broker, topic)[-2:] == [b"during", b"after"]


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_lost_answer_is_a_duplicate_without_idempotence(
    broker: EmbeddedBroker, topic: str, is_idempotent: bool
) -> None:
    broker.cut("Produce", handled=True, times=1)
    with producer_of(broker, **{"enable.idempotence": is_idempotent}) as producer:
        producer.send(topic, b"tea").result()
    assert values_of(broker, topic) == [b"tea"] * (1 if is_idempotent else 2)


def test_a_cut_request_is_not_handled(broker: EmbeddedBroker, topic: str) -> None:
    with broker.cut("Produce") as fault, producer_of(broker, retries=0) as producer:
        with pytest.raises(KafkaError, match="NETWORK_EXCEPTION"):
            producer.send(topic, b"tea").result()
        assert fault.hits >= 1
    assert values_of(broker, topic) == []


def test_an_answer_without_a_wait_is_lost_as_well(broker: EmbeddedBroker, topic: str) -> None:
    broker.cut("CreateTopics", handled=True, times=1, client_id="admin")
    with Admin(broker.bootstrap_servers, client_id="admin") as admin, pytest.raises(KafkaError):
        admin.create_topic(f"{topic}-2")  # the second attempt finds it
    assert f"{topic}-2" in broker.admin.list_topics()


def test_a_delayed_answer_follows_the_handled_request(broker: EmbeddedBroker, topic: str) -> None:
    with broker.delay("Produce", 3600) as fault, producer_of(broker) as producer:
        delivery = producer.send(topic, b"tea")
        broker.wait_for_records(topic)
        assert not delivery.done()
        assert fault.hits == 1
        fault.remove()  # which does not release what it has hit
        assert not delivery.done()
        broker.advance(3600)
        assert delivery.result().offset == 0


def test_a_delay_takes_its_time(broker: EmbeddedBroker, topic: str) -> None:
    with broker.delay("Metadata", 0.2, client_id="slow"), producer_of(broker, **{"client.id": "slow"}) as producer:
        began = time.monotonic()
        producer.send(topic, b"tea").result()
        assert time.monotonic() - began >= 0.2


def test_a_delayed_fetch_has_its_records(broker: EmbeddedBroker, topic: str) -> None:
    with producer_of(broker) as producer:
        producer.send(topic, b"tea" * 1000).result()
    with broker.delay("Fetch", 0.1, times=1) as fault, Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign_topics(topic)
        consumer.seek_to_beginning()
        assert consumer.getone().value == b"tea" * 1000
        assert fault.hits == 1


@pytest.mark.parametrize("is_delayed", [True, False])
def test_a_refusal_is_late_or_lost_too(broker: EmbeddedBroker, topic: str, is_delayed: bool) -> None:
    broker.create_topic(f"{topic}-2")
    if is_delayed:
        fault = broker.delay("CreateTopics", 0.01, client_id="admin")
    else:
        fault = broker.cut("CreateTopics", handled=True, times=1, client_id="admin")
    exists = pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS")
    with Admin(broker.bootstrap_servers, client_id="admin") as admin, exists:
        admin.create_topic(f"{topic}-2")
    assert fault.hits == 1


def test_names_limit_a_fault(broker: EmbeddedBroker, topic: str) -> None:
    other = broker.create_topic()
    fault = broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=topic)
    of_client = broker.fail("Produce", "CLUSTER_AUTHORIZATION_FAILED", client_id="stranger")
    with producer_of(broker) as producer:
        producer.send(other, b"1").result()
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            producer.send(topic, b"2").result()
    refused = pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED")
    with producer_of(broker, **{"client.id": "stranger", "enable.idempotence": False}) as producer, refused:
        producer.send(other, b"3").result()
    assert (fault.hits, of_client.hits) == (1, 1)
    assert values_of(broker, other) == [b"1"]


def test_a_fetch_session_names_its_topics(broker: EmbeddedBroker, topic: str) -> None:
    with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign_topics(topic)
        with producer_of(broker) as producer:
            producer.send(topic, b"1").result()
            assert consumer.getone().value == b"1"
            broker.wait_for_readers(topic)
            with broker.fail("Fetch", "KAFKA_STORAGE_ERROR", topic=topic, times=2) as fault:
                producer.send(topic, b"2").result()
                producer.send(topic, b"3").result()
                assert [consumer.getone().value for _ in range(2)] == [b"2", b"3"]
                while fault.hits < 2:
                    consumer.getmany(timeout_ms=10)


def test_a_share_session_names_its_topics(broker: EmbeddedBroker, topic: str) -> None:
    other = broker.create_topic()
    with ShareConsumer(broker.bootstrap_servers, group_id=topic, fetch_max_wait_ms=10) as consumer:
        consumer.subscribe([topic])
        while not broker.requests("ShareFetch"):
            consumer.getmany(timeout_ms=10)
        with (
            broker.delay("ShareFetch", 0.001, topic=other) as of_other,
            broker.delay("ShareFetch", 0.001, topic=topic) as fault,
        ):
            enough = broker.requests("ShareFetch") + 5
            while broker.requests("ShareFetch") < enough:
                consumer.getmany(timeout_ms=10)
    assert fault.hits >= 4  # the first one may have arrived before
    assert of_other.hits == 0


def test_a_group_limits_a_fault(broker: EmbeddedBroker, topic: str) -> None:
    fault = broker.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", group="not-allowed")
    with producer_of(broker) as producer:
        producer.send(topic, b"tea").result()
    for group in ("allowed", "not-allowed"):
        options = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        with Consumer(broker.bootstrap_servers, group_id=group, **options) as consumer:  # type: ignore[arg-type]
            consumer.subscribe([topic])
            consumer.getone()
            if group == "allowed":
                consumer.commit()
            else:
                with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
                    consumer.commit()
    assert fault.hits == 1
    assert broker.committed("not-allowed") == {}


def test_the_first_requests_are_let_through(broker: EmbeddedBroker, topic: str) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=topic, after=2, times=1)
    with producer_of(broker) as producer:
        outcomes = []
        for _ in range(4):
            try:
                outcomes.append(producer.send(topic, b"tea").result().offset)
            except KafkaError as error:
                outcomes.append(int(error.code))
    assert outcomes == [0, 1, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 2]


def test_the_first_fault_that_fits_hits(broker: EmbeddedBroker, topic: str) -> None:
    first = broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1)
    second = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
    assert list(broker.faults) == [first, second]
    with producer_of(broker) as producer:
        producer.send(topic, b"tea").result()
    assert (first.hits, second.hits) == (1, 1)
    broker.faults.clear()
    assert not broker.faults


def test_a_broken_coordinator_delays_a_group(broker: EmbeddedBroker, topic: str) -> None:
    with producer_of(broker) as producer:
        producer.send(topic, b"tea").result()
    fault = broker.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", group="late", times=2)
    options = {"group.id": "late", "auto.offset.reset": "earliest", **QUICK}
    with Consumer({"bootstrap.servers": broker.bootstrap_servers, **options}) as consumer:
        consumer.subscribe([topic])
        assert consumer.getone().value == b"tea"
    assert fault.hits == 2


def test_its_own_clients_are_not_hit(broker: EmbeddedBroker, topic: str) -> None:
    for api in ("Fetch", "ListOffsets", "Metadata", "CreateTopics"):
        broker.cut(api)
    assert broker.records(topic) == []
    assert broker.create_topic()


def test_faults_stay_over_a_restart(broker: EmbeddedBroker, topic: str) -> None:
    fault = broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    broker.restart()
    with producer_of(broker) as producer, pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        producer.send(topic, b"tea").result()
    assert fault.hits == 1


def test_faults_change_while_requests_run(broker: EmbeddedBroker, topic: str) -> None:
    is_done = threading.Event()

    def change() -> None:
        while not is_done.is_set():
            with broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1), broker.delay("Produce", 0.001):
                pass

    changer = threading.Thread(target=change)
    changer.start()
    with producer_of(broker) as producer:
        for number in range(300):
            producer.send(topic, b"%d" % number)
    is_done.set()
    changer.join()
    assert values_of(broker, topic) == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda broker: broker.fail("produce", "NOT_LEADER_OR_FOLLOWER"),
            "API 'produce'; did you mean Produce",
        ),
        (lambda broker: broker.fail("Produce", "NOT_LEADER"), "'NOT_LEADER'; did you mean NOT_LEADER_OR_FOLLOWER"),
        (lambda broker: broker.fail("Produce", 12345), "unknown error code 12345"),
        (lambda broker: broker.fail("Produce", "NONE"), "NONE is no fault"),
        (lambda broker: broker.fail("Produce", 29, times=0), "times=0: a number of requests, 1 or more; None for all"),
        (lambda broker: broker.cut("Produce", after=-1), "after=-1"),
        (lambda broker: broker.delay("Produce", 0), "seconds=0: must be more than 0"),
    ],
)
def test_mistakes_are_explained(broker: EmbeddedBroker, call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(broker)  # type: ignore[operator]
    assert not broker.faults


def test_a_fault_is_shown() -> None:
    broker = EmbeddedBroker()
    assert repr(broker.fail("Produce", 6, topic="t")) == "<Fault: Produce, topic 't': NOT_LEADER_OR_FOLLOWER, 0 hit>"
    assert repr(broker.cut("Fetch", handled=True)) == "<Fault: Fetch: the answer is lost, 0 hit>"
    assert repr(broker.cut("Fetch")) == "<Fault: Fetch: the connection is cut, 0 hit>"
    assert repr(broker.delay("Fetch", 0.25)) == "<Fault: Fetch: the answer comes 250 ms late, 0 hit>"
    assert isinstance(broker.delay("Fetch", 1), Fault)
    assert issubclass(NotInTime, AssertionError)
