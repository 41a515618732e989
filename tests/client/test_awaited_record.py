"""A record of `send_and_wait` in the blocking producer, where it cannot be sent and answered at once."""

from __future__ import annotations

import threading

import pytest
from kit.fake_broker import FakeCluster, Fault
from kit.threaded_cluster import threaded

from ottla.client import ErrorCode, KafkaError
from ottla.client.blocking import Producer
from ottla.client.errors import ClientClosed, RecordTooLarge
from ottla.protocol.records.batch import decode_batch

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


def records(partition):
    return [
        (record.key, record.value, tuple(record.headers))
        for batch in partition.batches
        for record in decode_batch(batch)
    ]


def test_its_headers_keys_and_missing_values_arrive(cluster):
    (partition,) = cluster.add_topic("t")
    headers = (("name", b"content"), ("none", None))
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        producer.send_and_wait("t", b"0")
        producer.send_and_wait("t", b"1", headers=headers)
        producer.send_and_wait("t", b"2", key=b"k", headers=[])
        producer.send_and_wait("t", None, key=b"k")
    assert records(partition) == [(None, b"0", ()), (None, b"1", headers), (b"k", b"2", ()), (b"k", None, ())]


def test_its_serializers_are_called(cluster):
    (partition,) = cluster.add_topic("t")
    options = {"key_serializer": str.encode, "value_serializer": lambda value: value + b"!"}
    with Producer(cluster.bootstrap, linger_ms=0, **options) as producer:
        for number in range(3):
            producer.send_and_wait("t", b"%d" % number)
            producer.send_and_wait("t", b"%d" % number, key="k")
    assert records(partition) == [(key, b"%d!" % number, ()) for number in range(3) for key in (None, b"k")]


def test_each_of_several_threads_gets_the_offset_of_its_record(cluster):
    (partition,) = cluster.add_topic("t")
    found, together = [], threading.Barrier(4)
    with Producer(cluster.bootstrap, linger_ms=0) as producer:

        def send(thread):
            together.wait()
            for number in range(50):
                value = b"%d %d" % (thread, number)
                found.append((producer.send_and_wait("t", value).offset, value))

        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == list(enumerate(partition.values))
    assert len(partition.batches) < len(found), "no batch has the records of several threads"


@pytest.mark.parametrize("wrong", [{"value": "text"}, {"value": b"", "key": "text"}], ids=str)
def test_what_is_not_bytes_is_a_type_error_and_no_record(cluster, wrong):
    (partition,) = cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        producer.send_and_wait("t", b"0")
        with pytest.raises(TypeError):
            producer.send_and_wait("t", **wrong)
        producer.flush()
    assert partition.values == [b"0"]


def test_it_comes_after_the_records_that_its_thread_has_sent(cluster):
    (partition,) = cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        producer.send_and_wait("t", b"0")
        for number in range(1, 200, 4):
            for sent in range(3):
                producer.send("t", b"%d" % (number + sent))
            assert producer.send_and_wait("t", b"%d" % (number + 3)).offset == number + 3
    assert [int(value) for value in partition.values] == list(range(201))


def test_after_close_it_is_refused_at_once(cluster):
    cluster.add_topic("t")
    producer = Producer(cluster.bootstrap, linger_ms=0)
    producer.send_and_wait("t", b"0")
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send_and_wait("t", b"1")


def test_a_call_in_the_clients_own_thread_is_refused_and_waits_for_nothing(cluster):
    (partition,) = cluster.add_topic("t")
    refused = []

    def choose(*_):
        try:
            producer.send_and_wait("t", b"from inside")
        except RuntimeError as error:
            refused.append(str(error))
        return 0

    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        producer.send_and_wait("t", b"0")
        inside = Producer(cluster.bootstrap, linger_ms=0, partitioner=choose)
        with inside:
            inside.send_and_wait("t", b"1")
    assert len(refused) == 1
    assert "its own thread" in refused[0]
    assert partition.values[0] == b"0"
