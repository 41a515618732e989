"""What a start writes from a redo log into the logs: all that was promised, nothing else, as often as it is tried."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.log_dirs import ONE, ORDERS_ID, OTHER_ID
from kit.logs import sync
from kit.redo_logs import FIRST, REDO_LOG, RedoWorld, entry_of, redo_log_with
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.protocol.records.batch import LENGTH_PREFIX_BYTES, encode_batch, place_batch
from ottla.protocol.records.record import Record
from ottla.storage.formats.checkpoint import write_offsets
from ottla.storage.formats.layout import RECOVERY_POINT_CHECKPOINT_FILE, TopicPartition, log_file
from ottla.storage.formats.partition_metadata import write_partition_metadata
from ottla.storage.formats.redo_format import RedoEntry
from ottla.storage.recovery import redo as redo_module
from ottla.storage.recovery.redo import RedoContents, read_redo_log, redo

ORDERS_0 = ONE / "orders-0"
LOG = ORDERS_0 / FIRST


class Directory:
    """A log directory with partitions of one segment each, which are `synced` long, and a redo log with the rest."""

    def __init__(self, count: int = 2) -> None:
        self.files = SimulatedFiles()
        self.recovery_points: dict[TopicPartition, int] = {}
        self.batches = [placed(offset) for offset in range(4)]
        for partition in range(count):
            place = ONE / f"orders-{partition}"
            self.files.make_directory(place, parents=True)
            write_partition_metadata(self.files, place, ORDERS_ID)
            self.write(place / FIRST, self.batches[0])
        self.whole = b"".join(self.batches)

    def write(self, path: Path, content: bytes) -> None:
        """Have this content in a file, on disk."""
        file = self.files.open(path, create=True)
        file.truncate(0)
        if content:
            file.pwritev([content], 0)
        file.fdatasync()
        file.close()
        self.files.sync_directory(path.parent)

    def write_redo_log(self, *records: list[RedoEntry]) -> None:
        self.write(REDO_LOG, redo_log_with(*records))

    def entry(self, first: int, last: int, **fields: object) -> RedoEntry:
        """The batches from one offset to another as an entry of partition 0, unless `fields` say otherwise."""
        position = sum(map(len, self.batches[:first]))
        data = b"".join(self.batches[first : last + 1])
        values: dict[str, object] = {"position": position, "end_offset": last + 1, **fields}
        return entry_of(data, **values)  # type: ignore[arg-type]  # fields by name

    def redo(self) -> int:
        return redo(self.files, ONE, lambda one: self.recovery_points.get(one, 0))

    def content(self, path: Path = LOG) -> bytes:
        return self.files.read_bytes(path)

    def require_left_out(self, content: bytes | None = None, path: Path = LOG) -> None:
        """Nothing is written to a log."""
        before = self.content(path) if content is None else content
        assert self.redo() == 0
        assert self.content(path) == before


def placed(offset: int, value: bytes = b"v") -> bytes:
    """A batch of one record as it is stored."""
    data = encode_batch([Record(0, 1_700_000_000_000, b"k", value, ())])
    place_batch(data, 0, offset, len(data) - LENGTH_PREFIX_BYTES, 0)
    return bytes(data)


@pytest.fixture
def directory() -> Directory:
    return Directory()


# -- what is written


def test_what_a_log_lacks_is_written(directory: Directory) -> None:
    directory.write_redo_log([directory.entry(1, 3)])
    assert directory.redo() == 1
    assert directory.content() == directory.whole


def test_entries_of_several_records_and_logs_are_written_in_their_order(directory: Directory) -> None:
    directory.write_redo_log(
        [directory.entry(1, 1), directory.entry(1, 2, partition=1)],
        [directory.entry(3, 3, partition=1), directory.entry(2, 3)],
    )
    assert directory.redo() == 2
    assert [directory.content(ONE / f"orders-{partition}" / FIRST) for partition in range(2)] == [directory.whole] * 2


def torn_ways(whole: bytes, kept: int) -> list[bytes]:
    """What a power cut may leave of a file of which `kept` bytes were synced."""
    ways = [whole[:size] for size in range(kept, len(whole))]
    ways += [whole[:size] + bytes(len(whole) - size) for size in range(kept, len(whole))]
    ways += [whole[:kept] + bytes(size - kept) + whole[size:] for size in range(kept, len(whole))]
    return ways


def test_whatever_a_power_cut_leaves_of_the_end_the_bytes_are_as_they_were_written(directory: Directory) -> None:
    directory.write_redo_log([directory.entry(1, 1)], [directory.entry(2, 3)])
    for content in torn_ways(directory.whole, len(directory.batches[0])):
        directory.write(LOG, content)
        assert directory.redo() == (content != directory.whole)
        assert directory.content() == directory.whole


def test_what_a_log_has_is_not_written_again(directory: Directory) -> None:
    directory.write(LOG, directory.whole)
    directory.write_redo_log([directory.entry(1, 1)], [directory.entry(2, 3)])
    directory.files.history.clear()
    assert directory.redo() == 0
    assert not [path for call, path in directory.files.history if call in ("pwritev", "truncate")]


def test_what_a_log_has_behind_the_last_entry_stays(directory: Directory) -> None:
    directory.write(LOG, directory.batches[0] + bytes(len(directory.batches[1])) + b"".join(directory.batches[2:]))
    directory.write_redo_log([directory.entry(1, 1)])
    assert directory.redo() == 1
    assert directory.content() == directory.whole


def test_a_longer_batch_of_somebody_else_stays(directory: Directory) -> None:
    """The bytes of the entry would take its beginning, and leave the rest to be cut off."""
    directory.write_redo_log([directory.entry(1, 1)])
    directory.write(LOG, directory.batches[0] + placed(1, b"a longer value of somebody else"))
    directory.require_left_out()


def test_between_two_entries_may_be_what_the_log_has_synced_itself(directory: Directory) -> None:
    directory.write(LOG, b"".join(directory.batches[:3]))
    directory.write_redo_log([directory.entry(1, 1)], [directory.entry(3, 3)])
    assert directory.redo() == 1
    assert directory.content() == directory.whole


def test_an_entry_that_begins_where_an_earlier_one_did_has_its_bytes_and_more(directory: Directory) -> None:
    """A round whose sync did not begin is in the next one again."""
    directory.write_redo_log([directory.entry(1, 1)], [directory.entry(1, 3)])
    assert directory.redo() == 1
    assert directory.content() == directory.whole


def test_a_second_replay_finds_nothing_to_write(directory: Directory) -> None:
    directory.write_redo_log([directory.entry(1, 3)])
    assert [directory.redo() for _ in range(3)] == [1, 0, 0]
    assert directory.content() == directory.whole


def test_it_syncs_nothing(directory: Directory) -> None:
    """The recovery of the logs does, which follows."""
    directory.write_redo_log([directory.entry(1, 3)])
    directory.files.history.clear()
    directory.redo()
    assert not [call for call, _ in directory.files.history if "sync" in call]


def test_without_a_redo_log_there_is_nothing_to_do(directory: Directory) -> None:
    assert directory.redo() == 0
    assert read_redo_log(directory.files, ONE) == RedoContents()


def test_what_is_torn_of_the_redo_log_is_not_written(directory: Directory) -> None:
    data = redo_log_with([directory.entry(1, 1)], [directory.entry(2, 3)])
    for size in range(len(data)):
        directory.write(LOG, directory.batches[0])
        directory.write(REDO_LOG, data[:size])
        directory.redo()
        has_first = size >= len(redo_log_with([directory.entry(1, 1)]))
        assert directory.content() == b"".join(directory.batches[: 1 + has_first])


# -- what is left out


def test_a_topic_that_was_deleted_is_not_made_again(directory: Directory) -> None:
    directory.write_redo_log([directory.entry(1, 3, partition=7)])
    assert directory.redo() == 0
    assert not directory.files.exists(ONE / "orders-7")


def test_another_topic_of_the_same_name_gets_nothing(directory: Directory) -> None:
    directory.write_redo_log([directory.entry(1, 3, topic_id=OTHER_ID.bytes)])
    directory.require_left_out()


@pytest.mark.parametrize("content", [b"", None])
def test_a_partition_that_does_not_say_of_which_topic_it_is_is_that_of_the_newest_entry(
    directory: Directory, content: bytes | None
) -> None:
    """A crash may leave it so. Only for tools: a start knows the topic's id from the metadata log."""
    identity = ORDERS_0 / "partition.metadata"
    directory.files.unlink(identity)
    if content is not None:
        directory.write(identity, content)
    directory.write_redo_log([directory.entry(1, 3, topic_id=OTHER_ID.bytes)], [directory.entry(1, 1)])
    assert directory.redo() == 1
    assert directory.content() == b"".join(directory.batches[:2])


def test_a_segment_that_retention_took_is_not_made_again_and_the_next_one_is_written(directory: Directory) -> None:
    directory.files.rename(LOG, log_file(ORDERS_0, 2))
    directory.write(log_file(ORDERS_0, 2), b"")
    directory.write_redo_log(
        [directory.entry(1, 1)],
        [directory.entry(2, 2, base_offset=2, position=0)],
    )
    assert directory.redo() == 1
    assert not directory.files.exists(LOG)
    assert directory.content(log_file(ORDERS_0, 2)) == directory.batches[2]


def test_what_is_below_the_recovery_point_is_the_logs_own(directory: Directory) -> None:
    """The cleaner may have been there: the position may be anywhere in another batch."""
    directory.recovery_points[TopicPartition("orders", 0)] = 3
    cleaned = placed(2, b"a longer value that stays")
    directory.write(LOG, cleaned)
    directory.write_redo_log([directory.entry(1, 1)], [directory.entry(2, 2)])
    assert directory.redo() == 0
    assert directory.content() == cleaned


def test_what_ends_after_the_recovery_point_is_written(directory: Directory) -> None:
    directory.recovery_points[TopicPartition("orders", 0)] = 3
    directory.write(LOG, b"".join(directory.batches[:3]))
    directory.write_redo_log([directory.entry(1, 2)], [directory.entry(3, 3)])
    assert directory.redo() == 1
    assert directory.content() == directory.whole


def test_a_segment_that_ends_before_the_entry_gets_no_hole(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    directory.write_redo_log([directory.entry(2, 3)])
    directory.require_left_out(directory.batches[0])
    assert "ends before" in caplog.records[-1].getMessage()
    assert caplog.records[-1].levelno == logging.WARNING


def test_another_sound_batch_stays(directory: Directory, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody else has written to the log since."""
    theirs = directory.batches[0] + placed(1, b"written by a Kafka")
    directory.write(LOG, theirs)
    directory.write_redo_log([directory.entry(1, 3)])
    directory.require_left_out(theirs)
    assert "another batch" in caplog.records[-1].getMessage()


def test_another_sound_batch_after_the_first_of_an_entry_stays_too(directory: Directory) -> None:
    theirs = b"".join(directory.batches[:2]) + placed(2, b"written by a Kafka") + placed(3, b"as well")
    directory.write(LOG, theirs)
    directory.write_redo_log([directory.entry(1, 1)], [directory.entry(2, 3)])
    directory.require_left_out(theirs)


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param([0, 2, 3], id="its place is within a batch"),
        pytest.param([1, 3], id="its place is the end of a batch with later offsets"),
    ],
)
def test_a_segment_that_was_cleaned_stays_though_the_recovery_point_is_lost(
    directory: Directory, kept: list[int]
) -> None:
    """Its batches are elsewhere than when the entry was written. Some are longer, so that places do not match."""
    directory.batches = [placed(0), placed(1), placed(2, b"longer"), placed(3)]
    cleaned = b"".join(directory.batches[number] for number in kept)
    directory.write(LOG, cleaned)
    directory.write(log_file(ORDERS_0, 4), placed(4))
    directory.write_redo_log([directory.entry(2, 2)])
    directory.require_left_out(cleaned)


def test_the_torn_end_of_a_segment_that_was_rolled_is_written(directory: Directory) -> None:
    directory.write(log_file(ORDERS_0, 4), placed(4))
    directory.write_redo_log([directory.entry(1, 3)])
    for content in torn_ways(directory.whole, len(directory.batches[0])):
        directory.write(LOG, content)
        assert directory.redo() == (content != directory.whole)
        assert directory.content() == directory.whole


def test_a_torn_batch_is_not_taken_for_another_one(directory: Directory) -> None:
    torn = bytearray(placed(1, b"written by a Kafka"))
    torn[-1] ^= 1
    directory.write(LOG, directory.batches[0] + torn)
    directory.write_redo_log([directory.entry(1, 3)])
    assert directory.redo() == 1
    assert directory.content()[: len(directory.whole)] == directory.whole


@pytest.mark.parametrize("torn_bytes", range(1, 22))
def test_a_batch_of_which_only_bytes_are_torn_that_its_checksum_does_not_cover_is_not_taken_for_another_one(
    directory: Directory, torn_bytes: int
) -> None:
    """A sector may end within its base offset."""
    kept = len(directory.batches[0])
    directory.write(LOG, directory.batches[0] + b"\xff" * torn_bytes + directory.whole[kept + torn_bytes :])
    directory.write_redo_log([directory.entry(1, 3)])
    assert directory.redo() == 1
    assert directory.content() == directory.whole


def test_the_last_segment_is_written_though_an_earlier_one_was_cleaned_and_the_recovery_point_is_lost(
    directory: Directory,
) -> None:
    """What was acknowledged last is in the last segment, and in no file but the redo log."""
    cleaned, last = placed(2, b"longer"), log_file(ORDERS_0, 3)
    directory.write(LOG, cleaned)
    directory.write(last, b"")
    directory.write_redo_log(
        [directory.entry(0, 1)],
        [directory.entry(2, 2)],
        [directory.entry(3, 3, base_offset=3, position=0)],
    )
    assert directory.redo() == 1
    assert (directory.content(), directory.content(last)) == (cleaned, directory.batches[3])


def test_a_segment_that_was_cleaned_stays_though_the_power_cut_took_the_segment_after_it(directory: Directory) -> None:
    cleaned = placed(2, b"longer")
    directory.write(LOG, cleaned)
    directory.write_redo_log([directory.entry(1, 2)], [directory.entry(3, 3, base_offset=3, position=0)])
    directory.require_left_out(cleaned)


def test_segments_after_one_that_ends_early_are_written_for_the_quarantine_and_other_logs_are(
    directory: Directory,
) -> None:
    """The recovery ends the log at the hole, and quarantines what is after it."""
    later = log_file(ORDERS_0, 3)
    directory.write(later, b"")
    directory.write_redo_log(
        [directory.entry(2, 2), directory.entry(1, 1, partition=1)],
        [directory.entry(3, 3, base_offset=3, position=0)],
    )
    assert directory.redo() == 2
    assert (directory.content(), directory.content(later)) == (directory.batches[0], directory.batches[3])


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../one/orders-0", "orders", "orders-0/../orders-1", "orders-0-stray", "orders-x", "/one"]
)
def test_a_name_that_is_no_partition_leads_nowhere(directory: Directory, name: str) -> None:
    before = directory.files.written_state()
    entry = directory.entry(1, 3)._replace(name=name)
    directory.write_redo_log([entry])
    assert directory.redo() == 0
    after = directory.files.written_state()
    del after[str(REDO_LOG)]
    assert after == before


def test_of_a_file_that_is_larger_than_any_redo_log_the_rest_is_not_read(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = redo_log_with([directory.entry(1, 1)], [directory.entry(2, 3)])
    monkeypatch.setattr(redo_module, "MOST_FILE_BYTES", len(data) - 1)
    directory.write(REDO_LOG, data)
    assert read_redo_log(directory.files, ONE).records == 1
    assert directory.redo() == 1
    assert directory.content() == b"".join(directory.batches[:2])


def test_a_full_disk_ends_it_with_an_error(directory: Directory) -> None:
    directory.write_redo_log([directory.entry(1, 3)])
    directory.files.fail("pwritev", str(LOG), errno.ENOSPC, after_bytes=10)
    with pytest.raises(OSError, match="No space left"):
        directory.redo()
    directory.files.heal()
    assert directory.redo() == 1
    assert directory.content() == directory.whole


# -- by a start


def prepared() -> RedoWorld:
    """Two logs with three batches each, the last two of which only the redo log is sure to have."""
    world = RedoWorld()
    for _ in range(2):
        world.append_to(world.logs)
        world.round(world.logs)
    return world


def require_all(world: RedoWorld) -> None:
    assert world.loaded.failed == {}
    assert (world.ends(), world.counts()) == ([3, 3], [3, 3])


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_cut_a_start_finds_all_that_rounds_have_synced(seed: int) -> None:
    world = prepared()
    files = [log.directory / FIRST for log in world.logs]
    written = [world.files.read_bytes(path) for path in files]
    world.append_to(world.logs)  # nobody was promised that
    world.power_cut(seed)
    world.open([0, 1])
    for path, content, log in zip(files, written, world.logs, strict=True):
        assert world.files.synced_state()[str(path)][: len(content)] == content
        assert log.log_end_offset in (3, 4)


def test_after_a_power_cut_that_leaves_nothing_unsynced_a_start_finds_all() -> None:
    world = prepared()
    for log in world.logs:
        path = log.directory / FIRST
        file = world.files.open(path, writable=True)
        file.truncate(len(world.files.synced_state()[str(path)]))
        file.close()
    world.files.kill()
    world.open([0, 1])
    require_all(world)


def test_a_start_has_all_of_it_on_disk_before_it_uses_the_redo_log_again() -> None:
    world = prepared()
    world.power_cut(7)
    world.open([0, 1])
    for log in world.logs:
        assert world.files.synced_state()[str(log.directory / FIRST)] == world.files.read_bytes(log.directory / FIRST)
    calls = [(call, path) for call, path in world.files.history if call in ("fdatasync", "pwritev")]
    before = calls[: calls.index(("pwritev", REDO_LOG))]
    assert {path for call, path in before if call == "fdatasync"} >= {log.directory / FIRST for log in world.logs}


def crash_at_each_call(after: Callable[[RedoWorld, int], None]) -> int:
    """Starts that end at their first, second, ... call, each followed by `after` and another start."""
    call = 0
    while True:
        call += 1
        world = prepared()
        world.power_cut(call)
        world.files.crash_at = call
        try:
            world.open([0, 1])
        except CrashPoint:
            after(world, call)
            world.open([0, 1])
            require_all(world)
        else:
            return call


def test_a_power_cut_at_any_call_of_a_start_loses_nothing() -> None:
    calls = crash_at_each_call(lambda world, call: world.power_cut(call))
    assert calls > 50


def test_a_kill_at_any_call_of_a_start_loses_nothing() -> None:
    def kill(world: RedoWorld, _: int) -> None:
        world.files.kill()

    calls = crash_at_each_call(kill)
    assert calls > 50


def test_a_log_for_which_there_is_no_room_is_not_opened_before_a_later_start_finds_some() -> None:
    """One that lacks what was promised would give its offsets to other records."""
    world = prepared()
    path = world.logs[0].directory / FIRST
    world.files = world.files.kill()
    synced = world.files.synced_state()[str(path)]
    file = world.files.open(path, writable=True)
    file.truncate(len(synced))
    file.close()
    full = world.files.fail("pwritev", "*/orders-0/*.log", errno.ENOSPC, times=None)
    world.open([0, 1])
    assert list(world.loaded.failed) == [TopicPartition("orders", 0)]
    assert not world.opened.directories[0].is_offline
    assert world.files.read_bytes(path) == synced
    world.opened.close()
    world.files.heal(full)
    world.open([0, 1])
    require_all(world)


def test_a_log_that_was_deleted_and_made_again_has_only_its_own_records() -> None:
    world = prepared()
    world.opened.delete_log("orders", 0)()
    again = world.create(world.opened, 0, OTHER_ID)
    world.append(again, 1)
    world.power_cut(1)
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(0, OTHER_ID), world.wanted(1)])
    assert loaded.failed == {}
    assert [log.log_end_offset for _, log in sorted(loaded.logs.items())] == [1, 3]


def test_records_that_delete_records_has_removed_stay_removed() -> None:
    world = prepared()
    log = world.logs[0]
    sync(log)
    log.roll(world.clock.wall_ms())
    world.append(log, 1)
    write_offsets(world.files, ONE / RECOVERY_POINT_CHECKPOINT_FILE, {})
    world.files.unlink(log.directory / FIRST)
    world.files.sync_directory(log.directory)
    world.power_cut(2)
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(0), world.wanted(1)])
    opened = loaded.logs[TopicPartition("orders", 0)]
    assert (opened.log_start_offset, opened.log_end_offset) == (3, 4)
    assert not world.files.exists(log.directory / FIRST)
