"""What the checkpoints of a directory say of its logs, and for how long."""

from __future__ import annotations

import errno
import gc
import random
import weakref
from pathlib import Path

import pytest
from kit.barging import Barged
from kit.log_dirs import ONE, ORDERS_ID, OTHER_ID, World
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.storage.directories import index_syncs
from ottla.storage.directories.load_progress import KEPT_EVERY_MS, LoadInterrupted
from ottla.storage.directories.manager import LogManager
from ottla.storage.formats.checkpoint import read_offsets
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.log.log import Log
from ottla.storage.segment.segment import Segment


def test_checkpoints_say_what_the_logs_say(world: World) -> None:
    manager = world.manager()
    manager.open_logs([])
    log = world.create(manager)
    world.append(log, 3)
    world.append(log, 4, sync=False)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_log_start_offsets()
    manager.checkpoints.write_high_watermarks()
    one = TopicPartition("orders", 0)
    assert read_offsets(world.files, ONE / "recovery-point-offset-checkpoint") == {one: 3}
    assert read_offsets(world.files, ONE / "replication-offset-checkpoint") == {one: 3}
    assert not read_offsets(world.files, ONE / "log-start-offset-checkpoint")
    log.delete_records(2)
    assert manager.checkpoints.write_log_start_offsets_of([TopicPartition("orders", 0)]) == set()
    assert isinstance(world.files, SimulatedFiles)
    assert world.files.synced_state()["/one/log-start-offset-checkpoint"] == b"0\n1\norders 0 2\n"


def test_checkpoints_are_written_while_another_thread_creates_topics(world: World) -> None:
    """The broker's collector has a callback, in which a worker that makes objects may give the thread away."""
    manager = world.manager()
    manager.open_logs([])
    world.append(world.create(manager), 3)
    created: list[Log] = []

    def create(phase: str, _: object) -> None:
        if phase == "start" and len(created) < 200:
            created.append(world.create(manager, 1 + len(created)))

    before = gc.get_threshold()
    gc.callbacks.append(create)
    gc.set_threshold(1)
    try:
        manager.checkpoints.sync_indexes()
        manager.checkpoints.write_recovery_points()
        assert manager.checkpoints.write_log_start_offsets_of([TopicPartition("orders", 0)]) == set()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(create)
    assert created
    assert read_offsets(world.files, ONE / "recovery-point-offset-checkpoint")[TopicPartition("orders", 0)] == 3


def test_what_one_start_recovered_is_not_recovered_again_by_the_next(world: World) -> None:
    """A broker that is killed again before its chores came: of 10,000 segments that took 38 s each time."""
    manager = world.manager()
    log = world.create(manager)
    for _ in range(4):
        world.append(log, sync=False)
        log.roll(world.clock.wall_ms())
    assert isinstance(world.files, SimulatedFiles)
    world.files = world.files.successor()
    recovered = world.manager().open_logs([world.wanted()]).logs[TopicPartition("orders", 0)]
    assert (recovered.recovery.scanned_segments, recovered.log_end_offset) == (5, 12)
    for seed in range(20):  # what the checkpoint says is on disk, or the crash would show it
        later = World(world.files.crash(random.Random(seed)))
        again = later.manager().open_logs([later.wanted()]).logs[TopicPartition("orders", 0)]
        assert again.log_end_offset == 12
        assert again.recovery.scanned_segments <= 2  # the one that holds the recovery point, and the empty one behind
        assert all(again.read(offset, 1, end_offset=12).read_blocking() for offset in (0, 3, 6, 9))


def crashed_with(partitions: int) -> World:
    """Logs of two segments each that a dead process left, with nothing in the checkpoint of recovery points."""
    world = World()
    manager = world.manager()
    for partition in range(partitions):
        log = world.create(manager, partition)
        for _ in range(2):
            world.append(log)
            log.roll(world.clock.wall_ms())
    assert isinstance(world.files, SimulatedFiles)
    world.files = world.files.successor()
    return world


def scanned_by_the_next_start(world: World, partitions: int) -> list[int]:
    """How many segments a start looks at, by partition, whatever a power cut leaves."""
    assert isinstance(world.files, SimulatedFiles)
    most = [0] * partitions
    for seed in range(10):
        later = World(world.files.crash(random.Random(seed)))
        loaded = later.manager().open_logs(list(map(later.wanted, range(partitions))))
        for (_, partition), log in loaded.logs.items():
            assert log.log_end_offset == 6
            assert all(log.read(offset, 1, end_offset=6).read_blocking() for offset in (0, 3))
            most[partition] = max(most[partition], log.recovery.scanned_segments)
    return most


def test_a_recovery_that_is_ended_is_gone_on_with_by_the_next_start() -> None:
    world = crashed_with(3)
    manager = world.manager()

    def stop_before_the_second(call: str, path: Path) -> bool:
        if "orders-1" in str(path):
            manager.loading.stop()
        return False

    assert isinstance(world.files, SimulatedFiles)
    world.files.crash_when = stop_before_the_second
    with pytest.raises(LoadInterrupted):
        manager.open_logs(list(map(world.wanted, range(3))))
    assert scanned_by_the_next_start(world, 3) == [2, 3, 3]


@pytest.mark.parametrize(("step_ms", "scanned"), [(KEPT_EVERY_MS, [2, 3, 3]), (1, [3, 3, 3])])
def test_a_start_that_dies_in_a_long_recovery_has_written_what_it_recovered(step_ms: int, scanned: list[int]) -> None:
    world = crashed_with(3)
    manager = world.manager()
    assert isinstance(world.files, SimulatedFiles)

    def dies_in_the_second(call: str, path: Path) -> bool:
        if path.parent.name == "orders-0" and call == "fdatasync":
            world.clock.advance(step_ms)
        return "orders-1" in str(path)

    world.files.crash_when = dies_in_the_second
    with pytest.raises(CrashPoint):
        manager.open_logs(list(map(world.wanted, range(3))))
    assert scanned_by_the_next_start(world, 3) == scanned


def test_rows_of_logs_that_are_not_loaded_are_kept(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager, 0))
    world.append(world.create(manager, 1))
    manager.checkpoints.write_recovery_points()
    manager.close(clean=False)
    manager = world.manager()
    manager.open_log("orders", 0, ORDERS_ID, world.topic_config())
    manager.checkpoints.write_recovery_points()
    assert read_offsets(world.files, ONE / "recovery-point-offset-checkpoint") == {
        TopicPartition("orders", 0): 3,
        TopicPartition("orders", 1): 3,
    }


def test_what_is_vouched_for_can_be_lowered(world: World) -> None:
    """With an old, larger recovery point a crash would let what was appended behind it pass unchecked."""
    manager = world.manager()
    manager.open_logs([])
    log = world.create(manager)
    for _ in range(4):
        world.append(log)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_clean_offset(log, 9)
    manager.directories[0].checkpoints.lower(TopicPartition("orders", 0), 6)
    for name in ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
        assert read_offsets(world.files, ONE / name) == {TopicPartition("orders", 0): 6}
    assert manager.checkpoints.clean_offset_of("orders", 0) == 6


def test_where_a_log_is_clean_is_remembered_as_long_as_it_lives(world: World) -> None:
    manager = world.manager()
    manager.open_logs([])
    logs = [world.create(manager, partition) for partition in range(2)]
    for log in logs:
        world.append(log)
    assert manager.checkpoints.clean_offset_of("orders", 0) is None
    manager.checkpoints.write_clean_offset(logs[0], 2)
    manager.checkpoints.write_clean_offset(logs[1], 3)
    manager.close()
    manager = world.manager()
    manager.open_logs([world.wanted(0), world.wanted(1)])
    assert manager.checkpoints.clean_offset_of("orders", 0) == 2
    logs = [manager.logs[TopicPartition("orders", partition)] for partition in range(2)]
    manager.delete_log("orders", 1)()
    manager.checkpoints.write_clean_offset(logs[1], 3)
    manager.checkpoints.write_clean_offset(logs[0], 3)
    assert read_offsets(world.files, ONE / "cleaner-offset-checkpoint") == {TopicPartition("orders", 0): 3}
    assert manager.checkpoints.clean_offset_of("orders", 1) is None


@pytest.mark.parametrize("cleaned", [0, 1], ids=["another log", "its former life"])
def test_a_clean_offset_that_is_written_while_a_topic_is_created_again_leaves_the_new_one_unclean(
    world: World, cleaned: int
) -> None:
    manager = world.manager()
    manager.open_logs([])
    logs = [world.create(manager, partition) for partition in range(2)]
    for log in logs:
        world.append(log)
    manager.checkpoints.write_clean_offset(logs[1], 3)

    def create_again() -> None:
        manager.delete_log("orders", 1)()
        world.create(manager, 1, OTHER_ID)

    checkpoints = manager.directories[0].checkpoints
    checkpoints.guard = barged = Barged(checkpoints.guard, create_again)
    manager.checkpoints.write_clean_offset(logs[cleaned], 2)
    assert barged.has_happened
    rows = read_offsets(world.files, ONE / "cleaner-offset-checkpoint")
    assert rows == ({} if cleaned else {TopicPartition("orders", 0): 2})


def with_due_indexes(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[LogManager, Log]:
    """A log whose index files are to be synced next."""
    monkeypatch.setattr(index_syncs, "BEHIND_BYTES", 1)
    manager = world.manager()
    manager.open_logs([])
    log = world.create(manager)
    world.append(log)
    return manager, log


def test_index_files_that_were_synced_while_their_topic_was_created_again_are_not_the_new_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, log = with_due_indexes(world, monkeypatch)
    sync = log.segment_list.active.sync_written_indexes

    def sync_and_create_again(_: Segment) -> int:
        offset = sync()
        manager.delete_log("orders", 0)()
        world.create(manager, topic_id=OTHER_ID)
        return offset

    monkeypatch.setattr(Segment, "sync_written_indexes", sync_and_create_again)
    manager.checkpoints.sync_indexes()
    assert read_offsets(world.files, ONE / "ottla-index-offset-checkpoint") == {}


def test_a_log_that_was_deleted_while_its_index_files_were_synced_is_not_kept_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, log = with_due_indexes(world, monkeypatch)
    sync = Segment.sync_written_indexes

    def delete_and_sync(segment: Segment) -> int:
        monkeypatch.setattr(Segment, "sync_written_indexes", sync)
        offset = sync(segment)
        manager.delete_log("orders", 0)()
        return offset

    monkeypatch.setattr(Segment, "sync_written_indexes", delete_and_sync)
    manager.checkpoints.sync_indexes()
    known = weakref.ref(log)
    del log
    manager.checkpoints.sync_indexes()
    gc.collect()
    assert known() is None, "topics come and go for months"


def test_an_index_that_cannot_be_synced_takes_the_directory_offline_though_its_segment_was_rolled_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second sync, by the next ticket, would report no error: the index would be trusted for good."""
    manager, log = with_due_indexes(world, monkeypatch)

    def roll_and_fail(_: Segment) -> int:
        log.roll(world.clock.wall_ms())
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Segment, "sync_written_indexes", roll_and_fail)
    manager.checkpoints.sync_indexes()
    assert manager.directories[0].is_offline


def test_index_files_that_no_descriptor_is_left_for_are_synced_another_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _ = with_due_indexes(world, monkeypatch)
    assert isinstance(world.files, SimulatedFiles)
    lacking = world.files.fail("fdatasync", "*.index", errno.EMFILE, times=None)
    manager.checkpoints.sync_indexes()
    assert manager.directories[0].is_online
    assert read_offsets(world.files, ONE / "ottla-index-offset-checkpoint") == {}
    world.files.heal(lacking)
    manager.checkpoints.sync_indexes()
    assert read_offsets(world.files, ONE / "ottla-index-offset-checkpoint") == {TopicPartition("orders", 0): 0}


def test_an_unchanged_checkpoint_is_not_written_again(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    manager.checkpoints.write_recovery_points()
    assert isinstance(world.files, SimulatedFiles)
    calls = world.files.calls
    manager.checkpoints.write_recovery_points()
    assert world.files.calls == calls


def test_deleted_records_stay_deleted_after_a_crash(world: World) -> None:
    manager = world.manager()
    log = world.create(manager)
    world.append(log, 10)
    log.delete_records(4)
    assert manager.checkpoints.write_log_start_offsets_of([TopicPartition("orders", 0)]) == set()
    assert isinstance(world.files, SimulatedFiles)
    world.files = world.files.crash(random.Random(3))
    loaded = world.manager().open_logs([world.wanted()])
    assert loaded.logs[TopicPartition("orders", 0)].log_start_offset == 4


def test_a_new_topic_of_an_old_name_does_not_inherit_its_recovery_point(world: World) -> None:
    manager = world.manager()
    manager.open_logs([])
    world.append(world.create(manager), 100)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks()
    manager.delete_log("orders", 0)()
    log = world.create(manager, topic_id=OTHER_ID)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert read_offsets(world.files, ONE / name) == {}
    assert log.recovery_point == 0


def test_a_failing_checkpoint_takes_the_directory_offline(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    world.append(world.create(manager))
    world.files.fail("rename", "*/recovery-point*", errno.EIO)
    manager.checkpoints.write_recovery_points()
    assert manager.directories[0].is_offline
    assert "cannot write /one/recovery-point-offset-checkpoint" in caplog.text
