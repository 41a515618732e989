"""Admin and streams groups, against a real broker: Ottla, or what OTTLA_TEST_BOOTSTRAP names (Apache Kafka for one)."""

from __future__ import annotations

import pytest
from kit.streams_groups import streams_member

from ottla.client import AdminError, ErrorCode, StreamsTask, TopicPartition
from ottla.client.blocking import Admin


@pytest.fixture
def admin(broker):
    with Admin(broker.bootstrap) as started:
        yield started


@pytest.fixture
def group(admin, topic):
    """The name of a streams group, and a topic of two partitions for it."""
    admin.create_topic(topic, partitions=2, replication_factor=1)
    return f"g-{topic}"


def test_a_streams_group_is_listed_and_described_with_its_tasks(broker, admin, topic, group):
    with streams_member(broker.port, group, topic) as member:
        (listed,) = [one for one in admin.list_groups(types=["streams"]) if one.group_id == group]
        assert (listed.group_type, listed.protocol_type, listed.state) == ("streams", "streams", "Stable")
        described = admin.describe_streams_groups([group])[group]
        assert (described.group_type, described.state, described.assignor) == ("streams", "Stable", "sticky")
        (about,) = described.members
        assert (about.member_id, about.client_id, about.epoch) == (member.member_id, "wire", member.member_epoch)
        assert about.topics == sorted([topic, f"{group}-repartition"])
        tasks = [StreamsTask(number, index) for number in ("0", "1") for index in (0, 1)]
        assert about.streams.tasks == about.streams.target_tasks
        assert (about.streams.tasks.active, about.streams.tasks.standby) == (tasks, [])
        assert (about.streams.process_id, about.streams.user_endpoint) == (member.process, ("localhost", 7000))
        first, second = described.topology.subtopologies
        assert (first.topics_read, second.topics_read) == ([topic], [f"{group}-repartition"])
        (changelog,) = second.state_changelog_topics
        assert (changelog.partitions, changelog.configs) == (2, {"cleanup.policy": "compact"})
    assert admin.describe_streams_groups([group])[group].state == "Empty"


def test_offsets_of_a_streams_group_are_those_of_any_group(broker, admin, topic, group):
    first = TopicPartition(topic, 0)
    with streams_member(broker.port, group, topic):
        with pytest.raises(AdminError) as refused:
            admin.delete_groups([group])
        assert refused.value.errors[group].code is ErrorCode.NON_EMPTY_GROUP
        with pytest.raises(AdminError) as refused:
            admin.alter_group_offsets(group, {first: 3})
        assert refused.value.errors[f"{topic}-0"].code is ErrorCode.UNKNOWN_MEMBER_ID
    admin.alter_group_offsets(group, {first: 3})
    assert admin.list_group_offsets({group: None})[group][first].offset == 3
    admin.delete_group_offsets(group, [first])
    assert admin.list_group_offsets({group: None}) == {group: {}}
    admin.delete_groups([group])
    with pytest.raises(AdminError) as refused:
        admin.describe_streams_groups([group])
    assert refused.value.errors[group].code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_of_another_type_is_not_described(broker, admin, topic, group):
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
    with pytest.raises(AdminError) as refused:
        admin.describe_streams_groups([group])
    assert refused.value.errors[group].code is ErrorCode.GROUP_ID_NOT_FOUND
