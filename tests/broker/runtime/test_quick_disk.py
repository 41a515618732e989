"""When a disk is quick enough for the broker's own thread to wait for it."""

from __future__ import annotations

from ottla.broker.runtime.quick_disk import CALM_MS, FIRST_REST_MS, MOST_REST_MS, SLOW_US, USUAL_US, QuickDisk

QUICK_US = 150


def quick_disk() -> QuickDisk:
    disk = QuickDisk()
    for _ in range(100):
        disk.note(QUICK_US, 0)
    assert disk.is_quick(0)
    return disk


def rests(disk: QuickDisk, now_ms: float) -> float:
    """For how long it is not quick from now on."""
    ms = 0
    while not disk.is_quick(now_ms + ms):
        ms += FIRST_REST_MS
    return ms


def test_a_disk_that_nothing_is_known_of_is_not_quick() -> None:
    assert not QuickDisk().is_quick(0)


def test_one_quick_sync_does_not_make_a_disk_quick() -> None:
    disk = QuickDisk()
    disk.note(QUICK_US, 0)
    assert not disk.is_quick(0)


def test_a_disk_whose_syncs_take_longer_than_usual_is_not_quick() -> None:
    disk = quick_disk()
    for _ in range(100):
        disk.note(USUAL_US + 1, 0)
    assert not disk.is_quick(0)


def test_a_single_sync_that_takes_a_little_longer_changes_nothing() -> None:
    disk = quick_disk()
    disk.note(2 * USUAL_US, 0)
    assert disk.is_quick(0)


def test_a_slow_sync_sends_syncs_to_threads_for_a_while() -> None:
    disk = quick_disk()
    disk.note(SLOW_US, 50)
    assert not disk.is_quick(50 + FIRST_REST_MS - 1)
    assert disk.is_quick(50 + FIRST_REST_MS)


def test_each_further_slow_sync_does_so_for_twice_as_long_up_to_a_bound() -> None:
    disk, now_ms, found = quick_disk(), 0.0, []
    for _ in range(12):
        disk.note(SLOW_US, now_ms)
        found.append(rests(disk, now_ms))
        now_ms += found[-1]
    assert found[:4] == [FIRST_REST_MS * factor for factor in (1, 2, 4, 8)]
    assert found[-2:] == [MOST_REST_MS] * 2


def test_after_a_calm_time_a_slow_sync_counts_as_the_first() -> None:
    disk = quick_disk()
    disk.note(SLOW_US, 0)
    disk.note(SLOW_US, FIRST_REST_MS)
    now_ms = 3 * FIRST_REST_MS + CALM_MS
    disk.note(SLOW_US, now_ms)
    assert rests(disk, now_ms) == FIRST_REST_MS
