"""Admin and streams groups: each coordinator is asked about its own, what passes is asked again, refusals are named."""

from __future__ import annotations

import pytest
from kit.fake_broker import FakeCluster

from ottla.client import Admin, AdminError, ErrorCode, StreamsTask, UnsupportedByBroker
from ottla.protocol.api import ApiKey
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
KIND = StreamsGroupDescribeResponse


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


def described(group_id, *members, code=ErrorCode.NONE):
    """A group with two subtopologies, of which the second reads what the first writes."""
    if code:
        return KIND.DescribedGroup(
            group_id=group_id,
            error_code=code,
            error_message="no",
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            members=[],
        )
    internal = KIND.TopicInfo(name="g-repartition", partitions=3, replication_factor=0, topic_configs=[])
    config = KIND.KeyValue(key="cleanup.policy", value="compact")
    changelog = KIND.TopicInfo(name="g-changelog", partitions=3, replication_factor=1, topic_configs=[config])
    first = KIND.Subtopology(
        subtopology_id="0",
        source_topics=["u", "t"],
        repartition_sink_topics=["g-repartition"],
        state_changelog_topics=[],
        repartition_source_topics=[],
    )
    second = KIND.Subtopology(
        subtopology_id="1",
        source_topics=[],
        repartition_sink_topics=[],
        state_changelog_topics=[changelog],
        repartition_source_topics=[internal],
    )
    return KIND.DescribedGroup(
        group_id=group_id,
        group_state="Stable",
        group_epoch=4,
        assignment_epoch=3,
        topology=KIND.Topology(epoch=2, subtopologies=[first, second]),
        members=list(members),
        assignor_name="sticky",
    )


def assignment(active, standby=(), warmup=()):
    def tasks(some):
        return [KIND.TaskIds(subtopology_id=number, partitions=list(partitions)) for number, partitions in some]

    return KIND.Assignment(active_tasks=tasks(active), standby_tasks=tasks(standby), warmup_tasks=tasks(warmup))


def streams_member(member_id, endpoint=None):
    return KIND.Member(
        member_id=member_id,
        member_epoch=3,
        instance_id="i",
        rack_id="r",
        client_id="c",
        client_host="/h",
        topology_epoch=2,
        process_id="p",
        user_endpoint=endpoint,
        client_tags=[KIND.KeyValue(key="zone", value="z")],
        task_offsets=[],
        task_end_offsets=[],
        assignment=assignment([("1", [2, 0]), ("0", [1])], [("1", [1])]),
        target_assignment=assignment([("0", [1])], warmup=[("1", [2])]),
        is_classic=False,
    )


async def test_groups_are_described_by_their_coordinators(cluster, admin):
    endpoint = KIND.Endpoint(host="h", port=7)
    cluster.handlers[StreamsGroupDescribeRequest] = lambda request, version: KIND(
        groups=[described(group_id, streams_member("m", endpoint)) for group_id in request.group_ids]
    )
    found = await admin.describe_streams_groups(["g0", "g1", "h0"])
    asked = [(node, request.group_ids) for node, request, _ in cluster.requests if request.message_key == 89]
    assert sorted(asked) == [(0, ["g0", "h0"]), (1, ["g1"])]
    group = found["g1"]
    assert (group.group_type, group.protocol_type, group.state, group.assignor) == (
        "streams",
        "streams",
        "Stable",
        "sticky",
    )
    assert (group.epoch, group.assignment_epoch, group.coordinator.node_id) == (4, 3, 1)
    (member,) = group.members
    assert (member.member_id, member.group_instance_id, member.client_id, member.host) == ("m", "i", "c", "/h")
    assert (member.topics, member.assignment, member.epoch) == (["g-repartition", "t", "u"], [], 3)
    streams = member.streams
    assert (streams.process_id, streams.topology_epoch, streams.rack_id) == ("p", 2, "r")
    assert (streams.user_endpoint, streams.client_tags) == (("h", 7), {"zone": "z"})
    assert streams.tasks.active == [StreamsTask("0", 1), StreamsTask("1", 0), StreamsTask("1", 2)]
    assert [str(task) for task in streams.tasks.standby] == ["1_1"]
    assert (streams.target_tasks.active, streams.target_tasks.warmup) == ([("0", 1)], [("1", 2)])


async def test_a_topology_has_what_it_reads_writes_and_keeps(cluster, admin):
    cluster.handlers[StreamsGroupDescribeRequest] = lambda request, version: KIND(groups=[described("g0")])
    topology = (await admin.describe_streams_groups(["g0"]))["g0"].topology
    first, second = topology.subtopologies
    assert (topology.epoch, first.subtopology_id, second.subtopology_id) == (2, "0", "1")
    assert (first.topics_read, second.topics_read) == (["t", "u"], ["g-repartition"])
    assert (first.repartition_sink_topics, first.state_changelog_topics) == (["g-repartition"], [])
    (changelog,) = second.state_changelog_topics
    assert (changelog.name, changelog.partitions, changelog.replication_factor) == ("g-changelog", 3, 1)
    assert changelog.configs == {"cleanup.policy": "compact"}


async def test_a_group_without_endpoints_or_a_topology_that_is_known_is_described(cluster, admin):
    bare = described("g0", streams_member("m"))
    bare.topology.subtopologies = None
    none = described("h0")
    none.topology = none.assignor_name = None
    cluster.handlers[StreamsGroupDescribeRequest] = lambda request, version: KIND(groups=[bare, none])
    found = await admin.describe_streams_groups(["g0", "h0"])
    assert (found["g0"].topology.epoch, found["g0"].topology.subtopologies) == (2, [])
    assert found["g0"].members[0].streams.user_endpoint is None
    assert (found["h0"].topology, found["h0"].assignor) == (None, "")


async def test_what_passes_is_asked_again_and_refusals_are_named(cluster, admin):
    answers = [
        [described("g0", code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), described("h0", code=ErrorCode.NOT_COORDINATOR)],
        [described("g0"), described("h0", code=ErrorCode.GROUP_ID_NOT_FOUND)],
    ]
    cluster.handlers[StreamsGroupDescribeRequest] = lambda request, version: KIND(groups=answers.pop(0))
    with pytest.raises(AdminError) as refused:
        await admin.describe_streams_groups(["g0", "h0"])
    assert {name: (error.code, error.message) for name, error in refused.value.errors.items()} == {
        "h0": (ErrorCode.GROUP_ID_NOT_FOUND, "no")
    }
    assert answers == []


async def test_a_broker_without_streams_groups_is_named(cluster, admin):
    cluster.versions.pop(ApiKey.STREAMS_GROUP_DESCRIBE, None)
    with pytest.raises(UnsupportedByBroker, match=r"STREAMS_GROUP_DESCRIBE|StreamsGroupDescribe"):
        await admin.describe_streams_groups(["g0"])
