"""`.snapshot` files byte for byte, and how long a producer is remembered."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given
from kit.logs import batch, snapshot_of

from ottla.protocol.records.batch import BatchHeader, parse_header
from ottla.protocol.records.checksum import crc32c
from ottla.storage.producers import producer_state, snapshot_format
from ottla.storage.producers.producer_entry import NO_TRANSACTION, ProducerEntry, RememberedBatch
from ottla.storage.producers.producer_state import (
    LOADED_GRACE_MS,
    ProducerStates,
    advance,
    check_sequence,
    find_duplicate,
)
from ottla.storage.producers.snapshot_format import PRODUCERS_PER_PIECE, CorruptSnapshot, parse_snapshot

DAY_MS = 86_400_000


def header(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 1000) -> BatchHeader:
    return parse_header(
        batch(
            *[b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, stamps=[5] * count
        )
    )


def test_the_worked_example_of_the_module_is_true() -> None:
    states = ProducerStates(DAY_MS)
    states.publish(advance(None, header(0, 3), 0, 77))
    lines = (snapshot_format.__doc__ or "").splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip().startswith("0001 "))
    assert snapshot_of(states) == bytes.fromhex("".join(lines[first : first + 2]).replace(" ", ""))


@given(
    st.lists(
        st.builds(
            ProducerEntry.of,
            st.integers(0, 2**63 - 1),
            st.integers(0, 2**15 - 1),
            st.builds(
                RememberedBatch,
                st.integers(0, 2**31 - 1),
                st.integers(0, 2**62),
                st.integers(0, 1000),
                st.integers(0, 2**60),
            ).map(lambda one: (one,)),
            st.just(0),
            st.integers(-1, 2**31 - 1),
            st.integers(-1, 2**62),
        ),
        unique_by=lambda entry: entry.producer_id,
        max_size=20,
    )
)
def test_a_snapshot_gives_back_what_was_put_in(entries: list[ProducerEntry]) -> None:
    states = ProducerStates(DAY_MS)
    for entry in entries:
        states.publish(entry)
    found = parse_snapshot(snapshot_of(states))
    assert [one._replace(last_seen_ms=0) for one in found] == entries


def test_the_last_five_batches_of_a_producer_are_remembered() -> None:
    entry = None
    for number in range(6):
        entry = advance(entry, header(number * 2, 2), number * 2, 77)
    assert entry is not None
    assert [batch.base_offset for batch in entry.batches] == [2, 4, 6, 8, 10]
    assert len(entry.earlier) == 4


def test_a_producer_of_one_batch_is_one_object_and_its_numbers() -> None:
    """A partition may remember 200,000, most of them so."""
    entry = advance(None, header(0, 2), 7, 77)
    assert [batch.base_offset for batch in entry.batches] == [7]
    assert [field for field in entry if not isinstance(field, int)] == [NO_TRANSACTION, ()]
    assert entry.transaction is NO_TRANSACTION


def in_flight(count: int) -> ProducerEntry:
    """A producer after `count` batches of three records."""
    entry = None
    for number in range(count):
        entry = advance(entry, header(3 * number, count=3), 3 * number, 77)
    assert entry is not None
    return entry


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_all_remembered_batches_come_back_so_that_a_retry_across_a_restart_is_seen(count: int) -> None:
    states = ProducerStates(DAY_MS)
    states.publish(in_flight(count))
    found = parse_snapshot(snapshot_of(states))
    assert [entry.batches for entry in found] == [in_flight(count).batches]
    assert len(found[0].batches) == min(count, 5)


def test_the_last_entry_of_a_producer_is_the_one_that_kafka_would_have_written() -> None:
    states = ProducerStates(DAY_MS)
    states.publish(in_flight(4))
    last = struct.unpack(">qhiqiqiq", snapshot_of(states)[-46:])
    batch = in_flight(4).batches[-1]
    assert last == (in_flight(4).producer_id, 0, *batch, -1, -1)


def test_entries_that_do_not_follow_each_other_are_not_joined() -> None:
    states = ProducerStates(DAY_MS)
    states.publish(in_flight(2))
    data = bytearray(snapshot_of(states))
    struct.pack_into(">i", data, 10 + 10, 900)  # the first entry's last sequence
    struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
    assert [entry.batches for entry in parse_snapshot(bytes(data))] == [in_flight(2).batches[-1:]]


@pytest.mark.parametrize("damage", ["version", "checksum", "cut", "longer", "count", "empty"])
def test_an_unsound_snapshot_is_refused_and_changes_nothing(damage: str) -> None:
    states = ProducerStates(DAY_MS)
    states.publish(advance(None, header(0), 0, 77))
    data = bytearray(snapshot_of(states))
    match damage:
        case "version":
            data[1] = 2
        case "checksum":
            data[-1] ^= 1
        case "cut":
            del data[-1]
        case "longer":
            data.append(0)
        case "count":
            struct.pack_into(">i", data, 6, -1)
        case "empty":
            data.clear()
    with pytest.raises(CorruptSnapshot):
        states.load(bytes(data), 0)
    assert len(states) == 1


def expired(states: ProducerStates, now_ms: int) -> int:
    before = len(states)
    assert sum(states.expire(now_ms)) == before
    return before - len(states)


def test_producers_expire_by_their_last_append_not_by_their_records_stamps() -> None:
    now_ms = 10 * DAY_MS
    states = ProducerStates(DAY_MS)
    states.publish(advance(None, header(0), 0, now_ms))
    assert expired(states, now_ms + DAY_MS - 1) == 0
    assert expired(states, now_ms + DAY_MS) == 1


def test_a_loaded_producer_with_old_stamps_is_kept_for_a_while() -> None:
    now_ms = 10 * DAY_MS
    states = ProducerStates(DAY_MS)
    states.publish(advance(None, header(0), 0, now_ms))
    states.load(snapshot_of(states), now_ms)
    assert expired(states, now_ms + LOADED_GRACE_MS - 1) == 0
    assert expired(states, now_ms + LOADED_GRACE_MS) == 1


def test_expiry_looks_at_some_producers_at_a_time_and_keeps_those_that_write_meanwhile() -> None:
    states, count = ProducerStates(DAY_MS), 2 * PRODUCERS_PER_PIECE + 1
    for producer_id in range(count):
        states.publish(advance(None, header(0, producer_id=producer_id), 0, 0))
    pieces = states.expire(DAY_MS)
    assert next(pieces) == PRODUCERS_PER_PIECE
    assert len(states) == count - PRODUCERS_PER_PIECE
    states.publish(advance(states.get(count - 1), header(1, producer_id=count - 1), 1, 1))
    states.publish(advance(None, header(0, producer_id=count), 2, 1))
    assert list(pieces) == [PRODUCERS_PER_PIECE, 1]
    assert {entry.producer_id for entry in states} == {count - 1, count}


def test_a_transaction_marker_ends_the_transaction_and_names_its_coordinator() -> None:
    states = ProducerStates(DAY_MS)
    states.replay(header(0)._replace(attributes=0x10, base_offset=40), 0)
    entry = states.get(1000)
    assert entry is not None
    assert entry.current_txn_first_offset == 40
    states.replay(header(0)._replace(attributes=0x30, base_sequence=-1), 0, 6)
    entry = states.get(1000)
    assert entry is not None
    assert (entry.current_txn_first_offset, entry.coordinator_epoch, entry.last_sequence) == (-1, 6, 0)


def test_the_producer_that_was_quiet_longest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 2)
    states = ProducerStates(DAY_MS)
    for producer_id in (1, 2, 1, 3):
        states.publish(advance(states.get(producer_id), header(0, producer_id=producer_id), 0, 0))
    assert {entry.producer_id for entry in states} == {1, 3}


def test_of_many_a_thousandth_is_forgotten_at_once_and_there_are_never_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 2000)
    states = ProducerStates(DAY_MS)
    counts = []
    for producer_id in range(2006):
        states.publish(ProducerEntry.of(producer_id, 0, ((0, producer_id, 0, 5),), 0))
        counts.append(len(states))
    assert counts[1998:] == [1999, 2000, 1998, 1999, 2000, 1998, 1999, 2000]
    assert min(entry.producer_id for entry in states) == 6


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(1, 5), min_size=1, max_size=12))
def test_sequences_in_order_are_taken_and_each_of_the_last_five_is_a_repeat(first: int, counts: list[int]) -> None:
    entry, sequence, offset, sent = None, first, 0, []
    for count in counts:
        one = header(sequence, count)
        assert find_duplicate(entry, one) is None
        assert check_sequence(entry, one) is None
        entry = advance(entry, one, offset, 0)
        sent.append((one, offset))
        sequence = (sequence + count) & (2**31 - 1)
        offset += count
    for one, base_offset in sent[-5:]:
        found = find_duplicate(entry, one)
        assert found is not None
        assert found.base_offset == base_offset
