"""A record of `send_and_wait` in the blocking producer, where it cannot be sent and answered at once."""

from __future__ import annotations

import threading

import pytest
from kit.fake_broker import FakeCluster, Fault
from kit.threaded_cluster import threaded

from ottla.client import ErrorCode, KafkaError
from ottla.client.blocking import Producer
from ottla.client.errors import RecordTooLarge

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}


@pytest.fixture
def cluster():
    with threaded(FakeCluster()) as running:
        yield running


def test_it_is_awaited_for_longer_than_one_look(cluster, monkeypatch):
    (partition,) = cluster.add_topic("t")
    monkeypatch.setattr("ottla.client.blocking.producer.LOOK_S", 0.0)
    with Producer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:
        for number in range(20):
            assert producer.send_and_wait("t", b"%d" % number, timestamp_ms=number) == ("t", 0, number, number)
    assert partition.values == [b"%d" % number for number in range(20)]


def test_an_error_of_the_broker_is_raised_once(cluster):
    (partition,) = cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:
        producer.send_and_wait("t", b"0")
        partition.faults.append(Fault(ErrorCode.INVALID_RECORD))
        with pytest.raises(KafkaError) as refused:
            producer.send_and_wait("t", b"refused")
        assert refused.value.code is ErrorCode.INVALID_RECORD
        producer.flush()
    assert partition.values == [b"0"]


def test_a_record_that_the_client_refuses_is_raised_once(cluster):
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=0, max_request_size=1000) as producer:
        producer.send_and_wait("t", b"0")
        with pytest.raises(RecordTooLarge):
            producer.send_and_wait("t", bytes(2000))
        with pytest.raises(ValueError, match="partitions 0 to 0"):
            producer.send_and_wait("t", b"x", partition=1)
        producer.flush()


def test_it_waits_for_room_and_keeps_its_turn(cluster):
    (partition,) = cluster.add_topic("t")
    refusals = 20
    with Producer(cluster.bootstrap, linger_ms=0, buffer_memory=3000, batch_size=2000, **QUICK) as producer:
        producer.send_and_wait("t", b"0")
        partition.faults += [
            Fault(ErrorCode.NOT_ENOUGH_REPLICAS)
        ] * refusals  # the next record is in the buffer meanwhile
        first = producer.send("t", b"1" * 2000)
        second = threading.Thread(target=producer.send_and_wait, args=("t", b"2" * 2000))
        second.start()
        second.join()
        assert first.done()
    assert [value[:1] for value in partition.values] == [b"0", b"1", b"2"]


def test_without_an_answer_it_has_no_offset(cluster):
    (partition,) = cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=0, acks=0, enable_idempotence=False) as producer:
        for value in (b"0", b"1"):
            assert producer.send_and_wait("t", value).offset == -1
    assert partition.values == [b"0", b"1"]
