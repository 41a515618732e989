"""How much is kept free of a volume, who may write when less is left, and when it is looked at again."""

from __future__ import annotations

import pytest

from ottla.storage.reserve import (
    AUTOMATIC,
    LEAST_BUDGET_BYTES,
    UNKNOWN_ROOM,
    UNLIMITED_BYTES,
    RoomLevel,
    judge,
    reserve_of,
    shown_bytes,
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


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (GIB, "1.0 GiB"), (1 << 50, "1024.0 TiB")],
)
def test_sizes_are_shown_for_people(count: int, shown: str) -> None:
    assert shown_bytes(count) == shown
