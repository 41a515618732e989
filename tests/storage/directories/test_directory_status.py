"""Full and failing disks: what a directory refuses then, who may write on, and how it comes back."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from kit.barging import Barged
from kit.log_dirs import ONE, OTHER_ID, World
from kit.simulated_files import SimulatedFiles

from ottla.storage.directories.directory_status import DirectoryState
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.manager import LogManager
from ottla.storage.formats.checkpoint import read_offsets
from ottla.storage.formats.layout import TopicPartition

HOME = Path("/data")


# -- less is free than the reserve


def directory(files: SimulatedFiles, reserve_bytes: int = 800) -> LogDirectory:
    files.make_directory(HOME)
    return LogDirectory(files, HOME, lambda: reserve_bytes)


def test_a_directory_is_full_below_its_reserve_and_comes_back_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    home = directory(files)
    full = []
    with caplog.at_level(logging.WARNING):
        for free in (1000, 700, 850, 300, 450, 600, 900):
            files.volumes[HOME] = (100_000, free)
            if not home.look_at_room():
                full.append(free)
    assert full == [700, 850, 300, 450, 600]
    assert [line.removeprefix(f"log directory {HOME}").removeprefix(": ") for line in caplog.messages] == [
        " is full: 700 bytes free, ottla.log.dir.reserve.bytes keeps 800 bytes: records are refused until there is"
        " more; reads, commits, and operations that free space continue",
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
    assert home.takes_coordinator_records
    files.volumes[HOME] = (100_000, 399)
    home.look_at_room()
    assert home.refusal(of_clients=False) is not None
    assert not home.takes_coordinator_records


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


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_write_that_finds_no_room_beside_a_look_at_the_room_leaves_the_directory_full(count: int) -> None:
    """Whenever the look that is about to bring it back is overtaken."""
    files = SimulatedFiles()
    home = directory(files)
    files.volumes[HOME] = (100_000, 700)
    home.look_at_room()
    files.volumes[HOME] = (100_000, 5_000)
    no_room = OSError(errno.ENOSPC, "No space left on device")
    guard = home.guard
    home.guard = barged = Barged(guard, lambda: home.mark_full(no_room), count)
    home.look_at_room()
    home.guard = guard
    if not barged.has_happened:
        home.mark_full(no_room)
    assert (home.state, home.error) == (DirectoryState.FULL, no_room)
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
    assert not home.takes_coordinator_records
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


# -- a write found no room, or failed


def test_a_full_directory_takes_no_new_partition_and_recovers_by_itself(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    manager.directories[0].mark_full(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="no log directory takes writes") as caught:
        world.create(manager)
    assert caught.value.errno == errno.ENOSPC
    world.files.capacity_bytes = sum(map(len, world.files.written_state().values())) + 100
    assert manager.probe_full() == []
    assert manager.directories[0].state is DirectoryState.FULL
    world.files.capacity_bytes = None
    assert manager.probe_full() == manager.directories
    assert manager.directories[0].is_online
    world.create(manager)
    assert not any(name.endswith(".tmp") for name in world.files.list_directory(ONE))


def test_a_probe_that_meets_another_error_takes_the_directory_offline(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    manager.directories[0].mark_full(OSError(errno.ENOSPC, "No space left on device"))
    world.files.fail("fdatasync", error=errno.EIO)
    assert manager.probe_full() == []
    assert manager.directories[0].state is DirectoryState.OFFLINE


def test_an_offline_directory_stays_so_until_restart_and_is_never_marked_clean(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    log = world.create(manager)
    world.append(log)
    manager.open_logs([])
    manager.directories[0].mark_offline(OSError(errno.EIO, "Input/output error"))
    assert manager.probe_full() == []
    manager.directories[0].mark_full(OSError(errno.ENOSPC, "No space left on device"))
    assert manager.directories[0].state is DirectoryState.OFFLINE
    place = TopicPartition("orders", 0)
    assert manager.checkpoints.write_log_start_offsets_of([place]) == {place}
    before = world.files.written_state()
    manager.delete_log("orders", 0)()
    manager.close(clean=True)
    assert world.files.written_state() == before
    assert not world.manager().was_clean


def test_a_creation_without_room_makes_the_directory_full_and_is_made_good_later(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    world.files.fail("pwritev", "*/partition.metadata", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        world.create(manager)
    assert manager.directories[0].state is DirectoryState.FULL
    assert manager.get("orders", 0) is None
    manager.probe_full()
    assert world.create(manager).log_end_offset == 0


class Syncing(SimulatedFiles):
    """A disk on which `meanwhile` happens, in another thread, while the first file of a name is synced."""

    def __init__(self, patience_s: float = 10) -> None:
        super().__init__()
        self.patience_s = patience_s
        self.thread: threading.Thread | None = None
        self.meanwhile: Callable[[], object] | None = None
        self.has_waited = False

    def call(self, kind: str, path: Path) -> AbstractContextManager[object]:
        meanwhile = self.meanwhile
        if meanwhile is not None and kind == "fdatasync" and path.name.startswith("recovery-point-offset-checkpoint"):
            self.meanwhile = None
            self.thread = threading.Thread(target=meanwhile, daemon=True)
            self.thread.start()
            self.thread.join(self.patience_s)
            self.has_waited = self.thread.is_alive()
        return super().call(kind, path)


def offline(manager: LogManager) -> None:
    manager.directories[0].mark_offline(OSError(errno.EIO, "Input/output error"))


def full(manager: LogManager) -> None:
    manager.directories[0].mark_full(OSError(errno.ENOSPC, "No space left on device"))


def refused(manager: LogManager) -> None:
    manager.directories[0].refusal(of_clients=True)


def made(manager: LogManager) -> None:
    manager.create_log("other", 0, OTHER_ID, manager.logs[TopicPartition("orders", 0)].config)


def deleted(manager: LogManager) -> None:
    manager.delete_log("orders", 0)


@pytest.mark.parametrize("meanwhile", [offline, full, refused, made, deleted])
def test_the_brokers_thread_does_not_wait_for_a_checkpoint_that_another_one_syncs(
    meanwhile: Callable[[LogManager], None],
) -> None:
    files = Syncing()
    world = World(files)
    manager = world.manager()
    manager.open_logs([])
    world.append(world.create(manager))
    files.meanwhile = lambda: meanwhile(manager)
    manager.checkpoints.write_recovery_points()
    assert files.meanwhile is None
    assert not files.has_waited


def test_nothing_is_put_in_its_place_in_a_directory_that_went_offline_while_it_was_written() -> None:
    files = Syncing()
    world = World(files)
    manager = world.manager()
    manager.open_logs([])
    world.append(world.create(manager))
    files.meanwhile = lambda: offline(manager)
    manager.checkpoints.write_recovery_points()
    assert manager.directories[0].is_offline
    assert not files.exists(ONE / "recovery-point-offset-checkpoint")


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_process_without_descriptors_or_memory_blames_no_disk(code: int) -> None:
    files = SimulatedFiles()
    world = World(files)
    manager = world.manager()
    manager.open_logs([])
    world.append(world.create(manager))
    (home,) = manager.directories
    files.fail("open", "*", code, times=None)
    manager.checkpoints.write_recovery_points()
    with pytest.raises(OSError, match=os.strerror(code)):
        world.create(manager, 1)
    assert home.is_online
    home.mark_full(OSError(errno.ENOSPC, "No space left on device"))
    assert not home.probe()
    files.heal()
    assert home.probe()
    manager.checkpoints.write_recovery_points()
    assert world.create(manager, 1).log_end_offset == 0
    assert files.read_bytes(ONE / "recovery-point-offset-checkpoint") == b"0\n1\norders 0 3\n"


def test_a_row_that_was_on_its_way_when_a_log_was_deleted_is_none_of_a_later_life() -> None:
    files = Syncing(patience_s=0.2)
    world = World(files)
    manager = world.manager()
    manager.open_logs([])
    world.append(world.create(manager))
    one = TopicPartition("orders", 0)

    def create_again() -> None:
        manager.delete_log("orders", 0)()
        if manager.remembers(one):
            manager.forget([one])
        world.create(manager, topic_id=OTHER_ID)

    files.meanwhile = create_again
    manager.checkpoints.write_recovery_points()
    assert files.has_waited, "the name is not free before the row is written, and can be seen"
    assert files.thread is not None
    files.thread.join()
    assert manager.logs[one].topic_id == OTHER_ID
    assert read_offsets(files, ONE / "recovery-point-offset-checkpoint") == {}
