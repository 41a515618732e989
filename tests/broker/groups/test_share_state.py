"""A share group replayed from records, also from those that only Kafka writes, or that a compaction has left."""

from __future__ import annotations

import pytest
from kit.consumer_groups import GROUP, through_the_wire, topic_uuid

from ottla.broker.coordination.effects import CoordinatorRecord
from ottla.broker.groups.share_state import (
    SharedTopic,
    ShareGroupState,
    ShareMember,
    assignment_epoch_record,
    current_assignment_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    target_record,
    topics_record,
)
from ottla.protocol.stored.group import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMetadataKey,
)

T1, T2, T3 = topic_uuid(1), topic_uuid(2), topic_uuid(3)
MEMBER = ShareMember("a", "rack", "client", "/127.0.0.1", frozenset(["t", "u"]), 7, 6, {T1: frozenset([0, 2])})
TOPICS = {T1: SharedTopic("t", frozenset([0, 1])), T2: SharedTopic("u", frozenset([5]))}


def replayed(*records: CoordinatorRecord) -> ShareGroupState:
    state = ShareGroupState(GROUP)
    for record in records:
        state.replay(*through_the_wire(record))
    return state


def everything() -> list[CoordinatorRecord]:
    return [
        member_record(GROUP, MEMBER),
        epoch_record(GROUP, 8, 99),
        topics_record(GROUP, TOPICS),
        target_record(GROUP, "a", {T1: frozenset([2, 0])}),
        assignment_epoch_record(GROUP, 7),
        current_assignment_record(GROUP, MEMBER),
    ]


def test_what_was_written_is_what_is_read() -> None:
    state = replayed(*everything())
    assert (state.group_epoch, state.metadata_hash, state.assignment_epoch) == (8, 99, 7)
    assert state.members == {"a": MEMBER}
    assert state.target == {"a": {T1: frozenset([0, 2])}}
    assert state.topics == TOPICS
    assert (state.name, state.subscribed_names()) == ("Stable", frozenset(["t", "u"]))


def test_a_compaction_may_leave_the_records_in_another_order() -> None:
    """The newest of each key is kept, where it was."""
    state = replayed(*reversed(everything()))
    assert state.members == {"a": MEMBER}
    assert (state.group_epoch, state.assignment_epoch) == (8, 7)


def test_topics_whose_state_kafka_was_making_are_the_groups_and_those_that_it_was_removing_are_not() -> None:
    value = ShareGroupStatePartitionMetadataValue
    info = value.TopicPartitionsInfo
    record = (
        ShareGroupStatePartitionMetadataKey(group_id=GROUP),
        value(
            initializing_topics=[info(topic_id=T1, topic_name="t", partitions=[0])],
            initialized_topics=[info(topic_id=T2, topic_name="u", partitions=[1])],
            deleting_topics=[value.TopicInfo(topic_id=T3, topic_name="v")],
        ),
    )
    assert replayed(record).topics == {T1: SharedTopic("t", frozenset([0])), T2: SharedTopic("u", frozenset([1]))}


def test_a_member_that_is_gone_leaves_nothing() -> None:
    state = replayed(*everything(), *member_tombstones(GROUP, "a"))
    assert (state.members, state.target, state.name) == ({}, {}, "Empty")
    assert (state.group_epoch, state.topics) == (8, TOPICS)


def test_the_tombstones_of_a_group_leave_its_epoch_alone_to_its_table() -> None:
    state = replayed(*everything())
    tombstones = group_tombstones(state)
    assert [type(key) for key, _ in tombstones] == [
        *(type(key) for key, _ in member_tombstones(GROUP, "a")),
        ShareGroupStatePartitionMetadataKey,
        ShareGroupTargetAssignmentMetadataKey,
        type(everything()[1][0]),
    ]
    after = replayed(*everything(), *tombstones)
    assert (after.members, after.target, after.topics, after.assignment_epoch) == ({}, {}, {}, 0)


@pytest.mark.parametrize("tombstone", range(3))
def test_a_tombstone_of_what_is_not_known_changes_nothing(tombstone: int) -> None:
    state = replayed(*everything(), member_tombstones(GROUP, "b")[tombstone])
    assert state.members == {"a": MEMBER}


def test_a_member_keeps_its_partitions_when_what_it_is_changes() -> None:
    moved = MEMBER._replace(rack_id=None, subscribed_topic_names=frozenset(["t"]))
    assert replayed(*everything(), member_record(GROUP, moved)).members == {"a": moved}
