"""The consumer protocol where time, topics, connections and old records come in; the rest is in `test_golden.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.consumer_groups import (
    GROUP,
    FakeTopics,
    GroupUnderTest,
    Member,
    heartbeat,
    join_request,
    owned_structs,
    settle,
    snapshot,
)

from ottla.broker.groups import consumer_step
from ottla.broker.groups.consumer_member import MemberState
from ottla.broker.groups.settings import GroupSettings
from ottla.broker.runtime.regular_expressions import MAX_LENGTH
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)

SESSION_MS = 45_000
REBALANCE_MS = 60_000


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics({"t": 4})


@pytest.fixture
def group(topics: FakeTopics) -> GroupUnderTest:
    return GroupUnderTest(topics)


def with_settings(topics: FakeTopics, **settings: object) -> GroupUnderTest:
    return GroupUnderTest(topics, settings=GroupSettings(**settings))  # type: ignore[arg-type]  # fields by name


def sizes(*members: Member) -> list[int]:
    return [sum(map(len, member.assigned.values())) for member in members]


# --- Time


def test_a_member_that_falls_silent_is_fenced_when_its_session_ends(group: GroupUnderTest) -> None:
    a = Member(group, "a").join()
    group.pass_time(SESSION_MS - 1)
    assert a.heartbeat().epoch == 1
    group.pass_time(SESSION_MS)
    assert group.group.is_empty
    assert group.refused(heartbeat("a", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_partitions_of_a_fenced_member_go_to_the_others(group: GroupUnderTest) -> None:
    a, b = Member(group, "a").join(), Member(group, "b").join()
    settle(a, b)
    group.pass_time(SESSION_MS - 1)
    b.keep_up()
    group.pass_time(1)
    settle(b)
    assert sizes(b) == [4]
    assert group.group.state == "Stable"


def test_all_sessions_that_end_together_are_one_new_epoch(group: GroupUnderTest) -> None:
    for name in "abc":
        Member(group, name).join()
    before = group.group.durable.group_epoch
    group.pass_time(SESSION_MS)
    assert group.group.is_empty
    assert group.group.durable.group_epoch == before + 1


def test_a_member_that_does_not_give_up_in_time_is_fenced(group: GroupUnderTest) -> None:
    a, b = Member(group, "a").join(), Member(group, "b").join()
    a.take_over()
    a.heartbeat()
    for _ in range(3):
        group.pass_time(REBALANCE_MS / 3 - 1)
        a.heartbeat(topic_partitions=owned_structs({topic: frozenset(range(4)) for topic in a.assigned}))
        b.heartbeat()
    group.pass_time(3)
    assert group.refused(heartbeat("a", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    settle(b)
    assert sizes(b) == [4]


def test_the_time_to_give_up_begins_again_when_more_is_taken(topics: FakeTopics, group: GroupUnderTest) -> None:
    topics.grow("t", 6)
    a, b = Member(group, "a").join(), Member(group, "b").join()
    a.take_over()
    a.heartbeat()
    group.pass_time(REBALANCE_MS / 2)
    c = Member(group, "c").join()
    b.heartbeat()
    a.keep_up()
    assert group.group.durable.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    group.pass_time(REBALANCE_MS / 2)
    b.heartbeat()
    settle(a, b, c)
    assert sizes(a, b, c) == [2, 2, 2]


def test_a_static_member_that_does_not_come_back_is_fenced_at_the_end_of_its_session(group: GroupUnderTest) -> None:
    Member(group, "a", instance_id="i").join()
    group.accepted(heartbeat("a", -2, instance_id="i"))
    group.pass_time(SESSION_MS - 1)
    assert group.group.state == "Reconciling"
    group.pass_time(1)
    assert group.group.is_empty


def test_a_static_member_whose_join_was_not_answered_joins_again_under_its_id(topics: FakeTopics) -> None:
    group = GroupUnderTest(topics)
    first = Member(group, "a", instance_id="i").join()
    again = Member(group, "a", instance_id="i").join()
    assert (again.epoch, again.assigned) == (first.epoch, first.assigned)
    assert again.assigned
    again.keep_up()


def test_another_process_with_the_instance_id_of_a_living_member_is_refused(topics: FakeTopics) -> None:
    group = GroupUnderTest(topics)
    Member(group, "a", instance_id="i").join()
    joining = join_request("b", ["t"], instance_id="i")
    assert group.refused(joining) is ErrorCode.UNRELEASED_INSTANCE_ID
    group.pass_time(group.settings.consumer_session_timeout_ms)
    assert group.accepted(joining).member_epoch > 0


def test_a_group_may_have_its_own_session_timeout_and_heartbeat_interval(topics: FakeTopics) -> None:
    own = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "1234"}
    group = with_settings(topics, group_configs=lambda name: own if name == GROUP else {})
    assert group.accepted(join_request("a", ["t"])).heartbeat_interval_ms == 1234
    group.pass_time(49_999)
    assert not group.group.is_empty
    group.pass_time(1)
    assert group.group.is_empty


def test_after_a_restart_members_go_on_at_their_epochs_with_new_sessions(group: GroupUnderTest) -> None:
    a, b = Member(group, "a").join(), Member(group, "b").join()
    settle(a, b)
    group.pass_time(SESSION_MS - 1)
    before = snapshot(group.group)
    group.restart()
    assert snapshot(group.group) == before
    group.pass_time(SESSION_MS - 1)
    assert a.heartbeat().epoch == b.heartbeat().epoch == 2
    assert group.group.state == "Stable"


def test_after_a_restart_the_time_to_give_up_runs_again(group: GroupUnderTest) -> None:
    a, b = Member(group, "a").join(), Member(group, "b").join()
    a.take_over()
    a.heartbeat()
    group.restart()
    for _ in range(3):
        group.pass_time(REBALANCE_MS / 3)
        b.heartbeat()
        if "a" in group.group.durable.members:
            a.heartbeat()
    assert "a" not in group.group.durable.members


# --- Connections


@pytest.mark.parametrize("evict_ms", [0, 500])
def test_a_broken_connection_ends_a_member_early_where_that_is_asked_for(topics: FakeTopics, evict_ms: int) -> None:
    group = with_settings(topics, evict_on_disconnect_ms=evict_ms)
    group.accepted(join_request("a", ["t"]), connection="one")
    group.accepted(join_request("b", ["t"]), connection="two")
    group.run(group.group.on_disconnect("one", group.now))
    group.pass_time(evict_ms)
    assert list(group.group.durable.members) == ["b"]


def test_a_member_that_comes_by_another_connection_stays(topics: FakeTopics) -> None:
    group = with_settings(topics, evict_on_disconnect_ms=500)
    group.accepted(join_request("a", ["t"]), connection="one")
    group.run(group.group.on_disconnect("one", group.now))
    group.accepted(heartbeat("a", 1), connection="two")
    group.run(group.group.on_disconnect("one", group.now))
    group.pass_time(SESSION_MS - 1)
    assert not group.group.is_empty


def test_a_broken_connection_means_nothing_to_a_static_member_or_by_default(topics: FakeTopics) -> None:
    for group, fields in (
        (with_settings(topics, evict_on_disconnect_ms=0), {"instance_id": "i"}),
        (GroupUnderTest(topics), {}),
    ):
        group.accepted(join_request("a", ["t"], **fields), connection="one")
        assert group.run(group.group.on_disconnect("one", group.now)) is None
        assert not group.group.is_empty


# --- Topics


def test_a_topic_that_comes_later_is_assigned_at_the_next_heartbeat(topics: FakeTopics, group: GroupUnderTest) -> None:
    a = Member(group, "a", ["later"]).join()
    assert sizes(a) == [0]
    topics.create("later", 2)
    assert sizes(a.heartbeat()) == [2]
    assert a.epoch == 2


def test_new_partitions_of_a_topic_are_assigned(topics: FakeTopics, group: GroupUnderTest) -> None:
    a = Member(group, "a").join()
    topics.grow("t", 6)
    assert sizes(a.heartbeat()) == [6]


def test_a_topic_of_no_interest_changes_nothing(topics: FakeTopics, group: GroupUnderTest) -> None:
    a = Member(group, "a").join()
    written = len(group.records)
    topics.create("other", 3)
    assert a.heartbeat().epoch == 1
    assert len(group.records) == written


def test_the_partitions_of_a_deleted_topic_are_given_up(topics: FakeTopics, group: GroupUnderTest) -> None:
    a = Member(group, "a", ["t", "u"]).join()
    topics.create("u", 1)
    assert sizes(a.keep_up()) == [5]
    topics.delete("t")
    settle(a)
    assert sizes(a) == [1]
    assert group.group.state == "Stable"


def test_a_topic_that_was_made_again_is_another_topic(topics: FakeTopics, group: GroupUnderTest) -> None:
    a = Member(group, "a").join()
    topics.delete("t")
    new_id = topics.create("t", 4)
    settle(a)
    assert a.assigned == {new_id: frozenset(range(4))}


# --- Regular expressions


def test_an_expression_is_matched_in_the_step_that_brings_it(topics: FakeTopics, group: GroupUnderTest) -> None:
    topics.create("tea", 1)
    a = Member(group, "a", subscribed_topic_regex="t.*").join()
    assert sizes(a) == [5]
    assert group.group.is_subscribed_to("tea")
    assert not group.group.is_subscribed_to("coffee")


def test_an_expression_has_to_match_the_whole_name(topics: FakeTopics, group: GroupUnderTest) -> None:
    topics.create("a-t-b", 1)
    assert sizes(Member(group, "a", subscribed_topic_regex="t").join()) == [4]


def test_topics_that_come_and_go_are_matched(topics: FakeTopics, group: GroupUnderTest) -> None:
    a = Member(group, "a", subscribed_topic_regex="t.*").join()
    topics.create("tea", 2)
    topics.create("coffee", 2)
    assert sizes(a.heartbeat()) == [6]
    topics.delete("t")
    settle(a)
    assert sizes(a) == [2]


def test_names_and_an_expression_are_both_subscribed_to(topics: FakeTopics, group: GroupUnderTest) -> None:
    topics.create("u", 2)
    a = Member(group, "a", ["u"], subscribed_topic_regex="t").join()
    assert sizes(a) == [6]
    assert sizes(a.heartbeat(subscribed_topic_regex="")) == [2]


def test_an_expression_is_forgotten_with_its_last_subscriber(group: GroupUnderTest) -> None:
    a, b = (Member(group, name, subscribed_topic_regex="t").join() for name in "ab")
    settle(a, b)
    group.accepted(heartbeat("b", -1))
    assert list(group.group.durable.subscriptions.resolved) == ["t"]
    a.keep_up().heartbeat(subscribed_topic_regex="u")
    assert list(group.group.durable.subscriptions.resolved) == ["u"]
    group.accepted(heartbeat("a", -1))
    assert not group.group.durable.subscriptions.resolved


@pytest.mark.parametrize("expression", ["(", "a{0,9999}", r"(a)\1", "(?=a)", "x" * (MAX_LENGTH + 1)])
def test_an_expression_that_is_no_good_changes_nothing(group: GroupUnderTest, expression: str) -> None:
    request = join_request("a", None, subscribed_topic_regex=expression)
    assert group.refused(request) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group.group.is_empty
    Member(group, "b").join()
    changes = heartbeat("b", 1, subscribed_topic_regex=expression)
    assert group.refused(changes) is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_the_longest_expression_is_good(group: GroupUnderTest) -> None:
    assert group.accepted(join_request("a", None, subscribed_topic_regex="x" * MAX_LENGTH)).member_epoch == 1


def test_an_expression_on_disk_that_is_no_good_here_keeps_what_it_matched(
    topics: FakeTopics, group: GroupUnderTest
) -> None:
    Member(group, "a", subscribed_topic_regex="t").join()
    bad = ConsumerGroupRegularExpressionValue(topics=["t"], version=1, timestamp=1)
    member = group.group.durable.members["a"]
    group.group.replay(ConsumerGroupRegularExpressionKey(group_id=GROUP, regular_expression="("), bad)
    group.group.durable.subscriptions.replace(member, replace(member, subscribed_topic_regex="("))
    topics.create("u", 1)
    assert group.accepted(heartbeat("a", 1)).member_epoch == 1
    assert group.group.is_subscribed_to("t")


# --- Members


def test_before_version_1_the_broker_chooses_the_member_id(group: GroupUnderTest) -> None:
    response = group.accepted(join_request("", ["t"]), version=0)
    assert response.member_id == "generated-1"
    assert group.accepted(heartbeat("generated-1", 1), version=0).member_epoch == 1


def test_a_group_has_at_most_its_size(topics: FakeTopics) -> None:
    group = with_settings(topics, consumer_max_size=2)
    a, b = Member(group, "a").join(), Member(group, "b").join()
    assert group.refused(join_request("c", ["t"])) is ErrorCode.GROUP_MAX_SIZE_REACHED
    settle(a, b)
    group.accepted(heartbeat("b", -1))
    assert group.accepted(join_request("c", ["t"])).member_id == "c"


def test_most_votes_choose_the_assignor(group: GroupUnderTest) -> None:
    Member(group, "a", server_assignor="range").join()
    assert group.group.describe().assignor_name == "range"
    Member(group, "b", server_assignor="uniform").join()
    assert group.group.describe().assignor_name == "uniform", "a tie goes to the first that is configured"
    Member(group, "c", server_assignor="range").join()
    assert group.group.describe().assignor_name == "range"


def test_an_assignor_that_is_not_configured_is_refused(topics: FakeTopics) -> None:
    group = with_settings(topics, consumer_assignors=("range",))
    assert group.refused(join_request("a", ["t"], server_assignor="uniform")) is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert group.group.describe().assignor_name == "range"


def test_assignors_of_java_classes_leave_the_default(topics: FakeTopics) -> None:
    group = with_settings(topics, consumer_assignors=("com.example.Mine",))
    assert sizes(Member(group, "a").join()) == [4]


def test_a_lost_answer_can_be_asked_for_again(group: GroupUnderTest) -> None:
    a = Member(group, "a").join()
    a.take_over()
    Member(group, "b").join()
    a.heartbeat()
    a.revoke()
    group.accepted(heartbeat("a", 1, topic_partitions=owned_structs(a.owned)))  # a is at epoch 2 and does not know
    fields = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"], "topic_partitions": owned_structs(a.owned)}
    response = group.accepted(heartbeat("a", 1, **fields))
    assert response.member_epoch == 2
    assert response.assignment is not None


@pytest.mark.parametrize("owned", [None, "more"])
def test_the_former_epoch_needs_the_proof_that_nothing_more_is_owned(group: GroupUnderTest, owned: str | None) -> None:
    a = Member(group, "a").join()
    a.take_over()
    everything = owned_structs(a.owned)
    Member(group, "b").join()
    a.keep_up()
    a.keep_up()
    assert a.epoch == 2
    request = heartbeat("a", 1, topic_partitions=None if owned is None else everything)
    assert group.refused(request) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_with_epoch_0_and_keeps_its_partitions(group: GroupUnderTest) -> None:
    a, b = Member(group, "a").join(), Member(group, "b").join()
    settle(a, b)
    assert group.refused(heartbeat("a", a.epoch + 1)) is ErrorCode.FENCED_MEMBER_EPOCH
    again = Member(group, "a").join()
    assert (again.epoch, again.assigned) == (a.epoch, a.assigned)
    assert group.group.state == "Stable"


def test_a_member_that_joins_again_has_given_up_what_it_should(group: GroupUnderTest) -> None:
    a, b = Member(group, "a").join(), Member(group, "b").join()
    a.take_over()
    a.heartbeat()
    assert group.group.durable.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert Member(group, "a").join().epoch == 2
    assert sizes(b.heartbeat()) == [2]


def test_a_fenced_static_member_joins_again_under_its_id(group: GroupUnderTest) -> None:
    """As a dynamic one; Kafka lets it wait for the end of its session (docs/deviations.md)."""
    a, b = Member(group, "a", instance_id="i").join(), Member(group, "b").join()
    settle(a, b)
    again = Member(group, "a", instance_id="i").join()
    assert (again.epoch, again.assigned) == (a.epoch, a.assigned)


def test_a_partition_that_a_member_gave_up_comes_back_at_once_if_it_is_to_own_it_again(group: GroupUnderTest) -> None:
    a = Member(group, "a").join()
    a.take_over()
    b = Member(group, "b").join()
    a.heartbeat()
    a.revoke()
    group.accepted(heartbeat("b", -1))
    a.heartbeat(topic_partitions=owned_structs(a.owned))
    assert sizes(a) == [4]
    assert group.group.state == "Stable"
    assert b.epoch == 2


def test_a_member_that_has_still_more_to_give_up_stays_at_its_epoch(topics: FakeTopics, group: GroupUnderTest) -> None:
    topics.grow("t", 6)
    a = Member(group, "a").join()
    a.take_over()
    Member(group, "b").join()
    a.heartbeat()
    Member(group, "c").join()
    assert a.keep_up().epoch == 1
    assert group.group.durable.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert a.keep_up().epoch == 3


def test_a_topic_that_a_member_leaves_is_not_assigned_to_it_while_it_gives_up_others(topics: FakeTopics) -> None:
    left = topics.create("u", 2)
    group = GroupUnderTest(topics)
    a = Member(group, "a", ["t", "u"], server_assignor="range").join()
    a.take_over()
    Member(group, "b", ["t", "u"], server_assignor="range").join()
    a.heartbeat()
    assert a.assigned.keys() == {topics.id_of("t"), left}
    a.heartbeat(subscribed_topic_names=["t"])
    assert a.assigned.keys() == {topics.id_of("t")}
    assert group.group.durable.members["a"].pending_revocation[left] == frozenset({0, 1})
    assert a.keep_up().epoch == 3


def test_a_member_is_described_with_what_it_has_still_to_give_up(group: GroupUnderTest) -> None:
    a = Member(group, "a").join()
    a.take_over()
    Member(group, "b").join()
    a.heartbeat()
    (described,) = [member for member in group.group.describe().members if member.member_id == "a"]
    assert [topic.partitions for topic in described.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert [topic.partitions for topic in described.target_assignment.topic_partitions] == [[0, 1]]


@pytest.mark.parametrize("how", ["leaves", "is fenced"])
def test_a_group_without_members_has_a_target_of_its_last_epoch(group: GroupUnderTest, how: str) -> None:
    Member(group, "a").join()
    if how == "leaves":
        group.accepted(heartbeat("a", -1))
    else:
        group.pass_time(SESSION_MS)
    group.restart()
    described = group.group.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Empty", 2, 2)
    assert sizes(Member(group, "b").join()) == [4]


def test_a_state_of_a_later_kafka_fences_a_member_until_it_owns_nothing(group: GroupUnderTest) -> None:
    a = Member(group, "a").join()
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a")
    group.group.replay(
        key,
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=1,
            previous_member_epoch=1,
            state=55,
            assigned_partitions=[],
            partitions_pending_revocation=[],
        ),
    )
    a.take_over()
    assert group.refused(heartbeat("a", 1)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.refused(heartbeat("a", 1, topic_partitions=owned_structs(a.owned))) is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.accepted(heartbeat("a", 1, topic_partitions=[])).assignment is not None


def test_a_member_of_the_same_id_that_rejoins_takes_its_static_place(group: GroupUnderTest) -> None:
    a = Member(group, "a", instance_id="i").join()
    group.accepted(heartbeat("a", -2, instance_id="i"))
    assert sizes(a.join()) == [4]
    assert group.group.state == "Stable"


# --- Records


@pytest.mark.parametrize(
    "fields",
    [{"subscribed_topic_names": ["x" * 600]}, {"rack_id": "r" * 600}, {"instance_id": "i" * 600}],
    ids=["names", "rack", "instance id"],
)
def test_a_member_that_the_log_would_not_take_is_refused(topics: FakeTopics, fields: dict[str, object]) -> None:
    group = with_settings(topics, record_max_bytes=1_000)
    a = Member(group, "a").join()
    changes = {"rebalance_timeout_ms": 1, **fields}
    if "instance_id" not in fields:
        assert group.refused(heartbeat("a", 1, **changes)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert group.refused(join_request("b", ["t"], **fields)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert a.heartbeat().epoch == 1


def test_members_that_went_without_an_epoch_leave_partitions_that_are_given_out_after_a_start(
    topics: FakeTopics, group: GroupUnderTest
) -> None:
    """A step of several batches of which a crash kept only the first: the tombstones, and not the new epoch."""
    a, b = Member(group, "a").join(), Member(group, "b").join()
    settle(a, b)
    assert sizes(a, b) == [2, 2]
    group.accepted(heartbeat("b", -1))
    *cut, (key, _) = group.records
    assert isinstance(key, ConsumerGroupMetadataKey), "the epoch is what the crash took"
    group.records = cut
    group.restart()
    settle(a)
    assert sizes(a) == [4]


def test_a_start_before_a_new_epoch_has_its_target_makes_no_further_epoch(group: GroupUnderTest) -> None:
    stays, goes = Member(group, "a").join(), Member(group, "b").join()
    settle(stays, goes)
    group.accepted(heartbeat("b", -1))
    epoch = group.group.durable.group_epoch
    group.restart()
    stays.keep_up()
    assert group.group.durable.group_epoch == epoch
    assert stays.epoch == epoch


def test_a_start_alone_makes_no_new_epoch(topics: FakeTopics, group: GroupUnderTest) -> None:
    a, b = Member(group, "a").join(), Member(group, "b").join()
    settle(a, b)
    epoch = group.group.durable.group_epoch
    group.restart()
    settle(a, b)
    assert group.group.durable.group_epoch == epoch


def test_what_an_expression_matches_is_left_out_where_no_record_holds_it(
    topics: FakeTopics, caplog: pytest.LogCaptureFixture
) -> None:
    group = with_settings(topics, record_max_bytes=400)
    for number in range(20):
        topics.create(f"long-name-of-a-topic-{number}", 1)
    joined = group.accepted(join_request("a", subscribed_topic_regex="long.*"))
    assert joined.assignment is not None
    assert joined.assignment.topic_partitions == []
    assert "what 'long.*' matches is left out" in caplog.text


@pytest.mark.parametrize(("idle_ms", "matched"), [(9_999, 4), (10_000, 0)])
def test_all_topics_are_matched_again_once_in_the_refresh_interval(
    topics: FakeTopics, monkeypatch: pytest.MonkeyPatch, idle_ms: int, matched: int
) -> None:
    """Nothing came or went: only the interval makes the group look at what it has looked at."""
    group = with_settings(topics, consumer_regex_refresh_interval_ms=10_000)
    a = Member(group, "a", subscribed_topic_regex="t.*").join()
    assert sizes(a) == [4]
    monkeypatch.setattr(consumer_step, "matching", lambda expression, names: frozenset())
    group.pass_time(idle_ms)
    assert sizes(a.keep_up()) == [matched]


def test_what_an_older_kafka_wrote_of_topics_is_taken_away(topics: FakeTopics, group: GroupUnderTest) -> None:
    Member(group, "a").join()
    key = ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    group.records.append((key, ConsumerGroupPartitionMetadataValue(topics=[])))
    group.restart()
    group.accepted(heartbeat("a", 1))
    assert (key, None) in group.records
    assert group.group.durable.group_epoch == 1


def test_a_partition_that_two_records_claim_ends_with_one_owner(group: GroupUnderTest) -> None:
    a, b = Member(group, "a").join(), Member(group, "b").join()
    settle(a, b)
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="b")
    everything = [
        ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=topic, partitions=[0, 1, 2, 3])
        for topic in a.assigned
    ]
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1,
        previous_member_epoch=1,
        state=0,
        assigned_partitions=everything,
        partitions_pending_revocation=[],
    )
    group.records.append((key, value))
    group.restart()
    b.epoch = 1
    settle(a, b)
    assert sizes(a, b) == [2, 2]
    assert a.assigned != b.assigned


def test_tombstones_of_what_is_not_there_do_nothing(group: GroupUnderTest) -> None:
    Member(group, "a", subscribed_topic_regex="t").join()
    empty = group.new_group()
    for key, _ in group.group.tombstones():
        empty.replay(key, None)
    assert empty.is_empty


def test_tombstones_take_the_whole_group_away(group: GroupUnderTest) -> None:
    Member(group, "a", subscribed_topic_regex="t").join()
    Member(group, "b").join()
    for key, value in group.group.tombstones():
        group.group.replay(key, value)
    durable = group.group.durable
    assert (durable.members, durable.target, dict(durable.subscriptions.resolved)) == ({}, {}, {})


def test_a_heartbeat_without_news_writes_nothing(group: GroupUnderTest) -> None:
    a = Member(group, "a").join()
    written = len(group.records)
    for _ in range(3):
        a.keep_up()
    assert len(group.records) == written


def test_a_refused_first_heartbeat_leaves_no_group(topics: FakeTopics) -> None:
    group = GroupUnderTest(topics)
    assert group.refused(heartbeat("a", 3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.group.is_empty
    assert group.group.next_deadline_ms is None


def test_offsets_expire_by_their_own_age_and_a_group_with_members_cannot_be_deleted(group: GroupUnderTest) -> None:
    group.group.check_delete()
    Member(group, "a").join()
    assert group.group.offsets_idle_since_ms() is None
    with pytest.raises(KafkaError) as refusal:
        group.group.check_delete()
    assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP


def test_a_transactional_commit_may_leave_the_member_out(group: GroupUnderTest) -> None:
    Member(group, "a").join()
    group.group.check_commit("", None, -1, api_version=3, is_transactional=True)
    group.group.check_commit("a", None, 1, api_version=3, is_transactional=True)
    with pytest.raises(KafkaError) as refusal:
        group.group.check_commit("a", None, 2, api_version=3, is_transactional=True)
    assert refusal.value.code is ErrorCode.STALE_MEMBER_EPOCH


def test_an_epoch_record_carries_the_hash_of_the_topics(topics: FakeTopics, group: GroupUnderTest) -> None:
    Member(group, "a").join()
    topics.grow("t", 5)
    group.accepted(heartbeat("a", 1))
    hashes = [value.metadata_hash for _, value in group.records if isinstance(value, ConsumerGroupMetadataValue)]
    assert len(set(hashes)) == 2
