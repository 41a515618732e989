"""How much is kept free of a volume, who may write when less is left, and when it is looked at again."""

from __future__ import annotations

import pytest

from ottla.storage.files.reserve import (
    AUTOMATIC,
    INODES_OF_A_PARTITION,
    LEAST_BUDGET_BYTES,
    UNKNOWN_ROOM,
    UNLIMITED_BYTES,
    RoomLevel,
    judge,
    reserve_of,
    with_inodes,
)

GIB = 1 << 30
MIB = 1 << 20


@pytest.mark.parametrize(
    ("total", "reserve"),
    [(100 * GIB, GIB), (20 * GIB, GIB), (10 * GIB, GIB // 2), (6 * MIB, 314_572), (19, 0)],
)
def test_the_automatic_reserve_is_a_twentieth_and_a_gibibyte_at_most(total: int, reserve: int) -> None:
    assert reserve_of(AUTOMATIC, total) == reserve


def test_a_configured_reserve_is_taken_as_it_is() -> None:
    assert reserve_of(5 * GIB, 6 * GIB) == 5 * GIB


@pytest.mark.parametrize(
    ("free", "before", "level"),
    [
        (800, RoomLevel.AMPLE, RoomLevel.AMPLE),
        (799, RoomLevel.AMPLE, RoomLevel.SHORT),
        (899, RoomLevel.SHORT, RoomLevel.SHORT),
        (900, RoomLevel.SHORT, RoomLevel.AMPLE),
        (400, RoomLevel.SHORT, RoomLevel.SHORT),
        (399, RoomLevel.AMPLE, RoomLevel.SCARCE),
        (499, RoomLevel.SCARCE, RoomLevel.SCARCE),
        (500, RoomLevel.SCARCE, RoomLevel.SHORT),
        (900, RoomLevel.SCARCE, RoomLevel.AMPLE),
    ],
)
def test_levels_change_at_the_reserve_and_at_its_half_and_back_an_eighth_higher(
    free: int, before: RoomLevel, level: RoomLevel
) -> None:
    assert judge(800, (100_000, free), before).level is level


def test_no_reserve_and_an_unknown_volume_refuse_nothing() -> None:
    assert judge(0, (1000, 0), RoomLevel.SCARCE).level is RoomLevel.AMPLE
    assert judge(0, (1000, 0), RoomLevel.AMPLE).budget_bytes == UNLIMITED_BYTES
    assert judge(AUTOMATIC, None, RoomLevel.SHORT) is UNKNOWN_ROOM
    assert judge(AUTOMATIC, (0, 0), RoomLevel.AMPLE) is UNKNOWN_ROOM


def test_the_budget_is_half_of_what_is_left_and_a_mebibyte_at_least() -> None:
    assert judge(GIB, (100 * GIB, 3 * GIB), RoomLevel.AMPLE).budget_bytes == GIB
    assert judge(GIB, (100 * GIB, GIB + 5), RoomLevel.AMPLE).budget_bytes == LEAST_BUDGET_BYTES
    assert judge(1600, (100_000, 1601), RoomLevel.AMPLE).budget_bytes == 100


def test_records_go_below_the_reserve_by_one_budget_at_most() -> None:
    """Appends of any size below the budget, each taken off as `Log` does it."""
    reserve, free = 64 * MIB, 200 * MIB
    budget = judge(reserve, (1000 * MIB, free), RoomLevel.AMPLE).budget_bytes
    size, level = 300_000, RoomLevel.AMPLE
    while level is RoomLevel.AMPLE:
        if budget <= 0:
            room = judge(reserve, (1000 * MIB, free), level)
            budget, level = room.budget_bytes, room.level
            continue
        free -= size
        budget -= size
    assert reserve - LEAST_BUDGET_BYTES - size < free < reserve


# -- inodes


@pytest.mark.parametrize(("total", "reserve"), [(200, 10), (20_000, 1_000), (10_000_000, 1_000), (19, 0)])
def test_the_automatic_reserve_of_inodes_is_a_twentieth_and_a_thousand_at_most(total: int, reserve: int) -> None:
    room = with_inodes(UNKNOWN_ROOM, AUTOMATIC, (total, total), RoomLevel.AMPLE)
    assert (room.level, room.reserve_inodes) == (RoomLevel.AMPLE, reserve)


@pytest.mark.parametrize(
    ("free", "before", "level"),
    [
        (80, RoomLevel.AMPLE, RoomLevel.AMPLE),
        (79, RoomLevel.AMPLE, RoomLevel.SHORT),
        (89, RoomLevel.SHORT, RoomLevel.SHORT),
        (90, RoomLevel.SHORT, RoomLevel.AMPLE),
        (39, RoomLevel.AMPLE, RoomLevel.SCARCE),
    ],
)
def test_the_level_of_inodes_is_that_of_bytes_and_the_worse_of_both_counts(
    free: int, before: RoomLevel, level: RoomLevel
) -> None:
    ample, short = judge(800, (100_000, 10_000), RoomLevel.AMPLE), judge(800, (100_000, 700), RoomLevel.AMPLE)
    assert with_inodes(ample, 80, (1000, free), before).level is level
    assert with_inodes(short, 80, (1000, free), before).level is max(level, RoomLevel.SHORT)
    assert bool(with_inodes(ample, 80, (1000, free), before).budget_bytes) is (level is RoomLevel.AMPLE)


def test_the_words_are_of_what_is_shorter() -> None:
    short = judge(800, (100_000, 700), RoomLevel.AMPLE)
    assert str(with_inodes(short, 80, (1000, 70), RoomLevel.AMPLE)).startswith("700 bytes free")
    words = "30 inodes free, ottla.log.dir.reserve.inodes keeps 80"
    assert str(with_inodes(short, 80, (1000, 30), RoomLevel.AMPLE)) == words


def test_file_systems_without_a_number_of_inodes_have_no_reserve_of_them() -> None:
    room = judge(800, (100_000, 10_000), RoomLevel.AMPLE)
    assert with_inodes(room, AUTOMATIC, None, RoomLevel.AMPLE) == room
    assert with_inodes(room, AUTOMATIC, (0, 0), RoomLevel.AMPLE) == room
    assert room.room_for_partitions is None
    assert with_inodes(room, 0, (1000, 0), RoomLevel.AMPLE).level is RoomLevel.AMPLE


def test_partitions_have_room_above_the_reserve() -> None:
    room = judge(0, (100, 100), RoomLevel.AMPLE)
    free = 80 + 3 * INODES_OF_A_PARTITION
    assert with_inodes(room, 80, (1000, free), RoomLevel.AMPLE).room_for_partitions == 3
    assert with_inodes(room, 80, (1000, 5), RoomLevel.AMPLE).room_for_partitions == 0
