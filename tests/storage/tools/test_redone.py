"""What logs lack of the redo log after a power cut is no damage to `verify`, and written first by `--repair`."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.cleaning import clean
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.flip_specimen import on_disk
from kit.left_behind import flip
from kit.log_dirs import ONE
from kit.logs import NOW_MS, append, stored, sync
from kit.logs import batch as keyed_batch
from kit.nodes import DATA, partition_of, start_node
from kit.redo_logs import FIRST, RedoWorld
from kit.simulated_files import SimulatedFiles

from ottla.broker.metadata.rebuild import MetadataRebuild
from ottla.storage.formats.checkpoint import write_offsets
from ottla.storage.formats.layout import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REDO_LOG_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
    TopicPartition,
)
from ottla.storage.log.log import Log
from ottla.storage.tools.redone import Redone
from ottla.storage.tools.repair import Repair
from ottla.storage.tools.verify import Finding, Severity, Verification

REDO_LOG = DATA / REDO_LOG_FILE
PARTITIONS = 3
RECORDS = 4


def after_power_cut(*, keeps_written: bool = False) -> SimulatedFiles:
    """Partitions with four records each, three of which only the redo log has; `keeps_written`: the logs as well."""
    node, files, _ = start_node(SimulatedFiles(), None)
    make_topic(node, "orders", PARTITIONS)
    for _ in range(RECORDS):
        clients = [Exchange(node) for _ in range(PARTITIONS)]
        for partition, client in enumerate(clients):
            client.send(produce_request("orders", batch(), partition=partition), 9)
        node.settle()
        assert [len(client.replies()) for client in clients] == [1] * PARTITIONS
    checkpoints = node.services.log_manager.checkpoints
    checkpoints.write_recovery_points()
    checkpoints.write_high_watermarks()
    return on_disk(files.written_state() if keeps_written else files.synced_state())


def log_of(partition: int) -> Path:
    return DATA / f"orders-{partition}" / FIRST


def findings(files: SimulatedFiles, only: TopicPartition | None = None, directory: Path = DATA) -> list[Finding]:
    return list(Verification(files, directory, only).run())


def repair(files: SimulatedFiles, only: TopicPartition | None = None) -> list[tuple[Path, str]]:
    later_ms = NOW_MS + 1_000_000
    return list(Repair(files, DATA, later_ms, only, MetadataRebuild(files, DATA, later_ms), lambda _: True).run())


def served(files: SimulatedFiles) -> list[int]:
    """How many records a broker serves of each partition."""
    node, _, _ = start_node(files)
    counts = [len(stored(partition_of(node, "orders", partition).log)) for partition in range(PARTITIONS)]
    node.stop()
    return counts


def test_without_the_redo_log_the_logs_would_be_damaged() -> None:
    files = after_power_cut()
    files.unlink(REDO_LOG)
    assert [one.path.name for one in findings(files) if one.severity is Severity.DAMAGE] == (
        [REPLICATION_OFFSET_CHECKPOINT_FILE] * PARTITIONS
    )


def test_what_the_next_start_writes_is_no_damage_and_said_in_one_line() -> None:
    files = after_power_cut()
    before = files.written_state()
    [found] = findings(files)
    assert (found.severity, found.path) == (Severity.UNSURE, REDO_LOG)
    assert found.problem.startswith(
        "3 partitions lack bytes that this file has (630 bytes): the next start writes them"
    )
    assert files.written_state() == before
    assert served(files) == [RECORDS] * PARTITIONS


def test_of_one_partition_only_its_own_bytes_are_counted() -> None:
    [found] = findings(after_power_cut(), TopicPartition("orders", 1))
    assert found.problem.startswith("1 partition lacks bytes that this file has (210 bytes)")


@pytest.mark.parametrize("size_bytes", range(0, 210, 7))
def test_a_torn_end_that_the_next_start_writes_again_is_no_damage(size_bytes: int) -> None:
    files = after_power_cut()
    for partition in range(PARTITIONS):
        file = files.open(log_of(partition), writable=True)
        file.pwritev([b"\xff" * size_bytes], file.size())
        file.fdatasync()
        file.close()
    [found] = findings(files)
    assert found.severity is Severity.UNSURE
    assert repair(files)
    assert findings(files) == []
    assert served(files) == [RECORDS] * PARTITIONS


def test_after_a_kill_the_logs_lack_nothing_and_nothing_is_said() -> None:
    files = after_power_cut(keeps_written=True)
    assert findings(files) == []
    assert repair(files) == []
    assert Redone(files, DATA).lacking == {}


def test_after_a_clean_stop_a_redo_log_counts_for_nothing() -> None:
    files = after_power_cut(keeps_written=True)
    redo_log = files.read_bytes(REDO_LOG)
    node, _, _ = start_node(files)
    node.stop()
    assert findings(files) == []
    files.write_atomically(REDO_LOG, redo_log)
    for partition in range(PARTITIONS):  # as if Kafka had written other records since
        files.write_atomically(log_of(partition), files.read_bytes(log_of(partition))[:70])
    notes = [one for one in findings(files) if one.severity is Severity.NOTE]
    assert [(one.path, one.problem) for one in notes] == [
        (REDO_LOG, "left over, since the last stop was clean: the next start removes it")
    ]
    assert not Redone(files, DATA).lacking


def test_a_repair_writes_what_the_logs_lack_before_all_else_and_a_second_one_finds_nothing() -> None:
    files = after_power_cut()
    plan = Repair(files, DATA, NOW_MS)
    for _ in plan.look():
        pass
    assert [(mend.path, mend.plan) for mend in plan.plan()] == [
        (REDO_LOG, "what 3 logs lack of it is written there, as the next start does")
    ]
    assert repair(files) == [(REDO_LOG, "3 segments lacked what it has, which is written there")]
    assert findings(files) == []
    assert repair(files) == []
    assert served(files) == [RECORDS] * PARTITIONS


def test_a_repair_of_one_partition_leaves_the_others_to_the_start() -> None:
    files = after_power_cut()
    assert repair(files, TopicPartition("orders", 1)) == [
        (REDO_LOG, "1 segment lacked what it has, which is written there")
    ]
    [found] = findings(files)
    assert found.problem.startswith("2 partitions lack")
    assert served(files) == [RECORDS] * PARTITIONS


def bad_identity(files: SimulatedFiles) -> None:
    files.write_atomically(DATA / "orders-1" / "partition.metadata", b"version: 0\ntopic_id: ?")


def blank_identity(files: SimulatedFiles) -> None:
    files.write_atomically(DATA / "orders-1" / "partition.metadata", b"")


def bad_recovery_points(files: SimulatedFiles) -> None:
    files.write_atomically(DATA / RECOVERY_POINT_CHECKPOINT_FILE, b"0\n9\nx")


def bad_index(files: SimulatedFiles) -> None:
    files.write_atomically((DATA / "orders-1" / FIRST).with_suffix(".index"), b"\1" * 16)


def bad_epochs(files: SimulatedFiles) -> None:
    files.write_atomically(DATA / "orders-1" / "leader-epoch-checkpoint", b"0\n1\n7 0\n")


@pytest.mark.parametrize("damage", [bad_identity, blank_identity, bad_recovery_points, bad_index, bad_epochs])
def test_other_damage_is_mended_and_no_record_is_lost_with_it(damage: Callable[[SimulatedFiles], None]) -> None:
    files = after_power_cut()
    damage(files)
    assert repair(files)[0][0] == REDO_LOG
    assert [one for one in findings(files) if one.severity is not Severity.NOTE] == []
    assert served(files) == [RECORDS] * PARTITIONS


def test_damage_in_a_log_before_what_it_lacks_is_found() -> None:
    files = after_power_cut()
    flip(files, log_of(1), 60)
    found = [(one.severity, one.path) for one in findings(files)]
    assert (Severity.DAMAGE, log_of(1)) in found
    assert (Severity.UNSURE, REDO_LOG) in found


def test_a_redo_log_with_a_flipped_bit_leaves_the_logs_damaged_that_only_it_could_complete() -> None:
    files = after_power_cut()
    flip(files, REDO_LOG, 30)
    assert [one.path.name for one in findings(files) if one.severity is Severity.DAMAGE] == (
        [REPLICATION_OFFSET_CHECKPOINT_FILE] * PARTITIONS
    )


def with_stale_entries(recovery_points: bytes | None) -> tuple[RedoWorld, dict[int, bytes | None]]:
    """A log whose first segment was cleaned, and whose last records only the redo log has after a power cut, and these
    recovery points (None: no file); with the values that the log must have, by offset.
    """
    world = RedoWorld(1, log_cleanup_policy="compact")
    [log] = world.logs
    for _ in range(3):
        append_keyed(log)
        world.round(world.logs)
    log.roll(world.clock.wall_ms())
    sync(log)
    clean(log)
    append_keyed(log)
    sync(log)
    for _ in range(2):
        append_keyed(log)
        world.round(world.logs)
    assert len({entry.base_offset for entry in world.entries}) == 2
    whole = stored(log)
    world.files = on_disk(world.files.synced_state())
    assert world.files.size(log.segments[-1].path) < log.segments[-1].size_bytes
    path = ONE / RECOVERY_POINT_CHECKPOINT_FILE
    if recovery_points is not None:
        world.files.write_atomically(path, recovery_points)
    return world, whole


def append_keyed(log: Log) -> None:
    append(log, keyed_batch(str(log.log_end_offset).encode(), key=b"key"))


def test_stale_entries_of_a_cleaned_segment_do_not_stop_a_repair_that_has_no_recovery_points() -> None:
    world, whole = with_stale_entries(b"garbage")
    write_offsets(world.files, ONE / CLEANER_OFFSET_CHECKPOINT_FILE, {TopicPartition("orders", 0): 1})
    for _ in Repair(world.files, ONE, NOW_MS).run():
        pass
    assert findings(world.files, directory=ONE) == []
    world.open([0])
    assert stored(world.logs[0]) == whole


@pytest.mark.parametrize("recovery_points", [None, b"0\n0\n"])
def test_stale_entries_of_a_cleaned_segment_do_not_stop_a_start_that_has_no_recovery_points(
    recovery_points: bytes | None,
) -> None:
    world, whole = with_stale_entries(recovery_points)
    world.open([0])
    assert stored(world.logs[0]) == whole


# -- the view


def test_through_it_a_log_is_what_a_start_would_make_of_it() -> None:
    files = after_power_cut()
    whole = after_power_cut(keeps_written=True)
    redone = Redone(files, DATA)
    for partition in range(PARTITIONS):
        path = log_of(partition)
        content = whole.read_bytes(path)
        assert (redone.read_bytes(path), redone.size(path)) == (content, len(content))
        file = redone.open(path)
        for position in range(0, len(content) + 20, 13):
            for length in (0, 1, 50, 1000):
                assert file.pread(length, position) == content[position : position + length]
        assert bytes(file.map(100)) == content[:100]
        assert file.size() == len(content)
        assert (file.pread_nowait(1, 0), file.resident_view(0, 1)) == (None, None)
        file.close()


@given(st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=30)), max_size=6), st.data())
def test_what_is_written_in_memory_is_read_over_what_the_file_has(
    written: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    files = SimulatedFiles()
    path = Path("/file")
    files.write_atomically(path, bytes(range(40)))
    redone = Redone(files, Path("/"))
    expected = bytearray(range(40))
    file = redone.open(path, writable=True)
    for start, piece in written:
        position = min(start, len(expected))
        assert file.pwritev([piece[:1], piece[1:]], position) == len(piece)
        expected[position : position + len(piece)] = piece
    position, length = data.draw(st.integers(0, 100)), data.draw(st.integers(0, 100))
    assert redone.open(path).pread(length, position) == expected[position : position + length]
    assert redone.read_bytes(path) == expected
    assert files.read_bytes(path) == bytes(range(40))


def test_it_changes_nothing() -> None:
    files = after_power_cut()
    before = files.written_state()
    redone = Redone(files, DATA)
    path, new = log_of(0), DATA / "new"
    changes: list[Callable[[], object]] = [
        lambda: redone.open(new, create=True),
        lambda: redone.open(path).truncate(0),
        lambda: redone.open(path).fdatasync(),
        lambda: redone.write_atomically(new, b""),
        lambda: redone.rename(path, new),
        lambda: redone.unlink(path),
        lambda: redone.make_directory(new),
        lambda: redone.remove_directory(DATA / "orders-0"),
        lambda: redone.set_modified_ms(path, 1),
        lambda: redone.sync_directory(DATA),
        lambda: redone.lock(new),
    ]
    for change in changes:
        with pytest.raises(OSError, match="Read-only") as caught:
            change()
        assert caught.value.errno == errno.EROFS
    assert files.written_state() == before
    assert not files.exists(DATA / CLEAN_SHUTDOWN_FILE)
