"""A share group by itself: members that come and go, topics that change, answers that are lost, restarts."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.consumer_groups import GROUP, FakeTopics
from kit.examples import examples
from kit.share_machines import ShareGroupUnderTest, ShareMemberClient, heartbeat, snapshot

from ottla.broker.groups.partitions import Partitions
from ottla.broker.groups.settings import GroupSettings
from ottla.broker.groups.share_group import check_share_heartbeat
from ottla.broker.groups.share_state import SharedTopic
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Struct
from ottla.protocol.stored.group import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)

SESSION_MS = 45_000


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics({"t": 4})


@pytest.fixture
def group(topics: FakeTopics) -> ShareGroupUnderTest:
    return ShareGroupUnderTest(topics)


def with_settings(topics: FakeTopics, **fields: Any) -> ShareGroupUnderTest:
    return ShareGroupUnderTest(topics, settings=GroupSettings(**fields))


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"member_id": "m" * 37}, "MemberId has 37 characters, at most 36 are allowed."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
    ],
)
def test_a_heartbeat_that_cannot_be_is_refused(fields: dict[str, Any], words: str) -> None:
    usual = {"group_id": GROUP, "member_id": "a", "member_epoch": 0, "subscribed_topic_names": ["t"], "rack_id": "r"}
    check_share_heartbeat(ShareGroupHeartbeatRequest(**usual))
    check_share_heartbeat(ShareGroupHeartbeatRequest(**{**usual, "member_id": "m" * 36}))
    with pytest.raises(KafkaError) as refused:
        check_share_heartbeat(ShareGroupHeartbeatRequest(**{**usual, **fields}))
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, words)


# --- members ---------------------------------------------------------------------------------------------------------


def test_a_member_is_assigned_partitions_as_it_joins(group: ShareGroupUnderTest, topics: FakeTopics) -> None:
    a = ShareMemberClient(group, "a").join()
    assert (a.epoch, a.assigned) == (1, {topics.id_of("t"): frozenset(range(4))})
    assert group.group.state == "Stable"


def test_what_is_written_as_a_member_joins(group: ShareGroupUnderTest) -> None:
    ShareMemberClient(group, "a").join()
    assert [type(key) for key, _ in group.records] == [
        ShareGroupMemberMetadataKey,
        ShareGroupMetadataKey,
        ShareGroupStatePartitionMetadataKey,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupCurrentMemberAssignmentKey,
    ]


def test_members_share_the_partitions_of_a_topic(group: ShareGroupUnderTest) -> None:
    a, b = ShareMemberClient(group, "a").join(), ShareMemberClient(group, "b").join()
    a.heartbeat()
    assert (a.size, b.size, a.epoch, b.epoch) == (2, 2, 2, 2)


def test_more_members_than_partitions_read_from_the_same(topics: FakeTopics, group: ShareGroupUnderTest) -> None:
    members = [ShareMemberClient(group, name).join() for name in "abcdef"]
    assert [member.heartbeat().size for member in members] == [1] * 6


def test_a_heartbeat_without_news_writes_nothing_and_says_nothing_of_partitions(group: ShareGroupUnderTest) -> None:
    a = ShareMemberClient(group, "a").join()
    before = len(group.records)
    answer = group.ask(heartbeat("a", a.epoch))
    assert (answer.assignment, answer.member_epoch, answer.heartbeat_interval_ms) == (None, 1, 5_000)
    assert len(group.records) == before


def test_a_member_that_says_what_it_subscribes_to_gets_all_of_its_assignment(group: ShareGroupUnderTest) -> None:
    a = ShareMemberClient(group, "a").join()
    assert group.ask(heartbeat("a", a.epoch, subscribed_topic_names=["t"])).assignment is not None


def test_a_member_that_subscribes_to_another_topic_has_its_partitions_at_once(
    group: ShareGroupUnderTest, topics: FakeTopics
) -> None:
    topics.create("u", 1)
    a = ShareMemberClient(group, "a").join()
    a.heartbeat(subscribed_topic_names=["u"])
    assert (a.epoch, a.assigned) == (2, {topics.id_of("u"): frozenset([0])})


def test_a_member_may_move_to_another_rack_without_a_new_subscription(group: ShareGroupUnderTest) -> None:
    a = ShareMemberClient(group, "a").join()
    a.heartbeat(rack_id="r2")
    assert group.group.durable.members["a"].rack_id == "r2"
    a.heartbeat()
    assert group.group.durable.members["a"].rack_id == "r2", "null: it stays"


def test_a_member_leaves_and_the_others_get_its_partitions(group: ShareGroupUnderTest) -> None:
    a, b = ShareMemberClient(group, "a").join(), ShareMemberClient(group, "b").join()
    answer = a.leave()
    assert (answer.member_epoch, answer.assignment) == (-1, None)
    assert (b.heartbeat().size, b.epoch) == (4, 3)
    assert group.refused(heartbeat("a", a.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.refused(heartbeat("a", -1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_without_members_has_a_target_of_its_last_epoch(group: ShareGroupUnderTest) -> None:
    ShareMemberClient(group, "a").join()
    group.ask(heartbeat("a", -1))
    described = group.group.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Empty", 2, 2)


def test_the_last_member_leaves_an_empty_group_whose_epochs_go_on(group: ShareGroupUnderTest) -> None:
    a = ShareMemberClient(group, "a").join()
    a.leave()
    assert (group.group.is_empty, group.group.state, group.group.next_deadline_ms) == (True, "Empty", None)
    assert a.join().epoch == 3


def test_no_more_members_join_than_a_group_may_have(topics: FakeTopics) -> None:
    group = with_settings(topics, share_max_size=2)
    a, _ = ShareMemberClient(group, "a").join(), ShareMemberClient(group, "b").join()
    joining = heartbeat("c", 0, subscribed_topic_names=["t"])
    assert group.refused(joining) is ErrorCode.GROUP_MAX_SIZE_REACHED
    a.join()
    a.leave()
    assert group.ask(joining).member_epoch > 0


def test_a_member_whose_record_would_be_too_large_is_refused(topics: FakeTopics) -> None:
    group = with_settings(topics, record_max_bytes=1_000)
    names = [f"topic-{number:03}" for number in range(100)]
    joining = heartbeat("a", 0, subscribed_topic_names=names)
    assert group.refused(joining) is ErrorCode.UNKNOWN_SERVER_ERROR


# --- epochs ----------------------------------------------------------------------------------------------------------


def test_a_member_whose_answer_was_lost_comes_with_its_previous_epoch(group: ShareGroupUnderTest) -> None:
    a = ShareMemberClient(group, "a").join()
    ShareMemberClient(group, "b").join()
    lost = group.ask(heartbeat("a", 1))
    assert lost.member_epoch == 2
    assert a.heartbeat().epoch == 2


@pytest.mark.parametrize("fields", [{}, {"subscribed_topic_names": ["t"]}], ids=["as usual", "in full"])
def test_an_assignment_whose_answer_was_lost_is_sent_again(group: ShareGroupUnderTest, fields: dict[str, Any]) -> None:
    a = ShareMemberClient(group, "a").join()
    ShareMemberClient(group, "b").join()
    group.ask(heartbeat("a", 1))
    a.heartbeat(**fields)
    assert (a.size, a.epoch) == (2, 2)
    assert group.ask(heartbeat("a", 2)).assignment is None


@pytest.mark.parametrize("epoch", [1, 2, 4, 9])
def test_a_member_at_another_epoch_is_fenced(group: ShareGroupUnderTest, epoch: int) -> None:
    a = ShareMemberClient(group, "a").join()
    for name in "bcd":
        ShareMemberClient(group, name).join()
        a.heartbeat()
    member = group.group.durable.members["a"]
    assert (member.member_epoch, member.previous_member_epoch) == (4, 3)
    if epoch == 4:
        assert a.heartbeat().epoch == 4
    else:
        assert group.refused(heartbeat("a", epoch)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_under_its_id(group: ShareGroupUnderTest) -> None:
    a, _ = ShareMemberClient(group, "a").join(), ShareMemberClient(group, "b").join()
    assert group.refused(heartbeat("a", 7)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.join().size == 2
    assert len(group.group.durable.members) == 2


def test_a_member_that_is_not_known_has_to_join(group: ShareGroupUnderTest) -> None:
    ShareMemberClient(group, "a").join()
    assert group.refused(heartbeat("b", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_member_that_falls_silent_is_removed_when_its_session_ends(group: ShareGroupUnderTest) -> None:
    a, b = ShareMemberClient(group, "a").join(), ShareMemberClient(group, "b").join()
    group.pass_time(SESSION_MS - 1)
    b.heartbeat()
    group.pass_time(1)
    assert group.refused(heartbeat("a", a.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.heartbeat().size == 4


def test_all_sessions_that_end_together_are_one_new_epoch(group: ShareGroupUnderTest) -> None:
    for name in "abc":
        ShareMemberClient(group, name).join()
    before = group.group.durable.group_epoch
    group.pass_time(SESSION_MS)
    assert (group.group.is_empty, group.group.durable.group_epoch) == (True, before + 1)


def test_a_group_may_have_its_own_session_timeout_and_heartbeat_interval(topics: FakeTopics) -> None:
    own = {"share.session.timeout.ms": "50000", "share.heartbeat.interval.ms": "1234"}
    group = with_settings(topics, group_configs=lambda name: own if name == GROUP else {})
    assert group.ask(heartbeat("a", 0, subscribed_topic_names=["t"])).heartbeat_interval_ms == 1_234
    group.pass_time(49_999)
    assert not group.group.is_empty
    group.pass_time(1)
    assert group.group.is_empty


def test_a_refused_heartbeat_makes_no_session_longer(group: ShareGroupUnderTest) -> None:
    ShareMemberClient(group, "a").join()
    group.pass_time(SESSION_MS - 1)
    group.refused(heartbeat("a", 9))
    group.pass_time(1)
    assert group.group.is_empty


@pytest.mark.parametrize(("evict_ms", "members_left"), [(-1, 2), (0, 1), (100, 2)])
def test_the_end_of_a_connection_ends_sessions_where_the_settings_say_so(
    topics: FakeTopics, evict_ms: int, members_left: int
) -> None:
    group = with_settings(topics, evict_on_disconnect_ms=evict_ms)
    group.ask(heartbeat("a", 0, subscribed_topic_names=["t"]), connection="first")
    group.ask(heartbeat("b", 0, subscribed_topic_names=["t"]), connection="second")
    group.run(group.group.on_disconnect("first", group.now))
    assert len(group.group.durable.members) == members_left
    group.pass_time(100)
    assert len(group.group.durable.members) == (2 if evict_ms < 0 else 1)


# --- topics ----------------------------------------------------------------------------------------------------------


def test_a_topic_that_grows_is_assigned_with_the_next_heartbeat(group: ShareGroupUnderTest, topics: FakeTopics) -> None:
    a = ShareMemberClient(group, "a").join()
    topics.grow("t", 6)
    assert (a.heartbeat().size, a.epoch) == (6, 2)


def test_a_topic_may_come_after_its_members(group: ShareGroupUnderTest, topics: FakeTopics) -> None:
    a = ShareMemberClient(group, "a", ["later"]).join()
    assert (a.size, a.epoch) == (0, 1)
    topics.create("later", 2)
    assert (a.heartbeat().size, a.epoch) == (2, 2)


def test_a_topic_that_is_gone_is_taken_from_its_members(group: ShareGroupUnderTest, topics: FakeTopics) -> None:
    a = ShareMemberClient(group, "a").join()
    assert list(group.group.durable.topics.values()) == [SharedTopic("t", frozenset(range(4)))]
    topics.delete("t")
    assert (a.heartbeat().assigned, a.epoch) == ({}, 2)
    assert group.group.durable.topics == {}


def test_a_topic_that_is_made_again_is_another_one(group: ShareGroupUnderTest, topics: FakeTopics) -> None:
    a = ShareMemberClient(group, "a").join()
    topics.delete("t")
    topic_id = topics.create("t", 1)
    assert a.heartbeat().assigned == {topic_id: frozenset([0])}
    assert group.group.durable.topics == {topic_id: SharedTopic("t", frozenset([0]))}


def test_topics_that_nobody_subscribes_to_change_nothing(group: ShareGroupUnderTest, topics: FakeTopics) -> None:
    a = ShareMemberClient(group, "a").join()
    before = len(group.records)
    topics.create("other", 3)
    a.heartbeat()
    assert (len(group.records), a.epoch) == (before, 1)


def test_a_group_keeps_the_topics_that_it_has_read_when_its_members_are_gone(group: ShareGroupUnderTest) -> None:
    a = ShareMemberClient(group, "a").join()
    a.leave()
    assert [one.name for one in group.group.durable.topics.values()] == ["t"]


# --- what is not of share groups, and administration -----------------------------------------------------------------


def test_a_share_group_has_no_committed_offsets(group: ShareGroupUnderTest) -> None:
    with pytest.raises(KafkaError) as refused:
        group.group.check_commit("a", None, 1, api_version=9)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_only_an_empty_group_may_be_deleted_or_changed(group: ShareGroupUnderTest, topics: FakeTopics) -> None:
    a = ShareMemberClient(group, "a").join()
    for call in (group.group.check_delete, lambda: group.group.with_topics({})):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    group.group.check_delete()
    topic_id = topics.id_of("t")
    assert topic_id is not None
    group.run(group.group.with_topics({topic_id: SharedTopic("t", frozenset([7]))}))
    assert group.group.durable.topics[topic_id].partitions == frozenset([0, 1, 2, 3, 7])
    group.run(group.group.with_topics({}, [topic_id]))
    assert group.group.durable.topics == {}


def test_a_description_has_what_members_read(group: ShareGroupUnderTest, topics: FakeTopics) -> None:
    group.ask(heartbeat("a", 0, subscribed_topic_names=["t", "later"], rack_id="r"))
    described = group.group.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 1, 1)
    assert described.assignor_name == "simple"
    (member,) = described.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("a", "r", 1)
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert member.subscribed_topic_names == ["later", "t"]
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_id, topic.topic_name, topic.partitions) == (topics.id_of("t"), "t", [0, 1, 2, 3])


def test_the_tombstones_of_a_group_forget_all_of_it(group: ShareGroupUnderTest) -> None:
    a = ShareMemberClient(group, "a").join()
    a.leave()
    tombstones = group.group.tombstones()
    kept: list[Struct] = []
    for key, value in group.records:
        kept = [one for one in kept if one != key] + ([key] if value is not None else [])
    assert all(value is None for _, value in tombstones)
    assert sorted(repr(key) for key, _ in tombstones) == sorted(repr(key) for key in kept)
    assert isinstance(tombstones[-1][0], ShareGroupMetadataKey), "the group itself is the last to go"


def test_a_restart_finds_the_group_as_it_was(group: ShareGroupUnderTest, topics: FakeTopics) -> None:
    a, b = ShareMemberClient(group, "a").join(), ShareMemberClient(group, "b").join()
    before = snapshot(group.group)
    group.restart()
    assert snapshot(group.group) == before
    assert (a.heartbeat().epoch, b.heartbeat().epoch) == (2, 2)
    group.pass_time(SESSION_MS)
    assert group.group.is_empty, "sessions begin again with the restart"


# --- everything at once ----------------------------------------------------------------------------------------------


class ShareGroups(RuleBasedStateMachine):
    """Members that lose answers, topics that change, time, restarts: after a round of heartbeats all is shared out."""

    @initialize()
    def begin(self) -> None:
        self.topics = FakeTopics({"t": 2})
        self.group = ShareGroupUnderTest(self.topics)
        self.members: dict[str, ShareMemberClient] = {}
        self.epochs = (0, 0)

    @rule(member_id=st.sampled_from("abcde"), names=st.sets(st.sampled_from(["t", "u", "v"]), min_size=1))
    def join(self, member_id: str, names: set[str]) -> None:
        self.members[member_id] = ShareMemberClient(self.group, member_id, sorted(names)).join()

    @precondition(lambda self: self.members)
    @rule(data=st.data(), is_lost=st.booleans())
    def heartbeat(self, data: st.DataObject, is_lost: bool) -> None:
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        try:
            answer = self.group.ask(heartbeat(member.member_id, member.epoch))
        except KafkaError as refusal:
            del self.members[member.member_id]
            gone = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
            if refusal.code not in gone:
                raise
        else:
            if not is_lost:
                member.note(answer)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = self.members.pop(data.draw(st.sampled_from(sorted(self.members))))
        if member.member_id in self.group.group.durable.members:
            member.leave()

    @rule(name=st.sampled_from(["t", "u", "v"]), partitions=st.integers(1, 4))
    def change_topic(self, name: str, partitions: int) -> None:
        topic_id = self.topics.id_of(name)
        if topic_id is None:
            self.topics.create(name, partitions)
        elif partitions > self.topics.partition_count(topic_id):
            self.topics.grow(name, partitions)
        else:
            self.topics.delete(name)

    @rule(ms=st.sampled_from([1_000, SESSION_MS // 2, SESSION_MS]))
    def pass_time(self, ms: int) -> None:
        self.group.pass_time(ms)

    @rule()
    def restart(self) -> None:
        before = snapshot(self.group.group)
        self.group.restart()
        assert snapshot(self.group.group) == before

    @rule()
    def everybody_asks(self) -> None:
        """Each member that is known asks in full, twice: then what all have is what the group says, and complete."""
        known = self.group.group.durable.members
        for member_id in list(self.members):
            if member_id not in known:
                del self.members[member_id]
        for _ in range(2):
            for member in self.members.values():
                member.epoch = known[member.member_id].member_epoch
                member.heartbeat(subscribed_topic_names=member.topics)
        for member in self.members.values():
            ids = {self.topics.id_of(name) for name in member.topics} - {None}
            assert member.assigned.keys() <= ids
            assert bool(member.assigned) == bool(ids)
            assert member.assigned == known[member.member_id].assigned
        if self.members and known.keys() == self.members.keys():
            read = {place for one in known.values() for place in places(one.assigned)}
            subscribed = {self.topics.id_of(name) for one in known.values() for name in one.subscribed_topic_names}
            counts = {
                topic_id: self.topics.partition_count(topic_id) for topic_id in subscribed if topic_id is not None
            }
            assert read == {(topic_id, index) for topic_id, count in counts.items() for index in range(count)}

    @invariant()
    def epochs_never_go_back(self) -> None:
        state = self.group.group.durable
        epochs = (state.group_epoch, state.assignment_epoch)
        assert epochs >= self.epochs
        assert state.assignment_epoch <= state.group_epoch
        assert all(member.member_epoch <= state.assignment_epoch for member in state.members.values())
        self.epochs = epochs

    @invariant()
    def whom_the_group_does_not_know_has_no_session_and_no_target(self) -> None:
        state = self.group.group.durable
        assert state.target.keys() <= state.members.keys()
        assert (self.group.group.next_deadline_ms is None) == (not state.members)


def places(assigned: Partitions) -> set[tuple[UUID, int]]:
    return {(topic_id, index) for topic_id, indexes in assigned.items() for index in indexes}


ShareGroups.TestCase.settings = hypothesis_settings(max_examples=examples(60), stateful_step_count=40)
TestShareGroups = ShareGroups.TestCase
