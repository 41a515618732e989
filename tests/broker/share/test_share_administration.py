"""What administrators ask of share groups, on a node without a loop: what changes, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest
from kit.share_nodes import LOCK_MS, Reader, ShareNode
from kit.topics import delete

from ottla.broker.coordination.shard_log import ShardLog
from ottla.broker.node import Node
from ottla.protocol.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import SHARE_GROUP_STATE_TOPIC

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
Described = dict[str, dict[int, tuple[int, int]] | ErrorCode]


@pytest.fixture
def broker() -> ShareNode:
    """Group `g` has read three of five records, and has no member any more."""
    broker = ShareNode()
    broker.produce(*[1] * 5)
    broker.heartbeat("a")
    reader = Reader(broker)
    reader.take()
    reader.acknowledge((0, 2, [ACCEPT]))
    reader.close()
    broker.heartbeat("a", -1)
    return broker


@pytest.fixture
def busy(broker: ShareNode) -> ShareNode:
    """It has one again."""
    broker.heartbeat("b")
    return broker


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code


def describe(
    broker: ShareNode, topics: Mapping[str, Iterable[int]] | None = None, group: str = "g", version: int = 1
) -> Described | ErrorCode:
    """(start offset, lag) by topic and partition, or the code of a topic or of the group."""
    api = DescribeShareGroupOffsetsRequest
    listed = None
    if topics is not None:
        listed = [
            api.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(partitions))
            for name, partitions in topics.items()
        ]
    asked = api.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=listed)
    answer = broker.answer(broker.begin(api(groups=[asked]), version), DescribeShareGroupOffsetsResponse, version)
    (one,) = answer.groups
    assert one.group_id == group
    if one.error_code:
        return ErrorCode.of(one.error_code)
    found: Described = {}
    for topic in one.topics:
        codes = {ErrorCode.of(partition.error_code) for partition in topic.partitions} - {ErrorCode.NONE}
        offsets = {partition.partition_index: (partition.start_offset, partition.lag) for partition in topic.partitions}
        found[topic.topic_name] = codes.pop() if codes else offsets
    return found


def alter_request(offsets: Mapping[int, int], topic: str = "t", group: str = "g") -> AlterShareGroupOffsetsRequest:
    api = AlterShareGroupOffsetsRequest
    partitions = [
        api.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in offsets.items()
    ]
    listed = [api.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    return api(group_id=group, topics=listed)


def alter(broker: ShareNode, offsets: Mapping[int, int], topic: str = "t", group: str = "g") -> list[ErrorCode]:
    """The codes of the partitions. Raises KafkaError."""
    pending = broker.begin(alter_request(offsets, topic, group), 0)
    answer = broker.answer(pending, AlterShareGroupOffsetsResponse, 0)
    assert answer.error_code == ErrorCode.NONE
    return [ErrorCode.of(one.error_code) for one in answer.responses[0].partitions]


def forget_request(*topics: str, group: str = "g") -> DeleteShareGroupOffsetsRequest:
    api = DeleteShareGroupOffsetsRequest
    return api(group_id=group, topics=[api.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics])


def forget(broker: ShareNode, *topics: str, group: str = "g") -> list[ErrorCode]:
    """The codes of the topics. Raises KafkaError."""
    pending = broker.begin(forget_request(*topics, group=group), 0)
    answer = broker.answer(pending, DeleteShareGroupOffsetsResponse, 0)
    return [ErrorCode.of(one.error_code) for one in answer.responses]


def remove(broker: ShareNode, *groups: str) -> list[ErrorCode]:
    """The codes of DeleteGroups."""
    pending = broker.begin(DeleteGroupsRequest(groups_names=list(groups)), 2)
    return [ErrorCode.of(one.error_code) for one in broker.answer(pending, DeleteGroupsResponse, 2).results]


# --- describe --------------------------------------------------------------------------------------------------------


def test_a_group_is_described_by_the_topics_of_which_it_has_a_state(broker: ShareNode) -> None:
    assert describe(broker) == {"t": {0: (3, 2), 1: (-1, -1)}}


def test_the_lag_has_no_record_that_needs_no_delivery_any_more(broker: ShareNode) -> None:
    reader = Reader(broker, "b")
    reader.take()
    reader.acknowledge((4, 4, [ACCEPT]))
    assert describe(broker, {"t": [0]}) == {"t": {0: (3, 1)}}
    reader.close()
    assert describe(broker, {"t": [0]}) == {"t": {0: (3, 1)}}, "in use or not"
    assert describe(broker.crashed(), {"t": [0]}) == {"t": {0: (3, 1)}}


def test_what_is_described_is_durable(broker: ShareNode) -> None:
    reader = Reader(broker, "b")
    reader.take()
    reader.begin_acknowledge((3, 3, [ACCEPT]))
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    )
    pending = broker.begin(request, 1)
    broker.turn()
    assert not pending.done
    broker.answer(pending, DescribeShareGroupOffsetsResponse, 1)


def test_a_log_that_begins_later_is_described_as_it_is(broker: ShareNode) -> None:
    partition = broker.node.services.catalog.partition("t", 0)
    assert partition is not None
    partition.log.delete_records(4)
    assert describe(broker, {"t": [0]}) == {"t": {0: (4, 1)}}


def test_the_first_version_has_no_lag(broker: ShareNode) -> None:
    assert describe(broker, {"t": [0]}, version=0) == {"t": {0: (3, -1)}}


def test_where_there_is_nothing_to_describe_there_is_no_offset(broker: ShareNode) -> None:
    assert describe(broker, group="h") == {}
    assert describe(broker, {"t": [0]}, group="h") == {"t": {0: (-1, -1)}}
    assert describe(broker, {"t": [9]}) == {"t": {9: (-1, -1)}}
    assert describe(broker, {"u": [0], "t": [0]}) == {"t": {0: (3, 2)}, "u": {0: (-1, -1)}}


def test_a_topic_that_may_not_be_described_is_refused_or_left_out(broker: ShareNode) -> None:
    broker.deny("t")
    assert describe(broker, {"t": [0]}) == {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert describe(broker) == {}


def test_a_description_makes_no_topic_of_states() -> None:
    broker = ShareNode()
    broker.heartbeat("a")
    assert describe(broker) == {"t": {0: (-1, -1), 1: (-1, -1)}}
    assert SHARE_GROUP_STATE_TOPIC not in broker.node.services.catalog.topics


# --- alter -----------------------------------------------------------------------------------------------------------


def test_a_group_continues_at_the_offset_that_it_was_given(broker: ShareNode) -> None:
    assert alter(broker, {0: 1}) == [ErrorCode.NONE]
    assert describe(broker, {"t": [0]}) == {"t": {0: (1, 4)}}
    assert Reader(broker.crashed(), "b").take()[0] == (1, 1, 1), "nothing counts of what was before"


def test_an_altered_offset_is_answered_when_it_is_durable(broker: ShareNode) -> None:
    pending = broker.begin(alter_request({0: 1}), 0)
    broker.turn()
    assert not pending.done
    broker.answer(pending, AlterShareGroupOffsetsResponse, 0)


def test_a_session_that_is_still_open_continues_there_too(broker: ShareNode) -> None:
    reader = Reader(broker, "b")
    reader.take()
    pending = reader.begin_wait()
    alter(broker, {0: 0})
    data = [one for topic in reader.answer(pending).responses for one in topic.partitions]
    assert [one.acquired_records[0].first_offset for one in data] == [0]
    assert reader.acknowledge((0, 4, [ACCEPT])) is ErrorCode.NONE


def test_what_a_member_had_before_the_offset_was_altered_is_not_acquired(broker: ShareNode) -> None:
    reader = Reader(broker, "b")
    reader.take()
    alter(broker, {0: 4})
    assert reader.acknowledge((3, 4, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    broker.pass_ms(LOCK_MS)
    assert describe(broker, {"t": [0]}) == {"t": {0: (4, 1)}}


def test_a_partition_that_was_never_read_is_the_groups_now(broker: ShareNode) -> None:
    broker.produce(3, partition=1)
    assert alter(broker, {1: 2}) == [ErrorCode.NONE]
    assert describe(broker) == {"t": {0: (3, 2), 1: (2, 1)}}


@pytest.mark.parametrize(
    ("topic", "offsets", "code"),
    [
        ("t", {9: 0}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", {-1: 0}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", {0: 0}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", {0: -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_offset_that_cannot_be_is_refused_and_changes_nothing(
    broker: ShareNode, topic: str, offsets: dict[int, int], code: ErrorCode
) -> None:
    assert alter(broker, offsets, topic) == [code]
    assert describe(broker) == {"t": {0: (3, 2), 1: (-1, -1)}}


def test_partitions_are_altered_one_by_one(broker: ShareNode) -> None:
    assert alter(broker, {9: 0, 0: 2}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert describe(broker, {"t": [0]}) == {"t": {0: (2, 3)}}


def test_a_topic_that_may_not_be_read_is_not_altered(broker: ShareNode) -> None:
    broker.deny("t")
    assert alter(broker, {0: 0}) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    broker.deny()
    assert describe(broker, {"t": [0]}) == {"t": {0: (3, 2)}}


# --- delete ----------------------------------------------------------------------------------------------------------


def test_a_group_forgets_a_topic_for_good(broker: ShareNode) -> None:
    assert forget(broker, "t") == [ErrorCode.NONE]
    assert describe(broker) == {}
    again = broker.crashed()
    assert describe(again) == {}
    assert Reader(again, "b").take()[0] == (0, 0, 1), "it begins again"


def test_offsets_are_forgotten_before_the_group_forgets_its_topic(broker: ShareNode) -> None:
    """A crash between the two leaves a topic without offsets, which begins again, and never offsets without a group."""
    pending = broker.begin(forget_request("t"), 0)
    assert (broker.coordinator.state_count, list(topics_of(broker.node))) == (0, ["t"])
    broker.turn()
    assert list(topics_of(broker.node)) == ["t"], "not before it is durable that the offsets are gone"
    broker.answer(pending, DeleteShareGroupOffsetsResponse, 0)
    assert list(topics_of(broker.node)) == []


def topics_of(node: Node, group: str = "g") -> Iterable[str]:
    return [one.name for one in node.services.groups.get().share_group(group).durable.topics.values()]


def test_only_topics_that_the_group_has_are_forgotten(broker: ShareNode) -> None:
    assert forget(broker, "u", "t") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert forget(broker, "t") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_that_may_not_be_read_is_not_forgotten(broker: ShareNode) -> None:
    broker.deny("t")
    assert forget(broker, "t") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    broker.deny()
    assert describe(broker, {"t": [0]}) == {"t": {0: (3, 2)}}


# --- groups ----------------------------------------------------------------------------------------------------------


def test_a_deleted_group_has_no_offsets_left(broker: ShareNode) -> None:
    broker.set("share.auto.offset.reset", "earliest", group="h")
    broker.heartbeat("a", group="h")
    Reader(broker, group="h").take()
    assert remove(broker, "g") == [ErrorCode.NONE]
    assert refused(lambda: topics_of(broker.node)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.coordinator.state_count == 1, "that of the other group"
    again = broker.crashed()
    assert refused(lambda: topics_of(again.node)) is ErrorCode.GROUP_ID_NOT_FOUND
    again.heartbeat("b")
    assert Reader(again, "b").take()[0] == (0, 0, 1), "a new group of that name begins by itself"


def test_a_group_is_deleted_after_its_offsets(broker: ShareNode) -> None:
    pending = broker.begin(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert broker.coordinator.state_count == 0
    broker.turn()
    assert list(topics_of(broker.node)) == ["t"], "the group is there until its offsets are gone for good"
    broker.answer(pending, DeleteGroupsResponse, 2)
    assert refused(lambda: topics_of(broker.node)) is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda one: one.heartbeat("b"),
        lambda one: alter(one, {0: 0}),
    ],
    ids=["a member joins", "an offset is set"],
)
def test_nothing_uses_a_group_while_it_is_being_deleted(
    broker: ShareNode, meanwhile: Callable[[ShareNode], object]
) -> None:
    """Else the group would stay, although its offsets are gone, or its new offsets would stay without a group."""
    pending = broker.begin(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert refused(lambda: meanwhile(broker)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (result,) = broker.answer(pending, DeleteGroupsResponse, 2).results
    assert (result.error_code, broker.coordinator.state_count) == (ErrorCode.NONE, 0)
    meanwhile(broker)
    assert list(topics_of(broker.node)) == ["t"]


def test_a_second_deletion_does_not_remove_a_group_before_its_offsets(broker: ShareNode) -> None:
    pending = [broker.begin(DeleteGroupsRequest(groups_names=["g"]), 2) for _ in range(2)]
    second, first = (broker.answer(one, DeleteGroupsResponse, 2).results[0].error_code for one in reversed(pending))
    assert (first, second) == (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert remove(broker, "g") == [ErrorCode.GROUP_ID_NOT_FOUND]
    broker.heartbeat("b")


def test_a_group_whose_removal_is_refused_keeps_its_offsets(broker: ShareNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the reason: here one that its log would not take the records."""

    def refuse(*_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "too large")

    monkeypatch.setattr(ShardLog, "check_records", refuse)
    assert remove(broker, "g") == [ErrorCode.UNKNOWN_SERVER_ERROR]
    monkeypatch.undo()
    assert describe(broker, {"t": [0]}) == {"t": {0: (3, 2)}}
    broker.heartbeat("b")


@pytest.mark.parametrize(
    "change", [lambda one: remove(one, "g"), lambda one: forget(one, "t")], ids=["group deleted", "topic forgotten"]
)
def test_a_session_of_a_member_that_left_makes_no_offsets_again(
    broker: ShareNode, change: Callable[[ShareNode], list[ErrorCode]]
) -> None:
    """Its ShareFetch that waited began the share partition again, for whatever group would have that name next."""
    reader, stranger = Reader(broker, "a"), Reader(broker, "a", group="h")
    assert len(reader.take()) == 2
    pending = reader.begin_wait()
    stranger.fetch()
    assert change(broker) == [ErrorCode.NONE]
    assert refused(lambda: reader.answer(pending)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert broker.counts() == (1, 1, 1), "those of another group"


def test_groups_are_deleted_one_by_one(busy: ShareNode) -> None:
    busy.heartbeat("a", group="h")
    busy.heartbeat("a", -1, group="h")
    codes = remove(busy, "g", "nope", "h")
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE]
    assert describe(busy, {"t": [0]}) == {"t": {0: (3, 2)}}, "a group that is not deleted keeps its offsets"


# --- groups that are used, or are none -------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [lambda one: alter(one, {0: 0}), lambda one: forget(one, "t")])
def test_a_group_with_members_is_not_changed(busy: ShareNode, change: Callable[[ShareNode], object]) -> None:
    assert refused(lambda: change(busy)) is ErrorCode.NON_EMPTY_GROUP
    assert describe(busy, {"t": [0]}) == {"t": {0: (3, 2)}}


def test_a_group_that_does_not_exist_begins_at_the_offset_that_it_is_given(broker: ShareNode) -> None:
    assert alter(broker, {0: 4}, group="h") == [ErrorCode.NONE]
    again = broker.crashed()
    assert describe(again, group="h") == {"t": {0: (4, 1)}}
    again.heartbeat("a", group="h")
    assert Reader(again, group="h").take() == [(4, 4, 1)]


def test_an_offset_that_cannot_be_makes_no_group(broker: ShareNode) -> None:
    assert alter(broker, {0: -1}, group="h") == [ErrorCode.INVALID_REQUEST]
    assert refused(lambda: topics_of(broker.node, "h")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_does_not_exist_forgets_nothing(broker: ShareNode) -> None:
    assert refused(lambda: forget(broker, "t", group="h")) is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("change", [lambda one: alter(one, {0: 0}, group=""), lambda one: forget(one, "t", group="")])
def test_a_group_has_a_name(broker: ShareNode, change: Callable[[ShareNode], object]) -> None:
    assert refused(lambda: change(broker)) is ErrorCode.INVALID_GROUP_ID


def test_a_topic_that_is_deleted_is_no_topic_of_the_group_any_more(broker: ShareNode) -> None:
    delete(broker.node, "t")
    broker.pass_ms(100)
    assert describe(broker, {"t": [0]}) == {"t": {0: (-1, -1)}}
    assert broker.coordinator.state_count == 0
