"""A member of the classic protocol does, after every code of its coordinator, what Kafka's own client does."""

from __future__ import annotations

import asyncio
import re

import pytest
from kit.consumers import Heard, reading, until
from kit.inside_clients import cluster_view

from ottla.client import ErrorCode, KafkaError, RebalanceListener, RebalanceListenerFailed, TopicPartition
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription, decode_subscription, encode_subscription

ALL = [0, 1, 2, 3]
JOIN, SYNC, BEAT = JoinGroupRequest, SyncGroupRequest, HeartbeatRequest


async def joined(consumer, heard):
    """Subscribe and wait for the first assignment."""
    consumer.subscribe(["t"], listener=heard)
    await until(lambda: heard.events)


# Joining --------------------------------------------------------------------------------------------------------------


async def test_a_member_joins_with_the_id_it_is_given_and_reads_what_the_leader_shares_out(group, consumer_of):
    heard = Heard()
    async with consumer_of() as consumer, reading(consumer) as found:
        await joined(consumer, heard)
        await until(lambda: len(found.records) == 40)
        assert heard.events == [("assigned", ALL)]
        assert consumer.group_metadata() == ("g", 1, "member-1", None)
        assert consumer.subscription() == ["t"]
    first, second = group.cluster.seen(JOIN)
    assert (first.member_id, second.member_id) == ("", "member-1")
    assert [one.name for one in second.protocols] == ["range", "cooperative-sticky"]
    assert decode_subscription(second.protocols[0].metadata).topics == ["t"]
    assert (second.session_timeout_ms, second.rebalance_timeout_ms) == (45_000, 300_000)


async def test_nothing_is_joined_before_the_program_asks_for_records(group, consumer_of):
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        await until(lambda: "t" in cluster_view(consumer).topics)
        assert group.count(JOIN) == 0


async def test_a_poll_that_does_not_wait_gets_there_too(group, consumer_of):
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        records = {}
        async with asyncio.timeout(60):
            while not records:
                records = await consumer.getmany(timeout_ms=0)
                await asyncio.sleep(0)
        assert group.count(SYNC) == 1


async def test_a_poll_that_is_cancelled_stops_no_rebalance(group, consumer_of):
    heard = Heard()
    async with consumer_of() as consumer:
        consumer.subscribe(["t"], listener=heard)
        while not heard.events:
            polling = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
        assert heard.events == [("assigned", ALL)]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (JOIN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (JOIN, ErrorCode.NOT_COORDINATOR),
        (JOIN, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (JOIN, ErrorCode.UNKNOWN_MEMBER_ID),
        (JOIN, ErrorCode.REBALANCE_IN_PROGRESS),
        (SYNC, ErrorCode.REBALANCE_IN_PROGRESS),
        (SYNC, ErrorCode.UNKNOWN_MEMBER_ID),
        (SYNC, ErrorCode.ILLEGAL_GENERATION),
        (SYNC, ErrorCode.NOT_COORDINATOR),
        (FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_what_passes_is_tried_again(group, consumer_of, kind, code):
    heard = Heard()
    group.refuse(kind, code)
    async with consumer_of() as consumer, reading(consumer) as found:
        await joined(consumer, heard)
        assert heard.events == [("assigned", ALL)]
        assert found.failures == []
    assert group.count(FindCoordinatorRequest) >= (2 if code.name.endswith("COORDINATOR") else 1)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (JOIN, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (JOIN, ErrorCode.INVALID_SESSION_TIMEOUT),
        (JOIN, ErrorCode.INVALID_GROUP_ID),
        (JOIN, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (JOIN, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (SYNC, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (FindCoordinatorRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
async def test_what_does_not_pass_is_raised_once_and_the_next_poll_tries_again(group, consumer_of, kind, code):
    group.refuse(kind, code)
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError) as refused:
            await consumer.getmany(timeout_ms=60_000)
        assert refused.value.code is code
        assert await consumer.getmany(timeout_ms=60_000)


async def test_a_coordinator_on_another_broker_is_found_and_followed(group, consumer_of):
    group.node = 1
    heard = Heard()
    async with consumer_of() as consumer, reading(consumer):
        await joined(consumer, heard)
        assert {node for node, request, _ in group.cluster.requests if isinstance(request, JOIN)} == {1}
        group.node = 0
        group.refuse(BEAT, ErrorCode.NOT_COORDINATOR)
        await until(lambda: any(node == 0 for node, request, _ in group.cluster.requests if isinstance(request, BEAT)))
        assert heard.events == [("assigned", ALL)]


# Rebalances -----------------------------------------------------------------------------------------------------------


async def test_an_eager_member_commits_and_gives_up_everything_before_it_joins_again(group, consumer_of):
    heard = Heard()
    async with consumer_of() as consumer, reading(consumer) as found:
        await joined(consumer, heard)
        await until(lambda: len(found.records) == 40)
        group.refuse(BEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        await until(lambda: len(heard.events) == 3)
        assert heard.events == [("assigned", ALL), ("revoked", ALL), ("assigned", ALL)]
        assert group.committed == {("t", index): (10, "", 0) for index in ALL}
        assert decode_subscription(group.cluster.seen(JOIN)[-1].protocols[0].metadata).owned_partitions == []


async def test_a_cooperative_member_keeps_what_it_need_not_give_up(group, consumer_of):
    heard = Heard()
    async with consumer_of(partition_assignment_strategy="cooperative-sticky") as consumer:
        async with reading(consumer) as found:
            await joined(consumer, heard)
            await until(lambda: len(found.records) == 40)
            consumer.pause(("t", 1))
            consumer.seek(("t", 1), 3)
            group.overrides["member-1"] = [("t", 1), ("t", 2)]
            group.refuse(BEAT, ErrorCode.REBALANCE_IN_PROGRESS)
            await until(lambda: len(heard.events) >= 4)
        assert heard.events == [("assigned", ALL), ("revoked", [0, 3]), ("assigned", []), ("assigned", [])]
        assert consumer.paused() == [TopicPartition("t", 1)]
        assert await consumer.position(("t", 1)) == 3
        assert group.committed["t", 0] == (10, "", 0)
    rounds = [decode_subscription(one.protocols[0].metadata) for one in group.cluster.seen(JOIN)]
    assert [sorted(index for topic in one.owned_partitions for index in topic.partitions) for one in rounds] == [
        [],
        [],
        ALL,
        [1, 2],
    ]
    assert [one.generation_id for one in rounds] == [-1, -1, 1, 2]


async def test_after_an_eager_rebalance_nothing_is_paused_as_in_java(group, consumer_of):
    heard = Heard()
    async with consumer_of() as consumer, reading(consumer):
        await joined(consumer, heard)
        consumer.pause(("t", 1))
        group.refuse(BEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        await until(lambda: len(heard.events) == 3)
        assert consumer.paused() == []


async def test_a_listener_hears_of_a_rebalance_only_while_records_are_asked_for(group, consumer_of):
    heard = Heard()
    async with consumer_of() as consumer:
        async with reading(consumer):
            await joined(consumer, heard)
        group.refuse(BEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        beats = group.count(BEAT)
        await until(lambda: group.count(BEAT) > beats + 3)  # it goes on saying that it is alive
        assert heard.events == [("assigned", ALL)]
        assert group.count(JOIN) == 2
        async with reading(consumer):
            await until(lambda: len(heard.events) == 3)


async def test_a_sticky_member_tells_what_it_had(group, consumer_of):
    heard = Heard()
    async with consumer_of(partition_assignment_strategy="sticky") as consumer, reading(consumer):
        await joined(consumer, heard)
        group.refuse(BEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        await until(lambda: len(heard.events) == 3)
    data = [decode_subscription(one.protocols[0].metadata).user_data for one in group.cluster.seen(JOIN)]
    assert data[:2] == [None, None]
    assert bytes(data[2]).hex() == "00000001000174000000040000000000000001000000020000000300000001"


@pytest.mark.parametrize(
    ("code", "comes_back_as"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "member-1")]
)
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_member_that_was_put_out_has_lost_what_it_owned(group, consumer_of, code, comes_back_as, strategy):
    heard = Heard()
    async with consumer_of(partition_assignment_strategy=strategy, enable_auto_commit=True) as consumer:
        async with reading(consumer):
            await joined(consumer, heard)
            commits = dict(group.committed)
            group.refuse(BEAT, code)
            await until(lambda: len(heard.events) == 3)
        assert heard.events == [("assigned", ALL), ("lost", ALL), ("assigned", ALL)]
        assert group.cluster.seen(JOIN)[2].member_id == comes_back_as
        assert commits == {}, "what is lost cannot be committed"


async def test_a_fenced_static_member_stays_out_and_says_so_at_every_poll(group, consumer_of):
    heard = Heard()
    async with consumer_of(group_instance_id="i") as consumer:
        async with reading(consumer) as found:
            await joined(consumer, heard)
            group.refuse(BEAT, ErrorCode.FENCED_INSTANCE_ID)
            await until(lambda: len(found.failures) >= 3)
        assert {failure.code for failure in found.failures} == {ErrorCode.FENCED_INSTANCE_ID}
        assert heard.events == [("assigned", ALL), ("lost", ALL)]
        assert consumer.assignment() == []
        assert group.count(JOIN) == 1


async def test_what_is_lost_while_the_program_works_is_not_taken_over_from_an_old_round(group, consumer_of):
    heard = Heard()
    async with consumer_of() as consumer:
        consumer.subscribe(["t"], listener=heard)
        while not group.count(JOIN):
            await consumer.getmany(timeout_ms=0)
            await asyncio.sleep(0)
        await until(lambda: group.count(BEAT))  # it got its assignment, and nobody polls
        group.refuse(BEAT, ErrorCode.UNKNOWN_MEMBER_ID)
        await until(lambda: not group.codes[BEAT])
        async with reading(consumer):
            await until(lambda: heard.events)
        assert heard.events == [("assigned", ALL)]
        assert consumer.group_metadata().generation == 2


async def test_a_listener_that_raises_is_told_by_a_poll_when_the_rebalance_is_over(group, consumer_of):
    class Failing(RebalanceListener):
        async def on_assigned(self, partitions):
            raise LookupError("no database")

    async with consumer_of() as consumer:
        consumer.subscribe(["t"], listener=Failing())

        async def poll():
            while True:
                await consumer.getmany(timeout_ms=60_000)
                consumer.pause(*consumer.assignment())

        with pytest.raises(RebalanceListenerFailed, match="on_assigned raised LookupError: no database") as failed:
            await poll()
        assert isinstance(failed.value.__cause__, LookupError)
        assert len(consumer.assignment()) == 4


async def test_a_listener_may_not_read_nor_close(group, consumer_of):
    refused = []

    class Reader(RebalanceListener):
        async def on_assigned(self, partitions):
            for attempt in (consumer.getmany, consumer.getone, consumer.close, consumer.unsubscribe):
                with pytest.raises(RuntimeError) as caught:
                    await attempt()
                refused.append(str(caught.value))

    async with consumer_of() as consumer, reading(consumer):
        consumer.subscribe(["t"], listener=Reader())
        await until(lambda: len(refused) == 4)


async def test_what_a_member_does_is_counted(group, consumer_of):
    heard = Heard()
    async with consumer_of() as consumer, reading(consumer) as found:
        await joined(consumer, heard)
        await until(lambda: len(found.records) == 40)
        group.refuse(BEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        await until(lambda: len(heard.events) == 3)
        await until(lambda: consumer.metrics()["heartbeat-total"] > 1)
        measured = consumer.metrics()
        assert (measured["rebalance-total"], measured["partitions-revoked-total"]) == (2, 4)
        assert (measured["commit-total"], measured["failed-commit-total"]) == (1, 0)
        assert measured["commit-latency-max"] > 0
        assert (measured["assigned-partitions"], measured["partitions-lost-total"]) == (4, 0)


# The program falls silent ---------------------------------------------------------------------------------------------


async def test_a_program_that_asks_for_nothing_leaves_the_group_until_it_does_again(group, consumer_of):
    heard = Heard()
    async with consumer_of(max_poll_interval_ms=50) as consumer:
        async with reading(consumer):
            await joined(consumer, heard)
        await until(lambda: group.count(LeaveGroupRequest))
        assert "max_poll_interval_ms" in group.cluster.seen(LeaveGroupRequest)[0].members[0].reason
        assert heard.events == [("assigned", ALL)]
        async with reading(consumer):
            await until(lambda: len(heard.events) == 3)
        assert heard.events[1:] == [("lost", ALL), ("assigned", ALL)]


# The end --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "leaves"),
    [
        ({}, True),
        ({"leave_group_on_close": False}, False),
        ({"group_instance_id": "i"}, False),
        ({"group_instance_id": "i", "leave_group_on_close": True}, True),
    ],
)
async def test_closing_commits_tells_and_leaves_unless_the_member_comes_back(group, consumer_of, options, leaves):
    heard = Heard()
    async with consumer_of(**options) as consumer, reading(consumer) as found:
        await joined(consumer, heard)
        await until(lambda: len(found.records) == 40)
    assert group.committed["t", 2] == (10, "", 0)
    assert heard.events == [("assigned", ALL), ("revoked", ALL)]
    left = group.cluster.seen(LeaveGroupRequest)
    assert len(left) == leaves
    if leaves:
        assert (left[0].members[0].member_id, left[0].members[0].group_instance_id) == (
            "member-1",
            options.get("group_instance_id"),
        )


async def test_unsubscribing_gives_everything_back_and_another_subscription_may_follow(group, consumer_of):
    heard = Heard()
    group.cluster.add_topic("u")
    async with consumer_of(enable_auto_commit=False) as consumer:
        async with reading(consumer):
            await joined(consumer, heard)
        await consumer.unsubscribe()
        assert heard.events == [("assigned", ALL), ("revoked", ALL)]
        assert (consumer.assignment(), consumer.subscription()) == ([], [])
        assert group.count(LeaveGroupRequest) == 1
        async with reading(consumer):
            consumer.subscribe(["u"])
            await until(lambda: consumer.assignment() == [("u", 0)])
    assert group.committed == {}


# Topics ---------------------------------------------------------------------------------------------------------------


async def test_another_subscription_makes_the_member_join_with_it(group, consumer_of):
    group.cluster.add_topic("u")
    async with consumer_of() as consumer, reading(consumer):
        await joined(consumer, Heard())
        consumer.subscribe(["t", "u"])
        await until(lambda: len(consumer.assignment()) == 5)
        consumer.subscribe(["u"])
        await until(lambda: consumer.assignment() == [("u", 0)])


async def test_the_leader_notices_new_partitions(group, consumer_of):
    from kit.fake_broker import FakePartition

    async with consumer_of(metadata_max_age_ms=5) as consumer, reading(consumer):
        await joined(consumer, Heard())
        group.cluster.topics["t"].append(FakePartition(0))
        await until(lambda: len(consumer.assignment()) == 5)


async def test_a_pattern_follows_topics_that_come_and_leaves_out_internal_ones(group, consumer_of):
    cluster = group.cluster
    async with consumer_of(metadata_max_age_ms=5) as consumer, reading(consumer):
        consumer.subscribe(pattern=re.compile("t.*|__.*"))
        await until(lambda: len(consumer.assignment()) == 4)
        cluster.add_topic("t2", 0, 0)
        cluster.add_topic("x")
        await until(lambda: len(consumer.assignment()) == 6)
        assert consumer.subscription() == ["t", "t2"]


async def test_a_topic_that_is_not_there_yet_is_waited_for(group, consumer_of):
    async with consumer_of(metadata_max_age_ms=5) as consumer, reading(consumer):
        consumer.subscribe(["later"])
        await until(lambda: group.count(SYNC))
        assert consumer.assignment() == []
        group.cluster.add_topic("later")
        await until(lambda: consumer.assignment() == [("later", 0)])


async def test_the_leader_shares_out_topics_that_only_others_want(group, consumer_of):
    group.cluster.add_topic("theirs", 0, 0)
    metadata = encode_subscription(ConsumerProtocolSubscription(topics=["theirs", "t"]), 1)
    group.joins = [JoinGroupResponse.JoinGroupResponseMember(member_id="other", metadata=metadata)]
    async with consumer_of() as consumer, reading(consumer):
        await joined(consumer, Heard())
        assert sorted(group.last_assignment["other"]) == [("t", 2), ("t", 3), ("theirs", 0), ("theirs", 1)]
        assert sorted(consumer.assignment()) == [("t", 0), ("t", 1)]


# What makes no sense --------------------------------------------------------------------------------------------------


async def test_a_member_that_talks_nonsense_gets_nothing_and_the_others_go_on(group, consumer_of):
    group.joins = [JoinGroupResponse.JoinGroupResponseMember(member_id="other", metadata=b"\0\1\0\0\0\7")]
    async with consumer_of() as consumer, reading(consumer):
        await joined(consumer, Heard())
        assert len(consumer.assignment()) == 4
        assert group.last_assignment["other"] == []


async def test_an_assignment_that_makes_no_sense_is_raised(group, consumer_of, cluster):
    from ottla.protocol.api.sync_group import SyncGroupResponse

    handler = cluster.handlers[SYNC]
    cluster.handlers[SYNC] = lambda request, version: SyncGroupResponse(assignment=b"\0\0\0\0\0\5")
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError) as refused:
            await consumer.getmany(timeout_ms=60_000)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        cluster.handlers[SYNC] = handler
        assert await consumer.getmany(timeout_ms=60_000)


async def test_an_assignor_that_fails_is_raised_and_the_group_does_not_wait_for_the_member(group, consumer_of):
    from ottla.client import Assignor

    class Failing(Assignor):
        name = "failing"

        def assign(self, partition_counts, members):
            raise ZeroDivisionError("nobody there")

    async with consumer_of(partition_assignment_strategy=[Failing]) as consumer:
        consumer.subscribe(["t"])
        for times in (1, 2):
            with pytest.raises(ZeroDivisionError, match="nobody there"):
                await consumer.getmany(timeout_ms=60_000)
            assert [one.members[0].member_id for one in group.cluster.seen(LeaveGroupRequest)] == [
                f"member-{number + 1}" for number in range(times)
            ]


async def test_asking_for_the_position_of_what_is_taken_away_does_not_hang(group, consumer_of):
    group.silent.add(OffsetFetchRequest)
    heard = Heard()
    async with consumer_of() as consumer, reading(consumer):
        await joined(consumer, heard)
        asking = asyncio.create_task(consumer.position(("t", 0)))
        await until(lambda: group.count(OffsetFetchRequest))
        group.overrides["member-1"] = []
        group.refuse(BEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        with pytest.raises(ValueError, match="t-0 is not assigned"):
            await asking


async def test_by_hand_and_by_group_exclude_each_other(group, consumer_of):
    async with consumer_of() as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(RuntimeError, match="unsubscribe before"):
            consumer.assign([("t", 0)])
        await consumer.unsubscribe()
        consumer.assign([("t", 0)])
        with pytest.raises(RuntimeError, match="unsubscribe before"):
            consumer.subscribe(["t"])


async def test_without_a_group_id_there_is_no_group(group, consumer_of):
    async with consumer_of(group_id=None) as consumer:
        for attempt in (lambda: consumer.subscribe(["t"]), consumer.group_metadata):
            with pytest.raises(KafkaError, match="no group_id"):
                attempt()
        for refused in (consumer.commit(), consumer.committed(("t", 0))):
            with pytest.raises(KafkaError, match="no group_id"):
                await refused


async def test_a_listener_that_ends_in_a_cancellation_of_its_own_is_one_that_raises(group, consumer_of):
    """As when it awaits a task that somebody has cancelled: the member itself lives on."""

    class Failing(RebalanceListener):
        async def on_assigned(self, partitions):
            raise asyncio.CancelledError

    async with consumer_of() as consumer:
        consumer.subscribe(["t"], listener=Failing())
        with pytest.raises(RebalanceListenerFailed, match="on_assigned raised CancelledError"):
            await consumer.getmany(timeout_ms=60_000)
        before = group.count(BEAT)
        assert await consumer.getmany(timeout_ms=60_000)
        await until(lambda: group.count(BEAT) > before)
