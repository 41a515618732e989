"""Admin and share groups, against a real broker: Ottla, or what OTTLA_TEST_BOOTSTRAP names (Apache Kafka for one)."""

from __future__ import annotations

import pytest
from kit.share_groups import acknowledge, begin_with_the_first_record, received, share_member

from ottla.client import AdminError, ErrorCode, KafkaError, TopicPartition
from ottla.client.blocking import Admin, Producer


@pytest.fixture
def admin(broker):
    with Admin(broker.bootstrap) as started:
        yield started


@pytest.fixture
def group(broker, admin, topic):
    """A share group that begins with the first record of a topic of two partitions, ten records in the first."""
    admin.create_topic(topic, partitions=2, replication_factor=1)
    with Producer(broker.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
    begin_with_the_first_record(broker.bootstrap, f"g-{topic}")
    return f"g-{topic}"


def test_a_share_group_is_listed_described_and_says_where_it_is(broker, admin, topic, group):
    with share_member(broker.bootstrap, group, topic) as member:
        records = received(member, 10)
        acknowledge(member, records[2:])
        (listed,) = [one for one in admin.list_groups(types=["share"]) if one.group_id == group]
        assert (listed.group_type, listed.protocol_type, listed.state) == ("share", "share", "Stable")
        described = admin.describe_share_groups([group])[group]
        assert (described.group_type, described.state, described.assignor) == ("share", "Stable", "simple")
        (about,) = described.members
        assert (about.client_id, about.topics) == ("sharer", [topic])
        assert about.assignment == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        found = admin.share_group_offsets({group: None})[group]
        first = found[TopicPartition(topic, 0)]
        assert first.start_offset in (0, 4), "Kafka stores it with the next acknowledgement"
        assert first.lag == 2
        assert admin.share_group_offsets({group: [TopicPartition(topic, 0)]}) == {
            group: {TopicPartition(topic, 0): first}
        }
    assert admin.describe_share_groups([group])[group].state == "Empty"


def test_an_empty_share_group_continues_where_it_is_told_and_forgets_topics(broker, admin, topic, group):
    with share_member(broker.bootstrap, group, topic) as member:
        acknowledge(member, received(member, 10))
        with pytest.raises(KafkaError) as refused:
            admin.alter_share_group_offsets(group, {TopicPartition(topic, 0): 7})
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        with pytest.raises(KafkaError) as refused:
            admin.delete_share_group_offsets(group, [topic])
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        with pytest.raises(AdminError) as refused:
            admin.delete_groups([group])
        assert refused.value.errors[group].code is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(AdminError) as refused:
        admin.alter_share_group_offsets(group, {TopicPartition(topic, 0): 7, TopicPartition("none", 0): 1})
    assert {name: error.code for name, error in refused.value.errors.items()} == {
        "none-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    first = admin.share_group_offsets({group: None})[group][TopicPartition(topic, 0)]
    assert (first.start_offset, first.lag) == (7, 3)
    with share_member(broker.bootstrap, group, topic) as member:
        assert [record.offset() for record in received(member, 3)] == [7, 8, 9]
    admin.delete_share_group_offsets(group, [topic])
    assert admin.share_group_offsets({group: None}) == {group: {}}
    with pytest.raises(AdminError) as refused:
        admin.delete_share_group_offsets(group, [topic])
    assert refused.value.errors[topic].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    admin.delete_groups([group])
    with pytest.raises(AdminError) as refused:
        admin.describe_share_groups([group])
    assert refused.value.errors[group].code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_of_consumers_is_no_share_group(admin, topic, group):
    other = f"classic-{topic}"
    admin.alter_group_offsets(other, {TopicPartition(topic, 0): 1})
    with pytest.raises(AdminError) as refused:
        admin.describe_share_groups([other])
    assert refused.value.errors[other].code is ErrorCode.GROUP_ID_NOT_FOUND
    assert admin.share_group_offsets({other: None}) == {other: {}}
    with pytest.raises(KafkaError) as whole:
        admin.alter_share_group_offsets(other, {TopicPartition(topic, 0): 1})
    assert whole.value.code is ErrorCode.GROUP_ID_NOT_FOUND
