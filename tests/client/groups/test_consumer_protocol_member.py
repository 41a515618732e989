"""A member of the consumer protocol (KIP-848) owns what its coordinator says, one acknowledged step at a time."""

from __future__ import annotations

import re

import pytest
from kit.consumers import Heard, reading, until

from ottla.client import ErrorCode, KafkaError, TopicPartition, UnsupportedByBroker
from ottla.protocol.api import ApiKey
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest

ALL = [0, 1, 2, 3]
BEAT = ConsumerGroupHeartbeatRequest
T0 = TopicPartition("t", 0)


@pytest.fixture
def make(group, consumer_of):
    group.target = {"t": ALL}
    return lambda **options: consumer_of(group_protocol="consumer", **options)


def beats(group, *, epoch=None):
    return [one for one in group.cluster.seen(BEAT) if epoch is None or one.member_epoch == epoch]


def acknowledged(group):
    """The partitions that the member said it owns, heartbeat by heartbeat that said so."""
    said = [one.topic_partitions for one in beats(group) if one.topic_partitions is not None]
    return [sorted(index for topic in one for index in topic.partitions) for one in said]


async def joined(consumer, heard):
    consumer.subscribe(["t"], listener=heard)
    await until(lambda: heard.events)


async def test_a_member_joins_takes_what_it_is_given_and_says_so(group, make):
    heard = Heard()
    async with make(group_remote_assignor="range", max_poll_interval_ms=4000) as consumer, reading(consumer) as found:
        await joined(consumer, heard)
        await until(lambda: len(found.records) == 40)
        await until(lambda: len(acknowledged(group)) == 2)
        assert heard.events == [("assigned", ALL)]
        generation, member_id = consumer.group_metadata()[1:3]
        assert generation == 1
    first = beats(group)[0]
    assert (first.member_id, first.member_epoch, first.subscribed_topic_names) == (member_id, 0, ["t"])
    assert (first.server_assignor, first.rebalance_timeout_ms) == ("range", 4000)
    assert acknowledged(group)[:2] == [[], ALL]


async def test_what_goes_is_committed_revoked_and_acknowledged_and_the_rest_is_read_on(group, make):
    heard = Heard()
    async with make() as consumer, reading(consumer) as found:
        await joined(consumer, heard)
        await until(lambda: len(found.records) == 40)
        consumer.pause(("t", 1))
        group.target = {"t": [1, 2]}
        group.epoch = 2
        await until(lambda: acknowledged(group)[-1] == [1, 2])
        assert heard.events == [("assigned", ALL), ("revoked", [0, 3]), ("assigned", [])]
        assert consumer.paused() == [("t", 1)]
        commit = group.cluster.seen(OffsetCommitRequest)[0]
        assert (commit.member_id, commit.generation_id_or_member_epoch) == (beats(group)[0].member_id, 2)
        assert group.committed["t", 0] == (10, "", 0)
        group.target = {"t": ALL}
        await until(lambda: heard.events[-1] == ("assigned", [0, 3]))


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_a_fenced_member_has_lost_everything_and_joins_again(group, make, code):
    heard = Heard()
    async with make() as consumer, reading(consumer):
        await joined(consumer, heard)
        group.refuse(BEAT, code)
        await until(lambda: len(heard.events) == 3)
        assert heard.events == [("assigned", ALL), ("lost", ALL), ("assigned", ALL)]
        assert len({one.member_id for one in beats(group)}) == 1
        again = beats(group, epoch=0)[1]
        assert (again.subscribed_topic_names, again.topic_partitions) == (["t"], [])
        await consumer.position(T0)
    assert group.cluster.seen(OffsetCommitRequest)[0].generation_id_or_member_epoch == 2


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]
)
async def test_what_passes_is_tried_again_and_everything_is_told_anew(group, make, code):
    heard = Heard()
    async with make() as consumer, reading(consumer):
        await joined(consumer, heard)
        await until(lambda: acknowledged(group)[-1] == ALL)
        before = len(acknowledged(group))
        group.refuse(BEAT, code)
        await until(lambda: len(acknowledged(group)) > before)
        assert acknowledged(group)[-1] == ALL
        assert heard.events == [("assigned", ALL)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
    ],
)
async def test_what_does_not_pass_is_raised_once_and_the_next_poll_tries_again(group, make, code):
    group.refuse(BEAT, code)
    async with make() as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError, match="as the test wants it") as refused:
            await consumer.getmany(timeout_ms=60_000)
        assert refused.value.code is code
        assert await consumer.getmany(timeout_ms=60_000)


async def test_an_instance_id_in_use_is_raised_at_every_poll(group, make):
    group.refuse(BEAT, ErrorCode.UNRELEASED_INSTANCE_ID)
    async with make(group_instance_id="i") as consumer:
        consumer.subscribe(["t"])
        async with reading(consumer) as found:
            await until(lambda: len(found.failures) >= 3)
        assert {failure.code for failure in found.failures} == {ErrorCode.UNRELEASED_INSTANCE_ID}
        assert len(beats(group)) == 1


async def test_a_broker_without_the_protocol_is_named(group, make):
    del group.cluster.versions[ApiKey.CONSUMER_GROUP_HEARTBEAT]
    async with make() as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(UnsupportedByBroker, match="set group_protocol to classic"):
            await consumer.getmany(timeout_ms=60_000)


async def test_a_pattern_in_text_is_the_brokers_and_topics_are_found_by_their_ids(group, make):
    async with make() as consumer, reading(consumer) as found:
        consumer.subscribe(pattern="t.*")
        await until(lambda: len(found.records) == 40)
        request = beats(group)[0]
        assert (request.subscribed_topic_regex, request.subscribed_topic_names) == ("t.*", [])
        consumer.subscribe(["t"])
        await until(lambda: any(one.subscribed_topic_names == ["t"] for one in beats(group)))
        (changed,) = [one for one in beats(group) if one.subscribed_topic_names == ["t"]]
        assert changed.subscribed_topic_regex == ""


async def test_a_compiled_pattern_is_matched_here(group, make):
    group.cluster.add_topic("x")
    async with make() as consumer, reading(consumer):
        consumer.subscribe(pattern=re.compile("[t-u]"))
        await until(lambda: len(consumer.assignment()) == 4)
        assert (beats(group)[0].subscribed_topic_regex, beats(group)[0].subscribed_topic_names) == (None, ["t"])


async def test_a_commit_with_an_old_epoch_is_made_with_the_new_one(group, make):
    heard = Heard()
    async with make(enable_auto_commit=False) as consumer, reading(consumer):
        await joined(consumer, heard)
        commit = group.cluster.handlers[OffsetCommitRequest]

        def only_of_epoch_5(request, version):
            if request.generation_id_or_member_epoch != 5:
                group.refuse(OffsetCommitRequest, ErrorCode.STALE_MEMBER_EPOCH)
            return commit(request, version)

        group.cluster.handlers[OffsetCommitRequest] = only_of_epoch_5
        group.epoch = 5
        await consumer.commit({T0: 3})
    assert group.committed == {("t", 0): (3, "", -1)}
    assert group.cluster.seen(OffsetCommitRequest)[-1].generation_id_or_member_epoch == 5


@pytest.mark.parametrize(
    ("options", "epochs"),
    [
        ({}, [-1]),
        ({"leave_group_on_close": False}, []),
        ({"group_instance_id": "i"}, [-2]),
        ({"group_instance_id": "i", "leave_group_on_close": True}, [-1]),
    ],
)
async def test_closing_leaves_for_good_or_for_a_while(group, make, options, epochs):
    heard = Heard()
    async with make(**options) as consumer, reading(consumer):
        await joined(consumer, heard)
    assert [one.member_epoch for one in beats(group) if one.member_epoch < 0] == epochs
    assert heard.events == [("assigned", ALL), ("revoked", ALL)]


async def test_a_program_that_asks_for_nothing_leaves_the_group_until_it_does_again(group, make):
    heard = Heard()
    async with make(max_poll_interval_ms=50) as consumer:
        async with reading(consumer):
            await joined(consumer, heard)
        await until(lambda: beats(group, epoch=-1))
        assert heard.events == [("assigned", ALL)]
        async with reading(consumer):
            await until(lambda: len(heard.events) == 3)
        assert heard.events[1:] == [("lost", ALL), ("assigned", ALL)]


async def test_heartbeats_go_on_while_the_program_works(group, make):
    heard = Heard()
    async with make() as consumer:
        async with reading(consumer):
            await joined(consumer, heard)
        group.target = {"t": [0]}
        so_far = len(beats(group))
        await until(lambda: len(beats(group)) > so_far + 3)
        assert heard.events == [("assigned", ALL)]
        async with reading(consumer):
            await until(lambda: len(heard.events) == 3)


async def test_a_member_that_gets_nothing_hears_of_that(group, make):
    group.target = {"t": []}
    heard = Heard()
    async with make() as consumer, reading(consumer):
        await joined(consumer, heard)
        assert heard.events == [("assigned", [])]


async def test_a_topic_that_was_created_anew_is_another_one(group, make):
    heard = Heard()
    async with make(auto_offset_reset="earliest", metadata_max_age_ms=5) as consumer, reading(consumer):
        await joined(consumer, heard)
        group.cluster.create_again("t", 0, 0, 0, 0)
        await until(lambda: consumer._cluster.topics["t"].topic_id == group.cluster.id_of("t"))
        group._sent_target = None
        await until(lambda: len(heard.events) == 3)
        assert heard.events == [("assigned", ALL), ("revoked", ALL), ("assigned", ALL)]
