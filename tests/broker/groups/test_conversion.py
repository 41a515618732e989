"""Groups change their protocol: what stays, what is reported to each member, and what prevents a change."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from kit.consumer_groups import GROUP, FakeTopics, GroupUnderTest, Member, heartbeat, join_request, settle

from ottla.broker.coordination.effects import Effects, Now
from ottla.broker.groups.classic import ClassicGroup
from ottla.broker.groups.consumer import ConsumerGroup
from ottla.broker.groups.conversion import downgrade, upgrade
from ottla.broker.groups.group import Caller
from ottla.broker.groups.settings import GroupSettings
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import GroupMetadataKey, GroupMetadataValue

NOW = Now(0, 1_700_000_000_000)
CALLER = Caller("client", "/127.0.0.1", "connection")


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics({"t": 4})


def subscription(*owned: int, topics: tuple[str, ...] = ("t",), version: int = 3) -> bytes:
    listed = [ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=list(owned))] if owned else []
    return encode_subscription(
        ConsumerProtocolSubscription(topics=list(topics), owned_partitions=listed, rack_id="r"), version
    )


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    listed = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=list(partitions))
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[listed], user_data=user_data))


def join(member_id: str = "", metadata: bytes | None = None, **fields: Any) -> JoinGroupRequest:
    values = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": [
            JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata or subscription()),
        ],
        **fields,
    }
    return JoinGroupRequest(group_id=GROUP, member_id=member_id, **values)


def reply(effects: Effects) -> Any:
    ((_, response),) = effects.replies
    return response


class Classic:
    """A classic group with one member that owns everything."""

    def __init__(self, settings: GroupSettings, *, owns: bytes | None = None, **fields: Any) -> None:
        ids = count(1)
        self.group = ClassicGroup(GROUP, settings, new_id=lambda: str(next(ids)))
        joined = reply(self.group.join(join(**fields), 3, CALLER, "join", NOW))
        self.member_id = joined.member_id
        self.generation = joined.generation_id
        mine = SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=self.member_id, assignment=assignment(0, 1, 2, 3) if owns is None else owns
        )
        self.group.sync(self.sync_request(mine), 3, CALLER, "sync", NOW)
        assert self.group.state == "Stable"

    def sync_request(self, *assignments: SyncGroupRequest.SyncGroupRequestAssignment) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id, assignments=list(assignments)
        )


def migrating(topics: FakeTopics, **settings: Any) -> tuple[GroupUnderTest, Classic]:
    """A group that has just been upgraded by member `n`."""
    under_test = GroupUnderTest(topics, settings=GroupSettings(**settings))
    classic = Classic(under_test.settings)
    under_test.group, effects = upgrade(classic.group, under_test.settings, topics, NOW)
    under_test.run(effects)
    return under_test, classic


def classic_beat(group: ConsumerGroup, member_id: str, generation: int) -> ErrorCode:
    request = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
    return ErrorCode(reply(group.heartbeat(request, 4, CALLER, "beat", NOW)).error_code)


def test_an_upgrade_keeps_what_members_own_at_their_generation(topics: FakeTopics) -> None:
    under_test, classic = migrating(topics)
    member = under_test.group.durable.members[classic.member_id]
    assert member.assigned == {topics.id_of("t"): frozenset(range(4))}
    assert (member.member_epoch, member.rack_id, member.uses_classic_protocol) == (1, "r", True)
    assert under_test.group.state == "Stable"


def test_what_an_upgrade_writes_replays_to_the_same_group(topics: FakeTopics) -> None:
    under_test, _ = migrating(topics)
    assert under_test.records[0] == (GroupMetadataKey(group=GROUP), None)
    before = under_test.group.durable
    under_test.records.pop(0)
    under_test.restart()
    after = under_test.group.durable
    assert (after.members, after.target, after.group_epoch) == (before.members, before.target, before.group_epoch)
    assert after.metadata_hash == before.metadata_hash != 0


def test_a_classic_member_goes_on_until_it_gives_up_and_the_new_one_takes_over(topics: FakeTopics) -> None:
    under_test, classic = migrating(topics)
    group = under_test.group
    n = Member(under_test, "n").join()
    assert not n.assigned
    assert classic_beat(group, classic.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = reply(group.join(join(classic.member_id, subscription(0, 1, 2, 3)), 9, CALLER, "w", NOW))
    assert (joined.generation_id, joined.protocol_name) == (1, "range")
    synced = reply(group.sync(classic.sync_request(), 3, CALLER, "w", NOW))
    (kept,) = decode_assignment(synced.assignment).assigned_partitions
    assert kept.partitions == [0, 1]
    assert not n.heartbeat().assigned
    joined = reply(group.join(join(classic.member_id, subscription(0, 1)), 9, CALLER, "w", NOW))
    assert joined.generation_id == 2
    settle(n)
    assert n.assigned == {topics.id_of("t"): frozenset([2, 3])}
    assert classic_beat(group, classic.member_id, 2) is ErrorCode.NONE
    assert group.state == "Stable"


@pytest.mark.parametrize(
    ("settings", "classic"),
    [
        ({"consumer_migration_policy": "downgrade"}, {}),
        ({"consumer_migration_policy": "disabled"}, {}),
        ({"consumer_max_size": 0}, {}),
        ({}, {"protocol_type": "connect"}),
        ({}, {"metadata": b"\xff"}),
        ({}, {"owns": assignment(0, user_data=b"sticky")}),
        ({}, {"owns": b"\x00"}),
        ({"record_max_bytes": 170}, {}),
    ],
    ids=["policy", "disabled", "size", "protocol type", "subscription", "user data", "assignment", "record"],
)
def test_a_group_that_cannot_be_upgraded_stays_as_it_is(
    topics: FakeTopics, settings: dict[str, Any], classic: dict[str, Any]
) -> None:
    given = GroupSettings(**settings)
    group = Classic(given, **classic).group
    with pytest.raises(KafkaError) as refusal:
        upgrade(group, given, topics, NOW)
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.state == "Stable"


@pytest.mark.parametrize("policy", ["bidirectional", "disabled"])
def test_a_group_without_members_is_replaced_whatever_the_policy(topics: FakeTopics, policy: str) -> None:
    settings = GroupSettings(consumer_migration_policy=policy)
    consumer, effects = upgrade(ClassicGroup(GROUP, settings), settings, topics, NOW)
    assert consumer.is_empty
    assert effects.records == [(GroupMetadataKey(group=GROUP), None)]


def leave_by(how: str) -> Callable[[GroupUnderTest], Effects]:
    def leaves(under_test: GroupUnderTest) -> Effects:
        identity = LeaveGroupRequest.MemberIdentity(member_id="n")
        if how == "heartbeat":
            return under_test.group.consumer_heartbeat(heartbeat("n", -1), 1, CALLER, "w", under_test.now)
        if how == "administrator":
            request = LeaveGroupRequest(group_id=GROUP, members=[identity])
            return under_test.group.leave(request, 5, CALLER, "w", under_test.now)
        under_test.monotonic_ms = 9_999
        classic_beat(under_test.group, next(iter(under_test.group.durable.members)), 1)
        under_test.group.begin_session(under_test.group.member_of("client-1"), Now(9_999, 0))
        under_test.monotonic_ms = 12_000
        return under_test.group.on_deadline(under_test.now)

    return leaves


@pytest.mark.parametrize("how", ["heartbeat", "administrator", "session"])
def test_when_the_last_of_the_new_protocol_goes_the_group_is_a_classic_one(topics: FakeTopics, how: str) -> None:
    limits = {"consumer_session_timeout_ms": 11_000, "consumer_min_session_timeout_ms": 1}
    under_test, classic = migrating(topics, **limits)
    Member(under_test, "n").join()
    leave_by(how)(under_test)
    assert under_test.group.downgrade is not None
    group, effects = downgrade(under_test.group, NOW)
    assert list(group.members) == [classic.member_id]
    assert group.state == "PreparingRebalance"
    assert group.generation_id == 2
    key, value = effects.records[-1]
    assert key == GroupMetadataKey(group=GROUP)
    assert isinstance(value, GroupMetadataValue)
    (stored,) = value.members
    assert decode_assignment(stored.assignment).assigned_partitions[0].partitions == [0, 1]


def test_a_classic_group_that_came_from_a_downgrade_replays(topics: FakeTopics) -> None:
    under_test, classic = migrating(topics)
    Member(under_test, "n").join()
    leave_by("heartbeat")(under_test)
    _, effects = downgrade(under_test.group, NOW)
    replayed = ClassicGroup(GROUP, under_test.settings)
    replayed.replay(*effects.records[-1])
    assert replayed.state == "Stable"
    assert list(replayed.members) == [classic.member_id]
    for record in effects.records[:-1]:
        assert record[1] is None


@pytest.mark.parametrize(
    "settings", [{"consumer_migration_policy": "upgrade"}, {"max_size": 0}, {"record_max_bytes": 0}]
)
def test_a_group_that_may_not_be_downgraded_stays_a_consumer_group(
    topics: FakeTopics, settings: dict[str, Any]
) -> None:
    under_test, classic = migrating(topics)
    Member(under_test, "n").join()
    under_test.group.settings = GroupSettings(**settings)
    under_test.accepted(heartbeat("n", -1))
    assert under_test.group.downgrade is None
    assert list(under_test.group.durable.members) == [classic.member_id]


def test_the_last_member_of_all_leaves_an_empty_consumer_group(topics: FakeTopics) -> None:
    under_test = GroupUnderTest(topics)
    Member(under_test, "n").join()
    under_test.accepted(heartbeat("n", -1))
    assert under_test.group.downgrade is None
    assert under_test.group.is_empty


def test_a_static_member_that_comes_back_in_the_classic_protocol_downgrades_without_a_rebalance(
    topics: FakeTopics,
) -> None:
    under_test = GroupUnderTest(topics)
    Member(under_test, "n", instance_id="i").join()
    effects = under_test.group.join(join("", group_instance_id="i"), 9, CALLER, "w", NOW)
    joined = reply(effects)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    group, _ = downgrade(under_test.group, NOW)
    assert group.state == "Stable"
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id=joined.member_id,
        group_instance_id="i",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )
    synced = reply(group.sync(request, 5, CALLER, "w", NOW))
    assert decode_assignment(synced.assignment).assigned_partitions[0].partitions == [0, 1, 2, 3]


def test_a_downgrade_with_a_new_subscription_begins_with_a_rebalance(topics: FakeTopics) -> None:
    topics.create("u", 2)
    under_test, classic = migrating(topics)
    Member(under_test, "n", instance_id="i").join()
    joining = join("", subscription(topics=("t", "u")), group_instance_id="i")
    assert reply(under_test.group.join(joining, 9, CALLER, "w", NOW)).error_code == ErrorCode.NONE
    group, _ = downgrade(under_test.group, NOW)
    assert group.state == "PreparingRebalance"
    assert classic.member_id in group.members


def test_an_expression_ends_with_the_static_member_that_comes_back_in_the_classic_protocol(topics: FakeTopics) -> None:
    under_test = GroupUnderTest(topics)
    Member(under_test, "n", instance_id="i", topics=None, subscribed_topic_regex="t.*").join()
    Member(under_test, "o").join()
    topics.create("t2", 1)
    effects = under_test.group.join(join("", group_instance_id="i"), 9, CALLER, "w", NOW)
    member = under_test.group.durable.members[reply(effects).member_id]
    assert (member.subscribed_topic_regex, member.subscribed_topic_names) == ("", frozenset({"t"}))
    assert not under_test.group.durable.subscriptions.resolved
    assert under_test.group.durable.group_epoch == 3


def test_no_classic_member_joins_a_consumer_group_where_migration_is_disabled(topics: FakeTopics) -> None:
    under_test = GroupUnderTest(topics, GroupSettings(consumer_migration_policy="disabled"))
    Member(under_test, "n").join()
    effects = under_test.group.join(join("", group_instance_id="i"), 9, CALLER, "w", NOW)
    assert reply(effects).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not effects.records


def test_a_static_classic_member_that_comes_back_in_the_new_protocol_keeps_its_partitions(topics: FakeTopics) -> None:
    under_test = GroupUnderTest(topics)
    classic = Classic(under_test.settings, group_instance_id="i")
    under_test.group, effects = upgrade(classic.group, under_test.settings, topics, NOW)
    under_test.run(effects)
    n = Member(under_test, "n", instance_id="i").join()
    assert n.assigned == {topics.id_of("t"): frozenset(range(4))}
    assert list(under_test.group.durable.members) == ["n"]
    assert classic_beat(under_test.group, classic.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (join("", protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join("", protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join("known", b"\x00"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join("known", subscription() + bytes(1 << 20)), ErrorCode.UNKNOWN_SERVER_ERROR),
        (join("known", group_instance_id="nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
        (join(""), ErrorCode.MEMBER_ID_REQUIRED),
    ],
    ids=["type", "no protocols", "malformed", "too large", "unknown instance", "no id"],
)
def test_a_join_that_is_no_good_changes_nothing(
    topics: FakeTopics, request_: JoinGroupRequest, code: ErrorCode
) -> None:
    under_test = GroupUnderTest(topics)
    Member(under_test, "n").join()
    effects = under_test.group.join(request_, 9, CALLER, "w", NOW)
    assert reply(effects).error_code == code
    assert not effects.records


@pytest.mark.parametrize("late", ["join", "sync"])
def test_a_classic_member_that_is_late_is_fenced(topics: FakeTopics, late: str) -> None:
    under_test, classic = migrating(topics, consumer_migration_policy="upgrade")
    group = under_test.group
    Member(under_test, "n").join()
    assert classic_beat(group, classic.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    if late == "sync":
        group.join(join(classic.member_id, subscription(0, 1, 2, 3)), 9, CALLER, "w", NOW)
    for _ in range(5):
        group.begin_session(group.member_of(classic.member_id), under_test.now)
        under_test.pass_time(3_999)
    assert classic.member_id in group.durable.members
    group.begin_session(group.member_of(classic.member_id), under_test.now)
    under_test.pass_time(10)
    assert classic.member_id not in group.durable.members


def test_before_version_1_the_session_timeout_is_the_rebalance_timeout_too(topics: FakeTopics) -> None:
    under_test = GroupUnderTest(topics)
    Member(under_test, "n").join()
    joined = reply(under_test.group.join(join("", rebalance_timeout_ms=-1), 0, CALLER, "w", NOW))
    assert under_test.group.durable.members[joined.member_id].rebalance_timeout_ms == 10_000


def test_an_administrator_removes_static_members_by_their_instance_id(topics: FakeTopics) -> None:
    under_test = GroupUnderTest(topics)
    Member(under_test, "n", instance_id="i").join()
    identities = [
        LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="i"),
        LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="j"),
        LeaveGroupRequest.MemberIdentity(member_id="somebody", group_instance_id="i"),
        LeaveGroupRequest.MemberIdentity(member_id="nobody"),
    ]
    request = LeaveGroupRequest(group_id=GROUP, members=identities)
    response = reply(under_test.group.leave(request, 5, CALLER, "w", NOW))
    assert [member.error_code for member in response.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert under_test.group.is_empty


def test_a_refused_upgrading_heartbeat_can_be_dropped_whole(topics: FakeTopics) -> None:
    """The shell keeps the classic group where the step of the new one has no records."""
    under_test, _ = migrating(topics)
    refused = under_test.group.consumer_heartbeat(
        join_request("n", None, subscribed_topic_regex="("), 1, CALLER, "w", NOW
    )
    assert not refused.records
