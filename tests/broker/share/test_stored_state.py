"""The stored state of a share partition: replayed record by record, and compared with one entry for each offset."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.share.in_flight import RecordState, StateBatch
from ottla.broker.share.stored_state import (
    UNCHANGED,
    Change,
    SharePartitionKey,
    StoredState,
    change_record,
    is_share_partition,
    replayed_snapshot,
    replayed_update,
    snapshot_record,
    tombstone,
)
from ottla.protocol.stored.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    encode_share_state_key,
    encode_share_state_value,
)

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
KEY = SharePartitionKey("g", UUID(bytes=b"\x11" * 16), 0)
KEY_BYTES = bytes.fromhex("0000 0001 67" + "11" * 16 + "00000000")
STATE = StoredState(1, 0, 2, 5, 1, 1, (StateBatch(6, 6, ACKNOWLEDGED, 1),))
MOST_UPDATES = 2


def snapshot(epoch: int = 0, start_offset: int = 0, *batches: StateBatch, **fields: int) -> ShareSnapshotValue:
    usual = {"state_epoch": 0, "leader_epoch": 0, "create_timestamp": 1, "write_timestamp": 1}
    listed = [ShareSnapshotValue.StateBatch(**_named(batch)) for batch in batches]
    return ShareSnapshotValue(
        snapshot_epoch=epoch, start_offset=start_offset, state_batches=listed, **{**usual, **fields}
    )


def update(epoch: int = 0, start_offset: int = UNCHANGED, *batches: StateBatch, **fields: int) -> ShareUpdateValue:
    listed = [ShareUpdateValue.StateBatch(**_named(batch)) for batch in batches]
    return ShareUpdateValue(
        snapshot_epoch=epoch, start_offset=start_offset, state_batches=listed, **{"leader_epoch": 0, **fields}
    )


def _named(batch: StateBatch) -> dict[str, int]:
    first_offset, last_offset, state, delivery_count = batch
    return {
        "first_offset": first_offset,
        "last_offset": last_offset,
        "delivery_state": state,
        "delivery_count": delivery_count,
    }


def written(known: StoredState, change: Change, most_updates: int = MOST_UPDATES) -> StoredState:
    """The state after a change was written and replayed."""
    _, value = change_record(KEY, known, change, most_updates=most_updates, now_ms=9)
    if isinstance(value, ShareSnapshotValue):
        return replayed_snapshot(known, value, 77)
    assert isinstance(value, ShareUpdateValue)
    return replayed_update(known, value)


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_share_partition_has_the_text_that_kafka_hashes() -> None:
    assert KEY.text == "g:EREREREREREREREREREREQ:0"
    assert is_share_partition(KEY.text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        "g:0",
        ":EREREREREREREREREREREQ:0",
        "g:EREREREREREREREREREREQ:",
        "g:short:0",
        "g:EREREREREREREREREREREQ:x",
    ],
)
def test_other_texts_name_no_share_partition(text: str) -> None:
    assert not is_share_partition(text)


# --- records ---------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_written_as_in_the_worked_example() -> None:
    key, value = snapshot_record(KEY, STATE, 1)
    assert value is not None
    assert encode_share_state_key(key) == KEY_BYTES
    assert encode_share_state_value(value) == bytes.fromhex(
        "0000 00000001 00000000 00000002 0000000000000005 0000000000000001 0000000000000001"
        "02 0000000000000006 0000000000000006 02 0001 00 01 00 04 00000001"
    )
    assert isinstance(value, ShareSnapshotValue)
    assert replayed_snapshot(None, value, 3) == STATE._replace(snapshot_offset=3)


def test_an_update_has_what_has_changed_and_nothing_before_the_start() -> None:
    change = Change(7, 0, [StateBatch(5, 5, ACKNOWLEDGED, 1), StateBatch(8, 9, AVAILABLE, 2)], 3)
    key, value = change_record(KEY, STATE, change, most_updates=MOST_UPDATES, now_ms=9)
    assert key == ShareUpdateKey(group_id="g", topic_id=KEY.topic_id, partition=0)
    assert value == update(1, 7, StateBatch(8, 9, AVAILABLE, 2), leader_epoch=3, delivery_complete_count=0)


def test_after_so_many_updates_comes_a_snapshot_of_the_next_epoch() -> None:
    state, kinds = STATE, []
    for offset in range(8, 14):
        state = written(state, Change(5, 1, [StateBatch(offset, offset, AVAILABLE, 1)], 2))
        kinds.append((state.snapshot_epoch, state.updates, state.snapshot_offset))
    assert kinds == [(1, 1, 0), (1, 2, 0), (2, 0, 77), (2, 1, 77), (2, 2, 77), (3, 0, 77)]
    assert state.batches == (StateBatch(6, 6, ACKNOWLEDGED, 1), StateBatch(8, 13, AVAILABLE, 1))
    assert (state.state_epoch, state.create_ms) == (STATE.state_epoch, STATE.create_ms)


def test_without_updates_each_change_is_a_snapshot() -> None:
    state = written(STATE, Change(5, 1, [], 2), most_updates=0)
    assert (state.snapshot_epoch, state.updates) == (2, 0)


def test_a_state_is_forgotten_by_its_snapshot_key() -> None:
    assert tombstone(KEY) == (ShareSnapshotKey(group_id="g", topic_id=KEY.topic_id, partition=0), None)
    assert encode_share_state_key(tombstone(KEY)[0]) == KEY_BYTES


# --- replay ----------------------------------------------------------------------------------------------------------


def test_records_of_an_older_snapshot_epoch_change_nothing() -> None:
    """A compacted log, or two brokers that both wrote, may have them after those that replaced them."""
    state = replayed_snapshot(None, snapshot(5, 10), 0)
    assert replayed_update(state, update(4, 99, StateBatch(99, 99, ARCHIVED, 1))) is state
    assert replayed_snapshot(state, snapshot(4, 99), 1) is state


def test_a_snapshot_of_the_same_epoch_replaces_all() -> None:
    state = replayed_snapshot(None, snapshot(5, 10, StateBatch(11, 12, ARCHIVED, 1)), 0)
    assert replayed_snapshot(state, snapshot(5, 3), 4) == StoredState(5, 0, 0, 3, -1, 1, (), 0, 4)


def test_an_update_without_a_start_offset_leaves_it() -> None:
    state = replayed_snapshot(None, snapshot(0, 10), 0)
    assert replayed_update(state, update(0, UNCHANGED, StateBatch(12, 12, ARCHIVED, 1))).start_offset == 10
    assert replayed_update(state, update(0, 13)).start_offset == 13


def test_the_leader_epoch_never_goes_back_with_an_update() -> None:
    state = replayed_snapshot(None, snapshot(leader_epoch=7), 0)
    assert replayed_update(state, update(leader_epoch=3)).leader_epoch == 7
    assert replayed_update(state, update(leader_epoch=8)).leader_epoch == 8


def test_the_leader_epoch_never_goes_back_with_a_snapshot_that_is_written_for_a_change() -> None:
    state = STATE._replace(leader_epoch=7, updates=MOST_UPDATES)
    assert written(state, Change(5, 1, [], 3)).leader_epoch == 7
    assert written(state, Change(5, 1, [], 8)).leader_epoch == 8


def test_a_state_that_was_never_read_has_no_start_offset() -> None:
    assert replayed_snapshot(None, snapshot(0, -1), 0).start_offset == -1


def test_records_of_a_state_that_is_not_known_are_delivered_again() -> None:
    value = update(0, 0, *(StateBatch(state, state, state, 1) for state in (0, 1, 2, 3, 4, 5)))  # type: ignore[arg-type]
    batches = replayed_update(replayed_snapshot(None, snapshot(), 0), value).batches
    assert [(one.first_offset, one.last_offset, one.state) for one in batches] == [
        (0, 1, AVAILABLE),
        (2, 2, ACKNOWLEDGED),
        (3, 3, ARCHIVING),
        (4, 4, ARCHIVED),
        (5, 5, AVAILABLE),
    ]


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (4, 3)])
def test_offsets_that_are_none_are_left_out(first: int, last: int) -> None:
    state = replayed_snapshot(None, snapshot(0, 0, StateBatch(first, last, ARCHIVED, 1)), 0)
    assert state.batches == ()


# --- against a naive model -------------------------------------------------------------------------------------------

offsets = st.integers(0, 14)
batches = st.builds(
    lambda first, more, state, count: StateBatch(first, first + more, state, count),
    offsets,
    st.integers(0, 5),
    st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
    st.integers(1, 2),
)
some_batches = st.lists(batches, max_size=4)


def by_offset(batches: Sequence[StateBatch], start_offset: int) -> dict[int, tuple[RecordState, int]]:
    """What comes later counts."""
    return {
        offset: (batch.state, batch.delivery_count)
        for batch in batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
        if offset >= start_offset
    }


@given(
    first=some_batches,
    changes=st.lists(st.tuples(st.integers(0, 3), some_batches), max_size=8),
    most_updates=st.integers(0, 3),
)
def test_any_changes_give_the_state_of_their_offsets(
    first: list[StateBatch], changes: list[tuple[int, list[StateBatch]]], most_updates: int
) -> None:
    state, start_offset = replayed_snapshot(None, snapshot(0, 2, *first), 0), 2
    model = by_offset(first, 2)
    for moved, changed in changes:
        start_offset += moved
        before = state
        state = written(state, Change(start_offset, 0, changed, 0), most_updates)
        model.update(by_offset(changed, start_offset))
        model = {offset: entry for offset, entry in model.items() if offset >= start_offset}
        assert by_offset(state.batches, 0) == model
        assert state.start_offset == start_offset
        assert state.snapshot_epoch == before.snapshot_epoch + (before.updates == most_updates)
    assert list(state.batches) == sorted(state.batches)
    for one, after in pairwise(state.batches):
        assert one.last_offset < after.first_offset
        assert one.last_offset + 1 < after.first_offset or one[2:] != after[2:], "neighbours that are alike are one"


@given(first=some_batches, changed=some_batches)
def test_a_snapshot_says_the_same_as_the_update_in_whose_place_it_is(
    first: list[StateBatch], changed: list[StateBatch]
) -> None:
    state = replayed_snapshot(None, snapshot(0, 2, *first), 0)
    change = Change(4, 3, changed, 0)
    by_update, by_snapshot = written(state, change, 5), written(state, change, 0)
    assert by_update.batches == by_snapshot.batches
    assert by_update[2:5] == by_snapshot[2:5]
