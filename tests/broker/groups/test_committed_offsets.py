"""Committed offsets by the rules of Kafka: who may commit what, what is answered, what is deleted, what expires."""

from __future__ import annotations

import pytest
from kit.clock import ManualClock
from kit.group_requests import (
    COMMIT_VERSION,
    FETCH_VERSION,
    begin,
    code_of,
    commit,
    commit_request,
    committed,
    delete_group,
    delete_offsets,
    describe,
    fetch_request,
    group_ids,
    join,
    make_topic,
    settled,
    sync,
)
from kit.nodes import ask, pass_time, start_node

from ottla.broker.node import Node
from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import OFFSETS_TOPIC

MINUTE_MS = 60_000
CHECK_MS = 10 * MINUTE_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def node(clock: ManualClock) -> Node:
    node, _, _ = start_node(
        clock=clock, offsets_retention_minutes=60, offset_metadata_max_bytes=10, ottla_acks_all="page-cache"
    )
    make_topic(node, "t", 4)
    make_topic(node, "u", 2)
    return node


def member_commit(node: Node, group: str, member_id: str, generation: int, version: int = COMMIT_VERSION) -> object:
    request = commit_request(group, {0: 5}, member_id=member_id, generation=generation)
    pending = begin(node, request, version)
    node.settle()
    return code_of(pending)


# Commits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_a_commit_is_fetched_by_every_version(node: Node, version: int) -> None:
    assert commit(node, "g", {0: 42, 3: 43}, version=version) == ErrorCode.NONE
    for fetch_version in range(8):
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1, 3])
        answer = ask(node, OffsetFetchRequest(group_id="g", topics=[topic]), fetch_version)
        assert isinstance(answer, OffsetFetchResponse)
        assert [each.committed_offset for each in answer.topics[0].partitions] == [42, -1, 43]


def test_a_commit_that_names_no_member_is_refused_while_the_group_has_members(node: Node) -> None:
    join(node, "g")
    with pytest.raises(KafkaError) as refused:
        commit(node, "g", {0: 42}, version=0)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(node, "g") == -1


def test_leader_epoch_and_text_are_kept_beside_the_offset(node: Node) -> None:
    request = commit_request("g", {0: 5}, metadata="mark")
    request.topics[0].partitions[0].committed_leader_epoch = 3
    settled(node, begin(node, request, COMMIT_VERSION), OffsetCommitResponse)
    response = settled(node, begin(node, fetch_request("g", [0]), FETCH_VERSION), OffsetFetchResponse)
    partition = response.groups[0].topics[0].partitions[0]
    assert (partition.committed_leader_epoch, partition.metadata) == (3, "mark")


def test_a_missing_text_is_an_empty_one(node: Node) -> None:
    request = commit_request("g", {0: 5})
    request.topics[0].partitions[0].committed_metadata = None
    settled(node, begin(node, request, COMMIT_VERSION), OffsetCommitResponse)
    response = settled(node, begin(node, fetch_request("g", [0]), FETCH_VERSION), OffsetFetchResponse)
    assert response.groups[0].topics[0].partitions[0].metadata == ""


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("0123456789", ErrorCode.NONE),
        ("0123456789a", ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("ääääääääää", ErrorCode.NONE),
        ("\U0001d4b3" * 5, ErrorCode.NONE),
        ("\U0001d4b3" * 6, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_the_text_has_a_limit_in_javas_characters(node: Node, metadata: str, code: ErrorCode) -> None:
    assert commit(node, "g", {0: 5}, metadata=metadata) == code
    assert committed(node, "g") == (5 if code is ErrorCode.NONE else -1)


def test_one_text_that_is_too_long_does_not_hold_the_others_back(node: Node) -> None:
    request = commit_request("g", {0: 5, 1: 6})
    request.topics[0].partitions[0].committed_metadata = "x" * 11
    response = settled(node, begin(node, request, COMMIT_VERSION), OffsetCommitResponse)
    assert [each.error_code for each in response.topics[0].partitions] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (-1, 6)


def test_partitions_that_do_not_exist_are_refused_and_the_others_kept(node: Node) -> None:
    request = commit_request("g", {0: 5, 4: 6, -1: 7})
    request.topics.append(commit_request("g", {0: 1}, topic="nowhere").topics[0])
    request.topics.append(commit_request("g", {1: 9}, topic="u").topics[0])
    response = settled(node, begin(node, request, COMMIT_VERSION), OffsetCommitResponse)
    codes = [[each.error_code for each in topic.partitions] for topic in response.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[0, unknown, unknown], [unknown], [0]]
    assert (committed(node, "g"), committed(node, "g", 1, topic="u")) == (5, 9)


def test_a_refused_member_gets_the_error_for_what_exists_and_only_for_that(node: Node) -> None:
    request = commit_request("g", {0: 5, 9: 6}, generation=3)
    response = settled(node, begin(node, request, COMMIT_VERSION), OffsetCommitResponse)
    assert [each.error_code for each in response.topics[0].partitions] == [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_commit_of_nothing_that_exists_makes_no_group(node: Node) -> None:
    assert commit(node, "g", {0: 5}, topic="nowhere", generation=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert OFFSETS_TOPIC not in node.services.catalog.topics


def test_generations_fence_members_of_the_classic_protocol(node: Node) -> None:
    joined = join(node, "g")
    assert member_commit(node, "g", joined.member_id, joined.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    sync(node, "g", joined)
    assert member_commit(node, "g", joined.member_id, joined.generation_id) is None
    assert member_commit(node, "g", joined.member_id, joined.generation_id + 1) is ErrorCode.ILLEGAL_GENERATION
    assert member_commit(node, "g", "stranger", joined.generation_id) is ErrorCode.UNKNOWN_MEMBER_ID
    assert member_commit(node, "g", "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(node, "g") == 5


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_does_not_exist_is_refused_as_its_version_knows(
    node: Node, version: int, code: ErrorCode
) -> None:
    assert member_commit(node, "g", "m", 1, version) is code
    assert group_ids(node) == set()


def test_a_commit_keeps_a_member_alive_like_a_heartbeat(node: Node, clock: ManualClock) -> None:
    joined = join(node, "g")
    sync(node, "g", joined)
    for _ in range(4):
        pass_time(node, clock, 8_000)
        assert member_commit(node, "g", joined.member_id, joined.generation_id) is None
    assert describe(node, "g").group_state == "Stable"


# Fetches -------------------------------------------------------------------------------------------------------------


def test_a_group_that_does_not_exist_has_no_offsets_and_that_is_no_error(node: Node) -> None:
    asked = fetch_request("nobody", [0, 1])
    response = settled(node, begin(node, asked, FETCH_VERSION), OffsetFetchResponse)
    assert response.groups[0].error_code == ErrorCode.NONE
    assert [(each.committed_offset, each.error_code) for each in response.groups[0].topics[0].partitions] == [
        (-1, 0),
        (-1, 0),
    ]
    assert group_ids(node) == set()


def test_all_offsets_of_a_group_are_sent_when_no_topic_is_named(node: Node) -> None:
    commit(node, "g", {0: 1, 2: 3})
    commit(node, "g", {1: 4}, topic="u")
    response = settled(node, begin(node, fetch_request("g", None), FETCH_VERSION), OffsetFetchResponse)
    reported = {
        (topic.name, each.partition_index): each.committed_offset
        for topic in response.groups[0].topics
        for each in topic.partitions
    }
    assert reported == {("t", 0): 1, ("t", 2): 3, ("u", 1): 4}


def test_several_groups_are_answered_each_for_itself(node: Node) -> None:
    commit(node, "g", {0: 1})
    commit(node, "h", {0: 2})
    groups = [fetch_request(name, [0]).groups[0] for name in ("g", "nobody", "h")]
    response = settled(node, begin(node, OffsetFetchRequest(groups=groups), 8), OffsetFetchResponse)
    assert [(each.group_id, each.topics[0].partitions[0].committed_offset) for each in response.groups] == [
        ("g", 1),
        ("nobody", -1),
        ("h", 2),
    ]


def test_a_fetch_that_wants_stable_offsets_gets_durable_ones(node: Node) -> None:
    commit(node, "g", {0: 1})
    request = fetch_request("g", [0])
    request.require_stable = True
    response = settled(node, begin(node, request, FETCH_VERSION), OffsetFetchResponse)
    assert response.groups[0].topics[0].partitions[0].committed_offset == 1


def test_a_partition_that_does_not_exist_has_no_offset_and_that_is_no_error(node: Node) -> None:
    response = settled(node, begin(node, fetch_request("g", [0], topic="nowhere"), FETCH_VERSION), OffsetFetchResponse)
    assert response.groups[0].topics[0].partitions[0].error_code == ErrorCode.NONE


# Deletions -----------------------------------------------------------------------------------------------------------


def test_deleted_offsets_are_gone_and_others_stay(node: Node) -> None:
    commit(node, "g", {0: 1, 1: 2})
    answer = delete_offsets(node, "g", [0, 2, 9])
    assert answer.error_code == ErrorCode.NONE
    assert [each.error_code for each in answer.topics[0].partitions] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (-1, 2)


def test_offsets_of_a_topic_that_members_read_are_not_deleted(node: Node) -> None:
    commit(node, "g", {0: 1})
    commit(node, "g", {0: 2}, topic="u")
    sync(node, "g", join(node, "g"))
    answer = delete_offsets(node, "g", [0])
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offsets(node, "g", [0], topic="u").topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (committed(node, "g"), committed(node, "g", topic="u")) == (1, -1)


@pytest.mark.parametrize(
    ("group", "code"), [("nobody", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)]
)
def test_offsets_of_no_group_cannot_be_deleted(node: Node, group: str, code: ErrorCode) -> None:
    request = OffsetDeleteRequest(group_id=group, topics=[])
    pending = begin(node, request, 0)
    node.settle()
    assert code_of(pending) is code


def test_an_empty_group_is_deleted_with_its_offsets(node: Node) -> None:
    commit(node, "g", {0: 1})
    commit(node, "h", {0: 2})
    answer = ask(node, DeleteGroupsRequest(groups_names=["g", "nobody", "g"]), 2)
    assert isinstance(answer, DeleteGroupsResponse)
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        ("g", 0),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert group_ids(node) == {"h"}
    assert committed(node, "g") == -1


def test_refused_deletions_have_a_message_from_version_3_on(node: Node) -> None:
    commit(node, "g", {0: 1})
    answer = ask(node, DeleteGroupsRequest(groups_names=["g", "nobody"]), 3)
    assert isinstance(answer, DeleteGroupsResponse)
    deleted, missing = answer.results
    assert (deleted.error_code, deleted.error_message) == (0, None)
    assert (missing.error_code, bool(missing.error_message)) == (ErrorCode.GROUP_ID_NOT_FOUND, True)


def test_a_group_with_members_is_not_deleted(node: Node) -> None:
    joined = join(node, "g")
    sync(node, "g", joined)
    assert delete_group(node, "g") == ErrorCode.NON_EMPTY_GROUP
    leave = LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)])
    assert isinstance(ask(node, leave, 5), LeaveGroupResponse)
    assert delete_group(node, "g") == ErrorCode.NONE


# Expiry --------------------------------------------------------------------------------------------------------------


def test_offsets_without_members_expire_by_the_time_of_their_commit(node: Node, clock: ManualClock) -> None:
    commit(node, "g", {0: 1})
    pass_time(node, clock, 40 * MINUTE_MS, step_ms=MINUTE_MS)
    commit(node, "g", {1: 2})
    pass_time(node, clock, 31 * MINUTE_MS, step_ms=MINUTE_MS)
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (-1, 2)
    pass_time(node, clock, 60 * MINUTE_MS, step_ms=MINUTE_MS)
    assert group_ids(node) == set()


def test_offsets_of_a_group_that_had_members_expire_since_it_is_empty(node: Node, clock: ManualClock) -> None:
    joined = join(node, "g")
    sync(node, "g", joined)
    assert member_commit(node, "g", joined.member_id, joined.generation_id) is None
    for _ in range(15 * 60):  # longer than the retention, with heartbeats in form of commits of another partition
        clock.advance(8_000)
        node.run_due()
        request = commit_request("g", {1: 7}, member_id=joined.member_id, generation=joined.generation_id)
        begin(node, request, COMMIT_VERSION)
        node.settle()
    assert committed(node, "g") == 5, "a topic that members read never expires"
    pass_time(node, clock, 50 * MINUTE_MS, step_ms=MINUTE_MS)
    assert describe(node, "g").group_state == "Empty"
    assert committed(node, "g") == 5
    pass_time(node, clock, 30 * MINUTE_MS, step_ms=MINUTE_MS)
    assert group_ids(node) == set()


def test_a_retention_beyond_the_end_of_time_is_for_ever(node: Node, clock: ManualClock) -> None:
    assert commit(node, "g", {0: 1}, version=3, retention_ms=(1 << 63) - 1) == ErrorCode.NONE
    pass_time(node, clock, 100 * MINUTE_MS, step_ms=MINUTE_MS)
    assert committed(node, "g") == 1


@pytest.mark.parametrize("version", [2, 3, 4])
def test_old_commits_may_ask_for_a_retention_of_their_own(node: Node, clock: ManualClock, version: int) -> None:
    commit(node, "g", {0: 1}, version=version, retention_ms=5 * MINUTE_MS)
    commit(node, "g", {1: 1}, version=version, retention_ms=1_000 * MINUTE_MS)
    pass_time(node, clock, 2 * CHECK_MS, step_ms=MINUTE_MS)
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (-1, 1)
    pass_time(node, clock, 100 * MINUTE_MS, step_ms=MINUTE_MS)
    assert committed(node, "g", 1) == 1


def test_the_oldest_commits_bring_their_own_time(node: Node, clock: ManualClock) -> None:
    request = commit_request("g", {0: 1, 1: 1})
    first, second = request.topics[0].partitions
    first.commit_timestamp = clock.wall_ms() - 50 * MINUTE_MS
    second.commit_timestamp = -1
    settled(node, begin(node, request, 1), OffsetCommitResponse)
    pass_time(node, clock, 21 * MINUTE_MS, step_ms=MINUTE_MS)
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (-1, 1)


def test_expired_offsets_stay_gone_after_a_restart(clock: ManualClock) -> None:
    node, files, _ = start_node(clock=clock, offsets_retention_minutes=60)
    make_topic(node, "t", 4)
    commit(node, "g", {0: 1})
    pass_time(node, clock, 80 * MINUTE_MS, step_ms=MINUTE_MS)
    assert node.services.metrics.groups.offset_expirations == 1
    node.stop()
    node, _, _ = start_node(files, clock)
    assert (group_ids(node), committed(node, "g")) == (set(), -1)


# Lists and descriptions ----------------------------------------------------------------------------------------------


def test_lists_are_filtered_by_state_and_type_whatever_the_case(node: Node) -> None:
    commit(node, "offsets-only", {0: 1})
    sync(node, "live", join(node, "live"))
    assert group_ids(node) == {"offsets-only", "live"}
    assert group_ids(node, states_filter=["stable"]) == {"live"}
    assert group_ids(node, states_filter=["EMPTY", "Dead"]) == {"offsets-only"}
    assert group_ids(node, states_filter=[" Stable"]) == {"live"}
    assert group_ids(node, types_filter=["CLASSIC"]) == {"offsets-only", "live"}
    assert group_ids(node, types_filter=["consumer"]) == set()
    assert group_ids(node, types_filter=["nonsense"]) == set()
    answer = ask(node, ListGroupsRequest(), 5)
    assert isinstance(answer, ListGroupsResponse)
    shown = {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in answer.groups}
    assert shown == {"offsets-only": ("", "Empty", "classic"), "live": ("consumer", "Stable", "classic")}


def test_a_group_that_does_not_exist_is_dead_or_not_found_by_version(node: Node) -> None:
    for version in range(6):
        described = describe(node, "nobody", version)
        assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Dead")
    described = describe(node, "nobody", 6)
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == "Group nobody not found."


def test_what_a_client_may_do_with_a_group_is_sent_when_asked(node: Node) -> None:
    commit(node, "g", {0: 1})
    answer = ask(node, DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), 5)
    assert isinstance(answer, DescribeGroupsResponse)
    assert answer.groups[0].authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    assert describe(node, "g").authorized_operations == -(1 << 31)


@pytest.mark.parametrize("group", ["", " ", "käse/…", "x" * 30_000])
def test_every_string_is_a_group_for_offsets(node: Node, group: str) -> None:
    assert commit(node, group, {0: 3}) == ErrorCode.NONE
    assert committed(node, group) == 3
    assert group_ids(node) == {group}
    assert describe(node, group).group_state == "Empty"
    assert delete_group(node, group) == ErrorCode.NONE


def test_a_request_without_topics_is_answered_without_topics(node: Node) -> None:
    response = settled(
        node, begin(node, OffsetCommitRequest(group_id="g", member_id="", topics=[]), 9), OffsetCommitResponse
    )
    assert response.topics == []
    answer = ask(node, OffsetFetchRequest(groups=[]), 9)
    assert isinstance(answer, OffsetFetchResponse)
    assert answer.groups == []
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        settled(node, begin(node, OffsetDeleteRequest(group_id="g", topics=[]), 0), OffsetDeleteResponse)
