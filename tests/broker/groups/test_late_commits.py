"""Commits that were sent before a heartbeat brought the member to a later epoch (KIP-1251), and what keeps the epochs.

The records of Apache Kafka 4.4 are in `golden/kafka-4.4.0.json`; tests/integration/test_late_commits.py has the wire.
"""

from __future__ import annotations

from uuid import UUID

import pytest
from kit.consumer_groups import (
    GROUP,
    FakeTopics,
    GroupUnderTest,
    Member,
    heartbeat,
    join_request,
    settle,
    through_the_wire,
    topic_uuid,
)
from kit.group_requests import begin, commit, committed, make_topic, settled
from kit.group_scenario import load
from kit.nodes import start_node
from kit.transactional_offsets import commit_in_transaction, stable_offset

from ottla.broker.groups.consumer_member import ConsumerMember
from ottla.broker.groups.settings import GroupSettings
from ottla.broker.node import Node
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    decode_group_record,
    encode_group_key,
    encode_group_value,
)

TopicPartitions = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
HALF = frozenset({0, 1})
OTHER_HALF = frozenset({2, 3})


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics({"t": 4})


@pytest.fixture
def group(topics: FakeTopics) -> GroupUnderTest:
    return GroupUnderTest(topics)


def code_of_commit(group: GroupUnderTest, epoch: int, partition: int, *, member_id: str = "a") -> ErrorCode:
    """What becomes of a commit of one partition of `t`."""
    topic_id = group.topics.id_of("t")
    assert topic_id is not None
    try:
        check = group.group.check_commit(member_id, None, epoch, api_version=9)
        if check is not None:
            check("t", topic_id, partition)
    except KafkaError as refusal:
        return refusal.code
    return ErrorCode.NONE


def codes(group: GroupUnderTest, epoch: int) -> dict[int, ErrorCode]:
    """What becomes of a commit of member `a`, by partition."""
    return {partition: code_of_commit(group, epoch, partition) for partition in range(4)}


def accepted_at(group: GroupUnderTest, epoch: int) -> frozenset[int]:
    """The partitions that `a` may commit with this epoch; all others are stale."""
    answered = codes(group, epoch)
    assert set(answered.values()) <= {ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH}
    return frozenset(partition for partition, code in answered.items() if code is ErrorCode.NONE)


def gave_up_half(group: GroupUnderTest) -> tuple[Member, Member]:
    """`a` had everything at epoch 1; at 2 it has half, `b` the rest."""
    a, b = Member(group, "a").join(), Member(group, "b").join()
    settle(a, b)
    assert (a.epoch, b.epoch) == (2, 2)
    assert list(a.assigned.values()) == [HALF]
    return a, b


def test_a_late_commit_is_good_for_what_the_member_kept_and_stale_for_what_it_gave_up(group: GroupUnderTest) -> None:
    gave_up_half(group)
    assert accepted_at(group, 1) == HALF


def test_a_late_commit_is_good_for_what_the_member_has_still_to_give_up(group: GroupUnderTest) -> None:
    a, _ = gave_up_half(group)
    for name in "cd":
        Member(group, name).join()
    a.heartbeat()
    assert [len(pending) for pending in group.group.durable.members["a"].pending_revocation.values()] == [1]
    assert accepted_at(group, 1) == HALF


def test_a_late_commit_is_stale_for_a_partition_that_came_back(group: GroupUnderTest) -> None:
    a, _ = gave_up_half(group)
    group.accepted(heartbeat("b", -1))
    settle(a)
    assert a.epoch == 3
    assert accepted_at(group, 1) == accepted_at(group, 2) == HALF
    assert accepted_at(group, 3) == HALF | OTHER_HALF


def test_an_epoch_that_is_not_yet_is_stale(group: GroupUnderTest) -> None:
    gave_up_half(group)
    assert accepted_at(group, 3) == frozenset()


def test_with_the_present_epoch_a_member_may_commit_what_is_not_its_own(group: GroupUnderTest) -> None:
    gave_up_half(group)
    assert accepted_at(group, 2) == HALF | OTHER_HALF


def test_offsets_are_read_with_the_present_epoch_only(group: GroupUnderTest) -> None:
    gave_up_half(group)
    group.group.check_fetch_offsets("a", 2)
    with pytest.raises(KafkaError) as refusal:
        group.group.check_fetch_offsets("a", 1)
    assert refusal.value.code is ErrorCode.STALE_MEMBER_EPOCH


def test_the_epochs_outlive_a_restart(group: GroupUnderTest) -> None:
    a, _ = gave_up_half(group)
    group.accepted(heartbeat("b", -1))
    settle(a)
    group.restart()
    assert accepted_at(group, 1) == HALF
    assert accepted_at(group, 3) == HALF | OTHER_HALF


def test_a_deleted_topic_that_was_made_again_is_not_the_members(topics: FakeTopics, group: GroupUnderTest) -> None:
    gave_up_half(group)
    topics.delete("t")
    topics.create("t", 4)
    assert accepted_at(group, 1) == frozenset()


def test_the_next_run_of_a_static_member_has_its_partitions_from_the_first_epoch_on(group: GroupUnderTest) -> None:
    Member(group, "a", instance_id="i").join()
    group.accepted(heartbeat("a", -2, instance_id="i"))
    Member(group, "c", instance_id="i").join()
    epochs = group.group.durable.members["c"].assignment_epochs
    assert [dict(of_topic) for of_topic in epochs.values()] == [dict.fromkeys(range(4), 0)]
    assert code_of_commit(group, 1, 0) is ErrorCode.UNKNOWN_MEMBER_ID


# --- Records


def current_assignment(group: GroupUnderTest, epoch: int, *listed: TopicPartitions) -> None:
    """Replay a record of member `a`."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=epoch,
        state=0,
        assigned_partitions=list(listed),
        partitions_pending_revocation=[],
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a")
    group.group.replay(*through_the_wire((key, value)))


def test_what_a_kafka_without_epochs_wrote_counts_from_the_members_epoch_on(group: GroupUnderTest) -> None:
    current_assignment(group, 5, TopicPartitions(topic_id=topic_uuid(1), partitions=[0, 1]))
    assert accepted_at(group, 4) == frozenset()
    assert group.group.durable.members["a"].assignment_epochs == {topic_uuid(1): {0: 5, 1: 5}}


def test_a_static_member_that_left_before_there_were_epochs_counts_from_0(group: GroupUnderTest) -> None:
    current_assignment(group, -2, TopicPartitions(topic_id=topic_uuid(1), partitions=[0]))
    assert group.group.durable.members["a"].assignment_epochs == {topic_uuid(1): {0: 0}}


def test_a_record_with_too_few_epochs_counts_as_one_without(
    group: GroupUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    current_assignment(group, 5, TopicPartitions(topic_id=topic_uuid(1), partitions=[0, 1], assignment_epochs=[3]))
    assert group.group.durable.members["a"].assignment_epochs == {topic_uuid(1): {0: 5, 1: 5}}
    assert "1 epochs for 2 partitions" in caplog.text


RECORDS_OF_KAFKA = [
    (step.label, key, value)
    for step in load("4.4.0")[0]
    for key, value in step.records
    if value is not None and isinstance(decode_group_record(key, value)[0], ConsumerGroupCurrentMemberAssignmentKey)
]


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, value) for _, key, value in RECORDS_OF_KAFKA],
    ids=[label for label, _, _ in RECORDS_OF_KAFKA],
)
def test_a_members_record_is_byte_for_byte_that_of_kafka(key: bytes, value: bytes) -> None:
    read_key, read = decode_group_record(key, value)
    assert isinstance(read, ConsumerGroupCurrentMemberAssignmentValue)
    for listed in (read.assigned_partitions, read.partitions_pending_revocation):
        listed.sort(key=lambda topic: topic.topic_id)  # Kafka's order is that of hash maps
        for topic in listed:
            assert topic.assignment_epochs is not None
            in_pairs = sorted(zip(topic.partitions, topic.assignment_epochs, strict=True))
            topic.partitions, topic.assignment_epochs = map(list, zip(*in_pairs, strict=True))
    in_order = encode_group_value(read)
    assert len(in_order) == len(value)
    written = ConsumerMember("m").with_current_assignment(read).current_assignment_value()
    assert encode_group_value(written) == in_order
    assert encode_group_key(read_key) == key


BYTES_OF_KAFKA = bytes.fromhex(
    "0000000000090000000801"
    "02000000000000000000000000000000290400000000000000010000000501000d0400000003000000090000012c"
    "020000000000000000000000000000002903000000020000000701000903000000000000000800"
)
"""Written by the class of Apache Kafka 4.4.0 (scripts/interop/KafkaMessages.java); the version is before it."""


def test_epochs_that_differ_are_written_as_kafka_does() -> None:
    def topic(epochs: dict[int, int]) -> TopicPartitions:
        return TopicPartitions(
            topic_id=UUID(int=0x29), partitions=list(epochs), assignment_epochs=list(epochs.values())
        )

    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=9,
        previous_member_epoch=8,
        state=1,
        assigned_partitions=[topic({0: 3, 1: 9, 5: 300})],
        partitions_pending_revocation=[topic({2: 0, 7: 8})],
    )
    member = ConsumerMember("m").with_current_assignment(value)
    assert encode_group_value(member.current_assignment_value()) == BYTES_OF_KAFKA


@pytest.mark.parametrize("topic_count", [1, 7, 40])
def test_what_a_member_gets_fits_into_its_record(topic_count: int) -> None:
    """The largest target that is not left out: its record of what it owns is longer, and is taken too."""
    limit_bytes = 4_000
    names = [f"t{number}" for number in range(topic_count)]
    lengths = []
    for partitions in range(1, 1_000 // topic_count + 1):
        group = GroupUnderTest(
            FakeTopics(dict.fromkeys(names, partitions)), settings=GroupSettings(record_max_bytes=limit_bytes)
        )
        response = group.accepted(join_request("a", names))
        assert response.assignment is not None
        if not response.assignment.topic_partitions:
            break
        lengths.append(max(len(encode_group_value(value)) for _, value in group.records if value is not None))
    else:
        pytest.fail("no target was left out")
    assert 0 < max(lengths) <= limit_bytes


# --- Requests


@pytest.fixture
def node() -> Node:
    started, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(started, "t", 4)
    return started


def beat(node: Node, member_id: str, epoch: int, owned: list[int] | None = None) -> int:
    """A heartbeat of a member, which joins at epoch 0; its new epoch."""
    joins = epoch == 0
    topic_id = node.services.catalog.topics["t"].id
    told = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=owned or [])
    request = ConsumerGroupHeartbeatRequest(
        group_id="k",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if joins else -1,
        subscribed_topic_names=["t"] if joins else None,
        topic_partitions=[] if joins else None if owned is None else [told],
    )
    return settled(node, begin(node, request, 1), ConsumerGroupHeartbeatResponse).member_epoch


@pytest.fixture
def halved(node: Node) -> Node:
    """Member `a` of group `k` had all of `t` at epoch 1; at 2 it has partitions 0 and 1."""
    assert beat(node, "a", 0) == 1
    assert beat(node, "b", 0) == 2
    assert beat(node, "a", 1) == 1
    assert beat(node, "a", 1, [0, 1]) == 2
    return node


def test_a_late_commit_keeps_its_offset(halved: Node) -> None:
    assert commit(halved, "k", {0: 7}, member_id="a", generation=1) == ErrorCode.NONE
    assert committed(halved, "k") == 7


def test_one_stale_partition_refuses_the_whole_commit(halved: Node) -> None:
    request = OffsetCommitRequest(
        group_id="k",
        member_id="a",
        generation_id_or_member_epoch=1,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=7, committed_metadata=""
                    )
                    for index in (0, 3)
                ],
            )
        ],
    )
    with pytest.raises(KafkaError) as refusal:
        settled(halved, begin(halved, request, 9), OffsetCommitResponse)
    assert refusal.value.code is ErrorCode.STALE_MEMBER_EPOCH
    assert committed(halved, "k") == -1


def test_a_late_commit_in_a_transaction_is_judged_alike_and_its_refusal_is_an_illegal_generation(halved: Node) -> None:
    assert commit_in_transaction(halved, "k", {3: 5}, member_id="a", generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert stable_offset(halved, "k") == -1
    assert commit_in_transaction(halved, "k", {0: 5}, member_id="a", generation=1) == ErrorCode.NONE
