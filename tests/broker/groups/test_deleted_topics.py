"""The offsets of deleted topics are forgotten by topic, with the result of a tombstone for each partition."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups.offsets import Offsets, offset_key
from ottla.protocol.stored.group import OffsetCommitValue

GROUPS, TOPICS, PRODUCERS = ["g", "h"], ["t", "u", "v"], [1, 2]
Commit = tuple[str, str, int, int | None]
"""Group, topic, partition, and the producer whose transaction commits it, if one does."""
COMMITS = st.lists(
    st.tuples(
        st.sampled_from(GROUPS),
        st.sampled_from(TOPICS),
        st.integers(0, 2),
        st.one_of(st.none(), st.sampled_from(PRODUCERS)),
    ),
    max_size=12,
)


def offsets_after(commits: Sequence[Commit]) -> Offsets:
    offsets = Offsets()
    for number, (group, topic, partition, producer_id) in enumerate(commits):
        key = offset_key(group, topic, partition)
        value = OffsetCommitValue(offset=number, metadata="", commit_timestamp=1)
        if producer_id is None:
            offsets.replay(key, value)
        else:
            offsets.replay_open(producer_id, key, value)
    return offsets


def contents(offsets: Offsets) -> object:
    return (
        offsets.count,
        set(offsets.groups()),
        {group: offsets.of(group) for group in GROUPS},
        {group: set(offsets.pending.of_group(group)) for group in GROUPS},
        {producer_id: set(offsets.pending.groups_of(producer_id)) for producer_id in PRODUCERS},
    )


@given(COMMITS, st.sets(st.sampled_from([*TOPICS, "never"])), st.sets(st.sampled_from(PRODUCERS)))
def test_topics_are_forgotten_as_by_a_tombstone_for_each_partition(
    commits: list[Commit], deleted: set[str], ended: set[int]
) -> None:
    at_once, one_by_one = offsets_after(commits), offsets_after(commits)
    for group in GROUPS:
        held = at_once.of_topics(group, deleted)
        at_once.forget_topics(group, held)
        assert held.keys() == deleted & set(one_by_one.topics(group))
        for topic, indexes in held.items():
            assert len(indexes) == len(set(indexes))
            for index in indexes:
                one_by_one.replay(offset_key(group, topic, index), None)
        assert not at_once.of_topics(group, deleted)
    assert contents(at_once) == contents(one_by_one)
    for producer_id in ended:
        at_once.end_transaction(producer_id, is_commit=True)
        one_by_one.end_transaction(producer_id, is_commit=True)
    assert contents(at_once) == contents(one_by_one)
