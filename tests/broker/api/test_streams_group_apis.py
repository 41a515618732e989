"""Streams groups through a whole node: internal topics, lists and descriptions, groups of other types, rights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kit.consumer_groups import heartbeat as consumer_heartbeat
from kit.consumer_groups import join_request as consumer_join
from kit.group_requests import committed, delete_group, group_ids, join
from kit.nodes import ask, ask_for
from kit.streams_nodes import CHANGELOG, STATEFUL, StreamsNode, statuses
from kit.streams_topologies import internal_topic, request_topology, subtopology
from kit.topics import create, delete

from ottla.broker.metadata.change_requests import NewTopic
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api import (
    streams_group_describe,
    streams_group_heartbeat,
    streams_group_topology_description_update,
)
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupStatus
from ottla.protocol.api.streams_group_topology_description_update import StreamsGroupTopologyDescriptionUpdateRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import FeatureLevelRecord

MISSING = StreamsGroupStatus.MISSING_INTERNAL_TOPICS
CREATE_TOPIC = (AclOperation.CREATE, ResourceType.TOPIC, CHANGELOG)
CREATE_ANY = (AclOperation.CREATE, ResourceType.CLUSTER, "")


@pytest.fixture
def broker() -> StreamsNode:
    """Group `app` has the member `m`, which has both tasks at epoch 3."""
    broker = StreamsNode()
    broker.join()
    answer = broker.heartbeat(2)
    assert (answer.member_epoch, answer.status) == (3, [])
    return broker


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code


# --- internal topics -------------------------------------------------------------------------------------------------


def test_the_internal_topics_of_a_topology_are_created_as_it_configures_them() -> None:
    broker = StreamsNode()
    first = broker.join()
    assert statuses(first) == {MISSING: f"Internal topics are missing: {CHANGELOG}"}
    assert first.active_tasks == []
    topic = broker.node.services.catalog.topics[CHANGELOG]
    assert (len(topic.partitions), topic.config.cleanup_policy) == (2, ("compact",))
    second = broker.heartbeat(2)
    assert statuses(second) == {}
    assert [(one.subtopology_id, one.partitions) for one in second.active_tasks or ()] == [("0", [0, 1])]


def test_a_topic_that_cannot_be_created_is_named_with_the_reason_and_tried_again_later() -> None:
    broker = StreamsNode()
    create(broker.node, NewTopic("app_log", partitions=1, replication_factor=1))
    topology = request_topology(subtopology("0", reads=["t"], changelog=[internal_topic("app.log")]))
    failed = "Internal topics are missing: app.log; Creation failed: app.log (app.log collides with app_log: "
    assert statuses(broker.join(topology=topology))[MISSING].startswith(failed)
    delete(broker.node, "app_log")
    assert statuses(broker.heartbeat(2))[MISSING].startswith(failed), "it was tried again at once"
    broker.pass_ms(10_000)
    assert statuses(broker.heartbeat(2)) == {MISSING: "Internal topics are missing: app.log"}
    assert statuses(broker.heartbeat(2)) == {}
    assert len(broker.node.services.catalog.topics["app.log"].partitions) == 2


def test_without_the_right_to_create_it_an_internal_topic_is_named() -> None:
    broker = StreamsNode()
    broker.deny(CREATE_TOPIC, CREATE_ANY)
    detail = f"Internal topics are missing: {CHANGELOG}; Unauthorized to CREATE on topics {CHANGELOG}."
    assert statuses(broker.join()) == {MISSING: detail}
    assert statuses(broker.heartbeat(2)) == {MISSING: detail}
    assert CHANGELOG not in broker.node.services.catalog.topics


@pytest.mark.parametrize(
    "denied", [CREATE_TOPIC, CREATE_ANY], ids=["with that of the cluster", "with that of the topic"]
)
def test_one_right_is_enough_to_create_an_internal_topic(
    denied: tuple[AclOperation, ResourceType, str],
) -> None:
    broker = StreamsNode()
    broker.deny(denied)
    broker.join()
    assert CHANGELOG in broker.node.services.catalog.topics


def test_tasks_are_assigned_when_the_missing_source_topic_is_there() -> None:
    broker = StreamsNode()
    topology = request_topology(subtopology("0", reads=["later"]))
    answer = broker.join(topology=topology)
    assert statuses(answer) == {StreamsGroupStatus.MISSING_SOURCE_TOPICS: "Source topics later are missing."}
    create(broker.node, NewTopic("later", partitions=1, replication_factor=1))
    answer = broker.heartbeat(answer.member_epoch)
    assert statuses(answer) == {}
    assert [one.partitions for one in answer.active_tasks or ()] == [[0]]


def test_an_internal_topic_that_is_deleted_is_created_again(broker: StreamsNode) -> None:
    delete(broker.node, CHANGELOG)
    answer = broker.heartbeat(3)
    assert statuses(answer) == {MISSING: f"Internal topics are missing: {CHANGELOG}"}
    assert answer.active_tasks == []
    assert CHANGELOG in broker.node.services.catalog.topics
    answer = broker.heartbeat(3, active_tasks=[], standby_tasks=[], warmup_tasks=[])
    answer = broker.heartbeat(answer.member_epoch)
    assert statuses(answer) == {}
    assert [one.partitions for one in answer.active_tasks or ()] == [[0, 1]]


# --- members ---------------------------------------------------------------------------------------------------------


def test_a_member_that_joined_is_there_after_a_crash(broker: StreamsNode) -> None:
    again = broker.crashed()
    answer = again.heartbeat(3)
    assert (answer.member_epoch, answer.active_tasks, answer.status) == (3, None, [])
    (group,) = again.describe("app")
    assert [(one.member_id, one.process_id) for one in group.members] == [("m", "process-m")]


def test_a_member_of_a_group_that_does_not_exist_has_to_join(broker: StreamsNode) -> None:
    assert refused(lambda: broker.heartbeat(1, group="other")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(lambda: broker.heartbeat(-1, group="other")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert group_ids(broker.node) == {"app"}


def test_a_heartbeat_that_cannot_be_makes_no_group(broker: StreamsNode) -> None:
    loop = request_topology(subtopology("0", repartition=[internal_topic("p")], writes=["p"]))
    internal = request_topology(subtopology("0", reads=["__consumer_offsets"]))
    assert refused(lambda: broker.join(" ", group="other")) is ErrorCode.INVALID_REQUEST
    assert refused(lambda: broker.join(topology=loop, group="other")) is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert refused(lambda: broker.join(topology=internal, group="other")) is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert group_ids(broker.node) == {"app"}


def test_the_size_of_a_group_is_bounded_by_its_key() -> None:
    broker = StreamsNode(group_streams_max_size=1)
    broker.join()
    assert refused(lambda: broker.join("n")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    broker.join("n", group="other")


def test_topics_that_may_not_be_described_are_no_part_of_a_topology(broker: StreamsNode) -> None:
    broker.deny((AclOperation.DESCRIBE, ResourceType.TOPIC, CHANGELOG))
    assert refused(lambda: broker.join("n")) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.heartbeat(3).member_epoch == 3


# --- lists and descriptions ------------------------------------------------------------------------------------------


def test_streams_groups_are_listed_by_state_and_type(broker: StreamsNode) -> None:
    broker.join(group="waiting", topology=request_topology(subtopology("0", reads=["absent"])))
    broker.join(group="left")
    broker.heartbeat(-1, group="left")
    ask(broker.node, consumer_join("c", ["t"]).replace(group_id="consumers"), 1)
    response = ask_for(ListGroupsResponse, broker.node, ListGroupsRequest(), 5)
    listed = {one.group_id: (one.protocol_type, one.group_state, one.group_type) for one in response.groups}
    assert listed["app"] == ("streams", "Stable", "streams")
    assert listed["left"] == ("streams", "Empty", "streams")
    assert listed["waiting"] == ("streams", "NotReady", "streams")
    assert group_ids(broker.node, types_filter=["Streams"]) == {"app", "left", "waiting"}
    assert group_ids(broker.node, types_filter=["streams"], states_filter=["stable"]) == {"app"}
    assert group_ids(broker.node, types_filter=["consumer", "classic"]) == {"consumers"}


def test_groups_are_described_one_by_one(broker: StreamsNode) -> None:
    ask(broker.node, consumer_join("c", ["t"]).replace(group_id="other"), 1)
    codes = [ErrorCode.of(one.error_code) for one in broker.describe("app", "nope", "", "other")]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]


def test_a_description_has_the_topology_and_the_tasks_of_members(broker: StreamsNode) -> None:
    (group,) = broker.describe("app")
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        3,
        3,
        "sticky",
    )
    assert group.topology is not None
    assert group.topology.subtopologies is not None
    (described,) = group.topology.subtopologies
    assert [(one.name, one.partitions) for one in described.state_changelog_topics] == [(CHANGELOG, 2)]
    (member,) = group.members
    assert [(one.subtopology_id, one.partitions) for one in member.assignment.active_tasks] == [("0", [0, 1])]
    assert member.target_assignment == member.assignment


def test_a_group_whose_topics_may_not_be_described_is_refused(broker: StreamsNode) -> None:
    broker.deny((AclOperation.DESCRIBE, ResourceType.TOPIC, CHANGELOG))
    (group,) = broker.describe("app")
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


def test_a_description_has_the_allowed_operations_if_they_are_asked_for(broker: StreamsNode) -> None:
    broker.deny((AclOperation.DELETE, ResourceType.GROUP, "app"))
    (unasked,), (asked,) = broker.describe("app"), broker.describe("app", authorized=True)
    assert unasked.authorized_operations == -(1 << 31)
    assert asked.authorized_operations & (1 << AclOperation.READ)
    assert not asked.authorized_operations & (1 << AclOperation.DELETE)


# --- groups of other types -------------------------------------------------------------------------------------------


def test_members_of_other_types_do_not_join_a_streams_group(broker: StreamsNode) -> None:
    share = ShareGroupHeartbeatRequest(group_id="app", member_id="s", member_epoch=0, subscribed_topic_names=["t"])
    for request in (consumer_join("c", ["t"]).replace(group_id="app"), share):
        assert refused(lambda request=request: ask(broker.node, request, 1)) is ErrorCode.GROUP_ID_NOT_FOUND  # type: ignore[misc]


def test_no_streams_member_joins_a_group_of_another_type(broker: StreamsNode) -> None:
    ask(broker.node, consumer_join("c", ["t"]).replace(group_id="h"), 1)
    assert refused(lambda: broker.join(group="h")) is ErrorCode.GROUP_ID_NOT_FOUND
    ask(broker.node, consumer_heartbeat("c", -1).replace(group_id="h"), 1)
    assert refused(lambda: broker.join(group="h")) is ErrorCode.GROUP_ID_NOT_FOUND
    join(broker.node, "classic")
    assert refused(lambda: broker.join(group="classic")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted_and_an_empty_one_is(broker: StreamsNode) -> None:
    assert delete_group(broker.node, "app") == ErrorCode.NON_EMPTY_GROUP
    broker.heartbeat(-1)
    assert delete_group(broker.node, "app") == ErrorCode.NONE
    assert group_ids(broker.restarted().node) == set()
    assert committed(broker.node, "app") == -1


# --- where streams groups are not served -----------------------------------------------------------------------------


def test_without_the_feature_no_request_of_streams_groups_is_served(broker: StreamsNode) -> None:
    broker.node.services.catalog.image.replay(FeatureLevelRecord(name="streams.version", feature_level=0))
    for call in (lambda: broker.heartbeat(3), broker.join, lambda: broker.describe("app")):
        assert refused(call) is ErrorCode.UNSUPPORTED_VERSION


def test_refusals_of_a_whole_request_have_the_shape_of_the_api() -> None:
    request = StreamsGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=0, endpoint_information_epoch=0)
    response = streams_group_heartbeat.refused(request, 1, ErrorCode.NOT_COORDINATOR, "no")
    assert (response.error_code, response.error_message) == (ErrorCode.NOT_COORDINATOR, "no")
    asked = StreamsGroupDescribeRequest(group_ids=["a", "b"], include_authorized_operations=False)
    described = streams_group_describe.refused(asked, 1, ErrorCode.NOT_COORDINATOR, "no")
    assert [(group.group_id, group.error_code) for group in described.groups] == [("a", 16), ("b", 16)]


def test_no_plugin_takes_the_description_of_a_topology(broker: StreamsNode) -> None:
    description = StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescription(subtopologies=[], global_stores=[])
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id="app", member_id="m", topology_epoch=STATEFUL.epoch, topology_description=description
    )
    assert refused(lambda: ask(broker.node, request, 0)) is ErrorCode.UNSUPPORTED_VERSION
    response = streams_group_topology_description_update.refused(request, 0, ErrorCode.UNSUPPORTED_VERSION, "no")
    assert (response.error_code, response.error_message) == (ErrorCode.UNSUPPORTED_VERSION, "no")
    assert broker.heartbeat(3).topology_description_required is False
