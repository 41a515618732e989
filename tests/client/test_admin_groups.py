"""Admin and groups: each coordinator is asked about its own, old brokers in their words, and refusals come by name."""

from __future__ import annotations

from uuid import UUID

import pytest
from kit.fake_broker import HANG_UP, FakeCluster

from ottla.client import (
    Admin,
    AdminError,
    ErrorCode,
    KafkaError,
    OffsetAndMetadata,
    TopicPartition,
    UnsupportedByBroker,
)
from ottla.protocol.api import ApiKey
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
T0 = TopicPartition("t", 0)


@pytest.fixture
async def cluster():
    """Two brokers; a group is coordinated by the broker of its last digit."""
    async with FakeCluster(brokers=2) as running:
        running.add_topic("t")
        running.handlers[FindCoordinatorRequest] = lambda request, version: _found(running, request, version)
        yield running


@pytest.fixture
async def admin(cluster):
    async with Admin(cluster.bootstrap, **QUICK) as started:
        yield started


def _found(cluster, request, version):
    def coordinator(key):
        node = int(key[-1])
        return FindCoordinatorResponse.Coordinator(key=key, node_id=node, host="127.0.0.1", port=cluster.ports[node])

    if version < 4:
        one = coordinator(request.key)
        return FindCoordinatorResponse(node_id=one.node_id, host=one.host, port=one.port)
    return FindCoordinatorResponse(coordinators=[coordinator(key) for key in request.coordinator_keys])


def asked(cluster, kind):
    """(node, request) of every request of a kind."""
    return [(node, request) for node, request, _ in cluster.requests if isinstance(request, kind)]


# Listing --------------------------------------------------------------------------------------------------------------


async def test_groups_of_all_brokers_are_listed(cluster, admin):
    names = iter(["g1", "g0"])

    def listed(request, version):
        group = ListGroupsResponse.ListedGroup(
            group_id=next(names), protocol_type="consumer", group_state="Stable", group_type="Classic"
        )
        return ListGroupsResponse(groups=[group])

    cluster.handlers[ListGroupsRequest] = listed
    found = await admin.list_groups(states=["Stable"], types=["classic"])
    assert [(one.group_id, one.state, one.group_type) for one in found] == [
        ("g0", "Stable", "classic"),
        ("g1", "Stable", "classic"),
    ]
    requests = asked(cluster, ListGroupsRequest)
    assert {node for node, _ in requests} == {0, 1}
    assert (requests[0][1].states_filter, requests[0][1].types_filter) == (["Stable"], ["classic"])


async def test_one_state_and_one_type_of_groups_may_be_texts(cluster, admin):
    cluster.handlers[ListGroupsRequest] = lambda request, version: ListGroupsResponse(groups=[])
    await admin.list_groups(states="Stable", types="share")
    (_, request), *_ = asked(cluster, ListGroupsRequest)
    assert (request.states_filter, request.types_filter) == (["Stable"], ["share"])


@pytest.mark.parametrize(("version", "wanted"), [(3, {"states": ["Empty"]}), (4, {"types": ["classic"]})])
async def test_an_old_broker_cannot_choose_among_groups(cluster, version, wanted):
    cluster.versions[ApiKey.LIST_GROUPS] = (0, version)
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        with pytest.raises(UnsupportedByBroker, match="too old to choose"):
            await admin.list_groups(**wanted)


# Describing -----------------------------------------------------------------------------------------------------------


def classic_group(group_id, *, state="Stable", code=ErrorCode.NONE, members=()):
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state=state,
        protocol_type="consumer",
        protocol_data="range",
        members=list(members),
        error_code=code,
    )


def classic_member(member_id, *, metadata=None, assignment=None, instance=None):
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=["t"]))
    owned = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[1, 0])
    return DescribeGroupsResponse.DescribedGroupMember(
        member_id=member_id,
        group_instance_id=instance,
        client_id="c",
        client_host="/h",
        member_metadata=subscription if metadata is None else metadata,
        member_assignment=encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[owned]))
        if assignment is None
        else assignment,
    )


def describe_all(cluster, *, classic=(), consumer=()):
    """Answer descriptions: of the consumer protocol's groups, then of the others."""

    def consumer_groups(request, version):
        known = {one.group_id: one for one in consumer}
        missing = {"group_state": "", "group_epoch": 0, "assignment_epoch": 0, "assignor_name": "", "members": []}
        return ConsumerGroupDescribeResponse(
            groups=[
                known.get(group_id)
                or ConsumerGroupDescribeResponse.DescribedGroup(
                    group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, **missing
                )
                for group_id in request.group_ids
            ]
        )

    def classic_groups(request, version):
        known = {one.group_id: one for one in classic}
        return DescribeGroupsResponse(
            groups=[known.get(name) or classic_group(name, state="Dead") for name in request.groups]
        )

    cluster.handlers[ConsumerGroupDescribeRequest] = consumer_groups
    cluster.handlers[DescribeGroupsRequest] = classic_groups


def consumer_group(group_id, *members):
    return ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group_id,
        group_state="Reconciling",
        group_epoch=4,
        assignment_epoch=3,
        assignor_name="uniform",
        members=list(members),
    )


def consumer_member(member_id, *, kind=1, instance=None):
    def partitions(*indexes):
        topic = ConsumerGroupDescribeResponse.TopicPartitions(
            topic_id=UUID(int=1), topic_name="t", partitions=list(indexes)
        )
        return ConsumerGroupDescribeResponse.Assignment(topic_partitions=[topic])

    return ConsumerGroupDescribeResponse.Member(
        member_id=member_id,
        instance_id=instance,
        member_epoch=3,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="x.*",
        assignment=partitions(0, 1),
        target_assignment=partitions(1),
        member_type=kind,
    )


async def test_groups_of_both_protocols_are_described_by_their_coordinators(cluster, admin):
    describe_all(
        cluster,
        classic=[classic_group("a1", members=[classic_member("m")])],
        consumer=[consumer_group("b0", consumer_member("n"))],
    )
    found = await admin.describe_groups(["a1", "b0"])
    classic, consumer = found["a1"], found["b0"]
    assert (classic.group_type, classic.assignor, classic.coordinator.node_id) == ("classic", "range", 1)
    assert classic.members[0].assignment == [("t", 0), ("t", 1)]
    assert (classic.members[0].topics, classic.members[0].speaks_classic) == (["t"], True)
    assert (consumer.group_type, consumer.epoch, consumer.assignment_epoch) == ("consumer", 4, 3)
    assert consumer.members[0].target_assignment == [("t", 1)]
    assert (consumer.members[0].pattern, consumer.members[0].speaks_classic) == ("x.*", False)
    described = [(node, request.group_ids) for node, request in asked(cluster, ConsumerGroupDescribeRequest)]
    assert sorted(described) == [(0, ["b0"]), (1, ["a1"])]
    assert [(node, request.groups) for node, request in asked(cluster, DescribeGroupsRequest)] == [(1, ["a1"])]


async def test_a_group_that_is_not_there_is_named_and_the_code_of_others_kept(cluster, admin):
    refused = classic_group("x1", code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    describe_all(cluster, classic=[classic_group("a1"), refused])
    with pytest.raises(AdminError) as caught:
        await admin.describe_groups(["a1", "gone0", "x1"])
    assert {name: error.code for name, error in caught.value.errors.items()} == {
        "gone0": ErrorCode.GROUP_ID_NOT_FOUND,
        "x1": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }


async def test_what_passes_is_asked_again(cluster, admin):
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
    describe_all(cluster)
    cluster.handlers[DescribeGroupsRequest] = lambda request, version: DescribeGroupsResponse(
        groups=[classic_group("a1", code=codes.pop(0))]
    )
    assert (await admin.describe_groups(["a1"]))["a1"].state == "Stable"
    assert codes == []
    assert len(asked(cluster, FindCoordinatorRequest)) == 3


async def test_a_broker_without_the_consumer_protocol_describes_classic_groups(cluster):
    del cluster.versions[ApiKey.CONSUMER_GROUP_DESCRIBE]
    cluster.versions[ApiKey.FIND_COORDINATOR] = (0, 3)
    describe_all(cluster, classic=[classic_group("a1")])
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        assert (await admin.describe_groups(["a1"]))["a1"].group_type == "classic"


async def test_a_member_that_talks_nonsense_is_described_without_it(cluster, admin):
    describe_all(cluster, classic=[classic_group("a1", members=[classic_member("m", metadata=b"\0\1\0\0\0\7")])])
    (member,) = (await admin.describe_groups(["a1"]))["a1"].members
    assert (member.member_id, member.topics, member.assignment) == ("m", [], [])


# Changing -------------------------------------------------------------------------------------------------------------


async def test_deleting_tells_what_was_refused(cluster, admin):
    codes = {"a0": ErrorCode.NONE, "b1": ErrorCode.NON_EMPTY_GROUP}
    cluster.handlers[DeleteGroupsRequest] = lambda request, version: DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=name, error_code=codes[name])
            for name in request.groups_names
        ]
    )
    with pytest.raises(AdminError) as refused:
        await admin.delete_groups(["a0", "b1"])
    assert {name: error.code for name, error in refused.value.errors.items()} == {"b1": ErrorCode.NON_EMPTY_GROUP}


async def test_members_leave_in_the_words_of_their_protocol(cluster, admin):
    describe_all(cluster, consumer=[consumer_group("g0", consumer_member("new"), consumer_member("old", kind=0))])
    cluster.handlers[LeaveGroupRequest] = lambda request, version: LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(member_id=one.member_id, group_instance_id=None)
            for one in request.members
        ]
    )
    cluster.handlers[ConsumerGroupHeartbeatRequest] = lambda request, version: ConsumerGroupHeartbeatResponse(
        member_epoch=-1, heartbeat_interval_ms=0
    )
    assert await admin.remove_members("g0", reason="because") == ["new", "old"]
    ((_, leave),) = asked(cluster, LeaveGroupRequest)
    assert [(one.member_id, one.reason) for one in leave.members] == [("old", "because")]
    ((_, beat),) = asked(cluster, ConsumerGroupHeartbeatRequest)
    assert (beat.member_id, beat.member_epoch) == ("new", -1)


async def test_members_are_named_by_instance_too_and_unknown_ones_refused(cluster, admin):
    describe_all(
        cluster, classic=[classic_group("g0", members=[classic_member("m", instance="i"), classic_member("n")])]
    )
    cluster.handlers[LeaveGroupRequest] = lambda request, version: LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=0
            )
            for one in request.members
        ]
    )
    with pytest.raises(AdminError) as refused:
        await admin.remove_members("g0", ["i", "m", "nobody"])
    assert list(refused.value.errors) == ["nobody"]
    ((_, leave),) = asked(cluster, LeaveGroupRequest)
    assert [(one.member_id, one.group_instance_id) for one in leave.members] == [("m", "i")]


async def test_an_old_broker_is_told_of_each_member_alone(cluster):
    cluster.versions[ApiKey.LEAVE_GROUP] = (0, 2)
    describe_all(cluster, classic=[classic_group("g0", members=[classic_member("m"), classic_member("n")])])
    cluster.handlers[LeaveGroupRequest] = lambda request, version: LeaveGroupResponse(
        error_code=ErrorCode.UNKNOWN_MEMBER_ID if request.member_id == "n" else 0
    )
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        with pytest.raises(AdminError) as refused:
            await admin.remove_members("g0")
    assert list(refused.value.errors) == ["n"]
    assert [request.member_id for _, request in asked(cluster, LeaveGroupRequest)] == ["m", "n"]


async def test_members_leave_where_their_coordinator_has_moved_to(cluster, admin):
    describe_all(cluster, consumer=[consumer_group("g0", consumer_member("new"), consumer_member("old", kind=0))])
    leaves = iter(
        [
            LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR),
            LeaveGroupResponse(
                members=[
                    LeaveGroupResponse.MemberResponse(
                        member_id="old", group_instance_id=None, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                    )
                ]
            ),
            LeaveGroupResponse(),
        ]
    )
    beats = iter([ErrorCode.NOT_COORDINATOR, ErrorCode.NONE])
    cluster.handlers[LeaveGroupRequest] = lambda request, version: next(leaves)
    cluster.handlers[ConsumerGroupHeartbeatRequest] = lambda request, version: ConsumerGroupHeartbeatResponse(
        error_code=next(beats), member_epoch=-1, heartbeat_interval_ms=0
    )
    assert await admin.remove_members("g0") == ["new", "old"]
    assert (list(leaves), list(beats)) == ([], [])


async def test_only_members_that_have_not_left_are_asked_to_leave_again(cluster):
    cluster.versions[ApiKey.LEAVE_GROUP] = (0, 2)
    describe_all(cluster, classic=[classic_group("g0", members=[classic_member("m"), classic_member("n")])])
    codes = iter([ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE])
    cluster.handlers[LeaveGroupRequest] = lambda request, version: LeaveGroupResponse(error_code=next(codes))
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        assert await admin.remove_members("g0") == ["m", "n"]
    assert [request.member_id for _, request in asked(cluster, LeaveGroupRequest)] == ["m", "n", "n"]


async def test_a_member_has_left_if_only_the_answer_was_lost(cluster, admin):
    describe_all(cluster, classic=[classic_group("g0", members=[classic_member("m")])])
    answers = iter(
        [
            HANG_UP,
            LeaveGroupResponse(
                members=[
                    LeaveGroupResponse.MemberResponse(
                        member_id="m", group_instance_id=None, error_code=ErrorCode.UNKNOWN_MEMBER_ID
                    )
                ]
            ),
        ]
    )
    cluster.handlers[LeaveGroupRequest] = lambda request, version: next(answers)
    assert await admin.remove_members("g0") == ["m"]
    assert list(answers) == []


# Offsets --------------------------------------------------------------------------------------------------------------


def fetched(request, version):
    """Every group has committed 5 for t-0, nothing for t-1."""
    if version < 8:
        partition = OffsetFetchResponse.OffsetFetchResponsePartition
        answer = [
            partition(partition_index=0, committed_offset=5, metadata="m"),
            partition(partition_index=1, committed_offset=-1, metadata=""),
        ]
        return OffsetFetchResponse(topics=[OffsetFetchResponse.OffsetFetchResponseTopic(name="t", partitions=answer)])
    partitions = [
        OffsetFetchResponse.OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, metadata="m"),
        OffsetFetchResponse.OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1, metadata=""),
    ]
    topics = [OffsetFetchResponse.OffsetFetchResponseTopics(name="t", partitions=partitions)]
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponse.OffsetFetchResponseGroup(group_id=one.group_id, topics=topics) for one in request.groups
        ]
    )


@pytest.mark.parametrize("version", [2, 5, 7, 8, 9])
async def test_offsets_of_several_groups_are_asked_together_where_the_broker_can(cluster, version):
    cluster.versions[ApiKey.OFFSET_FETCH] = (1, version)
    cluster.handlers[OffsetFetchRequest] = fetched
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        found = await admin.list_group_offsets({"a0": None, "b0": [T0], "c1": None})
    assert found == {group_id: {T0: OffsetAndMetadata(5, "m")} for group_id in ("a0", "b0", "c1")}
    requests = [request for _, request in asked(cluster, OffsetFetchRequest)]
    assert len(requests) == (2 if version >= 8 else 3)
    assert not any(request.require_stable for request in requests)
    wanted = [group.topics for request in requests for group in request.groups or [request]]
    assert sum(topics is None for topics in wanted) == 2, "None asks for all"


async def test_stable_offsets_are_waited_for(cluster, admin):
    codes = [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE]

    def answer(request, version):
        answer = fetched(request, version)
        answer.groups[0].topics[0].partitions[0].error_code = codes.pop(0)
        return answer

    cluster.handlers[OffsetFetchRequest] = answer
    assert await admin.list_group_offsets({"a0": [T0]}, require_stable=True) == {"a0": {T0: OffsetAndMetadata(5, "m")}}
    assert all(request.require_stable for _, request in asked(cluster, OffsetFetchRequest))
    assert codes == []


async def test_offsets_that_an_open_transaction_may_change_are_named_and_not_waited_for(cluster, admin):
    code = ErrorCode.UNSTABLE_OFFSET_COMMIT

    def answer(request, version):
        answer = fetched(request, version)
        answer.groups[0].topics[0].partitions[0].error_code = code
        return answer

    cluster.handlers[OffsetFetchRequest] = answer
    assert await admin.find_unstable_group_offsets("a0", [T0]) == [T0]
    code = ErrorCode.NONE
    assert await admin.find_unstable_group_offsets("a0", [T0]) == []
    assert [request.require_stable for _, request in asked(cluster, OffsetFetchRequest)] == [True, True]


async def test_a_group_whose_offsets_are_refused_is_named(cluster, admin):
    cluster.handlers[OffsetFetchRequest] = lambda request, version: OffsetFetchResponse(
        groups=[
            OffsetFetchResponse.OffsetFetchResponseGroup(
                group_id=one.group_id, topics=[], error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
            )
            for one in request.groups
        ]
    )
    with pytest.raises(AdminError) as refused:
        await admin.list_group_offsets({"a0": None})
    assert refused.value.errors["a0"].code is ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_altered_offsets_are_committed_in_nobodys_name(cluster, admin):
    codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]

    def answer(request, version):
        partition = OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=0, error_code=codes.pop(0))
        return OffsetCommitResponse(
            topics=[OffsetCommitResponse.OffsetCommitResponseTopic(name="t", partitions=[partition])]
        )

    cluster.handlers[OffsetCommitRequest] = answer
    await admin.alter_group_offsets("g1", {T0: OffsetAndMetadata(7, "why", 2)})
    node, request = asked(cluster, OffsetCommitRequest)[-1]
    (partition,) = request.topics[0].partitions
    assert (node, request.generation_id_or_member_epoch, request.member_id) == (1, -1, "")
    assert (partition.committed_offset, partition.committed_metadata, partition.committed_leader_epoch) == (7, "why", 2)
    codes.append(ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(AdminError) as refused:
        await admin.alter_group_offsets("g1", {T0: 7})
    assert refused.value.errors["t-0"].code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_deleted_offsets_are_refused_by_partition_or_as_a_whole(cluster, admin):
    def answer(request, version):
        partition = OffsetDeleteResponse.OffsetDeleteResponsePartition(
            partition_index=0, error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        )
        topic = OffsetDeleteResponse.OffsetDeleteResponseTopic(name="t", partitions=[partition])
        return OffsetDeleteResponse(topics=[topic])

    cluster.handlers[OffsetDeleteRequest] = answer
    with pytest.raises(AdminError) as refused:
        await admin.delete_group_offsets("g0", [T0])
    assert refused.value.errors["t-0"].code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    cluster.handlers[OffsetDeleteRequest] = lambda request, version: OffsetDeleteResponse(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND, topics=[]
    )
    with pytest.raises(KafkaError) as whole:
        await admin.delete_group_offsets("g0", [T0])
    assert whole.value.code is ErrorCode.GROUP_ID_NOT_FOUND
