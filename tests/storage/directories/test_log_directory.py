"""The mark of a clean stop: written last, where it is true, and gone before anything changes."""

from __future__ import annotations

import errno
import random

import pytest
from kit.log_dirs import ONE, World
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.storage.formats.layout import TopicPartition


def test_identity_and_clean_mark_live_through_a_restart(world: World) -> None:
    first = world.manager()
    first.open_logs([])
    first.close(broker_epoch=5)
    assert world.files.read_bytes(ONE / ".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":5}'
    second = world.manager()
    assert (second.cluster_id, second.directories[0].id) == (first.cluster_id, first.directories[0].id)
    assert second.was_clean
    assert second.directories[0].clean_broker_epoch == 5
    assert not world.files.exists(ONE / ".kafka_cleanshutdown")


def test_a_start_that_never_opened_its_logs_does_not_call_an_unclean_directory_clean(world: World) -> None:
    world.manager().close(clean=False)
    world.manager().close(clean=True)
    assert not world.manager().was_clean


def test_a_close_that_cannot_sync_leaves_no_clean_mark(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    log = world.create(manager)
    manager.open_logs([])
    world.append(log, sync=False)
    world.files.fail("fdatasync", "*.log", errno.EIO)
    manager.close()
    assert not world.files.exists(ONE / ".kafka_cleanshutdown")


def test_the_clean_mark_is_the_last_thing_written(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    world.append(world.create(manager), sync=False)
    manager.open_logs([])
    manager.close()
    changing = {"pwritev", "rename", "truncate", "unlink", "make_directory"}
    changes = [path for call, path in world.files.history if call in changing]
    assert changes[-1] == ONE / ".kafka_cleanshutdown.tmp"


def test_a_clean_mark_never_survives_beside_unsynced_work() -> None:
    def live() -> tuple[World, SimulatedFiles]:
        files = SimulatedFiles()
        world = World(files)
        manager = world.manager()
        manager.open_logs([world.wanted()])
        manager.close()
        return world, files

    def work(world: World) -> None:
        manager = world.manager()
        loaded = manager.open_logs([world.wanted()])
        world.append(loaded.logs[TopicPartition("orders", 0)], 50, sync=False)
        manager.close()

    world, files = live()
    before = files.calls
    work(world)
    calls = files.calls - before
    for point in range(1, calls + 1):
        world, files = live()
        files.crash_at = files.calls + point
        with pytest.raises(CrashPoint):
            work(world)
        world.files = files.crash(random.Random(point))
        manager = world.manager()
        loaded = manager.open_logs([world.wanted()])
        assert loaded.failed == {}
        log = loaded.logs[TopicPartition("orders", 0)]
        # Either the mark is true, then all or (before the append) nothing is there, or the log was looked at again.
        if manager.was_clean:
            assert log.log_end_offset in {0, 50}
        slice_ = log.read(0, 10_000, end_offset=log.log_end_offset)
        assert (slice_.length > 0) == (log.log_end_offset > 0)


def test_a_sync_of_names_that_failed_is_not_tried_again_by_another_thread(world: World) -> None:
    """The second would report success, because Linux has reported the error already, and the directory later."""
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    log = world.create(manager, 0)
    world.append(log)
    world.append(world.create(manager, 1), sync=False)
    settle = manager.delete_log("orders", 0)
    ticket = manager.logs[TopicPartition("orders", 1)].begin_sync()
    assert ticket is not None
    world.files.fail("sync_directory", str(ONE), errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        ticket.run()
    syncs = len([path for call, path in world.files.history if call == "sync_directory" and path == ONE])
    with pytest.raises(OSError, match="Input/output error"):
        settle()
    assert len([path for call, path in world.files.history if call == "sync_directory" and path == ONE]) == syncs


def test_a_persons_directories_with_the_endings_of_unfinished_files_stay_and_hold_up_no_start(world: World) -> None:
    manager = world.manager()
    manager.open_logs([])
    world.append(world.create(manager))
    manager.close(clean=False)
    for name in ("old.tmp", "orders-0/old.tmp", "orders-0/backup.deleted", "orders-0/new.cleaned"):
        world.files.make_directory(ONE / name)
    manager = world.manager()
    loaded = manager.open_logs([world.wanted()])
    assert loaded.failed == {}
    assert manager.directories[0].is_online
    assert world.files.is_directory(ONE / "old.tmp")
    assert world.files.is_directory(ONE / "orders-0" / "backup.deleted")
