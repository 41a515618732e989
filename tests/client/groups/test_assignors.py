"""Assignors: every partition has one owner that subscribes to it, shares are as even as promised, owners stay."""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples

from ottla.client import Assignor, Consumer, GroupMember, TopicPartition
from ottla.client.groups.assignors import (
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    rebalances_cooperatively,
    to_assignors,
)
from ottla.client.groups.assignors.sticky import decode_previous, encode_previous

ALL = [RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor()]
T = "t"


def member(name, *topics, **more):
    return GroupMember(name, frozenset(topics or (T,)), **more)


def parts(topic, *indexes):
    return [TopicPartition(topic, index) for index in indexes]


def counts(assignment):
    return {name: len(owned) for name, owned in assignment.items()}


# Range ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "members", "shares"),
    [
        (4, 3, [2, 1, 1]),  # where ceil(P/C) for each would make 2, 2, 0
        (4, 2, [2, 2]),  # the two rules agree where C divides P
        (6, 3, [2, 2, 2]),
        (7, 3, [3, 2, 2]),
        (2, 3, [1, 1, 0]),
        (0, 2, [0, 0]),
    ],
)
def test_range_gives_the_first_members_one_more(partitions, members, shares):
    names = [f"m{n}" for n in range(members)]
    assignment = RangeAssignor().assign({T: partitions}, [member(name) for name in reversed(names)])
    assert [len(assignment[name]) for name in names] == shares
    assert [one.partition for name in names for one in assignment[name]] == list(range(partitions))


def test_range_goes_topic_by_topic_among_those_who_subscribe():
    members = [member("a", "x", "y"), member("b", "y"), member("c", "x")]
    assert RangeAssignor().assign({"x": 3, "y": 3, "z": 5}, members) == {
        "a": [*parts("x", 0, 1), *parts("y", 0, 1)],
        "b": parts("y", 2),
        "c": parts("x", 2),
    }


def test_static_members_keep_their_place_whatever_their_member_id():
    before = [member("z9", group_instance_id="one"), member("a1", group_instance_id="two"), member("0", T)]
    after = [member("b7", group_instance_id="one"), member("x3", group_instance_id="two"), member("0", T)]
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        assert list(assignor.assign({T: 5}, before).values()) == list(assignor.assign({T: 5}, after).values())


# Round robin ----------------------------------------------------------------------------------------------------------


def test_round_robin_deals_out_all_topics_in_one_go():
    assignment = RoundRobinAssignor().assign({"x": 3, "y": 3}, [member("a", "x", "y"), member("b", "x", "y")])
    assert assignment == {"a": [*parts("x", 0, 2), *parts("y", 1)], "b": [*parts("x", 1), *parts("y", 0, 2)]}


def test_round_robin_passes_over_who_does_not_subscribe():
    members = [member("a", "x"), member("b", "x", "y"), member("c", "x", "y", "z")]
    assignment = RoundRobinAssignor().assign({"x": 1, "y": 2, "z": 3}, members)
    assert assignment == {  # the example of Kafka's own documentation
        "a": parts("x", 0),
        "b": parts("y", 0),
        "c": [*parts("y", 1), *parts("z", 0, 1, 2)],
    }


# Sticky ---------------------------------------------------------------------------------------------------------------


def had(name, indexes, generation=1, topics=(T,)):
    return member(name, *topics, user_data=encode_previous(parts(T, *indexes), generation))


def test_who_has_a_partition_keeps_it_when_another_leaves():
    assignment = StickyAssignor().assign({T: 6}, [had("a", [0, 1]), had("c", [4, 5])])
    assert set(parts(T, 0, 1)) < set(assignment["a"])
    assert set(parts(T, 4, 5)) < set(assignment["c"])
    assert counts(assignment) == {"a": 3, "c": 3}


def test_a_new_member_gets_no_more_than_its_share():
    assignment = StickyAssignor().assign({T: 6}, [had("a", [0, 1, 2]), had("b", [3, 4, 5]), member("new")])
    assert set(assignment["a"]) < set(parts(T, 0, 1, 2))
    assert set(assignment["b"]) < set(parts(T, 3, 4, 5))
    assert counts(assignment) == {"a": 2, "b": 2, "new": 2}


def test_of_two_who_claim_a_partition_the_later_generation_has_it():
    assignment = StickyAssignor().assign({T: 4}, [had("old", [0, 1], 5), had("new", [0, 1], 6)])
    assert assignment["new"] == parts(T, 0, 1)
    assert assignment["old"] == parts(T, 2, 3)


def test_two_claims_of_one_generation_are_void():
    assignment = StickyAssignor().assign({T: 2}, [had("a", [0, 1], 5), had("b", [0, 1], 5)])
    assert counts(assignment) == {"a": 1, "b": 1}


def test_what_is_not_there_or_not_subscribed_to_any_more_is_no_claim():
    gone = had("a", [0, 7, -3], topics=("other",))
    assignment = StickyAssignor().assign({T: 2, "other": 1}, [gone, member("b")])
    assert assignment == {"a": parts("other", 0), "b": parts(T, 0, 1)}


def test_a_chain_of_moves_makes_even_what_no_single_move_can():
    # a has too many, and only b can take some; b then gives to c, which never could have taken from a
    members = [
        GroupMember("a", frozenset({"x"}), user_data=encode_previous(parts("x", 0, 1, 2), 1)),
        GroupMember("b", frozenset({"x", "y"}), user_data=encode_previous(parts("y", 0, 1), 1)),
        GroupMember("c", frozenset({"y"})),
    ]
    assignment = StickyAssignor().assign({"x": 3, "y": 2}, members)
    assert sorted(counts(assignment).values()) == [1, 2, 2]


def test_the_user_data_are_kafkas():
    data = encode_previous(parts("orders", 0, 2), 7)
    assert data.hex() == "0000000100066f726465727300000002000000000000000200000007"
    assert decode_previous(data) == (parts("orders", 0, 2), 7)
    assert decode_previous(data[:-4]) == (parts("orders", 0, 2), -1)  # version 0 has no generation


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        struct.pack(">i", 1),
        struct.pack(">ihc", 1, 500, b"x"),
        struct.pack(">ih1si", 1, 1, b"x", 2**31 - 1),
        struct.pack(">ih1si", 1, 1, b"x", -1),
        struct.pack(">ih1si", 1, 1, b"\xff", 0),
        struct.pack(">i", 2**31 - 1) + b"\0" * 50,
        struct.pack(">ih1siih", 5, 1, b"x", 1, 0, -10),  # a step back, to the same partition again and again
        struct.pack(">ihih", 2**31 - 1, 0, 0, -6),  # the same for 2**31 rounds
        struct.pack(">ii", -1, 7),
    ],
)
def test_user_data_that_make_no_sense_are_no_claim(data):
    assert decode_previous(data) == ([], -1)
    assert counts(StickyAssignor().assign({T: 2}, [member("a", user_data=data), member("b")])) == {"a": 1, "b": 1}


# Cooperative sticky ---------------------------------------------------------------------------------------------------


def test_what_moves_is_given_to_nobody_until_its_owner_gave_it_up():
    first = member("a", owned=tuple(parts(T, 0, 1, 2, 3)), generation=3)
    assignor = CooperativeStickyAssignor()
    held_back = assignor.assign({T: 4}, [first, member("b")])
    assert counts(held_back) == {"a": 2, "b": 0}
    then = [member("a", owned=tuple(held_back["a"]), generation=4), member("b", generation=4)]
    shared = assignor.assign({T: 4}, then)
    assert shared["a"] == held_back["a"]
    assert counts(shared) == {"a": 2, "b": 2}


def test_the_generation_of_an_older_subscription_is_read_from_the_user_data():
    assignor = CooperativeStickyAssignor()
    newer = member("a", owned=tuple(parts(T, 0)), user_data=assignor.user_data([], 9))
    older = member("b", owned=tuple(parts(T, 0)), user_data=assignor.user_data([], 8))
    assert assignor.assign({T: 2}, [newer, older])["a"] == parts(T, 0)


# All of them ----------------------------------------------------------------------------------------------------------

TOPICS = ("x", "y", "z")


@st.composite
def groups(draw):
    partition_counts = {topic: draw(st.integers(0, 9)) for topic in TOPICS}
    members = []
    for name in range(draw(st.integers(1, 6))):
        topics = draw(st.sets(st.sampled_from(TOPICS)))
        owned = [
            TopicPartition(topic, index)
            for topic, index in draw(st.sets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 10))))
        ]
        generation = draw(st.integers(-1, 3))
        data = encode_previous(owned, generation)
        members.append(GroupMember(f"m{name}", frozenset(topics), None, tuple(owned), generation, data))
    return partition_counts, members


@pytest.mark.parametrize("assignor", ALL, ids=lambda one: one.name)
@given(group=groups())
@settings(max_examples=examples(30))
def test_nobody_gets_what_is_not_there_or_not_wanted_or_anothers(assignor, group):
    partition_counts, members = group
    assignment = assignor.assign(partition_counts, members)
    assert assignment.keys() == {one.member_id for one in members}
    topics = {one.member_id: one.topics for one in members}
    owners = Counter(partition for owned in assignment.values() for partition in owned)
    assert all(times == 1 for times in owners.values())
    for name, owned in assignment.items():
        assert all(one.topic in topics[name] and 0 <= one.partition < partition_counts[one.topic] for one in owned)


@pytest.mark.parametrize("assignor", ALL[:3], ids=lambda one: one.name)
@given(group=groups())
@settings(max_examples=examples(30))
def test_every_partition_that_somebody_wants_has_an_owner(assignor, group):
    partition_counts, members = group
    wanted = frozenset().union(*(one.topics for one in members))
    every = {TopicPartition(topic, index) for topic in wanted for index in range(partition_counts[topic])}
    assert {one for owned in assignor.assign(partition_counts, members).values() for one in owned} == every


@given(group=groups())
@settings(max_examples=examples(50))
def test_sticky_shares_differ_by_one_at_most_among_equals(group):
    partition_counts, members = group
    alike = [one._replace(topics=frozenset(TOPICS)) for one in members]
    shares = counts(StickyAssignor().assign(partition_counts, alike)).values()
    assert max(shares) - min(shares) <= 1


@given(group=groups())
@settings(max_examples=examples(50))
def test_a_sticky_assignment_stays_when_nothing_changes(group):
    partition_counts, members = group
    first = StickyAssignor().assign(partition_counts, members)
    again = [one._replace(user_data=encode_previous(first[one.member_id], 9)) for one in members]
    assert StickyAssignor().assign(partition_counts, again) == first


@given(group=groups())
@settings(max_examples=examples(50))
def test_cooperative_rounds_come_to_an_end_with_every_partition_owned(group):
    partition_counts, members = group
    owned = {one.member_id: () for one in members}
    wanted = frozenset().union(*(one.topics for one in members))
    for generation in range(1, 4):
        round_of = [one._replace(owned=owned[one.member_id], generation=generation) for one in members]
        assignment = CooperativeStickyAssignor().assign(partition_counts, round_of)
        if all(tuple(assignment[name]) == had_before for name, had_before in owned.items()):
            break
        owned = {name: tuple(some) for name, some in assignment.items()}
    assert sum(map(len, owned.values())) == sum(partition_counts[topic] for topic in wanted)


# Options --------------------------------------------------------------------------------------------------------------


def test_names_and_javas_class_names_are_understood():
    named = to_assignors("cooperative-sticky, org.apache.kafka.clients.consumer.RangeAssignor")
    assert [one.name for one in named] == ["cooperative-sticky", "range"]
    assert not rebalances_cooperatively(named)
    assert rebalances_cooperatively(named[:1])


def test_a_program_may_bring_its_own():
    class Everything(Assignor):
        name = "everything"

        def assign(self, partition_counts, members):
            return {one.member_id: [] for one in members}

    assert [one.name for one in to_assignors([Everything, "range"])] == ["everything", "range"]


@pytest.mark.parametrize("given", ["", "rang", ["range", "range"], [], 7, [None]])
def test_other_names_are_refused(given):
    with pytest.raises(ValueError, match="must be one or several of range, roundrobin, sticky, cooperative-sticky"):
        Consumer("localhost", partition_assignment_strategy=given)
