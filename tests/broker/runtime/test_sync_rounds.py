"""The ways to run one round of syncs: what counts as synced when something fails, by one thread or by several."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from kit.simulated_files import SimulatedFiles

from ottla.broker.runtime.sync_round import SyncRound
from ottla.storage.files.files import File, NotOpened, Volume
from ottla.storage.log.log_reader import End
from ottla.storage.log.sync import SyncTicket

if TYPE_CHECKING:
    from ottla.storage.log.log import Log

Help = Callable[[Callable[[], None], int], None]
LOG = cast("Log", None)


class Disk:
    """Files `/0`, `/1`, ..., each with unsynced bytes; a ticket for each, whose one step is noted in `finished`."""

    def __init__(self, count: int, *, files_each: int = 1) -> None:
        self.files = SimulatedFiles()
        self.files.has_volume_sync = True
        self.logs: list[list[File]] = []
        self.finished: list[int] = []
        self.steps: dict[int, OSError] = {}
        for number in range(count):
            names = [str(number), *(f"{number}.{more}" for more in range(1, files_each))]
            self.logs.append([self.files.open(Path("/", name), create=True) for name in names])
            for file in self.logs[-1]:
                file.pwritev([b"x"], 0)
        volume = self.files.open_volume(Path("/0"))
        assert volume is not None
        self.volume: Volume = volume

    def round(self) -> SyncRound:
        tickets = [
            SyncTicket(
                End(1, 0, 1), dirty=(), finished=(), directory_changes=0, files=files, steps=[self._step(number)]
            )
            for number, files in enumerate(self.logs)
        ]
        sync_round = SyncRound([(LOG, ticket, []) for ticket in tickets])
        sync_round.volume = self.volume
        return sync_round

    def _step(self, number: int) -> Callable[[bool], None]:
        def step(is_covered: bool) -> None:
            if number in self.steps:
                raise self.steps[number]
            self.finished.append(number)

        return step

    def calls(self, kind: str) -> list[str]:
        return [str(path) for call, path in self.files.history if call == kind]


def alone(work: Callable[[], None], count: int) -> None:
    """Nobody has time to help."""


class Helpers:
    """Threads that help at once; `wait` until they have ended."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def __call__(self, work: Callable[[], None], count: int) -> None:
        for _ in range(min(3, count)):
            self.threads.append(threading.Thread(target=work))
            self.threads[-1].start()

    def wait(self) -> None:
        for thread in self.threads:
            thread.join()


def by_volume(sync_round: SyncRound) -> None:
    sync_round.sync_volume()
    sync_round.finish_volume()


RUNS: dict[str, Callable[[SyncRound], None]] = {
    "files": SyncRound.run,
    "threads": lambda sync_round: sync_round.run_shared(alone),
    "volume": by_volume,
}


@pytest.mark.parametrize("way", RUNS)
def test_each_way_brings_all_files_to_the_disk_before_the_steps_that_follow(way: str) -> None:
    disk = Disk(4, files_each=2)
    sync_round = disk.round()
    RUNS[way](sync_round)
    assert (sync_round.error, sync_round.results, sync_round.way) == (None, [None] * 4, way)
    assert disk.finished == [0, 1, 2, 3]
    assert all(not file.inode.dirty for files in disk.logs for file in cast("list[Any]", files))
    assert len(disk.calls("fdatasync")) == (0 if way == "volume" else 8)
    assert len(disk.calls("sync_volume")) == (1 if way == "volume" else 0)
    assert sum(logs for _, logs in sync_round.timings) == 4


@pytest.mark.parametrize("way", ["files", "threads"])
def test_a_file_that_fails_fails_its_log_and_what_did_not_run_and_nothing_is_tried_again(way: str) -> None:
    disk = Disk(4)
    disk.files.fail("fdatasync", "/1", times=1)
    sync_round = disk.round()
    RUNS[way](sync_round)
    assert sync_round.error is not None
    assert sync_round.error.errno == errno.EIO
    assert sync_round.results[0] is None or way == "threads"
    assert all(result is not None for result in sync_round.results[1:])
    assert disk.calls("fdatasync") == ["/0", "/1"]
    RUNS[way](sync_round)
    assert disk.calls("fdatasync") == ["/0", "/1"]


def test_a_volume_that_fails_fails_every_log_of_the_round_and_no_fdatasync_makes_it_good() -> None:
    disk = Disk(3)
    disk.files.fail("sync_volume")
    disk.files.fail("fdatasync", "/1")
    sync_round = disk.round()
    by_volume(sync_round)
    assert sync_round.error is not None
    assert sync_round.results == [sync_round.error] * 3
    assert disk.finished == []
    assert disk.calls("fdatasync") == []
    assert sync_round.name_files() == ["/1"]
    assert sync_round.results == [sync_round.error] * 3
    sync_round.run()
    sync_round.run_shared(alone)
    assert sync_round.results == [sync_round.error] * 3


@pytest.mark.parametrize("error", [0, errno.EIO])
def test_files_learn_what_a_volume_has_covered_and_nothing_of_one_that_failed(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that believed more than was synced might let go of the descriptor that hears of the loss."""
    disk = Disk(3)
    noted: list[tuple[str, int]] = []
    file = cast("Any", disk.logs[1][0])
    monkeypatch.setattr(type(file), "writes", property(lambda _: 7 if disk.calls("sync_volume") == [] else 8))
    file.note_synced = lambda writes: noted.append((str(file.path), writes))
    if error:
        disk.files.fail("sync_volume", error=error)
    by_volume(disk.round())
    assert noted == ([] if error else [("/1", 7)])


def test_a_file_that_was_closed_meanwhile_is_not_named() -> None:
    disk = Disk(3)
    disk.files.fail("sync_volume")
    sync_round = disk.round()
    by_volume(sync_round)
    disk.logs[2][0].close()
    assert sync_round.name_files() == []


@pytest.mark.parametrize("way", RUNS)
def test_a_log_that_was_closed_meanwhile_because_it_was_deleted_fails_nobody(way: str) -> None:
    disk = Disk(4)
    sync_round = disk.round()
    sync_round.waits[1][1].is_abandoned = True
    disk.logs[1][0].close()
    RUNS[way](sync_round)
    assert (sync_round.error, sync_round.results) == (None, [None] * 4)
    assert disk.finished == [0, 2, 3]


@pytest.mark.parametrize("way", RUNS)
def test_a_file_that_was_closed_meanwhile_by_a_bug_is_not_taken_for_synced(way: str) -> None:
    disk = Disk(3)
    sync_round = disk.round()
    if way == "volume":
        disk.volume.close()
    else:
        disk.logs[0][0].close()
    RUNS[way](sync_round)
    assert sync_round.error is not None
    assert sync_round.results[0] is not None


@pytest.mark.parametrize("way", RUNS)
def test_a_step_that_fails_fails_its_log_and_the_steps_of_no_other_log_are_done(way: str) -> None:
    disk = Disk(4)
    disk.steps[1] = OSError(errno.EIO, os.strerror(errno.EIO))
    sync_round = disk.round()
    RUNS[way](sync_round)
    assert sync_round.error is disk.steps[1]
    assert disk.finished == [0]
    assert sync_round.results[0] is None
    assert sync_round.results[1] is disk.steps[1]
    assert all(result is not None for result in sync_round.results[2:])


@pytest.mark.parametrize("way", ["files", "threads"])
def test_a_file_that_cannot_be_opened_stops_no_other_log(way: str) -> None:
    disk = Disk(4)
    disk.files.fail("fdatasync", "/1", errno.EMFILE)
    sync_round = disk.round()
    RUNS[way](sync_round)
    assert sync_round.error is None
    assert isinstance(sync_round.results[1], NotOpened)
    assert [sync_round.results[index] for index in (0, 2, 3)] == [None] * 3
    assert disk.finished == [0, 2, 3]


def test_what_ends_a_round_before_its_end_leaves_nothing_that_counts_as_synced() -> None:
    class Stop(BaseException):
        pass

    disk = Disk(4)

    def stop(work: Callable[[], None], count: int) -> None:
        raise Stop

    sync_round = disk.round()
    with pytest.raises(Stop):
        sync_round.run_shared(stop)
    assert sync_round.error is not None
    assert None not in sync_round.results
    assert SyncRound(sync_round.waits).error is not None


def test_a_volume_whose_sync_was_left_by_anything_else_counts_as_failed() -> None:
    disk = Disk(3)
    sync_round = disk.round()
    sync_round.finish_volume()
    assert sync_round.error is not None
    assert None not in sync_round.results


@pytest.mark.parametrize("failing", [None, "/7"])
def test_threads_share_the_files_each_is_synced_once_and_all_are_waited_for(failing: str | None) -> None:
    for _ in range(20):
        disk, helpers = Disk(16), Helpers()
        if failing is not None:
            disk.files.fail("fdatasync", failing)
        sync_round = disk.round()
        sync_round.run_shared(helpers)
        calls, results = disk.calls("fdatasync"), sync_round.results
        assert len(calls) == len(set(calls))
        for number, result in enumerate(results):
            assert result is not None or f"/{number}" in calls
        assert (sync_round.error is None) is (failing is None)
        if failing is None:
            assert sorted(calls) == sorted(f"/{number}" for number in range(16))
        else:
            assert results[7] is sync_round.error
        helpers.wait()
        assert disk.calls("fdatasync") == calls, "nothing runs when the round has ended"


def test_a_round_does_not_end_before_a_file_that_another_thread_has_in_hand() -> None:
    disk = Disk(3)
    in_hand, gate = threading.Event(), threading.Event()
    first, last = cast("Any", disk.logs[0][0]), cast("Any", disk.logs[2][0])
    sync_first, sync_last = first.fdatasync, last.fdatasync

    def held() -> None:
        in_hand.set()
        assert gate.wait(60)
        sync_first()

    def releasing() -> None:
        sync_last()
        threading.Timer(0.05, gate.set).start()

    first.fdatasync, last.fdatasync = held, releasing
    helpers = Helpers()

    def ask_for_help(work: Callable[[], None], count: int) -> None:
        helpers(work, 1)
        assert in_hand.wait(60)

    sync_round = disk.round()
    sync_round.run_shared(ask_for_help)
    assert (sync_round.error, sync_round.results) == (None, [None] * 3)
    assert not first.inode.dirty
    helpers.wait()


def test_one_of_two_threads_ends_a_round() -> None:
    sync_round = Disk(1).round()
    assert [sync_round.claim(), sync_round.claim()] == [True, False]
