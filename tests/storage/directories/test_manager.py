"""Logs through whole lives: created, opened again, renamed to `-stray`, deleted, with a crash at any call."""

from __future__ import annotations

import errno
import logging
import os
import random
from pathlib import Path

import pytest
from kit.log_dirs import ONE, ORDERS_ID, OTHER_ID, TWO, World, partition_names
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.storage.directories.delayed_removal import remove_tree
from ottla.storage.directories.directory_status import DirectoryState
from ottla.storage.directories.log_placement import WantedLog
from ottla.storage.directories.manager import LogManager
from ottla.storage.errors import StorageError
from ottla.storage.files.files import OsFiles
from ottla.storage.formats.checkpoint import read_offsets
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.log.log import Log

# -- creating


def test_creating_a_log_waits_for_no_disk(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    for call in ("fdatasync", "sync_directory"):
        world.files.fail(call, "*", errno.EIO, times=None)
    log = world.create(manager)
    assert manager.get("orders", 0) is log
    assert manager.directory_of("orders", 0) is manager.directories[0]
    assert manager.directories[0].is_online


def test_a_created_log_is_durable_with_its_topic_id_and_epoch_when_its_first_records_are(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    logs = [world.create(manager, partition) for partition in range(2)]
    logs[0].start_leader_epoch(3)
    world.append(logs[0])
    synced = world.files.synced_state()
    assert synced["/one/orders-0/partition.metadata"] == b"version: 0\ntopic_id: nhB9nTcrtoJr2B01QqQZ1g"
    assert synced["/one/orders-0/leader-epoch-checkpoint"] == b"0\n1\n3 0\n"
    assert "/one/orders-0/00000000000000000000.log" in synced


def test_a_crash_before_the_first_sync_of_a_created_log_leaves_what_a_start_completes(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    log = world.create(manager)
    world.append(log, sync=False)
    for seed in range(20):
        later = World(world.files.crash(random.Random(seed)))
        loaded = later.manager().open_logs([later.wanted()])
        assert loaded.failed == {}
        assert loaded.strays == []
        log = loaded.logs[TopicPartition("orders", 0)]
        assert (log.log_start_offset, log.topic_id) == (0, later.wanted().topic_id)


def test_partitions_go_where_the_fewest_are() -> None:
    world = World(log_dirs="/one,/two")
    manager = world.manager()
    for partition in range(5):
        world.create(manager, partition)
    assert partition_names(world.files, ONE) == ["orders-0", "orders-2", "orders-4"]
    assert partition_names(world.files, TWO) == ["orders-1", "orders-3"]


def test_a_log_cannot_be_created_twice(world: World) -> None:
    manager = world.manager()
    world.create(manager)
    with pytest.raises(ValueError, match="open already"):
        world.create(manager)


def test_a_creation_that_crashed_anywhere_leaves_nothing_or_what_the_next_start_completes() -> None:
    def prepared() -> tuple[World, LogManager, SimulatedFiles]:
        files = SimulatedFiles()
        world = World(files, "/one,/two")
        manager = world.manager()
        world.create(manager, 7)
        return world, manager, files

    world, manager, files = prepared()
    before = files.calls
    world.create(manager)
    calls = files.calls - before
    assert calls > 5
    for point in range(1, calls + 1):
        for seed in range(4):
            world, manager, files = prepared()
            files.crash_at = files.calls + point
            with pytest.raises(CrashPoint):
                world.create(manager)
            world = World(files.crash(random.Random(seed)), "/one,/two")
            manager = world.manager()
            loaded = manager.open_logs([world.wanted(), world.wanted(7)])
            assert loaded.failed == {}, f"crash at call {point}, seed {seed}"
            assert loaded.strays == []
            log = loaded.logs[TopicPartition("orders", 0)]
            assert (log.topic_id, log.log_end_offset) == (ORDERS_ID, 0)
            world.append(log)
            names = partition_names(world.files, ONE) + partition_names(world.files, TWO)
            assert sorted(names) == ["orders-0", "orders-7"]


def test_after_a_finished_creation_every_crash_keeps_it_and_what_was_synced() -> None:
    for seed in range(20):
        world = World()
        manager = world.manager()
        world.append(world.create(manager))
        assert isinstance(world.files, SimulatedFiles)
        world.files = world.files.crash(random.Random(seed))
        manager = world.manager()
        loaded = manager.open_logs([world.wanted()])
        assert loaded.made == []
        assert loaded.logs[TopicPartition("orders", 0)].log_end_offset == 3


# -- opening


def test_logs_are_opened_again_with_what_they_held(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager, 0), 3)
    world.append(world.create(manager, 1), 5)
    manager.open_logs([])
    manager.close()
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(0), world.wanted(1)])
    assert [log.log_end_offset for log in loaded.logs.values()] == [3, 5]
    assert manager.logs == loaded.logs


def test_logs_are_loaded_in_parallel_threads(tmp_path: Path) -> None:
    world = World(OsFiles(), f"{tmp_path}/one,{tmp_path}/two", **{"num.recovery.threads.per.data.dir": 3})
    manager = world.manager()
    for partition in range(12):
        world.append(world.create(manager, partition), partition + 1)
    manager.close(clean=False)
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(partition) for partition in range(12)])
    assert loaded.failed == {}
    assert {one.partition: log.log_end_offset for one, log in loaded.logs.items()} == {n: n + 1 for n in range(12)}
    loading = manager.loading
    assert (loading.logs, loading.logs_done) == (12, 12)
    assert loading.done_bytes == loading.all_bytes > 0
    manager.close()


def test_a_directory_that_is_missing_is_made(world: World) -> None:
    loaded = world.manager().open_logs([world.wanted(0), world.wanted(1)])
    assert loaded.made == [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert partition_names(world.files, ONE) == ["orders-0", "orders-1"]


def test_a_topic_that_is_created_again_holds_nothing_of_one_that_could_not_be_opened_and_was_deleted(
    world: World,
) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    manager.close(clean=False)
    world.files.write_atomically(ONE / "orders-0" / "partition.metadata", b"version: 9")
    manager = world.manager()
    assert list(manager.open_logs([world.wanted()]).failed) == [TopicPartition("orders", 0)]
    manager.delete_log("orders", 0)()  # it is not open: nothing is done
    log = world.create(manager, topic_id=OTHER_ID)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
    assert [name.endswith("-stray") for name in partition_names(world.files, ONE)] == [False, True]
    world.append(log, 5)
    assert isinstance(world.files, SimulatedFiles)
    for seed in range(10):
        later = World(world.files.crash(random.Random(seed)))
        loaded = later.manager().open_logs([later.wanted(topic_id=OTHER_ID)])
        assert loaded.logs[TopicPartition("orders", 0)].log_end_offset == 5


@pytest.mark.parametrize("call", ["pwritev", "open"])
@pytest.mark.parametrize("can_tidy", [True, False])
def test_a_partition_is_found_where_it_was_made_at_last_and_not_where_a_full_disk_stopped_its_making(
    call: str, can_tidy: bool
) -> None:
    files = SimulatedFiles()
    world = World(files, "/one,/two")
    manager = world.manager()
    manager.open_logs([])
    planned = manager.directories[0].id

    def create() -> Log:
        return manager.create_log("orders", 0, ORDERS_ID, world.topic_config(), directory_id=planned)

    file = "partition.metadata" if call == "pwritev" else "*.index"
    files.fail(call, f"/one/orders-0/{file}", errno.ENOSPC)
    if not can_tidy:
        files.fail("unlink", "/one/orders-0/*", errno.EIO, times=None)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        create()
    log = create()
    assert log.directory.parent == TWO
    world.append(log)
    manager.close(clean=False)
    files.heal()
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(directory_id=planned)])
    assert loaded.logs[TopicPartition("orders", 0)].log_end_offset == 3
    assert files.exists(ONE / "orders-0") is False


def test_an_unknown_directory_is_renamed_to_stray_with_all_it_holds(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    content = world.files.read_bytes(ONE / "orders-0" / "00000000000000000000.log")
    manager.open_logs([])
    manager.close()
    with caplog.at_level(logging.WARNING):
        loaded = world.manager().open_logs([])
    (stray,) = loaded.strays
    assert stray.name.startswith("orders-0.")
    assert stray.name.endswith("-stray")
    assert world.files.read_bytes(stray / "00000000000000000000.log") == content
    assert "is renamed to" in caplog.text
    assert read_offsets(world.files, ONE / "recovery-point-offset-checkpoint") == {}


def test_a_stray_stays_a_stray(world: World) -> None:
    world.manager().close()
    stray = ONE / "orders-0.9e107d9d372bb6826bd81d3542a419d6-stray"
    world.files.make_directory(stray)
    assert world.manager().open_logs([]).strays == []
    assert world.files.exists(stray)


def test_a_directory_of_another_topic_id_is_renamed_to_stray_and_a_new_one_created(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    manager.open_logs([])
    manager.close()
    loaded = world.manager().open_logs([world.wanted(topic_id=OTHER_ID)])
    assert len(loaded.strays) == 1
    assert loaded.made == [TopicPartition("orders", 0)]
    log = loaded.logs[TopicPartition("orders", 0)]
    assert (log.topic_id, log.log_end_offset, log.recovery_point) == (OTHER_ID, 0, 0)


def test_a_directory_without_a_topic_id_gets_the_catalogs(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    manager.close(clean=False)
    world.files.unlink(ONE / "orders-0" / "partition.metadata")
    loaded = world.manager().open_logs([world.wanted()])
    assert loaded.logs[TopicPartition("orders", 0)].log_end_offset == 3
    assert b"nhB9nTcrtoJr2B01QqQZ1g" in world.files.read_bytes(ONE / "orders-0" / "partition.metadata")


def test_foreign_files_and_directories_are_left_alone(world: World) -> None:
    world.manager().close()
    for name in ("lost+found", "backup", "orders-1.9e107d9d372bb6826bd81d3542a419d6-future"):
        world.files.make_directory(ONE / name)
    world.files.write_atomically(ONE / "notes-1", b"mine")
    loaded = world.manager().open_logs([])
    assert loaded.strays == []
    assert world.files.read_bytes(ONE / "notes-1") == b"mine"
    assert world.files.is_directory(ONE / "backup")


def test_the_metadata_log_is_made_in_the_first_directory_and_is_no_stray() -> None:
    world = World(log_dirs="/one,/two")
    manager = world.manager()
    manager.open_log("__cluster_metadata", 0, OTHER_ID, world.topic_config())
    assert manager.open_logs([world.wanted()]).strays == []
    assert partition_names(world.files, ONE) == ["__cluster_metadata-0"]
    assert partition_names(world.files, TWO) == ["orders-0"]
    manager.close()
    manager = world.manager()
    assert manager.open_logs([world.wanted()]).strays == []


def test_a_partition_in_two_places_is_served_where_the_catalog_says_it_is() -> None:
    files = SimulatedFiles()
    first = World(files, "/one")
    manager = first.manager("c")
    first.append(first.create(manager))
    manager.close(clean=False)
    second = World(files, "/two")
    manager = second.manager("c")
    second.append(second.create(manager), 9)
    manager.close(clean=False)
    world = World(files, "/one,/two")
    manager = world.manager()
    loaded = manager.open_logs([world.wanted()])
    assert "is in /one/orders-0 and /two/orders-0" in str(loaded.failed[TopicPartition("orders", 0)])
    assert loaded.strays == []
    manager.close(clean=False)
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(directory_id=manager.directories[1].id)])
    assert loaded.logs[TopicPartition("orders", 0)].log_end_offset == 9
    assert [stray.parent for stray in loaded.strays] == [ONE]


def test_a_partition_that_may_be_on_an_offline_disk_is_not_created_again() -> None:
    files = SimulatedFiles()
    world = World(files, "/one,/two")
    manager = world.manager()
    world.append(world.create(manager))
    one_id, two_id = (directory.id for directory in manager.directories)
    manager.close(clean=False)
    files.fail("lock", "/one/*", errno.EIO, times=None)
    manager = world.manager()
    loaded = manager.open_logs(
        [world.wanted(0, directory_id=one_id), world.wanted(1), world.wanted(2, directory_id=two_id)]
    )
    assert [one.partition for one in loaded.failed] == [0, 1]
    assert [one.partition for one in loaded.made] == [2]
    with pytest.raises(StorageError, match="may be in /one, which is offline"):
        manager.open_log("__cluster_metadata", 0, OTHER_ID, world.topic_config())


def test_a_disk_that_fails_while_loading_takes_its_directory_offline_and_no_other() -> None:
    files = SimulatedFiles()
    world = World(files, "/one,/two")
    manager = world.manager()
    world.append(world.create(manager, 0))
    world.append(world.create(manager, 1))
    manager.close(clean=False)
    files.fail("pread*", "/one/orders-0/*.log", errno.EIO, times=None)
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(0), world.wanted(1)])
    assert list(loaded.logs) == [TopicPartition("orders", 1)]
    assert list(loaded.failed) == [TopicPartition("orders", 0)]
    assert [one.state for one in manager.directories] == [DirectoryState.OFFLINE, DirectoryState.ONLINE]
    manager.close()
    assert not files.exists(ONE / ".kafka_cleanshutdown")
    assert files.exists(TWO / ".kafka_cleanshutdown")
    # What was said of the log that could not be opened still holds.
    assert b"orders 0" not in files.read_bytes(TWO / "recovery-point-offset-checkpoint")


def test_a_log_whose_owner_cannot_be_read_is_left_alone_and_its_directory_is_not_called_clean(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    manager = world.manager()
    world.append(world.create(manager, 0))
    world.append(world.create(manager, 1))
    manager.checkpoints.write_recovery_points()
    manager.close(clean=False)
    world.files.write_atomically(ONE / "orders-0" / "partition.metadata", b"version: 9")
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(0), world.wanted(1)])
    assert "/one/orders-0/partition.metadata: line 1: " in str(loaded.failed[TopicPartition("orders", 0)])
    (line,) = [line for line in caplog.messages if "orders-0 is unavailable" in line]
    assert line.endswith(
        "stop the broker and run `ottla log verify --repair /one`, which says and does what can be done"
    )
    assert loaded.strays == []
    assert manager.directories[0].state is DirectoryState.ONLINE
    manager.close()
    assert not world.files.exists(ONE / ".kafka_cleanshutdown")
    assert read_offsets(world.files, ONE / "recovery-point-offset-checkpoint")[TopicPartition("orders", 0)] == 3


def test_a_start_says_that_a_partition_which_held_records_is_created_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    manager = world.manager()
    world.append(world.create(manager, 0))
    world.create(manager, 1)
    manager.close()
    for name in ("orders-0", "orders-1"):
        remove_tree(world.files, ONE / name)
    loaded = world.manager().open_logs([world.wanted(0), world.wanted(1)])
    assert sorted(loaded.made) == [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert [line for line in caplog.messages if "gone" in line] == [
        "/one/orders-0 is gone: its log had reached offset 3, and is created again, empty"
    ]


def test_a_start_says_once_that_nobody_knows_any_more_what_was_deleted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    manager = world.manager()
    manager.open_logs([])
    log = world.create(manager)
    world.append(log, 3)
    log.delete_records(2)
    manager.close()
    world.files.unlink(ONE / "log-start-offset-checkpoint")
    manager = world.manager()
    opened = manager.open_logs([world.wanted()]).logs[TopicPartition("orders", 0)]
    assert opened.log_start_offset == 0
    manager.close()
    (line,) = [line for line in caplog.messages if "log-start-offset-checkpoint" in line]
    assert "/one/log-start-offset-checkpoint is not there any more: records that DeleteRecords had deleted" in line
    caplog.clear()
    world.manager().open_logs([world.wanted()])
    assert caplog.messages == []


def test_a_start_says_that_the_first_segment_of_a_log_is_gone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    manager = world.manager()
    manager.open_logs([])
    log = world.create(manager)
    log.start_leader_epoch(0)
    world.append(log, 3)
    log.roll(world.clock.wall_ms())
    world.append(log, 3)
    manager.close()
    for suffix in (".log", ".index", ".timeindex"):
        world.files.unlink((ONE / "orders-0" / f"{0:020}").with_suffix(suffix))
    for expected in (1, 0):  # said once
        caplog.clear()
        manager = world.manager()
        opened = manager.open_logs([world.wanted()]).logs[TopicPartition("orders", 0)]
        assert (opened.log_start_offset, opened.log_end_offset) == (3, 6)
        assert len([line for line in caplog.messages if "the log began at offset 0" in line]) == expected
        manager.close()


# -- deleting


def test_a_deleted_log_waits_for_its_delay_and_goes(world: World) -> None:
    manager = world.manager()
    log = manager.create_log("orders", 0, ORDERS_ID, world.topic_config({"file.delete.delay.ms": "1000"}))
    world.append(log)
    manager.delete_log("orders", 0)()
    assert manager.get("orders", 0) is None
    (name,) = partition_names(world.files, ONE)
    assert name.startswith("orders-0.")
    assert name.endswith("-delete")
    due = manager.next_unlink_ms()
    assert due == world.clock.monotonic_ms() + 1000
    assert manager.unlink_due(due - 1) == 0
    assert manager.unlink_due(due) == 1
    assert partition_names(world.files, ONE) == []
    assert manager.next_unlink_ms() is None


def deleted_with_rows(world: World) -> LogManager:
    """A log that was deleted since the checkpoints were written; its `-delete` directory is there."""
    manager = world.manager()
    manager.open_logs([])
    world.append(world.create(manager))
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks()
    manager.delete_log("orders", 0)()
    return manager


def test_the_directory_of_a_deleted_log_goes_after_its_rows(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = deleted_with_rows(world)
    world.files.fail("open", "/one/replication-offset-checkpoint.tmp", errno.ENOSPC)
    due = manager.next_unlink_ms()
    assert due is not None
    assert manager.unlink_due(due) == 0
    (name,) = partition_names(world.files, ONE)
    assert world.files.list_directory(ONE / name) == []
    manager.close(clean=False)
    later = World(world.files.kill())
    later.manager()
    assert partition_names(later.files, ONE) == []
    assert not any("orders" in name for name in rows_on_disk(later))


def test_rows_of_a_new_log_stay_when_the_directory_of_its_namesake_goes(world: World) -> None:
    manager = deleted_with_rows(world)
    log = world.create(manager, topic_id=OTHER_ID)
    world.append(log, 3)
    log.delete_records(2)
    manager.checkpoints.write_log_start_offsets()
    due = manager.next_unlink_ms()
    assert due is not None
    assert manager.unlink_due(due) == 1
    assert read_offsets(world.files, ONE / "log-start-offset-checkpoint") == {TopicPartition("orders", 0): 2}


@pytest.mark.parametrize("topic", ["orders", "o" * 249])
def test_a_start_without_room_remembers_that_rows_are_of_a_deleted_log(
    topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The name of the `-delete` directory has a part of a long topic's name only."""
    files = SimulatedFiles()
    world = World(files)
    manager = world.manager()
    manager.open_logs([])
    world.append(manager.create_log(topic, 0, ORDERS_ID, world.topic_config()))
    manager.checkpoints.write_high_watermarks()
    manager.delete_log(topic, 0)()
    wanted = WantedLog(topic, 0, OTHER_ID, world.topic_config())
    for has_room in (False, True):
        files = files.kill()
        if not has_room:
            files.fail("pwritev", "/one/*checkpoint.tmp", errno.ENOSPC, times=None)
        world = World(files)
        loaded = world.manager().open_logs([wanted])
        assert list(loaded.logs) == ([wanted.topic_partition] if has_room else [])
        assert [line for line in caplog.messages if "is gone" in line] == []
    assert loaded.logs[wanted.topic_partition].log_end_offset == 0


def rows_on_disk(world: World) -> set[str]:
    names = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
    return {str(one) for name in names for one in read_offsets(world.files, ONE / name)}


def test_a_deletion_does_not_come_back_after_a_crash(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    manager.delete_log("orders", 0)()
    assert isinstance(world.files, SimulatedFiles)
    assert not any(path.startswith("/one/orders-0/") for path in world.files.synced_state())


def test_leftovers_of_deletions_are_removed_at_the_start(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    manager.delete_log("orders", 0)()
    manager.close()
    manager = world.manager()
    assert partition_names(world.files, ONE) == []
    assert manager.open_logs([]).strays == []


def test_a_log_that_is_not_open_is_deleted_in_silence(world: World) -> None:
    world.manager().delete_log("orders", 0)
