"""What is kept free of a volume, and who may write when less is left: `storage/reserve.py`, and directories by it."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest
from kit.simulated_files import SimulatedFiles

from ottla.storage.directory_status import DirectoryState
from ottla.storage.log_directory import LogDirectory
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
HOME = Path("/data")


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


# -- a directory


def directory(files: SimulatedFiles, reserve_bytes: int = 800) -> LogDirectory:
    files.make_directory(HOME)
    return LogDirectory(files, HOME, lambda: reserve_bytes)


def test_a_directory_is_full_below_its_reserve_and_comes_back_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    home = directory(files)
    changes: list[DirectoryState] = []
    home.on_change = lambda changed: changes.append(changed.state)
    with caplog.at_level(logging.WARNING):
        for free in (1000, 700, 850, 300, 450, 600, 900):
            files.volumes[HOME] = (100_000, free)
            home.look_at_room()
    assert changes == [DirectoryState.FULL, DirectoryState.ONLINE]
    assert [line.removeprefix(f"log directory {HOME}").removeprefix(": ") for line in caplog.messages] == [
        " is full: 700 bytes free, ottla.log.dir.reserve.bytes keeps 800 bytes: records are refused until there is"
        " more; reads, commits, and all that makes room go on",
        "300 bytes free, ottla.log.dir.reserve.bytes keeps 800 bytes: offsets and groups are refused, too",
        "600 bytes free, ottla.log.dir.reserve.bytes keeps 800 bytes: offsets and groups are taken again",
        " has room again and takes writes",
    ]


def test_groups_write_on_until_half_of_the_reserve_is_gone() -> None:
    files = SimulatedFiles()
    home = directory(files)
    files.volumes[HOME] = (100_000, 799)
    home.look_at_room()
    refusal = home.refusal(of_clients=True)
    assert refusal is not None
    assert refusal.errno == errno.ENOSPC
    assert "799 bytes free" in str(refusal)
    assert home.refusal(of_clients=False) is None
    assert home.takes_groups
    files.volumes[HOME] = (100_000, 399)
    home.look_at_room()
    assert home.refusal(of_clients=False) is not None
    assert not home.takes_groups


def test_a_budget_that_is_used_up_is_looked_at_again_before_the_next_append() -> None:
    files = SimulatedFiles()
    home = directory(files)
    files.volumes[HOME] = (100_000, 1000)
    home.look_at_room()
    assert home.room_bytes == 100
    home.room_bytes -= 150
    assert home.refusal(of_clients=True) is None
    assert home.room_bytes == 100
    home.room_bytes = -1
    files.volumes[HOME] = (100_000, 790)
    assert home.refusal(of_clients=True) is not None
    assert home.state is DirectoryState.FULL


def test_below_the_reserve_nobody_asks_the_volume_for_each_append() -> None:
    files = SimulatedFiles()
    home = directory(files)
    files.volumes[HOME] = (100_000, 700)
    home.look_at_room()
    before = files.history.count(("volume_bytes", HOME))
    for _ in range(10):
        assert home.refusal(of_clients=True) is not None
    assert files.history.count(("volume_bytes", HOME)) == before


def test_a_disk_that_took_nothing_and_has_its_reserve_again_must_still_pass_the_probe() -> None:
    files = SimulatedFiles()
    home = directory(files)
    home.mark_full(OSError(errno.ENOSPC, "No space left on device"))
    files.volumes[HOME] = (100_000, 5_000)
    rule = files.fail("pwritev", error=errno.EDQUOT, times=None)
    assert not home.look_at_room()
    assert not home.probe()
    files.heal(rule)
    assert not home.look_at_room()
    assert not home.has_taken_all
    assert home.probe()


def test_a_probe_that_is_taken_below_the_reserve_leaves_the_directory_full() -> None:
    files = SimulatedFiles()
    home = directory(files)
    home.mark_full(OSError(errno.ENOSPC, "No space left on device"))
    files.volumes[HOME] = (100_000, 700)
    assert not home.probe()
    assert home.state is DirectoryState.FULL
    assert home.has_taken_all
    files.volumes[HOME] = (100_000, 5_000)
    assert home.probe()


def test_a_directory_that_is_offline_stays_so_whatever_is_free() -> None:
    files = SimulatedFiles()
    home = directory(files)
    home.mark_offline(OSError(errno.EIO, "Input/output error"))
    for free in (100, 90_000):
        files.volumes[HOME] = (100_000, free)
        home.look_at_room()
        assert home.state is DirectoryState.OFFLINE
    assert not home.takes_groups
    assert not home.has_taken_all


def test_the_reserve_follows_the_configuration() -> None:
    files = SimulatedFiles()
    configured = [800]
    files.make_directory(HOME)
    home = LogDirectory(files, HOME, lambda: configured[0])
    files.volumes[HOME] = (100_000, 700)
    assert not home.look_at_room()
    configured[0] = 0
    assert home.look_at_room()
