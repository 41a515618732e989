"""The assignor of share groups: everybody has something, everything has somebody, evenly, and little moves."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.consumer_groups import topic_uuid

from ottla.broker.groups.assignors.assignor import AssignorMember
from ottla.broker.groups.assignors.simple import assign_simple
from ottla.broker.groups.partitions import NO_PARTITIONS, Partitions, count

T1, T2 = topic_uuid(1), topic_uuid(2)
Group = dict[str, AssignorMember]
Counts = dict[UUID, int]
Place = tuple[UUID, int]
Case = tuple[Group, Counts]


def group(*members: str, topics: frozenset[UUID] = frozenset([T1])) -> Group:
    return {name: AssignorMember(None, topics, NO_PARTITIONS) for name in sorted(members)}


def after(members: Group, target: dict[str, Partitions]) -> Group:
    return {name: member._replace(target=target.get(name, NO_PARTITIONS)) for name, member in members.items()}


def places(partitions: Partitions) -> set[Place]:
    return {(topic, index) for topic, indexes in partitions.items() for index in indexes}


def shares(target: dict[str, Partitions]) -> Counter[Place]:
    """How many members have each partition."""
    return Counter(place for owned in target.values() for place in places(owned))


def readable(members: Group, counts: Counts) -> dict[str, set[Place]]:
    """What each member subscribes to."""
    return {
        name: {(topic, index) for topic in member.topics for index in range(counts.get(topic, 0))}
        for name, member in members.items()
    }


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> Case:
    """Members that subscribe to topics of different sizes, or that do not exist; what they had before is anything."""
    counts = {topic_uuid(n): draw(st.integers(0, 7)) for n in range(1, draw(st.integers(1, 3)) + 1)}
    subscription = st.frozensets(st.sampled_from([*counts, topic_uuid(8)]))
    same = draw(subscription)
    before = st.dictionaries(
        st.sampled_from([*counts, topic_uuid(9)]), st.frozensets(st.integers(0, 9), min_size=1, max_size=5), max_size=3
    )
    members = {
        f"m{number:02}": AssignorMember(None, same if alike else draw(subscription), draw(before))
        for number in range(draw(st.integers(1, 9)))
    }
    return members, counts


# --- complete --------------------------------------------------------------------------------------------------------


@given(case=groups())
def test_every_partition_that_is_subscribed_to_has_a_member(case: Case) -> None:
    members, counts = case
    assert shares(assign_simple(members, counts)).keys() == set().union(*readable(members, counts).values())


@given(case=groups())
def test_every_member_has_a_partition_and_only_of_its_own_topics(case: Case) -> None:
    members, counts = case
    target = assign_simple(members, counts)
    assert target.keys() == members.keys()
    for name, may_read in readable(members, counts).items():
        assert places(target[name]) <= may_read
        assert bool(target[name]) == bool(may_read)
        assert all(target[name].values()), "no topic without partitions"


@pytest.mark.parametrize(
    ("members", "counts"),
    [({}, {T1: 3}), (group("a", "b"), {}), (group("a"), {T1: 0}), (group("a", topics=frozenset()), {T1: 3})],
    ids=["no member", "no topic", "no partition", "no subscription"],
)
def test_where_there_is_nothing_to_give_nobody_has_anything(members: Group, counts: Counts) -> None:
    assert assign_simple(members, counts) == {name: {} for name in members}


# --- even ------------------------------------------------------------------------------------------------------------


@given(case=groups(alike=True))
def test_members_that_subscribe_alike_share_evenly(case: Case) -> None:
    members, counts = case
    target = assign_simple(members, counts)
    all_places = next(iter(readable(members, counts).values()))
    loads = [count(owned) for owned in target.values()]
    by_place = shares(target)
    if not all_places:
        assert set(loads) == {0}
    elif len(all_places) >= len(members):
        assert set(by_place.values()) == {1}
        assert max(loads) - min(loads) <= 1
    else:
        assert set(loads) == {1}
        assert max(by_place.values()) - min(by_place.values()) <= 1


@given(case=groups())
def test_members_that_subscribe_differently_share_no_more_than_they_must(case: Case) -> None:
    """A partition has several members only for the sake of one that would have none."""
    members, counts = case
    target = assign_simple(members, counts)
    for place, number in shares(target).items():
        readers = [name for name, owned in target.items() if place in places(owned)]
        assert number == 1 or sum(count(target[name]) > 1 for name in readers) <= 1


# --- sticky ----------------------------------------------------------------------------------------------------------


@given(case=groups(alike=True))
def test_nothing_moves_between_members_that_subscribe_alike_when_nothing_has_changed(case: Case) -> None:
    members, counts = case
    target = assign_simple(members, counts)
    assert assign_simple(after(members, target), counts) == target


@given(case=groups(alike=True))
def test_a_member_that_joins_moves_nothing_between_the_others(case: Case) -> None:
    members, counts = case
    before = assign_simple(members, counts)
    topics = next(iter(members.values())).topics
    joined = dict(sorted({**after(members, before), "m-new": AssignorMember(None, topics, NO_PARTITIONS)}.items()))
    now = assign_simple(joined, counts)
    assert all(places(now[name]) <= places(before[name]) for name in members)


@given(case=groups(alike=True), data=st.data())
def test_what_a_member_had_stays_its_own_when_another_leaves(case: Case, data: st.DataObject) -> None:
    members, counts = case
    before = assign_simple(members, counts)
    leaver = data.draw(st.sampled_from(sorted(members)))
    stayed = {name: member for name, member in after(members, before).items() if name != leaver}
    now = assign_simple(stayed, counts)
    lost = sum(len(places(before[name]) - places(now[name])) for name in stayed)
    partitions = len(next(iter(readable(members, counts).values())))
    assert lost == 0 if partitions >= len(members) else lost <= 1


def test_what_was_before_is_kept_as_far_as_shares_are_even() -> None:
    members = group("a", "b")
    members["a"] = members["a"]._replace(target={T1: frozenset([1, 2, 3])})
    target = assign_simple(members, {T1: 4})
    assert target == {"a": {T1: frozenset([1, 2])}, "b": {T1: frozenset([0, 3])}}


def test_more_members_than_partitions_read_together() -> None:
    target = assign_simple(group("a", "b", "c", "d", "e"), {T1: 2})
    assert sorted(shares(target).values()) == [2, 3]


def test_a_member_with_a_topic_of_its_own_leaves_the_shared_one_to_the_other() -> None:
    members = group("a", topics=frozenset([T1, T2])) | group("b", topics=frozenset([T2]))
    assert assign_simple(members, {T1: 1, T2: 1}) == {"a": {T1: frozenset([0])}, "b": {T2: frozenset([0])}}
