"""ConsumerGroupHeartbeat and ConsumerGroupDescribe through a whole node: access, durability, migration, crashes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kit.clock import ManualClock
from kit.consumer_groups import GROUP, heartbeat, join_request
from kit.group_requests import group_ids, join, make_topic
from kit.nodes import ask, pass_time, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.protocol.api import consumer_group_describe, consumer_group_heartbeat
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import FeatureLevelRecord


@pytest.fixture
def life() -> tuple[Node, SimulatedFiles, ManualClock]:
    node, files, clock = start_node(ottla_acks_all="sync")
    make_topic(node, "t", 4)
    return node, files, clock


def beat(node: Node, request: ConsumerGroupHeartbeatRequest, *, peer: Peer | None = None) -> Any:
    response = ask(node, request, 1, peer=peer)
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response


def describe(node: Node, *groups: str, version: int = 1, authorized: bool = False) -> list[Any]:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=authorized)
    response = ask(node, request, version)
    assert isinstance(response, ConsumerGroupDescribeResponse)
    return response.groups


def test_a_member_joins_and_is_described(life: tuple[Node, SimulatedFiles, ManualClock]) -> None:
    node, _, _ = life
    joined = beat(node, join_request("a", ["t"]))
    assert (joined.member_epoch, joined.heartbeat_interval_ms) == (1, 5_000)
    (topic,) = joined.assignment.topic_partitions
    assert topic.partitions == [0, 1, 2, 3]
    (group,) = describe(node, GROUP, authorized=True)
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert group.authorized_operations > 0
    (member,) = group.members
    assert member.assignment == member.target_assignment
    assert (member.assignment.topic_partitions[0].topic_name, member.member_type) == ("t", 1)


def test_groups_that_do_not_exist_are_refused_each_with_its_code(
    life: tuple[Node, SimulatedFiles, ManualClock],
) -> None:
    node, _, _ = life
    join(node, "classic")
    codes = [group.error_code for group in describe(node, "nobody", "", "classic")]
    assert codes == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND]


@pytest.mark.parametrize("profile", ["kafka-4.1", "kafka-4.0"])
def test_clients_see_the_feature(profile: str) -> None:
    node, _, _ = start_node(ottla_profile=profile)
    response = ask(node, ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    assert isinstance(response, ApiVersionsResponse)
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    supported = {feature.name: (feature.min_version, feature.max_version) for feature in response.supported_features}
    assert finalized["group.version"] == 1
    assert supported["group.version"] == (0, 1)
    assert {68, 69} <= {api.api_key for api in response.api_keys}


@pytest.mark.parametrize(
    "request_",
    [join_request("a", ["t"]), ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)],
    ids=["heartbeat", "describe"],
)
def test_a_broker_configured_not_to_serve_the_protocol_says_so(request_: Any) -> None:
    node, _, _ = start_node(group_coordinator_rebalance_protocols="classic")
    with pytest.raises(KafkaError) as refused:
        ask(node, request_, 1)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_level_that_an_administrator_has_taken_back_ends_the_protocol(
    life: tuple[Node, SimulatedFiles, ManualClock],
) -> None:
    node, _, _ = life
    node.services.catalog.image.replay(FeatureLevelRecord(name="group.version", feature_level=0))
    with pytest.raises(KafkaError) as refused:
        beat(node, join_request("a", ["t"]))
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_refusals_of_a_whole_request_have_the_shape_of_the_api() -> None:
    response = consumer_group_heartbeat.refused(join_request("a", ["t"]), 1, ErrorCode.NOT_COORDINATOR, "no")
    assert (response.error_code, response.error_message) == (ErrorCode.NOT_COORDINATOR, "no")
    request = ConsumerGroupDescribeRequest(group_ids=["a", "b"], include_authorized_operations=False)
    described = consumer_group_describe.refused(request, 1, ErrorCode.NOT_COORDINATOR, "no")
    assert [(group.group_id, group.error_code) for group in described.groups] == [("a", 16), ("b", 16)]


@pytest.mark.parametrize("seed", range(5))
def test_after_a_power_cut_members_continue_at_the_epochs_that_they_were_sent(
    life: tuple[Node, SimulatedFiles, ManualClock], seed: int
) -> None:
    node, files, clock = life
    beat(node, join_request("a", ["t"]))
    beat(node, join_request("b", ["t"]))
    (topic,) = beat(node, heartbeat("a", 1)).assignment.topic_partitions
    again, files, _ = start_node(files.crash(random.Random(seed)), clock, ottla_acks_all="sync")
    owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)]
    assert beat(again, heartbeat("a", 1, topic_partitions=owned)).member_epoch == 2
    (given,) = beat(again, heartbeat("b", 2)).assignment.topic_partitions
    assert sorted([*given.partitions, *topic.partitions]) == [0, 1, 2, 3]


def test_a_silent_member_is_fenced_by_the_nodes_timer(life: tuple[Node, SimulatedFiles, ManualClock]) -> None:
    node, _, clock = life
    beat(node, join_request("a", ["t"]))
    pass_time(node, clock, 46_000)
    assert describe(node, GROUP)[0].group_state == "Empty"


def test_a_broken_connection_ends_a_member_where_the_broker_is_configured_so() -> None:
    node, _, _ = start_node(ottla_group_evict_on_disconnect_ms=0)
    make_topic(node, "t", 1)
    peer = Peer()
    beat(node, join_request("a", ["t"]), peer=peer)
    node.services.groups.get().on_disconnect(peer)
    node.settle()
    assert describe(node, GROUP)[0].group_state == "Empty"


def test_a_deleted_topic_leaves_the_assignment_at_the_next_heartbeat(
    life: tuple[Node, SimulatedFiles, ManualClock],
) -> None:
    node, _, _ = life
    beat(node, join_request("a", ["t"]))
    state = DeleteTopicsRequest.DeleteTopicState(name="t", topic_id=node.services.catalog.topics["t"].id)
    ask(node, DeleteTopicsRequest(topics=[state.replace(name=None)], timeout_ms=1_000), 6)
    reported = beat(node, heartbeat("a", 1))
    assert reported.assignment.topic_partitions == []
    assert describe(node, GROUP)[0].members[0].assignment.topic_partitions == []


@pytest.mark.parametrize("seed", range(3))
def test_an_upgraded_group_is_an_upgraded_group_after_a_power_cut(
    life: tuple[Node, SimulatedFiles, ManualClock], seed: int
) -> None:
    node, files, clock = life
    member_id, generation = classic_group(node)
    beat(node, join_request("n", ["t"]))
    again, files, _ = start_node(files.crash(random.Random(seed)), clock, ottla_acks_all="sync")
    assert classic_heartbeat(again, member_id, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    (group,) = describe(again, GROUP)
    assert sorted(member.member_type for member in group.members) == [0, 1]
    beat(again, heartbeat("n", -1))
    last, _, _ = start_node(files.crash(random.Random(seed)), clock, ottla_acks_all="sync")
    assert describe(last, GROUP)[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert GROUP in group_ids(last)
    assert classic_heartbeat(last, member_id, generation) == ErrorCode.ILLEGAL_GENERATION, "it was at 2 already"


def test_an_upgrade_that_is_refused_leaves_the_classic_group(life: tuple[Node, SimulatedFiles, ManualClock]) -> None:
    node, _, _ = life
    member_id, generation = classic_group(node)
    with pytest.raises(KafkaError) as refused:
        beat(node, join_request("n", None, subscribed_topic_regex="("))
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert classic_heartbeat(node, member_id, generation) == ErrorCode.NONE


def classic_group(node: Node) -> tuple[str, int]:
    """A classic group of one consumer that owns everything."""
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=["t"]), 0)
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    joined = ask(node, request, 3)
    assert isinstance(joined, JoinGroupResponse)
    listed = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[0, 1, 2, 3])
    mine = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[listed]), 0)
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=mine)
    sync = SyncGroupRequest(
        group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
    )
    ask(node, sync, 3)
    return joined.member_id, joined.generation_id


def classic_heartbeat(node: Node, member_id: str, generation: int) -> int:
    request = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
    answer = ask(node, request, 4)
    assert isinstance(answer, HeartbeatResponse)
    return answer.error_code
