"""Bad input to the APIs of committed offsets and of administrators of groups: Kafka's code each time, state unchanged.

Raw frames, judged by Apache Kafka 4.1 too (`OTTLA_TEST_BOOTSTRAP`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kit.broker import BrokerProcess
from kit.wire import Wire

from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.delete_groups import DeleteGroupsRequest
from ottla.protocol.api.describe_groups import DescribeGroupsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.list_groups import ListGroupsRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_delete import OffsetDeleteRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.errors import ErrorCode

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def wire(broker: BrokerProcess, topic: str) -> Iterator[Wire]:
    """A connection to a broker that has the topic, with two partitions, and coordinates groups."""
    with Wire(broker.port) as connection:
        wanted = CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        answer = connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7)
        assert answer.topics[0].error_code == ErrorCode.NONE
        code = -1
        while code != ErrorCode.NONE:
            code = connection.call(FindCoordinatorRequest(key=topic, key_type=0), 2).error_code
        code = -1
        while code != ErrorCode.NONE:
            code = codes(commit(connection, topic, {topic: {0: 1}}))[0][0]
        yield connection


def commit(
    wire: Wire,
    group: str,
    offsets: dict[str, dict[int, int]],
    *,
    metadata: str = "",
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    version: int = 9,
) -> Any:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                partition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
                for index, offset in partitions.items()
            ],
        )
        for name, partitions in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=topics,
    )
    return wire.call(request, version)


def codes(answer: Any) -> list[list[int]]:
    return [[each.error_code for each in topic.partitions] for topic in answer.topics]


def committed(wire: Wire, group: str) -> dict[int, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)])
    answer = wire.call(request, 8).groups[0]
    assert answer.error_code == ErrorCode.NONE
    return {each.partition_index: each.committed_offset for topic in answer.topics for each in topic.partitions}


def test_partitions_that_do_not_exist_are_refused_one_by_one(wire: Wire, topic: str) -> None:
    answer = commit(wire, topic, {topic: {1: 7, 2: 8, -1: 9}, "no-such-topic": {0: 1}, "il/legal": {0: 1}, "": {0: 1}})
    by_topic = {each.name: sorted((p.partition_index, p.error_code) for p in each.partitions) for each in answer.topics}
    assert by_topic[topic] == [(-1, UNKNOWN), (1, 0), (2, UNKNOWN)]
    assert {by_topic[name][0] for name in ("no-such-topic", "il/legal", "")} == {(0, UNKNOWN)}
    assert committed(wire, topic) == {0: 1, 1: 7}


def test_a_text_over_the_limit_is_refused(wire: Wire, topic: str) -> None:
    assert codes(commit(wire, topic, {topic: {0: 9}}, metadata="x" * 4097)) == [[ErrorCode.OFFSET_METADATA_TOO_LARGE]]
    assert committed(wire, topic) == {0: 1}
    assert codes(commit(wire, topic, {topic: {0: 9}}, metadata="x" * 4096)) == [[ErrorCode.NONE]]


@pytest.mark.parametrize("offset", [0, -1, -5, (1 << 63) - 1])
def test_the_offset_itself_is_not_judged(wire: Wire, topic: str, offset: int) -> None:
    assert codes(commit(wire, topic, {topic: {0: offset}})) == [[ErrorCode.NONE]]
    assert committed(wire, topic) == {0: offset}


@pytest.mark.parametrize(
    ("member_id", "generation", "instance_id", "code"),
    [
        ("stranger", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 0, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", 1, "instance", ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", -1, None, ErrorCode.NONE),  # an empty group takes commits without a generation from anybody
    ],
)
def test_who_is_no_member_may_not_commit_as_one(
    wire: Wire, topic: str, member_id: str, generation: int, instance_id: str | None, code: ErrorCode
) -> None:
    answer = commit(wire, topic, {topic: {0: 5}}, member_id=member_id, generation=generation, instance_id=instance_id)
    assert codes(answer) == [[code]]
    assert committed(wire, topic) == {0: 5 if code is ErrorCode.NONE else 1}


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_no_group_may_not_commit(wire: Wire, topic: str, version: int, code: ErrorCode) -> None:
    group = f"nobody-{uuid.uuid4()}"
    answer = commit(wire, group, {topic: {0: 5, 7: 1}}, member_id="m", generation=1, version=version)
    assert sorted((each.partition_index, each.error_code) for each in answer.topics[0].partitions) == [
        (0, code),
        (7, UNKNOWN),
    ]
    assert committed(wire, group) == {}


def test_a_commit_of_nothing_is_answered_with_nothing(wire: Wire, topic: str) -> None:
    assert commit(wire, topic, {}, generation=77, member_id="stranger").topics == []


@pytest.mark.parametrize("version", [7, 8])
def test_a_fetch_of_what_does_not_exist_is_no_error(wire: Wire, topic: str, version: int) -> None:
    if version >= 8:
        asked = OffsetFetchRequest.OffsetFetchRequestTopics(name="no-such-topic", partition_indexes=[3, -1])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=topic, topics=[asked])
        answer = wire.call(OffsetFetchRequest(groups=[group]), version).groups[0]
    else:
        asked = OffsetFetchRequest.OffsetFetchRequestTopic(name="no-such-topic", partition_indexes=[3, -1])
        answer = wire.call(OffsetFetchRequest(group_id=topic, topics=[asked]), version)
    assert answer.error_code == ErrorCode.NONE
    assert [(each.committed_offset, each.metadata, each.error_code) for each in answer.topics[0].partitions] == [
        (-1, "", 0)
    ] * 2


def delete_offsets(wire: Wire, group: str, partitions: dict[str, list[int]]) -> Any:
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=name, partitions=[partition(partition_index=index) for index in indexes]
        )
        for name, indexes in partitions.items()
    ]
    return wire.call(OffsetDeleteRequest(group_id=group, topics=topics), 0)


def test_offsets_that_do_not_exist_are_not_deleted(wire: Wire, topic: str) -> None:
    answer = delete_offsets(wire, topic, {topic: [1, 5], "no-such-topic": [0]})
    assert answer.error_code == ErrorCode.NONE
    by_topic = {each.name: sorted((p.partition_index, p.error_code) for p in each.partitions) for each in answer.topics}
    assert by_topic[topic][0] == (1, 0)
    assert by_topic["no-such-topic"] == [(0, UNKNOWN)]
    assert committed(wire, topic) == {0: 1}


@pytest.mark.parametrize(
    ("group", "code"), [("no-such-group", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)]
)
def test_offsets_of_no_group_cannot_be_deleted(wire: Wire, topic: str, group: str, code: ErrorCode) -> None:
    assert delete_offsets(wire, group, {topic: [0]}).error_code == code


def test_groups_that_do_not_exist_are_not_deleted(wire: Wire, topic: str) -> None:
    answer = wire.call(DeleteGroupsRequest(groups_names=["no-such-group", topic]), 2)
    assert {each.group_id: each.error_code for each in answer.results} == {
        "no-such-group": ErrorCode.GROUP_ID_NOT_FOUND,
        topic: ErrorCode.NONE,
    }
    assert committed(wire, topic) == {}


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_does_not_exist_is_dead_or_not_found(wire: Wire, topic: str, version: int) -> None:
    missing, known = wire.call(DescribeGroupsRequest(groups=["no-such-group", topic]), version).groups
    assert (missing.group_state, missing.members) == ("Dead", [])
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    if version >= 6:
        assert missing.error_message == "Group no-such-group not found."
    assert (known.error_code, known.group_state, known.protocol_type) == (ErrorCode.NONE, "Empty", "")


def test_what_may_be_done_with_a_group_is_reported_when_asked(wire: Wire, topic: str) -> None:
    asked = wire.call(DescribeGroupsRequest(groups=[topic], include_authorized_operations=True), 5).groups[0]
    assert asked.authorized_operations == sum(1 << operation for operation in (3, 6, 8, 10, 11))
    assert wire.call(DescribeGroupsRequest(groups=[topic]), 5).groups[0].authorized_operations == -(1 << 31)


def test_filters_that_name_nothing_find_nothing(wire: Wire, topic: str) -> None:
    def listed(**filters: list[str]) -> set[str]:
        return {each.group_id for each in wire.call(ListGroupsRequest(**filters), 5).groups}

    assert topic in listed()
    assert topic in listed(states_filter=["EMPTY"], types_filter=["Classic"])
    assert topic not in listed(states_filter=["nonsense"])
    assert topic not in listed(states_filter=["Stable"])
    assert topic not in listed(types_filter=["nonsense"])
    assert topic not in listed(types_filter=["consumer"])


def test_coordinators_of_other_kinds_are_refused(wire: Wire) -> None:
    assert wire.call(FindCoordinatorRequest(key="t", key_type=9), 2).error_code == ErrorCode.INVALID_REQUEST
    answer = wire.call(FindCoordinatorRequest(coordinator_keys=["t"], key_type=9), 4)
    assert [each.error_code for each in answer.coordinators] == [ErrorCode.INVALID_REQUEST]
