"""Nothing is lost silently: `flush` raises while a record failed whose own delivery nobody has awaited."""

from __future__ import annotations

import gc
import sys

import pytest
from kit.fake_broker import FakeCluster, Fault

from ottla.client import ErrorCode, KafkaError, Producer

ONE_BY_ONE = {"batch_size": 0, "linger_ms": 0}
REFUSED = Fault(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


async def refused(delivery):
    with pytest.raises(KafkaError) as failed:
        await delivery
    assert failed.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_record_is_not_observed_because_another_of_its_batch_is(cluster):
    (partition,) = cluster.add_topic("t")
    partition.faults.append(REFUSED)
    async with Producer(cluster.bootstrap, linger_ms=1) as producer:
        first, second = [await producer.send("t", b"%d" % n) for n in range(2)]
        await refused(first)
        with pytest.raises(KafkaError) as failed:
            await producer.flush()
        assert failed.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await refused(second)


async def test_records_that_were_all_observed_are_not_raised_again(cluster):
    (partition,) = cluster.add_topic("t")
    partition.faults.append(REFUSED)
    async with Producer(cluster.bootstrap, linger_ms=1) as producer:
        for delivery in [await producer.send("t", b"%d" % n) for n in range(3)]:
            await refused(delivery)
            await refused(delivery)
        await producer.flush()


async def test_a_failure_that_nobody_saw_is_raised_however_many_others_were_seen_after_it(cluster):
    (partition,) = cluster.add_topic("t")
    partition.faults += [REFUSED] * 151
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        unseen = await producer.send("t", b"unseen")
        for _ in range(150):
            await refused(await producer.send("t", b"seen"))
        with pytest.raises(KafkaError):
            await producer.flush()
        await refused(unseen)


async def test_deliveries_do_not_keep_the_records_in_memory(cluster):
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        deliveries = [await producer.send("t", bytes(100_000)) for _ in range(10)]
        await producer.flush()
        cluster.topics["t"][0].batches.clear()
        cluster.requests.clear()
        gc.collect()
        kept = [one for one in gc.get_referents(*(d._batch.builder for d in deliveries)) if isinstance(one, bytearray)]
        assert sum(map(sys.getsizeof, kept)) < 100_000
        assert [delivery.result().offset for delivery in deliveries] == list(range(10))
