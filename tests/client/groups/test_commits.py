"""What is committed is what the program has dealt with, and where reading begins is what is committed."""

from __future__ import annotations

import asyncio

import pytest
from kit.consumers import Heard, reading, until

from ottla.client import (
    CommitFailed,
    ConsumerInterceptor,
    ErrorCode,
    KafkaError,
    OffsetAndMetadata,
    RebalanceListener,
    TopicPartition,
)
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.types import ZERO_UUID

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
COMMIT, FETCH = OffsetCommitRequest, OffsetFetchRequest
BY_HAND = {"enable_auto_commit": False}


async def member(consumer):
    """Subscribe and poll until the first assignment is there; return what the listener hears."""
    heard = Heard()
    consumer.subscribe(["t"], listener=heard)
    async with reading(consumer):
        await until(lambda: heard.events)
    return heard


# Where reading begins -------------------------------------------------------------------------------------------------


async def test_reading_begins_at_what_is_committed_else_by_the_reset(group, consumer_of):
    group.committed = {("t", 0): (7, "", -1), ("t", 1): (10, "", -1)}
    async with consumer_of(**BY_HAND) as consumer, reading(consumer) as found:
        consumer.subscribe(["t"])
        await until(lambda: len(found.records) == 23)
    assert [one.offset for one in found.records if one.partition == 0] == [7, 8, 9]
    assert group.cluster.seen(FETCH)[0].require_stable


async def test_seeking_to_what_is_committed_reads_the_same_again(group, consumer_of):
    group.committed = {("t", 0): (7, "", -1)}
    async with consumer_of(**BY_HAND) as consumer:
        consumer.assign([T0, T1])
        assert [(await consumer.getone()).offset for _ in range(13)] != []
        assert (await consumer.position(T0), await consumer.position(T1)) == (10, 10)
        consumer.seek_to_committed(T0)
        assert (await consumer.position(T0), await consumer.position(T1)) == (7, 10)
        group.committed = {("t", 0): (8, "", -1)}
        consumer.seek_to_committed()
        assert (await consumer.position(T0), await consumer.position(T1)) == (8, 0)  # nothing is committed: the reset
        with pytest.raises(ValueError, match="u-0 is not assigned"):
            consumer.seek_to_committed(("u", 0))


async def test_a_position_that_is_being_sought_is_not_committed(group, consumer_of):
    group.committed = {("t", 0): (7, "", -1)}
    async with consumer_of(**BY_HAND) as consumer:
        consumer.assign([T0])
        assert (await consumer.getone()).offset == 7
        group.silent.add(FETCH)
        consumer.seek_to_committed()
        assert consumer.consumed_for_transaction()[1] == {}
        await consumer.commit()
    assert group.count(COMMIT) == 0


async def test_partitions_assigned_by_hand_begin_there_too(group, consumer_of):
    group.committed = {("t", 0): (7, "", -1)}
    async with consumer_of(**BY_HAND) as consumer:
        consumer.assign([T0, T1])
        assert await consumer.position(T0) == 7
        assert await consumer.position(T1) == 0
    assert group.count(JoinGroupRequest) == 0


async def test_a_seek_when_partitions_are_assigned_goes_before_what_is_committed(group, consumer_of):
    group.committed = {("t", 0): (7, "", -1)}

    class Seeks(RebalanceListener):
        async def on_assigned(self, partitions):
            assert await consumer.position(T0) == 7
            consumer.seek(T0, 4)
            consumer.seek(T1, 5)

    async with consumer_of(**BY_HAND) as consumer, reading(consumer) as found:
        consumer.subscribe(["t"], listener=Seeks())
        await until(lambda: len(found.records) == 31)
    assert [one.offset for one in found.records if one.partition == 0] == [4, 5, 6, 7, 8, 9]
    assert found.failures == []


async def test_without_a_reset_a_missing_offset_is_raised_until_the_program_seeks(group, consumer_of):
    group.committed = {("t", index): (9, "", -1) for index in (1, 2, 3)}
    async with consumer_of(**BY_HAND, auto_offset_reset="none") as consumer:
        consumer.subscribe(["t"])
        async with reading(consumer) as found:
            await until(lambda: len(found.failures) >= 3)
        assert {failure.code for failure in found.failures} == {ErrorCode.OFFSET_OUT_OF_RANGE}
        consumer.seek(T0, 8)
        async with reading(consumer) as more:
            await until(lambda: len(found.records) + len(more.records) == 5)


async def test_the_committed_leader_epoch_is_what_truncation_is_noticed_by(group, consumer_of):
    group.committed = {("t", 0): (7, "", 3)}
    async with consumer_of(**BY_HAND) as consumer:
        consumer.assign([T0])
        await consumer.getmany(timeout_ms=60_000)
    (asked,) = group.cluster.seen(FetchRequest)[0].topics[0].partitions
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (7, 3)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR],
)
async def test_offsets_that_cannot_be_told_yet_are_waited_for(group, consumer_of, code):
    group.committed = {("t", 0): (7, "note", 2)}
    group.refuse(FETCH, code, code)
    async with consumer_of(**BY_HAND) as consumer:
        assert await consumer.committed(T0, T1) == {T0: OffsetAndMetadata(7, "note", 2), T1: None}
    assert group.count(FETCH) == 3


async def test_offsets_that_must_not_be_told_are_raised_where_records_are_read(group, consumer_of):
    group.refuse(FETCH, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with consumer_of(**BY_HAND) as consumer:
        consumer.assign([T0])
        with pytest.raises(KafkaError) as refused:
            await consumer.getmany(timeout_ms=60_000)
        assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await consumer.getmany(timeout_ms=60_000), "the poll after that asks again"


# Commits by hand ------------------------------------------------------------------------------------------------------


async def test_a_commit_names_the_member_and_its_generation(group, consumer_of):
    async with consumer_of(**BY_HAND, group_instance_id="i") as consumer:
        await member(consumer)
        await consumer.commit({T0: 3, T1: OffsetAndMetadata(4, "note", 5)})
    request = group.cluster.seen(COMMIT)[0]
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (1, "member-1", "i")
    assert group.committed == {("t", 0): (3, "", -1), ("t", 1): (4, "note", 5)}


async def test_partitions_assigned_by_hand_are_committed_by_nobody(group, consumer_of):
    async with consumer_of(**BY_HAND) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 6)
        await consumer.commit()
    request = group.cluster.seen(COMMIT)[0]
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    assert group.committed == {("t", 0): (6, "", -1)}


async def test_a_commit_without_offsets_is_of_what_was_returned(group, consumer_of):
    async with consumer_of(**BY_HAND) as consumer:
        consumer.assign([T0])
        for _ in range(4):
            await consumer.getone()
        await consumer.commit()
        assert group.committed == {("t", 0): (4, "", 0)}
        await consumer.getmany(timeout_ms=60_000, max_records=2)
        await consumer.commit()
        assert group.committed == {("t", 0): (6, "", 0)}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
async def test_a_commit_that_is_refused_for_now_is_tried_again(group, consumer_of, code):
    group.refuse(COMMIT, code, code)
    async with consumer_of(**BY_HAND) as consumer:
        await member(consumer)
        finds = group.count(FindCoordinatorRequest)
        await consumer.commit({T0: 3})
        moved = code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert (group.count(FindCoordinatorRequest) > finds) == moved
    assert group.committed == {("t", 0): (3, "", -1)}


@pytest.mark.parametrize(
    "code",
    [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ErrorCode.TOPIC_AUTHORIZATION_FAILED],
)
async def test_a_commit_that_is_refused_for_good_is_raised(group, consumer_of, code):
    group.refuse(COMMIT, code)
    async with consumer_of(**BY_HAND) as consumer:
        await member(consumer)
        with pytest.raises(KafkaError, match="commit of t-0") as refused:
            await consumer.commit({T0: 3})
        assert refused.value.code is code
        assert not isinstance(refused.value, CommitFailed)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ],
)
async def test_a_commit_of_a_member_that_is_none_any_more_fails_and_it_joins_again(group, consumer_of, code):
    group.refuse(COMMIT, code)
    async with consumer_of(**BY_HAND) as consumer:
        heard = await member(consumer)
        with pytest.raises(CommitFailed) as refused:
            await consumer.commit({T0: 3})
        assert refused.value.code is code
        joins = group.count(JoinGroupRequest)
        async with reading(consumer):
            await until(lambda: group.count(JoinGroupRequest) > joins)
            await until(lambda: len(heard.events) == 3)
        given_up = "revoked" if code is ErrorCode.REBALANCE_IN_PROGRESS else "lost"
        assert [what for what, _ in heard.events] == ["assigned", given_up, "assigned"]


async def test_a_commit_of_a_fenced_member_fails_and_it_does_not_fence_the_other(group, consumer_of):
    group.refuse(COMMIT, ErrorCode.FENCED_INSTANCE_ID)
    async with consumer_of(**BY_HAND, group_instance_id="i") as consumer:
        await member(consumer)
        with pytest.raises(CommitFailed):
            await consumer.commit({T0: 3})
        group.refuse(HeartbeatRequest, ErrorCode.FENCED_INSTANCE_ID)
        async with reading(consumer) as found:
            await until(lambda: len(found.failures) > 1)
        assert group.count(JoinGroupRequest) == 1


async def test_who_is_no_member_cannot_commit(group, consumer_of):
    async with consumer_of(**BY_HAND) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(CommitFailed, match="no member"):
            await consumer.commit({T0: 3})


async def test_offsets_that_cannot_be_are_refused(group, consumer_of):
    async with consumer_of(**BY_HAND) as consumer:
        with pytest.raises(ValueError, match=r"0 to 2\^63-1"):
            await consumer.commit({T0: -1})


async def test_interceptors_hear_of_commits(group, consumer_of):
    heard = []

    class Hears(ConsumerInterceptor):
        def on_commit(self, offsets):
            heard.append(dict(offsets))

    async with consumer_of(**BY_HAND, interceptors=[Hears()]) as consumer:
        await consumer.commit({T0: 3})
    assert heard == [{T0: OffsetAndMetadata(3)}]


# Commits by themselves ------------------------------------------------------------------------------------------------


async def test_a_record_that_the_program_has_in_hands_is_not_committed_until_it_asks_for_the_next(group, consumer_of):
    async with consumer_of(auto_commit_interval_ms=1) as consumer:
        consumer.assign([T0])
        for number in range(1, 6):
            record = await consumer.getone()
            assert record.offset == number - 1
            for _ in range(20):
                await asyncio.sleep(0.001)  # the time for commits comes and goes
                assert group.committed.get(("t", 0), (0,))[0] < number
        async with reading(consumer):
            await until(lambda: group.committed["t", 0][0] == 10)


async def test_it_is_committed_while_the_program_waits_for_more(group, consumer_of):
    async with consumer_of(auto_commit_interval_ms=1) as consumer:
        consumer.assign([T0])
        async with reading(consumer):
            await until(lambda: group.committed.get(("t", 0)) == (10, "", 0))


async def test_another_assignment_by_hand_commits_the_one_before(group, consumer_of):
    async with consumer_of() as consumer:
        consumer.assign([T0])
        await consumer.getmany(timeout_ms=60_000)
        consumer.assign([T1])
        await until(lambda: group.committed.get(("t", 0)) == (10, "", 0))


async def test_a_commit_by_itself_that_fails_stops_nobody(group, consumer_of):
    group.refuse(COMMIT, *[ErrorCode.GROUP_AUTHORIZATION_FAILED] * 3)
    async with consumer_of(auto_commit_interval_ms=1) as consumer, reading(consumer) as found:
        consumer.assign([T0])
        await until(lambda: group.committed.get(("t", 0)) == (10, "", 0))
        assert found.failures == []


async def test_with_commits_by_hand_nothing_is_committed_by_itself(group, consumer_of):
    heard = Heard()
    async with consumer_of(**BY_HAND, auto_commit_interval_ms=1) as consumer, reading(consumer) as found:
        consumer.subscribe(["t"], listener=heard)
        await until(lambda: len(found.records) == 40)
        group.refuse(HeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS)
        await until(lambda: len(heard.events) == 3)
    assert group.count(COMMIT) == 0


async def test_a_listener_may_commit_what_is_revoked(group, consumer_of):
    class Commits(RebalanceListener):
        async def on_revoked(self, partitions):
            await consumer.commit({T0: 8})

    async with consumer_of(**BY_HAND) as consumer, reading(consumer):
        consumer.subscribe(["t"], listener=Commits())
        await until(consumer.assignment)
    assert group.committed == {("t", 0): (8, "", -1)}
    assert group.cluster.seen(COMMIT)[0].member_id == "member-1"


async def test_closing_without_a_broker_takes_no_longer_than_its_limit(group, consumer_of, monkeypatch):
    monkeypatch.setattr("ottla.client.groups.participation.CLOSE_LIMIT_MS", 50)
    async with consumer_of() as consumer:
        await member(consumer)
        group.silent |= {COMMIT}
        async with asyncio.timeout(30):
            await consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_commit_that_is_tried_again_is_not_made_in_the_name_of_a_later_membership(group, consumer_of, protocol):
    """Others may have read the partitions in between, and further than these offsets."""
    group.target = {"t": [0, 1, 2, 3]}
    options = {"group_protocol": protocol, "enable_auto_commit": False}
    async with consumer_of(**options) as consumer:
        heard = Heard()
        async with reading(consumer) as found:
            consumer.subscribe(["t"], listener=heard)
            await until(lambda: len(found.records) == 40)
            group.codes[OffsetCommitRequest].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 100_000)
            committing = asyncio.create_task(consumer.commit())
            await until(lambda: group.count(OffsetCommitRequest) > 1)
            kind = ConsumerGroupHeartbeatRequest if protocol == "consumer" else HeartbeatRequest
            group.refuse(kind, ErrorCode.UNKNOWN_MEMBER_ID)
            await until(lambda: [event for event, _ in heard.events] == ["assigned", "lost", "assigned"])
            group.codes[OffsetCommitRequest].clear()
            with pytest.raises(CommitFailed):
                await committing
            assert group.committed == {}
            await until(lambda: len(found.records) == 80)
            await consumer.commit()
            assert {offset for offset, _, _ in group.committed.values()} == {10}


# Topic ids ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("newest", "is_by_id"), [(10, True), (9, False)])
async def test_topics_are_named_by_their_ids_where_the_broker_takes_them(group, consumer_of, newest, is_by_id):
    group.cluster.versions[COMMIT.message_key] = (2, newest)
    async with consumer_of(**BY_HAND) as consumer:
        consumer.assign([T0])
        await consumer.getone()
        await consumer.commit({T0: 5})
    (topic,) = group.cluster.seen(COMMIT)[-1].topics
    assert group.committed[T0][0] == 5
    ours = group.cluster.id_of("t")
    assert (topic.name, topic.topic_id) == (("", ours) if is_by_id else ("t", ZERO_UUID))


async def test_after_an_unknown_id_a_commit_learns_the_topic_again(group, consumer_of):
    async with consumer_of(**BY_HAND) as consumer:
        consumer.assign([T0])
        await consumer.getone()
        before = len(group.cluster.seen(MetadataRequest))
        group.refuse(COMMIT, ErrorCode.UNKNOWN_TOPIC_ID)
        await consumer.commit({T0: 5})
        async with asyncio.timeout(60):  # it is asked beside the next commit, which may be answered first
            while len(group.cluster.seen(MetadataRequest)) == before:
                await asyncio.sleep(0.001)
    assert group.committed[T0][0] == 5
    assert group.count(COMMIT) == 2
