"""Admin and share groups: each coordinator is asked about its own, what passes is asked again, refusals are named."""

from __future__ import annotations

from uuid import UUID

import pytest
from kit.fake_broker import FakeCluster

from ottla.client import (
    Admin,
    AdminError,
    ErrorCode,
    KafkaError,
    ShareGroupOffset,
    TopicPartition,
    UnsupportedByBroker,
)
from ottla.protocol.api import ApiKey
from ottla.protocol.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from ottla.protocol.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse, undescribed

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
COORDINATOR_ERRORS = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
]


@pytest.fixture
async def cluster():
    """Two brokers; a group is coordinated by the broker of its last digit."""
    async with FakeCluster(brokers=2) as running:
        running.handlers[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=int(key[-1]), host="127.0.0.1", port=running.ports[int(key[-1])]
                )
                for key in request.coordinator_keys
            ]
        )
        yield running


@pytest.fixture
async def admin(cluster):
    async with Admin(cluster.bootstrap, **QUICK) as started:
        yield started


def asked(cluster, kind):
    """(node, request) of every request of a kind."""
    return [(node, request) for node, request, _ in cluster.requests if isinstance(request, kind)]


def in_turn(answers):
    """A handler that gives one answer after the other; the last one again and again."""
    left = list(answers)
    return lambda request, version: left.pop(0) if len(left) > 1 else left[0]


# Describing -----------------------------------------------------------------------------------------------------------


def described(group_id, *members):
    return ShareGroupDescribeResponse.DescribedGroup(
        group_id=group_id,
        group_state="Stable",
        group_epoch=4,
        assignment_epoch=3,
        assignor_name="simple",
        members=list(members),
    )


def share_member(member_id):
    topic = ShareGroupDescribeResponse.TopicPartitions(topic_id=UUID(int=1), topic_name="t", partitions=[1, 0])
    return ShareGroupDescribeResponse.Member(
        member_id=member_id,
        member_epoch=3,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["u", "t"],
        assignment=ShareGroupDescribeResponse.Assignment(topic_partitions=[topic]),
    )


async def test_share_groups_are_described_by_their_coordinators(cluster, admin):
    cluster.handlers[ShareGroupDescribeRequest] = lambda request, version: ShareGroupDescribeResponse(
        groups=[described(group_id, share_member("m"), share_member("n")) for group_id in request.group_ids]
    )
    found = await admin.describe_share_groups(["a1", "b0"])
    assert {group_id: one.coordinator.node_id for group_id, one in found.items()} == {"a1": 1, "b0": 0}
    group = found["a1"]
    assert (group.group_type, group.protocol_type, group.state, group.assignor) == (
        "share",
        "share",
        "Stable",
        "simple",
    )
    assert (group.epoch, group.assignment_epoch) == (4, 3)
    member = group.members[1]
    assert (member.member_id, member.client_id, member.epoch, member.speaks_classic) == ("n", "c", 3, False)
    assert (member.topics, member.assignment) == (["t", "u"], [T0, T1])
    assert {node: request.group_ids for node, request in asked(cluster, ShareGroupDescribeRequest)} == {
        0: ["b0"],
        1: ["a1"],
    }


async def test_share_groups_that_cannot_be_described_come_by_name(cluster, admin):
    cluster.handlers[ShareGroupDescribeRequest] = lambda request, version: ShareGroupDescribeResponse(
        groups=[
            described(one) if one == "a0" else undescribed(one, ErrorCode.GROUP_ID_NOT_FOUND, "not there")
            for one in request.group_ids
        ]
    )
    with pytest.raises(AdminError, match="not there") as refused:
        await admin.describe_share_groups(["a0", "b0"])
    assert {name: error.code for name, error in refused.value.errors.items()} == {"b0": ErrorCode.GROUP_ID_NOT_FOUND}


@pytest.mark.parametrize("code", COORDINATOR_ERRORS)
async def test_a_description_waits_for_the_coordinator(cluster, admin, code):
    cluster.handlers[ShareGroupDescribeRequest] = in_turn(
        ShareGroupDescribeResponse(groups=[one]) for one in (undescribed("a1", code, None), described("a1"))
    )
    assert (await admin.describe_share_groups(["a1"]))["a1"].members == []
    assert len(asked(cluster, FindCoordinatorRequest)) == 2


async def test_a_broker_without_share_groups_is_said_to_be_too_old(cluster):
    del cluster.versions[ApiKey.SHARE_GROUP_DESCRIBE]
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        with pytest.raises(UnsupportedByBroker):
            await admin.describe_share_groups(["a1"])


# Offsets --------------------------------------------------------------------------------------------------------------


def offset(index, start_offset=-1, lag=-1, code=ErrorCode.NONE):
    return DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=start_offset, leader_epoch=2, lag=lag, error_code=code
    )


def offsets(group_id="a1", code=ErrorCode.NONE, **topics):
    topic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
    group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id,
        topics=[topic(topic_name=name, topic_id=UUID(int=1), partitions=some) for name, some in topics.items()],
        error_code=code,
    )
    return DescribeShareGroupOffsetsResponse(groups=[group])


async def test_start_offsets_and_lags_are_those_of_the_broker_and_none_where_nothing_was_read(cluster, admin):
    cluster.handlers[DescribeShareGroupOffsetsRequest] = lambda request, version: offsets(
        request.groups[0].group_id, t=[offset(0, 5, 7), offset(1)]
    )
    found = await admin.share_group_offsets({"a1": None, "b0": [T0, T1]})
    assert found == {group_id: {T0: ShareGroupOffset(5, 7, 2), T1: None} for group_id in ("a1", "b0")}
    requests = dict(asked(cluster, DescribeShareGroupOffsetsRequest))
    assert requests[1].groups[0].topics is None
    assert [(one.topic_name, one.partitions) for one in requests[0].groups[0].topics] == [("t", [0, 1])]


async def test_a_broker_before_lags_gives_none(cluster):
    cluster.versions[ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS] = (0, 0)
    cluster.handlers[DescribeShareGroupOffsetsRequest] = lambda request, version: offsets(t=[offset(0, 5)])
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        assert await admin.share_group_offsets({"a1": [T0]}) == {"a1": {T0: ShareGroupOffset(5, None, 2)}}


@pytest.mark.parametrize("code", COORDINATOR_ERRORS)
async def test_offsets_wait_for_the_coordinators_of_the_group_and_of_its_partitions(cluster, admin, code):
    cluster.handlers[DescribeShareGroupOffsetsRequest] = in_turn(
        [offsets(code=code), offsets(t=[offset(0, code=code)]), offsets(t=[offset(0, 5, 7)])]
    )
    assert await admin.share_group_offsets({"a1": None}) == {"a1": {T0: ShareGroupOffset(5, 7, 2)}}


async def test_partitions_that_are_gone_are_left_out_of_all_and_refused_by_name(cluster, admin):
    cluster.handlers[DescribeShareGroupOffsetsRequest] = lambda request, version: offsets(
        t=[offset(0, 5, 7)], u=[offset(0, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    )
    assert list((await admin.share_group_offsets({"a1": None}))["a1"]) == [T0]
    with pytest.raises(AdminError) as refused:
        await admin.share_group_offsets({"a1": [T0, U0]})
    codes = {name: error.code for name, error in refused.value.errors.items()}
    assert codes == {"u-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# Changing -------------------------------------------------------------------------------------------------------------


def altered(code=ErrorCode.NONE, partition=ErrorCode.NONE):
    one = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition(
        partition_index=0, error_code=partition
    )
    topic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic(
        topic_name="t", topic_id=UUID(int=1), partitions=[one]
    )
    return AlterShareGroupOffsetsResponse(error_code=code, responses=[topic])


@pytest.mark.parametrize("code", COORDINATOR_ERRORS)
async def test_altered_offsets_are_sent_until_the_coordinator_has_them(cluster, admin, code):
    cluster.handlers[AlterShareGroupOffsetsRequest] = in_turn([altered(code), altered(partition=code), altered()])
    await admin.alter_share_group_offsets("g1", {T0: 3, U0: 4, T1: 5})
    requests = asked(cluster, AlterShareGroupOffsetsRequest)
    assert [node for node, _ in requests] == [1, 1, 1]
    sent = [
        (topic.topic_name, [(one.partition_index, one.start_offset) for one in topic.partitions])
        for topic in requests[-1][1].topics
    ]
    assert sent == [("t", [(0, 3), (1, 5)]), ("u", [(0, 4)])]


async def test_altered_offsets_are_refused_by_partition_or_as_a_whole(cluster, admin):
    cluster.handlers[AlterShareGroupOffsetsRequest] = in_turn(
        [altered(partition=ErrorCode.TOPIC_AUTHORIZATION_FAILED), altered(ErrorCode.NON_EMPTY_GROUP)]
    )
    with pytest.raises(AdminError) as refused:
        await admin.alter_share_group_offsets("g0", {T0: 3})
    assert refused.value.errors["t-0"].code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError) as whole:
        await admin.alter_share_group_offsets("g0", {T0: 3})
    assert (whole.value.code, isinstance(whole.value, AdminError)) == (ErrorCode.NON_EMPTY_GROUP, False)


def deleted(code=ErrorCode.NONE, topic=ErrorCode.NONE):
    one = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic(
        topic_name="t", topic_id=UUID(int=1), error_code=topic
    )
    return DeleteShareGroupOffsetsResponse(error_code=code, responses=[one])


@pytest.mark.parametrize("code", COORDINATOR_ERRORS)
async def test_topics_are_forgotten_once_the_coordinator_can(cluster, admin, code):
    cluster.handlers[DeleteShareGroupOffsetsRequest] = in_turn([deleted(code), deleted(topic=code), deleted()])
    await admin.delete_share_group_offsets("g1", ["t", "t"])
    node, request = asked(cluster, DeleteShareGroupOffsetsRequest)[2]
    assert (node, request.group_id, [one.topic_name for one in request.topics]) == (1, "g1", ["t"])


async def test_topics_are_refused_by_name_or_as_a_whole(cluster, admin):
    cluster.handlers[DeleteShareGroupOffsetsRequest] = in_turn(
        [deleted(topic=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), deleted(ErrorCode.GROUP_ID_NOT_FOUND)]
    )
    with pytest.raises(AdminError) as refused:
        await admin.delete_share_group_offsets("g0", ["t"])
    assert refused.value.errors["t"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as whole:
        await admin.delete_share_group_offsets("g0", ["t"])
    assert whole.value.code is ErrorCode.GROUP_ID_NOT_FOUND
