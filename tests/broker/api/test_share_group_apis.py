"""Share groups through a whole node: lists and descriptions, groups of other types, rights, durability."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.consumer_groups import heartbeat as consumer_heartbeat
from kit.consumer_groups import join_request as consumer_join
from kit.group_requests import commit_request, committed, delete_group, group_ids, join, join_request
from kit.nodes import ask
from kit.share_nodes import Reader, ShareNode

from ottla.protocol.api import share_group_describe, share_group_heartbeat
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.api.describe_groups import DescribeGroupsRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Request, Struct
from ottla.protocol.stored.metadata import FeatureLevelRecord


@pytest.fixture
def broker() -> ShareNode:
    """Group `g` has the member `a`."""
    broker = ShareNode()
    broker.heartbeat("a")
    return broker


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code


def describe(broker: ShareNode, *groups: str, authorized: bool = False) -> list[Any]:
    request = ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=authorized)
    response = ask(broker.node, request, 1)
    assert isinstance(response, ShareGroupDescribeResponse)
    assert [one.group_id for one in response.groups] == list(groups)
    return response.groups


def code_of(broker: ShareNode, request: Request, version: int) -> ErrorCode:
    """The first code of an answer that is none of success, or that of a refusal of the whole request."""
    try:
        return next(iter(_codes(ask(broker.node, request, version))), ErrorCode.NONE)
    except KafkaError as refusal:
        return refusal.code


def _codes(part: object) -> list[ErrorCode]:
    if isinstance(part, list):
        return [code for one in part for code in _codes(one)]
    if not isinstance(part, Struct):
        return []
    values = {name: getattr(part, name) for name in type(part).__annotations__ if hasattr(part, name)}
    own = [ErrorCode.of(values["error_code"])] if values.get("error_code") else []
    return own + [code for value in values.values() for code in _codes(value)]


# --- members ---------------------------------------------------------------------------------------------------------


def test_a_member_that_joined_is_there_after_a_crash(broker: ShareNode) -> None:
    again = broker.crashed()
    assert again.heartbeat("a", 1, topics=None).member_epoch == 1
    (described,) = describe(again, "g")
    assert [member.member_id for member in described.members] == ["a"]


def test_a_group_that_has_no_member_any_more_stays_with_its_offsets(broker: ShareNode) -> None:
    broker.produce(2)
    reader = Reader(broker)
    reader.take()
    reader.acknowledge((0, 0, [1]))
    reader.close()
    broker.heartbeat("a", -1)
    broker.pass_ms(24 * 3_600_000)
    again = broker.restarted()
    assert group_ids(again.node) == {"g"}
    again.heartbeat("b")
    assert Reader(again, "b").take() == [(1, 1, 2)]


def test_a_member_of_a_group_that_does_not_exist_has_to_join(broker: ShareNode) -> None:
    assert refused(lambda: broker.heartbeat("a", 1, group="h")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(lambda: broker.heartbeat("a", -1, group="h")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert group_ids(broker.node) == {"g"}


def test_a_heartbeat_that_cannot_be_makes_no_group(broker: ShareNode) -> None:
    assert refused(lambda: broker.heartbeat(" ", group="h")) is ErrorCode.INVALID_REQUEST
    assert refused(lambda: broker.heartbeat("a", group="h", topics=())) is ErrorCode.INVALID_REQUEST
    assert group_ids(broker.node) == {"g"}


def test_the_size_of_a_group_is_bounded_by_its_key() -> None:
    broker = ShareNode(group_share_max_size=1)
    broker.heartbeat("a")
    assert refused(lambda: broker.heartbeat("b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    broker.heartbeat("b", group="h")


def test_a_topic_that_may_not_be_described_is_not_subscribed_to(broker: ShareNode) -> None:
    broker.deny("t")
    assert refused(lambda: broker.heartbeat("b")) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.heartbeat("a", 1, topics=None)


# --- lists and descriptions ------------------------------------------------------------------------------------------


def test_share_groups_are_listed_by_state_and_type(broker: ShareNode) -> None:
    broker.heartbeat("a", group="h")
    broker.heartbeat("a", -1, group="h")
    ask(broker.node, consumer_join("c", ["t"]).replace(group_id="other"), 1)
    response = ask(broker.node, ListGroupsRequest(), 5)
    assert isinstance(response, ListGroupsResponse)
    listed = {one.group_id: (one.protocol_type, one.group_state, one.group_type) for one in response.groups}
    assert listed["g"] == ("share", "Stable", "share")
    assert listed["h"] == ("share", "Empty", "share")
    assert group_ids(broker.node, types_filter=["share"]) == {"g", "h"}
    assert group_ids(broker.node, types_filter=["Share"], states_filter=["empty"]) == {"h"}
    assert group_ids(broker.node, types_filter=["consumer", "classic"]) == {"other"}


def test_a_description_has_the_members_and_what_they_read(broker: ShareNode) -> None:
    (group,) = describe(broker, "g")
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
    ((topic,),) = [member.assignment.topic_partitions for member in group.members]
    assert (topic.topic_name, topic.partitions) == ("t", [0, 1])


def test_groups_are_described_one_by_one(broker: ShareNode) -> None:
    ask(broker.node, consumer_join("c", ["t"]).replace(group_id="other"), 1)
    codes = [ErrorCode.of(one.error_code) for one in describe(broker, "g", "nope", "", "other")]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]


def test_a_group_whose_topics_may_not_be_described_is_refused(broker: ShareNode) -> None:
    broker.deny("t")
    (group,) = describe(broker, "g")
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


# --- groups of other types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        (join_request("g"), 7, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join_request("g", "some-id"), 7, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (consumer_join("c", ["t"]).replace(group_id="g"), 1, ErrorCode.GROUP_ID_NOT_FOUND),
        (consumer_heartbeat("c", 1).replace(group_id="g"), 1, ErrorCode.GROUP_ID_NOT_FOUND),
        (commit_request("g", {0: 1}), 8, ErrorCode.GROUP_ID_NOT_FOUND),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="q"), 4, ErrorCode.UNKNOWN_MEMBER_ID),
        (DescribeGroupsRequest(groups=["g"]), 6, ErrorCode.GROUP_ID_NOT_FOUND),
        (
            ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
            1,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ),
    ],
    ids=[
        "classic",
        "classic with an id",
        "consumer",
        "consumer heartbeat",
        "commit",
        "heartbeat",
        "describe",
        "consumer describe",
    ],
)
@pytest.mark.parametrize("is_empty", [False, True], ids=["stable", "empty"])
def test_requests_of_other_groups_are_refused_by_a_share_group_as_kafka_4_4_does(
    broker: ShareNode, request_: Request, version: int, code: ErrorCode, is_empty: bool
) -> None:
    if is_empty:
        broker.heartbeat("a", -1)
    assert code_of(broker, request_, version) is code
    (group,) = describe(broker, "g")
    assert (group.error_code, len(group.members)) == (0, 0 if is_empty else 1)


def test_a_share_group_has_no_committed_offsets_to_be_fetched(broker: ShareNode) -> None:
    assert committed(broker.node, "g") == -1


def test_no_share_member_joins_a_consumer_group(broker: ShareNode) -> None:
    ask(broker.node, consumer_join("c", ["t"]).replace(group_id="h"), 1)
    assert refused(lambda: broker.heartbeat("a", group="h")) is ErrorCode.GROUP_ID_NOT_FOUND
    ask(broker.node, consumer_heartbeat("c", -1).replace(group_id="h"), 1)
    assert refused(lambda: broker.heartbeat("a", group="h")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_no_share_member_joins_a_classic_group(broker: ShareNode) -> None:
    join(broker.node, "h")
    assert refused(lambda: broker.heartbeat("a", group="h")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_after_its_deletion_the_name_of_a_group_is_free_for_another_type(broker: ShareNode) -> None:
    broker.heartbeat("a", -1)
    assert delete_group(broker.node, "g") == ErrorCode.NONE
    assert ask(broker.node, consumer_join("c", ["t"]).replace(group_id="g"), 1)
    again = broker.crashed()
    assert group_ids(again.node, types_filter=["consumer"]) == {"g"}
    assert refused(lambda: again.heartbeat("a")) is ErrorCode.GROUP_ID_NOT_FOUND


# --- where share groups are not served -------------------------------------------------------------------------------


def test_without_the_feature_no_request_of_share_groups_is_served(broker: ShareNode) -> None:
    reader = Reader(broker)
    reader.fetch()
    broker.node.services.catalog.image.replay(FeatureLevelRecord(name="share.version", feature_level=0))
    for call in (
        lambda: broker.heartbeat("a", 1),
        lambda: describe(broker, "g"),
        reader.fetch,
        lambda: reader.acknowledge((0, 0, [1])),
    ):
        assert refused(call) is ErrorCode.UNSUPPORTED_VERSION


def test_refusals_of_a_whole_request_have_the_shape_of_the_api() -> None:
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=0)
    response = share_group_heartbeat.refused(request, 1, ErrorCode.NOT_COORDINATOR, "no")
    assert (response.error_code, response.error_message) == (ErrorCode.NOT_COORDINATOR, "no")
    asked = ShareGroupDescribeRequest(group_ids=["a", "b"], include_authorized_operations=False)
    described = share_group_describe.refused(asked, 1, ErrorCode.NOT_COORDINATOR, "no")
    assert [(group.group_id, group.error_code) for group in described.groups] == [("a", 16), ("b", 16)]
