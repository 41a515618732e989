"""Waiting for records, members and progress, and the sentences of waits that end without them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ottla import Consumer, Producer, ShareConsumer
from ottla.client.offsets import LATEST
from ottla.client.structs import TopicPartition
from ottla.testing import EmbeddedBroker, NotInTime


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def test_records_are_in_the_order_of_their_places(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic(partitions=3)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(9):
            producer.send(topic, b"%d" % number, partition=(number + 1) % 3)
    assert [(one.partition, one.offset) for one in broker.records(topic)] == [
        (p, o) for p in range(3) for o in range(3)
    ]


def test_aborted_records_are_left_out_on_demand(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic()
    with Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"aborted")
        producer.flush()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"committed")
        producer.commit_transaction()
    assert [one.value for one in broker.records(topic)] == [b"aborted", b"committed"]
    committed = broker.records(topic, isolation_level="read_committed")
    assert [one.value for one in committed] == [b"committed"]
    assert broker.wait_for_records(topic, isolation_level="read_committed") == committed


def test_an_empty_topic_has_no_records(broker: EmbeddedBroker) -> None:
    assert broker.records(broker.create_topic(partitions=2)) == []


def test_records_of_a_later_topic_are_awaited(broker: EmbeddedBroker) -> None:
    later = threading.Timer(0.2, broker.send, ("later", b"1", b"2"))
    later.start()
    assert [one.value for one in broker.wait_for_records("later", 2)] == [b"1", b"2"]
    later.join()


def test_missing_records_are_named(broker: EmbeddedBroker) -> None:
    with pytest.raises(NotInTime, match=r"topic 'nowhere' does not exist after 0\.1 s; 1 were awaited"):
        broker.wait_for_records("nowhere", timeout_s=0.1)
    topic = broker.create_topic()
    broker.send(topic, b"one")
    with pytest.raises(NotInTime, match=f"topic '{topic}' has 1 record after 0.1 s; 2 were awaited"):
        broker.wait_for_records(topic, 2, timeout_s=0.1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_that_is_awaited_misses_nothing(broker: EmbeddedBroker, protocol: str) -> None:
    topic, group = broker.create_topic(), f"reads-{protocol}"
    with pytest.raises(NotInTime, match=f"group '{group}' does not exist"):
        broker.wait_for_members(group, timeout_s=0)
    with Consumer(broker.bootstrap_servers, group_id=group, group_protocol=protocol) as consumer:  # type: ignore[arg-type]
        consumer.subscribe([topic])
        found: list[bytes | None] = []

        def read() -> None:
            while not found:
                found.extend(one.value for some in consumer.getmany(timeout_ms=100).values() for one in some)
            consumer.commit()

        reader = threading.Thread(target=read)
        reader.start()
        broker.wait_for_members(group)
        broker.wait_for_readers(topic)
        broker.send(topic, b"at the end")  # `latest` would have missed it before
        reader.join(timeout=30)
        assert found == [b"at the end"]
        broker.wait_until_consumed(group)
        broker.wait_until_consumed(group, topic)
        broker.send(topic, b"one more")
        with pytest.raises(NotInTime, match=f"group '{group}' has not consumed 1 record of {topic}-0 after"):
            broker.wait_until_consumed(group, timeout_s=0.05)
        with pytest.raises(NotInTime, match="has 1 member and is Stable, not 2 and Stable"):
            broker.wait_for_members(group, 2, timeout_s=0.05)
        with pytest.raises(NotInTime, match="has 1 member and is Stable, not empty"):
            broker.wait_for_members(group, 0, timeout_s=0.05)
    broker.wait_for_members(group, 0)
    broker.wait_for_members("never-there", 0)


def test_a_share_group_is_awaited(broker: EmbeddedBroker) -> None:
    topic, group = broker.create_topic(), "shares"
    with ShareConsumer(broker.bootstrap_servers, group_id=group) as consumer:
        consumer.subscribe([topic])
        found = []

        def read() -> None:
            while not found:
                found.extend(consumer.getmany(timeout_ms=100))
            consumer.commit()

        reader = threading.Thread(target=read)
        reader.start()
        broker.wait_for_members(group)
        broker.wait_for_readers(topic)
        broker.send(topic, b"1")
        reader.join(timeout=30)
        broker.wait_until_consumed(group)
    assert broker.committed(group)


def commit(broker: EmbeddedBroker, group: str, topic: str, offset: int) -> None:
    broker.admin.alter_group_offsets(group, {TopicPartition(topic, 0): offset})


def transact(broker: EmbeddedBroker, topic: str, *values: bytes, aborts: bool = False) -> None:
    with Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value)
        producer.flush()
        producer.abort_transaction() if aborts else producer.commit_transaction()


def test_markers_at_the_end_need_no_commit(broker: EmbeddedBroker) -> None:
    topic, group = broker.create_topic(), "after-the-records"
    transact(broker, topic, b"one", b"two")
    commit(broker, group, topic, 1)
    with pytest.raises(NotInTime, match=f"has not consumed 2 records of {topic}-0 after"):
        broker.wait_until_consumed(group, timeout_s=0)
    commit(broker, group, topic, 2)
    (end,) = broker.admin.list_offsets({TopicPartition(topic, 0): LATEST}).values()
    assert end is not None
    assert end.offset == 3  # after the marker
    broker.wait_until_consumed(group, timeout_s=0)


def test_a_record_between_markers_has_to_be_consumed(broker: EmbeddedBroker) -> None:
    topic, group = broker.create_topic(), "between-markers"
    transact(broker, topic, b"one")
    transact(broker, topic, b"two", aborts=True)
    for offset in (0, 1, 2):
        commit(broker, group, topic, offset)
        with pytest.raises(NotInTime, match=f"of {topic}-0 after"):
            broker.wait_until_consumed(group, timeout_s=0)
    commit(broker, group, topic, 3)
    broker.wait_until_consumed(group, timeout_s=0)


def test_a_wait_ends_when_the_last_record_is_committed(broker: EmbeddedBroker) -> None:
    topic, group = broker.create_topic(), "waits-for-the-last"
    transact(broker, topic, b"one", b"two")
    commit(broker, group, topic, 1)
    later = threading.Timer(0.2, commit, (broker, group, topic, 2))
    later.start()
    broker.wait_until_consumed(group)
    later.join()


def test_deleted_records_need_no_commit(broker: EmbeddedBroker) -> None:
    topic, group = broker.create_topic(), "of-deleted-records"
    broker.send(topic, b"one", b"two")
    commit(broker, group, topic, 1)
    broker.admin.delete_records({TopicPartition(topic, 0): 2})
    broker.wait_until_consumed(group, timeout_s=0)


def test_a_group_without_progress_is_named(broker: EmbeddedBroker) -> None:
    with pytest.raises(NotInTime, match="group 'nobody' does not exist"):
        broker.wait_until_consumed("nobody", timeout_s=0)
    with Consumer(broker.bootstrap_servers, group_id="idle") as consumer:
        consumer.subscribe([broker.create_topic()])
        consumer.getmany(timeout_ms=100)
        with pytest.raises(NotInTime, match="group 'idle' has committed no offset"):
            broker.wait_until_consumed("idle", timeout_s=0)
    assert broker.committed("nobody") == {}


def test_readers_without_a_group_are_awaited(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic(partitions=2)
    with pytest.raises(NotInTime, match="topic 'not-there' does not exist"):
        broker.wait_for_readers("not-there", timeout_s=0)
    with pytest.raises(NotInTime, match=f"at the end of {topic}-0 0 consumers wait, not 1"):
        broker.wait_for_readers(topic, timeout_s=0)
    consumers = [Consumer(broker.bootstrap_servers, auto_offset_reset="latest") for _ in range(2)]
    for number, consumer in enumerate(consumers, 1):
        consumer.assign_topics(topic)
        consumer.getmany(timeout_ms=1)
        broker.wait_for_readers(topic, number)
    broker.send(topic, b"seen by both")
    for consumer in consumers:
        assert consumer.getone().value == b"seen by both"
        consumer.close()
