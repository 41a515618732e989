"""Transactions of the bundled client against a real broker, by both protocols, over kills, time-outs and rebalances."""

# ruff: noqa: PT012  # it is the end of a block that raises
from __future__ import annotations

import asyncio

import pytest
from kit.broker import BrokerProcess
from kit.inside_clients import cluster_view

from ottla.client import (
    AbortableTransactionError,
    Admin,
    Consumer,
    ErrorCode,
    FatalTransactionError,
    Producer,
    TopicPartition,
)
from ottla.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

_UNSAFE_DOWNGRADE = 3


async def set_transaction_version(broker, level):
    """Change the finalized feature."""
    async with Admin(broker.bootstrap) as admin:
        cluster = cluster_view(admin)
        change = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="transaction.version", max_version_level=level, upgrade_type=1 if level else _UNSAFE_DOWNGRADE
        )
        request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[change])
        answer = await cluster.ask(None, request, UpdateFeaturesResponse)
        assert answer.error_code == ErrorCode.NONE, answer


async def create(broker, *topics, partitions=1):
    async with Admin(broker.bootstrap) as admin:
        for topic in topics:
            await admin.create_topic(topic, partitions=partitions)


async def committed_values(broker, topic, partitions=1):
    """What a reader of committed records sees up to the end, without an order between partitions."""
    options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with Consumer(broker.bootstrap, **options) as consumer:
        ends = await consumer.end_offsets([TopicPartition(topic, index) for index in range(partitions)])
        consumer.assign(ends)
        found = []
        while not all([await consumer.has_reached(partition, end) for partition, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=5000)).values():
                found += [record.value for record in records]
    return found


@pytest.mark.parametrize("version", [2, 0])
async def test_records_and_offsets_move_together(own_broker, version):
    await set_transaction_version(own_broker, version) if not version else None
    await create(own_broker, "in", "out", partitions=2)
    async with Producer(own_broker.bootstrap) as producer:
        await producer.send_many("in", [b"%d" % number for number in range(200)])
    options = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with (
        Consumer(own_broker.bootstrap, **options) as consumer,
        Producer(own_broker.bootstrap, transactional_id="mover", batch_size=100) as producer,
    ):
        consumer.subscribe(["in"])
        turn = done = 0
        while done < 200:
            records = await consumer.getmany(timeout_ms=5000, max_records=20)
            taken = [record for some in records.values() for record in some]
            turn += 1
            try:
                async with producer.transaction() as transaction:
                    for record in taken:
                        await producer.send("out", record.value)
                    await transaction.send_offsets(consumer)
                    if turn % 3 == 0:
                        raise LookupError
                done += len(taken)
            except LookupError:
                consumer.seek_to_committed()
        committed = await consumer.committed(TopicPartition("in", 0), TopicPartition("in", 1))
        assert sum(one.offset for one in committed.values() if one is not None) == 200
    assert sorted(await committed_values(own_broker, "out", 2), key=int) == [b"%d" % number for number in range(200)]


async def test_a_producer_goes_from_one_protocol_to_the_other(own_broker):
    await create(own_broker, "t")
    await set_transaction_version(own_broker, 0)
    async with Producer(own_broker.bootstrap, transactional_id="mine") as producer:
        async with producer.transaction():
            await producer.send("t", b"old")
        await set_transaction_version(own_broker, 2)
        own_broker.restart()  # the client looks at what a broker says when it connects
        async with producer.transaction():
            await producer.send("t", b"new")
        async with producer.transaction():
            await producer.send("t", b"newer")
    assert await committed_values(own_broker, "t") == [b"old", b"new", b"newer"]


async def test_a_transaction_outlives_its_broker(own_broker):
    await create(own_broker, "t", "u")
    async with Producer(own_broker.bootstrap, transactional_id="mine") as producer:
        for turn in range(4):
            async with producer.transaction():
                await producer.send_and_wait("t", b"t%d" % turn)
                own_broker.kill()
                await asyncio.to_thread(own_broker.start)
                await producer.send("u", b"u%d" % turn)
    assert await committed_values(own_broker, "t") == [b"t%d" % turn for turn in range(4)]
    assert await committed_values(own_broker, "u") == [b"u%d" % turn for turn in range(4)]


async def test_the_records_of_a_transaction_that_took_too_long_are_gone(tmp_path):
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
    with BrokerProcess(tmp_path / "data", often) as broker:
        await create(broker, "t")
        async with Producer(broker.bootstrap, transactional_id="slow", transaction_timeout_ms=200) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"too late")
            async with Admin(broker.bootstrap) as admin:
                while (await admin.describe_transactions(["slow"]))["slow"].state != "CompleteAbort":
                    await asyncio.sleep(0.01)
            with pytest.raises(FatalTransactionError) as ended:
                await producer.commit_transaction()
            # The second is Kafka's answer to a commit under the epoch before: it takes that for a repeat.
            assert ended.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
        async with Producer(broker.bootstrap, transactional_id="slow") as producer, producer.transaction():
            await producer.send("t", b"in time")
        assert await committed_values(broker, "t") == [b"in time"]


async def test_a_timeout_above_the_brokers_is_refused(broker):
    with pytest.raises(FatalTransactionError) as refused:
        await Producer(broker.bootstrap, transactional_id="patient", transaction_timeout_ms=900_001).start()
    assert refused.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_that_was_put_out_cannot_commit_what_others_read(broker, topic, protocol):
    source, target = topic, f"{topic}-out"
    await create(broker, source, target)
    async with Producer(broker.bootstrap) as producer:
        await producer.send_many(source, [b"0", b"1", b"2"])
    options = {
        "group_id": topic,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    async with (
        Admin(broker.bootstrap) as admin,
        Consumer(broker.bootstrap, **options) as consumer,
        Producer(broker.bootstrap, transactional_id=topic) as producer,
    ):
        consumer.subscribe([source])
        assert (await consumer.getone()).value == b"0"
        with pytest.raises(AbortableTransactionError) as failed:
            async with producer.transaction() as transaction:
                await producer.send(target, b"not this")
                await admin.remove_members(topic)
                await transaction.send_offsets(consumer)
        assert failed.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        consumer.seek_to_committed()
        for expected in (b"0", b"1", b"2"):
            record = await consumer.getone()  # which joins again
            assert record.value == expected
            async with producer.transaction() as transaction:
                await producer.send(target, record.value)
                await transaction.send_offsets(consumer)
        assert (await consumer.committed(TopicPartition(source, 0)))[TopicPartition(source, 0)].offset == 3
    assert await committed_values(broker, target) == [b"0", b"1", b"2"]
