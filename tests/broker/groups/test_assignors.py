"""Assignors: every partition once, evenly, with as little moved as that allows; `range` by worked examples."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.consumer_groups import topic_uuid

from ottla.broker.groups.assignors.assignor import Assignor, AssignorMember
from ottla.broker.groups.assignors.range import assign_range
from ottla.broker.groups.assignors.uniform import assign_uniform
from ottla.broker.groups.partitions import NO_PARTITIONS, Partitions, count

T1, T2, T3 = topic_uuid(1), topic_uuid(2), topic_uuid(3)
BOTH = pytest.mark.parametrize("assign", [assign_uniform, assign_range], ids=["uniform", "range"])

Group = dict[str, AssignorMember]


def group(*members: str, topics: frozenset[UUID] = frozenset([T1])) -> Group:
    return {name: AssignorMember(None, topics, NO_PARTITIONS) for name in sorted(members)}


def after(members: Group, target: dict[str, Partitions]) -> Group:
    return {name: member._replace(target=target.get(name, NO_PARTITIONS)) for name, member in members.items()}


def owners(target: dict[str, Partitions]) -> dict[tuple[UUID, int], str]:
    return {(topic, p): name for name, owned in target.items() for topic, indexes in owned.items() for p in indexes}


def assert_complete(members: Group, partition_counts: dict[UUID, int], target: dict[str, Partitions]) -> None:
    given_out = Counter((t, p) for owned in target.values() for t, indexes in owned.items() for p in indexes)
    subscribed = {topic for member in members.values() for topic in member.topics}
    assert given_out == Counter((topic, p) for topic in subscribed for p in range(partition_counts[topic]))
    assert all(owned.keys() <= members[name].topics for name, owned in target.items())
    assert target.keys() == members.keys()
    assert all(indexes for owned in target.values() for indexes in owned.values()), "no topic without partitions"


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[Group, dict[UUID, int]]:
    """Members, static or not, with subscriptions to topics of different sizes."""
    partition_counts = {topic_uuid(n): draw(st.integers(0, 9)) for n in range(1, draw(st.integers(1, 4)) + 1)}
    subscription = st.frozensets(st.sampled_from(sorted(partition_counts)))
    same = draw(subscription)
    members = {
        f"m{number:02}": AssignorMember(
            f"i{draw(st.integers(0, 99))}-{number}" if draw(st.booleans()) else None,
            same if alike else draw(subscription),
            NO_PARTITIONS,
        )
        for number in range(draw(st.integers(1, 8)))
    }
    return members, partition_counts


@BOTH
@given(case=groups())
def test_every_partition_of_a_subscribed_topic_goes_to_exactly_one_subscriber(
    assign: Assignor, case: tuple[Group, dict[UUID, int]]
) -> None:
    members, partition_counts = case
    assert_complete(members, partition_counts, assign(members, partition_counts))


@BOTH
@given(case=groups())
def test_nothing_moves_when_nothing_has_changed(assign: Assignor, case: tuple[Group, dict[UUID, int]]) -> None:
    members, partition_counts = case
    target = assign(members, partition_counts)
    assert assign(after(members, target), partition_counts) == target


@given(case=groups(alike=True), data=st.data())
def test_uniform_is_even_whatever_was_before(case: tuple[Group, dict[UUID, int]], data: st.DataObject) -> None:
    members, partition_counts = case
    members = after(members, data.draw(any_target(members, partition_counts)))
    sizes = [count(owned) for owned in assign_uniform(members, partition_counts).values()]
    assert max(sizes) - min(sizes) <= 1


@given(case=groups(), data=st.data())
def test_whatever_the_target_was_before_it_becomes_complete(
    case: tuple[Group, dict[UUID, int]], data: st.DataObject
) -> None:
    members, partition_counts = case
    members = after(members, data.draw(any_target(members, partition_counts)))
    assert_complete(members, partition_counts, assign_uniform(members, partition_counts))


def any_target(members: Group, partition_counts: dict[UUID, int]) -> st.SearchStrategy[dict[str, Partitions]]:
    """Also what only damage makes: several owners, topics that nobody subscribes to, partitions that do not exist."""
    partitions = st.frozensets(st.integers(0, 11), min_size=1, max_size=6)
    owned = st.dictionaries(st.sampled_from([*partition_counts, topic_uuid(9)]), partitions, max_size=3)
    return st.fixed_dictionaries(dict.fromkeys(members, owned))


@given(case=groups(alike=True))
def test_uniform_moves_no_more_than_the_share_of_one_who_joins(case: tuple[Group, dict[UUID, int]]) -> None:
    members, partition_counts = case
    before = assign_uniform(members, partition_counts)
    topics = next(iter(members.values())).topics
    joined = dict(sorted({**after(members, before), "m-new": AssignorMember(None, topics, NO_PARTITIONS)}.items()))
    now = assign_uniform(joined, partition_counts)
    moved = [p for p, owner in owners(now).items() if owners(before)[p] != owner]
    assert len(moved) == count(now["m-new"]), "what moved went to the new member, nothing between the others"


@given(case=groups(alike=True), data=st.data())
def test_uniform_moves_only_what_a_leaver_had(case: tuple[Group, dict[UUID, int]], data: st.DataObject) -> None:
    members, partition_counts = case
    before = assign_uniform(members, partition_counts)
    leaver = data.draw(st.sampled_from(sorted(members)))
    stayed = {name: member for name, member in after(members, before).items() if name != leaver}
    now = assign_uniform(stayed, partition_counts)
    assert all(owners(before)[p] in (owner, leaver) for p, owner in owners(now).items())


@given(case=groups())
def test_uniform_leaves_no_better_place_for_a_partition(case: tuple[Group, dict[UUID, int]]) -> None:
    """No single move would make two subscribers of a topic more even."""
    members, partition_counts = case
    target = assign_uniform(members, partition_counts)
    sizes = {name: count(owned) for name, owned in target.items()}
    for (topic, _), owner in owners(target).items():
        assert all(sizes[owner] - sizes[name] <= 1 for name, member in members.items() if topic in member.topics)


def test_uniform_keeps_a_larger_share_where_it_is() -> None:
    before = {"a": {T1: frozenset([0, 1])}, "b": {T1: frozenset([2, 3, 4])}}
    assert assign_uniform(after(group("a", "b"), before), {T1: 5}) == before


def test_uniform_counts_all_topics_together() -> None:
    target = assign_uniform(group("a", "b", topics=frozenset([T1, T2, T3])), {T1: 1, T2: 1, T3: 2})
    assert [count(owned) for owned in target.values()] == [2, 2]


def test_uniform_of_different_subscriptions_goes_round_until_every_topic_is_even() -> None:
    """b gives T2's partition to c only after it has got T1's from a; then it can take one more of a."""
    members = {
        "a": AssignorMember(None, frozenset([T1]), {T1: frozenset(range(6))}),
        "b": AssignorMember(None, frozenset([T1, T2]), NO_PARTITIONS),
        "c": AssignorMember(None, frozenset([T2]), NO_PARTITIONS),
    }
    target = assign_uniform(members, {T1: 6, T2: 1})
    assert {name: count(owned) for name, owned in target.items()} == {"a": 3, "b": 3, "c": 1}


@BOTH
def test_members_without_subscriptions_own_nothing(assign: Assignor) -> None:
    assert assign(group("a", "b", topics=frozenset()), {}) == {"a": {}, "b": {}}


@BOTH
def test_no_members_no_assignment(assign: Assignor) -> None:
    assert assign({}, {}) == {}


def test_range_gives_consecutive_runs_the_first_ones_longer() -> None:
    target = assign_range(group("a", "b", "c"), {T1: 7})
    assert target == {
        "a": {T1: frozenset([0, 1, 2])},
        "b": {T1: frozenset([3, 4])},
        "c": {T1: frozenset([5, 6])},
    }


def test_range_cuts_topics_of_the_same_size_at_the_same_places() -> None:
    target = assign_range(group("a", "b", topics=frozenset([T1, T2])), {T1: 3, T2: 3})
    assert target == {
        "a": {T1: frozenset([0, 1]), T2: frozenset([0, 1])},
        "b": {T1: frozenset([2]), T2: frozenset([2])},
    }


def test_range_counts_the_subscribers_of_each_topic_alone() -> None:
    members = {
        "a": AssignorMember(None, frozenset([T1, T2]), NO_PARTITIONS),
        "b": AssignorMember(None, frozenset([T3]), NO_PARTITIONS),
        "c": AssignorMember(None, frozenset([T2, T3]), NO_PARTITIONS),
    }
    assert assign_range(members, {T1: 3, T2: 3, T3: 2}) == {
        "a": {T1: frozenset([0, 1, 2]), T2: frozenset([0, 1])},
        "b": {T3: frozenset([0])},
        "c": {T2: frozenset([2]), T3: frozenset([1])},
    }


def test_range_lines_up_static_members_first_by_instance_id() -> None:
    members = {
        "a": AssignorMember(None, frozenset([T1]), NO_PARTITIONS),
        "b": AssignorMember("i2", frozenset([T1]), NO_PARTITIONS),
        "c": AssignorMember("i1", frozenset([T1]), NO_PARTITIONS),
    }
    target = assign_range(members, {T1: 3})
    assert target == {"a": {T1: frozenset([2])}, "b": {T1: frozenset([1])}, "c": {T1: frozenset([0])}}


def test_range_gives_nothing_to_who_comes_too_late_in_the_line() -> None:
    assert assign_range(group("a", "b", "c"), {T1: 2})["c"] == {}
