"""The cleaner's map of keys: what was put is found, and it takes no more than it may."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.storage.cleaner.offset_map import ENTRY_BYTES, SHARD_SLOTS, OffsetMap, blake_hash, sip_hash


@pytest.mark.parametrize("hash_of", [sip_hash, blake_hash])
def test_the_last_offset_of_each_key_is_found(hash_of: Callable[[bytes], tuple[int, int]]) -> None:
    offsets = OffsetMap(1 << 20, 0.9, 5000, hash_of)
    for offset in range(10_000):
        assert offsets.put(b"key-%d" % (offset % 5000), offset)
    assert [offsets.get(b"key-%d" % number) for number in range(5000)] == list(range(5000, 10_000))
    assert offsets.get(b"other") == -1
    assert len(offsets) == 5000


def test_a_full_map_takes_no_new_key_and_still_learns_of_known_ones() -> None:
    offsets = OffsetMap(100 * ENTRY_BYTES, 0.5, 1_000_000)
    taken = 0
    while offsets.put(b"%d" % taken, taken):
        taken += 1
    assert taken == offsets.capacity == 32  # half of 64 slots, the power of two below 100
    assert offsets.put(b"0", 99)
    assert offsets.get(b"0") == 99
    assert offsets.utilization == 0.5


def test_a_map_of_many_shards_takes_nearly_what_the_load_factor_allows() -> None:
    slots = 4 * SHARD_SLOTS
    offsets = OffsetMap(slots * ENTRY_BYTES, 0.9, 1 << 40)
    taken = 0
    while offsets.put(b"%d" % taken, taken):
        taken += 1
    assert 0.87 * slots < taken <= 0.9 * slots


def test_few_keys_take_little_room() -> None:
    offsets = OffsetMap(1 << 40, 0.9, 10)
    assert offsets.capacity < 32
    assert OffsetMap(1, 1.0, 10).put(b"k", 0)


def test_an_empty_map_knows_nothing() -> None:
    offsets = OffsetMap(1 << 20, 0.9, 100)
    assert (offsets.get(b"k"), len(offsets), offsets.latest_offset) == (-1, 0, -1)


@pytest.mark.parametrize("load_factor", [0.5, 0.9, 1.0])
def test_all_expected_keys_fit(load_factor: float) -> None:
    large = [461, 511, 922, 1000, 2000, 8191, SHARD_SLOTS - 1, SHARD_SLOTS, 2 * SHARD_SLOTS - 1]
    for expected in [*range(1, 260), *large]:
        offsets = OffsetMap(1 << 40, load_factor, expected)
        taken = sum(offsets.put(b"%d" % number, number) for number in range(expected))
        assert taken == expected


def test_a_load_factor_of_zero_leaves_room_for_a_key() -> None:
    assert OffsetMap(1 << 20, 0.0, 10).put(b"k", 0)
