"""ShareConsumer against a real broker: Ottla, or what OTTLA_TEST_BOOTSTRAP names (Apache Kafka 4.2 or newer)."""

from __future__ import annotations

import contextlib
import threading

import pytest
from kit.share_groups import begin_with_the_first_record, share_member

import ottla
from ottla.client import AcknowledgeType, Admin, ErrorCode, KafkaError, Producer, ShareConsumer, TopicPartition

WAIT_MS = 20_000
A_MOMENT_MS = 1_000
"""Where nothing is to come."""


async def write(broker, topic, numbers, partitions=1, *, create=True, **options):
    """Records `0`, `1`, ... in a topic, in turn in each of its partitions."""
    if create:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic(topic, partitions=partitions, replication_factor=1)
    async with Producer(broker.bootstrap, **options) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=number % partitions)


@pytest.fixture
def group(broker, topic):
    """A share group that begins with the first record."""
    begin_with_the_first_record(broker.bootstrap, f"g-{topic}")
    return f"g-{topic}"


def lag_of(admin, group):
    """The records that the group has to process yet. (Apache Kafka writes start offsets with a delay.)"""
    offsets = admin.share_group_offsets({group: None})[group].values()
    return sum(one.lag for one in offsets if one is not None)


async def polled(consumer, count):
    """So many records, each acknowledged by the next poll or already."""
    found = []
    while len(found) < count:
        polled = await consumer.getmany(timeout_ms=WAIT_MS)
        assert polled, f"{len(found)} of {count} records came"
        for records in polled.values():
            found += records
    return found


async def test_what_was_accepted_does_not_come_again(broker, topic, group):
    await write(broker, topic, range(30), 3)
    async with ShareConsumer(broker.bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        records = await polled(consumer, 30)
        assert sorted(int(one.value) for one in records) == list(range(30))
        assert {one.delivery_count for one in records} == {1}
        assert set((await consumer.commit()).values()) == {None}
        assert consumer.assignment() == [TopicPartition(topic, index) for index in range(3)]
    async with ShareConsumer(broker.bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        assert await consumer.getmany(timeout_ms=A_MOMENT_MS) == {}
        await write(broker, topic, [30], create=False)
        assert [one.value for one in await polled(consumer, 1)] == [b"30"]


async def test_what_was_not_accepted_comes_again(broker, topic, group):
    await write(broker, topic, range(3))
    async with ShareConsumer(broker.bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        await polled(consumer, 3)
    async with ShareConsumer(broker.bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        assert [(one.value, one.delivery_count) for one in await polled(consumer, 3)] == [
            (b"0", 2),
            (b"1", 2),
            (b"2", 2),
        ]


async def test_released_records_come_again_rejected_and_accepted_ones_do_not(broker, topic, group):
    await write(broker, topic, range(3))
    async with ShareConsumer(broker.bootstrap, group_id=group, share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([topic])
        first, second, third = await polled(consumer, 3)
        consumer.acknowledge(first)
        consumer.acknowledge(second, AcknowledgeType.RELEASE)
        consumer.acknowledge(third, AcknowledgeType.REJECT)
        assert await consumer.commit() == {TopicPartition(topic, 0): None}
        (again,) = await polled(consumer, 1)
        assert (again.offset, again.delivery_count) == (1, 2)
        consumer.acknowledge(again)
        await consumer.commit()
        assert await consumer.getmany(timeout_ms=A_MOMENT_MS) == {}


async def test_a_record_whose_lock_has_ended_cannot_be_accepted_and_a_renewed_one_can(broker, topic):
    group = f"g-{topic}"
    lock_ms = 3000  # as short as a broker allows
    settings = {"record_lock_duration_ms": str(lock_ms)}
    try:
        begin_with_the_first_record(broker.bootstrap, group, **settings)
    except KafkaError:
        lock_ms = 15_000
        begin_with_the_first_record(broker.bootstrap, group, record_lock_duration_ms=str(lock_ms))
    await write(broker, topic, range(2))
    async with (
        ShareConsumer(broker.bootstrap, group_id=group, share_acknowledgement_mode="explicit") as consumer,
        ShareConsumer(broker.bootstrap, group_id=group) as other,
    ):
        consumer.subscribe([topic])
        other.subscribe([topic])
        first, second = await polled(consumer, 2)
        lost = None
        while lost is None:  # renew one record until the lock of the other one has ended, and another member has it
            consumer.acknowledge(second, AcknowledgeType.RENEW)
            assert await consumer.commit() == {TopicPartition(topic, 0): None}
            for records in (await other.getmany(timeout_ms=lock_ms // 3)).values():
                (lost,) = records
        assert (lost.offset, lost.delivery_count) == (first.offset, 2)
        consumer.acknowledge(second)
        assert await consumer.commit() == {TopicPartition(topic, 0): None}
        with contextlib.suppress(KafkaError):  # if the consumer has noticed the end of the lock already
            consumer.acknowledge(first)
            results = await consumer.commit()
            assert results[TopicPartition(topic, 0)].code is ErrorCode.INVALID_RECORD_STATE
        assert set((await other.commit()).values()) == {None}


async def test_record_limit_acquires_no_more_than_max_poll_records(broker, topic, group):
    await write(broker, topic, range(10), linger_ms=100)
    options = {"group_id": group, "share_acquire_mode": "record_limit", "max_poll_records": 4}
    async with ShareConsumer(broker.bootstrap, **options) as consumer:
        consumer.subscribe([topic])
        sizes = []
        while sum(sizes) < 10:
            polled = await consumer.getmany(timeout_ms=WAIT_MS)
            sizes.append(len(polled[TopicPartition(topic, 0)]))
        assert sizes == [4, 4, 2]


async def test_aborted_records_are_gaps_in_a_group_of_committed_records(broker, topic):
    group = f"g-{topic}"
    begin_with_the_first_record(broker.bootstrap, group, isolation_level="read_committed")
    await write(broker, topic, [0])
    async with Producer(broker.bootstrap, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"1")
    async with ShareConsumer(broker.bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        assert [one.value for one in await polled(consumer, 2)] == [b"0", b"1"]
        assert set((await consumer.commit()).values()) == {None}


async def test_a_topic_that_is_created_later_is_read(broker, topic, group):
    async with ShareConsumer(broker.bootstrap, group_id=group, metadata_max_age_ms=500) as consumer:
        consumer.subscribe([topic])
        assert await consumer.getmany(timeout_ms=A_MOMENT_MS) == {}
        await write(broker, topic, range(2))
        assert [one.value for one in await polled(consumer, 2)] == [b"0", b"1"]


def test_the_blocking_twin_reads_acknowledges_and_leaves(broker, topic, group):
    with ottla.Admin(broker.bootstrap) as admin, ottla.Producer(broker.bootstrap) as producer:
        admin.create_topic(topic, partitions=1, replication_factor=1)
        for number in range(6):
            producer.send(topic, b"%d" % number)
        producer.flush()
        with ottla.ShareConsumer(
            broker.bootstrap, group_id=group, share_acknowledgement_mode="explicit", value_deserializer=int
        ) as consumer:
            consumer.subscribe([topic])
            for record in consumer:
                consumer.acknowledge(record, AcknowledgeType.RELEASE if record.value == 3 else AcknowledgeType.ACCEPT)
                if record.value == 5:
                    break
            assert consumer.commit() == {TopicPartition(topic, 0): None}
            (again,) = consumer.getmany(timeout_ms=WAIT_MS)[TopicPartition(topic, 0)]
            assert (again.value, again.delivery_count) == (3, 2)
            consumer.acknowledge(again)
            assert (consumer.subscription(), consumer.assignment()) == ([topic], [TopicPartition(topic, 0)])
            assert consumer.metrics()["records-consumed-total"] == 7
        assert admin.describe_share_groups([group])[group].members == []
        assert lag_of(admin, group) == 0


def test_threads_share_the_records_of_a_blocking_consumer(broker, topic, group):
    with ottla.Admin(broker.bootstrap) as admin, ottla.Producer(broker.bootstrap) as producer:
        admin.create_topic(topic, partitions=2, replication_factor=1)
        producer.send_many(topic, [b"%d" % number for number in range(2000)]).result()
    seen = [[], []]
    errors = []
    with ottla.ShareConsumer(broker.bootstrap, group_id=group, share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([topic])

        def read(found):
            try:
                while sum(map(len, seen)) < 2000:
                    try:
                        polled = consumer.getmany(timeout_ms=50, max_records=100)
                    except RuntimeError:  # the other thread has not acknowledged all of its records yet
                        continue
                    for records in polled.values():
                        for record in records:
                            found.append(int(record.value))
                            consumer.acknowledge(record)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=read, args=(found,)) for found in seen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert all(error is None for error in consumer.commit().values())
    assert sorted(seen[0] + seen[1]) == list(range(2000))
    with ottla.Admin(broker.bootstrap) as admin:
        assert lag_of(admin, group) == 0


def test_each_record_goes_to_this_client_or_to_librdkafka(broker, topic, group):
    with ottla.Admin(broker.bootstrap) as admin, ottla.Producer(broker.bootstrap, linger_ms=0) as producer:
        admin.create_topic(topic, partitions=1, replication_factor=1)
        ours, theirs = [], []
        with (
            ottla.ShareConsumer(broker.bootstrap, group_id=group, share_acquire_mode="record_limit") as consumer,
            share_member(broker.bootstrap, group, topic, explicit=False) as other,
        ):
            consumer.subscribe([topic])
            number = 0
            while not (ours and theirs and len(ours) + len(theirs) == number):
                if number < 200 or not (ours and theirs):
                    producer.send(topic, b"%d" % number).result()
                    number += 1
                for records in consumer.getmany(timeout_ms=20).values():
                    ours += [int(record.value) for record in records]
                theirs += [int(record.value()) for record in other.poll(timeout=0.02)]
                assert number < 5000
            assert all(error is None for error in consumer.commit().values())
            other.commit_sync(20.0)
        assert sorted(ours + theirs) == list(range(number))
        assert lag_of(admin, group) == 0
