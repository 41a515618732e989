"""A share consumer against a scripted cluster of two brokers: sessions, acknowledgements, and what goes wrong."""

from __future__ import annotations

import asyncio

import pytest
from kit.consumers import until
from kit.fake_broker import FakeCluster
from kit.fake_share_group import LOCK_MS, FakeShareGroup
from kit.loop_clock import put_forward

from ottla.client import (
    AcknowledgeType,
    ClientClosed,
    ClientTimeout,
    CorruptRecords,
    ErrorCode,
    KafkaError,
    ShareConsumer,
    TopicPartition,
    UndecodableRecord,
    UnsupportedByBroker,
)
from ottla.protocol.api import ApiKey
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.api.share_fetch import ShareFetchRequest
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.records.batch import Record, encode_batch, set_offset_and_epoch

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
QUICK = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 2,
}
LONG_MS = 60_000


def fill(partition, count):
    batch = bytearray(encode_batch([Record(n, n, None, b"%d" % n) for n in range(count)]))
    set_offset_and_epoch(batch, partition.end, 0)
    partition.batches.append(bytes(batch))
    partition.end += count


@pytest.fixture
async def group():
    async with FakeCluster(brokers=2) as cluster:
        for partition in cluster.add_topic("t", 0, 1):
            fill(partition, 5)
        yield FakeShareGroup(cluster, {"t": [0, 1]})


@pytest.fixture
def consumer_of(group):
    def make(**options):
        return ShareConsumer(group.cluster.bootstrap, **{"group_id": "g", **QUICK, **options})

    return make


def explicit(consumer_of, **options):
    return consumer_of(share_acknowledgement_mode="explicit", **options)


def acknowledged(request):
    return [batch for topic in request.topics for one in topic.partitions for batch in one.acknowledgement_batches]


async def polled(consumer, count):
    """So many records, in one partition after the other."""
    found = []
    async with asyncio.timeout(LONG_MS / 1000):
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=LONG_MS)).values():
                found += records
    return found


async def test_records_of_all_leaders_come_and_each_leader_has_a_session(group, consumer_of):
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        records = await polled(consumer, 10)
        assert sorted((one.partition, one.offset, one.value, one.delivery_count) for one in records) == [
            (partition, offset, b"%d" % offset, 1) for partition in (0, 1) for offset in range(5)
        ]
        assert consumer.assignment() == [P0, P1]
        assert await consumer.commit() == {P0: None, P1: None}
        assert group.accepted("t", 0) == group.accepted("t", 1) == [0, 1, 2, 3, 4]
        assert set(group.sessions) == {0, 1}
        assert await consumer.commit() == {}


async def test_the_next_poll_accepts_the_records_of_the_one_before_with_its_fetch(group, consumer_of):
    group.target = {"t": [0]}
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 5)
        assert group.accepted("t", 0) == []
        await consumer.getmany(timeout_ms=20)
        await until(lambda: group.accepted("t", 0) == [0, 1, 2, 3, 4])
        assert group.cluster.seen(ShareAcknowledgeRequest) == []
        assert await consumer.commit() == {P0: None}


async def test_a_fetch_that_brings_acknowledgements_waits_only_briefly_for_records(group, consumer_of):
    group.target = {"t": [0]}
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 5)
        assert await consumer.getmany(timeout_ms=250) == {}
    waits = {bool(acknowledged(one)): one.max_wait_ms for one in reversed(group.cluster.seen(ShareFetchRequest))}
    assert waits == {False: 500, True: 100}


async def test_a_commit_beside_a_poll_has_a_request_of_its_own(group, consumer_of):
    group.target = {"t": [0]}
    async with explicit(consumer_of, max_poll_interval_ms=10 * LOCK_MS) as consumer:
        consumer.subscribe(["t"])
        records = await polled(consumer, 5)
        for record in records:
            consumer.acknowledge(record)
        commit = asyncio.create_task(consumer.commit())
        poll = asyncio.create_task(consumer.getmany(timeout_ms=20))
        assert await commit == {P0: None}
        assert await poll == {}
    assert not any(acknowledged(one) for one in group.cluster.seen(ShareFetchRequest))


async def test_iterating_accepts_a_record_when_the_program_commits_and_releases_the_rest_in_close(group, consumer_of):
    group.target = {"t": [0]}
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        async for record in consumer:
            if record.offset == 2:
                break
        await consumer.commit()
        assert group.accepted("t", 0) == [0, 1, 2]
        assert group.acquired[group.place("t", 0)] == {3, 4}
    assert group.accepted("t", 0) == [0, 1, 2]
    assert group.acquired[group.place("t", 0)] == set()
    assert group.sessions == {}
    assert group.cluster.seen(ShareAcknowledgeRequest)[-1].share_session_epoch == -1
    assert group.cluster.seen(ShareGroupHeartbeatRequest)[-1].member_epoch == -1


async def test_no_records_are_requested_before_the_program_asks_for_more(group, consumer_of):
    group.target = {"t": [0]}
    (partition, _) = group.cluster.topics["t"]
    fill(partition, 5)
    async with consumer_of(max_poll_records=5) as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 5)
        sent = len(group.cluster.seen(ShareFetchRequest))
        await consumer.commit()
        assert len(group.cluster.seen(ShareFetchRequest)) == sent
        assert group.acquired[group.place("t", 0)] == set()
        assert [one.offset for one in await polled(consumer, 5)] == [5, 6, 7, 8, 9]


async def test_max_records_is_a_limit_and_the_rest_comes_with_the_next_polls(group, consumer_of):
    group.target = {"t": [0]}
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        sizes = []
        while sum(sizes) < 5:
            found = await consumer.getmany(timeout_ms=LONG_MS, max_records=2)
            sizes.append(sum(map(len, found.values())))
        assert sizes == [2, 2, 1]
        await consumer.commit()
        assert group.accepted("t", 0) == [0, 1, 2, 3, 4]


async def test_each_kind_of_acknowledgement_does_what_it_says(group, consumer_of):
    group.target = {"t": [0]}
    place = group.place("t", 0)
    async with explicit(consumer_of) as consumer:
        consumer.subscribe(["t"])
        records = await polled(consumer, 5)
        consumer.acknowledge(records[0])
        consumer.acknowledge(records[1], AcknowledgeType.REJECT)
        consumer.acknowledge(records[2], AcknowledgeType.RELEASE)
        consumer.acknowledge(records[3], AcknowledgeType.RENEW)
        consumer.acknowledge(records[4])
        assert await consumer.commit() == {P0: None}
        assert group.done[place] == {0: AcknowledgeType.ACCEPT, 1: AcknowledgeType.REJECT, 4: AcknowledgeType.ACCEPT}
        assert group.renewed == [3]
        (again,) = await polled(consumer, 1)
        assert (again.offset, again.delivery_count) == (2, 2)
        consumer.acknowledge(again)
        consumer.acknowledge(records[3])
        await consumer.commit()
        assert group.accepted("t", 0) == [0, 2, 3, 4]


async def test_the_end_sends_what_was_acknowledged_and_releases_the_rest(group, consumer_of):
    group.target = {"t": [0]}
    async with explicit(consumer_of) as consumer:
        consumer.subscribe(["t"])
        for record in (await polled(consumer, 5))[:3]:
            consumer.acknowledge(record)
    assert group.accepted("t", 0) == [0, 1, 2]
    assert group.acquired == {}


async def test_explicit_mode_insists_on_an_acknowledgement_of_each_record(group, consumer_of):
    group.target = {"t": [0]}
    async with explicit(consumer_of) as consumer:
        consumer.subscribe(["t"])
        records = await polled(consumer, 5)
        for record in records[:4]:
            consumer.acknowledge(record)
        with pytest.raises(RuntimeError, match="t-0: 1 records of the last poll are not acknowledged"):
            await consumer.getmany()
        with pytest.raises(KafkaError) as refused:
            consumer.acknowledge(records[0])
        assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
        with pytest.raises(ValueError, match="ACCEPT, RELEASE, REJECT or RENEW"):
            consumer.acknowledge(records[4], AcknowledgeType.GAP)
        for no_record in (None, records[4][:3], P0):
            with pytest.raises(TypeError, match="acknowledge needs a record that this consumer has returned, not "):
                consumer.acknowledge(no_record)
        consumer.acknowledge(records[4])
        assert await consumer.getmany() == {}


async def test_implicit_mode_has_no_acknowledge_and_a_poll_needs_a_subscription(group, consumer_of):
    async with consumer_of() as consumer:
        with pytest.raises(RuntimeError, match="call subscribe first"):
            await consumer.getone()
        consumer.subscribe(["t"])
        record = await consumer.getone()
        with pytest.raises(RuntimeError, match="needs share_acknowledgement_mode explicit"):
            consumer.acknowledge(record)
    with pytest.raises(ClientClosed):
        await consumer.getmany()
    with pytest.raises(ValueError, match="group_id is missing"):
        ShareConsumer(group.cluster.bootstrap)


async def test_an_offset_without_a_record_is_acknowledged_as_a_gap(group, consumer_of):
    group.target = {"t": [0]}
    (partition, _) = group.cluster.topics["t"]
    batch = bytearray(encode_batch([Record(n, n, None, b"%d" % n) for n in (0, 1, 4, 6)]))
    set_offset_and_epoch(batch, partition.end, 0)
    partition.batches.append(bytes(batch))
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        assert [one.offset for one in await polled(consumer, 9)] == [0, 1, 2, 3, 4, 5, 6, 9, 11]
        await consumer.commit()
    kinds = group.done[group.place("t", 0)]
    assert [offset for offset, kind in kinds.items() if kind is AcknowledgeType.GAP] == [7, 8, 10]
    assert group.accepted("t", 0) == [0, 1, 2, 3, 4, 5, 6, 9, 11]


async def test_records_that_the_member_has_not_acquired_are_not_given_to_the_program(group, consumer_of):
    group.target = {"t": [0]}
    group.holes = {0, 3}
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        assert [one.offset for one in await polled(consumer, 3)] == [1, 2, 4]
        assert await consumer.commit() == {P0: None}


async def test_a_damaged_batch_is_an_error_in_its_place_and_rejected(group, consumer_of):
    group.target = {"t": [0]}
    (partition, _) = group.cluster.topics["t"]
    fill(partition, 2)
    fill(partition, 1)
    damaged = bytearray(partition.batches[1])
    damaged[-1] ^= 1
    partition.batches[1] = bytes(damaged)
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        assert [(await consumer.getone()).offset for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(CorruptRecords) as corrupt:
            await consumer.getone()
        assert (corrupt.value.partition, corrupt.value.offset, corrupt.value.next_offset) == (P0, 5, 7)
        assert (await consumer.getone()).offset == 7
        await consumer.commit()
    kinds = group.done[group.place("t", 0)]
    assert [offset for offset, kind in kinds.items() if kind is AcknowledgeType.REJECT] == [5, 6]


async def test_a_record_that_a_deserializer_refuses_is_an_error_and_released(group, consumer_of):
    group.target = {"t": [0]}
    refuses = [b"2"]

    def number(value):
        if value in refuses:
            refuses.clear()
            raise ValueError("not today")
        return int(value)

    async with consumer_of(value_deserializer=number) as consumer:
        consumer.subscribe(["t"])
        assert [(await consumer.getone()).value for _ in range(2)] == [0, 1]
        with pytest.raises(UndecodableRecord) as undecodable:
            await consumer.getone()
        assert (undecodable.value.offset, undecodable.value.value) == (2, b"2")
        assert [(one.value, one.delivery_count) for one in await polled(consumer, 3)] == [(3, 1), (4, 1), (2, 2)]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_a_fenced_member_joins_again_with_the_same_id(group, consumer_of, code):
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 10)
        group.refuse(ShareGroupHeartbeatRequest, code)
        await until(lambda: len([one for one in beats(group) if one.member_epoch == 0]) == 2)
        await until(lambda: consumer.assignment() == [P0, P1])
        fill(group.cluster.topics["t"][0], 1)
        assert [one.offset for one in await polled(consumer, 1)] == [5]
    assert len({one.member_id for one in beats(group)}) == 1
    assert [one.subscribed_topic_names for one in beats(group) if one.member_epoch == 0] == [["t"], ["t"]]


async def test_a_fenced_member_releases_what_the_program_has_not_taken(group, consumer_of):
    group.target = {"t": [0]}
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        record = await consumer.getone()
        group.refuse(ShareGroupHeartbeatRequest, ErrorCode.UNKNOWN_MEMBER_ID)
        await until(lambda: group.acquired[group.place("t", 0)] == {record.offset})
        assert await consumer.commit() == {P0: None}
        assert group.accepted("t", 0) == [record.offset]


def beats(group):
    return group.cluster.seen(ShareGroupHeartbeatRequest)


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]
)
async def test_a_coordinator_that_is_not_ready_is_asked_again(group, consumer_of, code):
    group.refuse(ShareGroupHeartbeatRequest, code, code)
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 10)
    assert [one.member_epoch for one in beats(group)][:3] == [0, 0, 0]


async def test_a_poll_raises_what_the_group_refuses_and_the_next_one_tries_again(group, consumer_of):
    group.refuse(ShareGroupHeartbeatRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError) as refused:
            await consumer.getmany(timeout_ms=LONG_MS)
        assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        await polled(consumer, 10)


async def test_a_program_that_does_not_poll_leaves_and_joins_again_with_its_next_poll(group, consumer_of):
    async with consumer_of(max_poll_interval_ms=1000) as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 10)
        put_forward(2.0)
        await until(lambda: consumer.assignment() == [])
        assert beats(group)[-1].member_epoch == -1
        fill(group.cluster.topics["t"][0], 1)
        assert [one.offset for one in await polled(consumer, 1)] == [5]


async def test_records_that_were_not_taken_are_released_when_their_partition_is_unassigned(group, consumer_of):
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        first = await consumer.getone()
        await until(lambda: len(group.acquired[group.place("t", 0)]) == len(group.acquired[group.place("t", 1)]) == 5)
        group.target = {"t": [1 - first.partition]}
        await until(lambda: consumer.assignment() == [("t", 1 - first.partition)])
        place = group.place("t", first.partition)
        await until(lambda: group.acquired[place] == {first.offset})
        await consumer.commit()
        assert group.accepted("t", first.partition) == [first.offset]
        assert group.acquired[place] == set()
        assert [one.partition for one in await polled(consumer, 5)] == [1 - first.partition] * 5


async def test_a_partition_that_is_unassigned_is_forgotten_by_the_session(group, consumer_of):
    group.cluster.topics["t"][1].leader = 0
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 10)
        await consumer.commit()
        group.target = {"t": [1]}
        await until(lambda: consumer.assignment() == [P1])
        await consumer.getmany(timeout_ms=20)
        await until(lambda: group.places[0] == {group.place("t", 1)})
        assert set(group.sessions) == {0}


async def test_a_session_that_the_broker_does_not_know_is_opened_again_and_its_acknowledgements_are_reported(
    group, consumer_of
):
    group.target = {"t": [0]}
    async with explicit(consumer_of) as consumer:
        consumer.subscribe(["t"])
        for record in await polled(consumer, 5):
            consumer.acknowledge(record)
        group.lose_sessions()
        results = await consumer.commit()
        assert results[P0].code is ErrorCode.SHARE_SESSION_NOT_FOUND
        again = await polled(consumer, 5)
        assert [one.delivery_count for one in again] == [2] * 5
        for record in again:
            consumer.acknowledge(record)
        assert await consumer.commit() == {P0: None}


async def test_a_session_with_another_epoch_is_opened_again_and_keeps_its_records(group, consumer_of):
    group.target = {"t": [0]}
    async with explicit(consumer_of) as consumer:
        consumer.subscribe(["t"])
        for record in await polled(consumer, 5):
            consumer.acknowledge(record)
        group.sessions[0] += 7
        assert await consumer.commit() == {P0: None}
        assert group.accepted("t", 0) == [0, 1, 2, 3, 4]
        assert [one.share_session_epoch for one in group.cluster.seen(ShareFetchRequest)].count(0) == 2


async def test_a_broker_without_room_for_a_session_is_asked_again(group, consumer_of):
    group.refuse(ShareFetchRequest, *[ErrorCode.SHARE_SESSION_LIMIT_REACHED] * 3)
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 10)


async def test_lost_connections_are_reported_and_every_record_comes_again(group, consumer_of):
    async with explicit(consumer_of) as consumer:
        consumer.subscribe(["t"])
        records = await polled(consumer, 5)
        for record in records:
            consumer.acknowledge(record)
        group.cluster.drop_connections()
        group.lose_sessions()
        results = await consumer.commit()
        assert results[TopicPartition("t", records[0].partition)].code is ErrorCode.NETWORK_EXCEPTION
        seen = set()
        while len(seen) < 10:
            for records in (await consumer.getmany(timeout_ms=LONG_MS)).values():
                for record in records:
                    consumer.acknowledge(record)
                    seen.add((record.partition, record.offset))
        await consumer.commit()
    assert group.accepted("t", 0) == group.accepted("t", 1) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_a_partition_is_read_from_its_new_leader(group, consumer_of, code):
    group.target = {"t": [0]}
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 5)
        await consumer.commit()
        group.cluster.topics["t"][0].leader = 1
        group.refuse_fetching("t", 0, *[code] * 2)
        fill(group.cluster.topics["t"][0], 1)
        assert [one.offset for one in await polled(consumer, 1)] == [5]
        await until(lambda: 1 in group.sessions)


async def test_an_error_of_a_partition_that_does_not_pass_is_raised(group, consumer_of):
    group.refuse_fetching("t", 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError, match="t-1") as refused:
            await polled(consumer, 100)
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_an_acknowledgement_that_the_broker_refuses_is_a_result_of_its_partition(group, consumer_of, caplog):
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 10)
        group.refuse_acknowledgements("t", 1, ErrorCode.INVALID_RECORD_STATE)
        results = await consumer.commit()
        if P0 in results:
            assert results[P0] is None
        assert results[P1].code is ErrorCode.INVALID_RECORD_STATE
    assert "t-1: records were not acknowledged" in caplog.text


async def test_an_acknowledgement_that_may_succeed_later_is_sent_again(group, consumer_of):
    group.target = {"t": [0]}
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 5)
        group.refuse_acknowledgements("t", 0, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3)
        assert await consumer.commit() == {P0: None}
        assert group.accepted("t", 0) == [0, 1, 2, 3, 4]


async def test_a_commit_that_takes_too_long_says_so(group, consumer_of):
    group.target = {"t": [0]}
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 5)
        group.refuse_acknowledgements("t", 0, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1000)
        with pytest.raises(ClientTimeout):
            await consumer.commit(timeout_ms=5)


async def test_records_whose_lock_has_ended_are_given_up(group, consumer_of):
    group.target = {"t": [0]}
    async with explicit(consumer_of, max_poll_interval_ms=10 * LOCK_MS) as consumer:
        consumer.subscribe(["t"])
        first = await consumer.getone()
        second = await consumer.getone()
        consumer.acknowledge(second)
        put_forward(LOCK_MS / 1000 + 1)
        group.acquired.clear()
        results = await consumer.commit()
        assert results[P0].code is ErrorCode.INVALID_RECORD_STATE
        assert group.accepted("t", 0) == []
        with pytest.raises(KafkaError) as refused:
            consumer.acknowledge(first)
        assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
        again = (await consumer.getmany(timeout_ms=LONG_MS))[P0]
        assert [(one.offset, one.delivery_count) for one in again] == [(offset, 2) for offset in range(5)]


async def test_records_that_are_left_are_dropped_when_their_lock_ends_or_their_session_is_lost(
    group, consumer_of, caplog
):
    caplog.set_level("INFO")
    group.target = {"t": [0]}
    async with consumer_of(max_poll_interval_ms=10 * LOCK_MS) as consumer:
        consumer.subscribe(["t"])
        assert (await consumer.getone()).offset == 0
        put_forward(LOCK_MS / 1000 + 1)
        group.acquired.clear()
        await until(lambda: "t-0: 4 acquired records are lost" in caplog.text)
        again = [await consumer.getone() for _ in range(2)]
        assert [(one.offset, one.delivery_count) for one in again] == [(0, 2), (1, 2)]
        group.cluster.drop_connections()
        group.lose_sessions()
        await consumer.commit()
        again = [await consumer.getone() for _ in range(5)]
        assert [(one.offset, one.delivery_count) for one in again] == [(offset, 3) for offset in range(5)]


async def test_a_renewed_record_is_kept_for_longer(group, consumer_of):
    group.target = {"t": [0]}
    async with explicit(consumer_of, max_poll_interval_ms=10 * LOCK_MS) as consumer:
        consumer.subscribe(["t"])
        records = await polled(consumer, 5)
        for record in records:
            consumer.acknowledge(record, AcknowledgeType.RENEW)
        put_forward(LOCK_MS / 1000 - 5)
        await consumer.commit()
        put_forward(10)
        assert await consumer.getmany() == {}
        for record in records:
            consumer.acknowledge(record)
        assert await consumer.commit() == {P0: None}
        assert group.accepted("t", 0) == [0, 1, 2, 3, 4]


async def test_a_broker_that_cannot_renew_is_a_result(group, consumer_of):
    group.target = {"t": [0]}
    group.cluster.versions[ApiKey.SHARE_ACKNOWLEDGE] = (1, 1)
    async with explicit(consumer_of) as consumer:
        consumer.subscribe(["t"])
        records = await polled(consumer, 5)
        consumer.acknowledge(records[0], AcknowledgeType.RENEW)
        results = await consumer.commit()
        assert isinstance(results[P0], UnsupportedByBroker)
        for record in records:
            consumer.acknowledge(record)
        assert await consumer.commit() == {P0: None}


async def test_a_broker_without_share_groups_is_an_error(group, consumer_of):
    del group.cluster.versions[ApiKey.SHARE_GROUP_HEARTBEAT]
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(UnsupportedByBroker):
            await consumer.getmany(timeout_ms=LONG_MS)


async def test_the_end_of_a_subscription_leaves_the_group_and_another_one_joins_it(group, consumer_of):
    for partition in group.cluster.add_topic("u", 0):
        fill(partition, 3)
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 10)
        await consumer.commit()
        await consumer.unsubscribe()
        assert (consumer.subscription(), consumer.assignment(), group.sessions) == ([], [], {})
        assert beats(group)[-1].member_epoch == -1
        group.target = {"u": [0]}
        consumer.subscribe("u")
        assert [(one.topic, one.offset) for one in await polled(consumer, 3)] == [("u", 0), ("u", 1), ("u", 2)]
        assert consumer.subscription() == ["u"]


async def test_a_poll_that_waits_ends_with_the_consumer_or_its_subscription(group, consumer_of):
    group.target = {"t": []}
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        waiting = asyncio.create_task(consumer.getone())
        await until(lambda: beats(group))
        await consumer.unsubscribe()
        with pytest.raises(RuntimeError, match="subscription has ended"):
            await waiting
        consumer.subscribe(["t"])
        waiting = asyncio.create_task(consumer.getone())
        await until(lambda: beats(group)[-1].member_epoch >= 0)
    with pytest.raises(ClientClosed):
        await waiting


async def test_the_limits_of_a_fetch_are_the_options(group, consumer_of):
    options = {"max_poll_records": 7, "fetch_min_bytes": 3, "fetch_max_bytes": 1000, "fetch_max_wait_ms": 400}
    async with consumer_of(share_acquire_mode="record_limit", client_rack="r1", **options) as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 10)
    asked = group.cluster.seen(ShareFetchRequest)[0]
    assert (asked.max_records, asked.batch_size, asked.min_bytes, asked.max_bytes) == (7, 7, 3, 1000)
    assert (asked.max_wait_ms, asked.share_acquire_mode) == (400, 1)
    assert beats(group)[0].rack_id == "r1"


async def test_metrics_count_records_fetches_and_heartbeats(group, consumer_of):
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await polled(consumer, 10)
        found = consumer.metrics()
    assert (found["records-consumed-total"], found["assigned-partitions"]) == (10, 2)
    assert found["fetch-total"] >= 2
    assert found["heartbeat-total"] >= 1
