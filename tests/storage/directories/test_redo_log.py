"""The redo log of a directory: what rounds write there, when they must not, checkpoints, and its life."""

from __future__ import annotations

import errno

import pytest
from kit.log_dirs import ONE, ORDERS_ID
from kit.logs import append, batch, sync
from kit.redo_logs import FIRST, REDO_LOG, RedoWorld, entry_of, redo_log_with
from kit.simulated_files import CrashPoint

from ottla.storage.directories import redo_log as redo_log_module
from ottla.storage.directories.redo_log import (
    GROWTH_BYTES,
    MOST_ALONE_BYTES,
    MOST_LOGS_ALONE,
    MOST_ROUND_BYTES,
    RedoLog,
)
from ottla.storage.files.files import NotOpened, PartialWrite
from ottla.storage.formats.layout import CLUSTER_METADATA_TOPIC, REDO_LOG_FILE
from ottla.storage.formats.redo_format import HEAD_BYTES
from ottla.storage.log.log import Log
from ottla.storage.log.log_state import LogState

BATCH_BYTES = 69


@pytest.fixture
def redo() -> RedoWorld:
    """Two logs on disk with a batch of one record each."""
    return RedoWorld()


def require_nothing_written(redo: RedoWorld, logs: list[Log]) -> None:
    """A round of these logs is not for the redo log: it stays as it is, and the files get all that they have to."""
    before = redo.files.read_bytes(REDO_LOG)
    needed = dict(redo.redo_log.logs)
    assert redo.redo_log.write(logs) is None
    assert redo.files.read_bytes(REDO_LOG) == before
    assert redo.redo_log.logs == needed
    for log in logs:
        sync(log)
        assert log.synced_offset == log.log_end_offset


# -- writing


def test_a_round_has_an_entry_for_each_log_with_the_bytes_that_its_file_has_not_synced(redo: RedoWorld) -> None:
    redo.append_to(redo.logs, 3)
    redo.round(redo.logs)
    [record] = redo.records
    assert record.sequence == 0
    for number, (entry, log) in enumerate(zip(record.entries, redo.logs, strict=True)):
        content = redo.files.read_bytes(log.directory / FIRST)
        position = log.segments[-1].synced_bytes
        assert 0 < position < len(content)
        assert entry == entry_of(content[position:], partition=number, position=position, end_offset=4)


def test_a_round_whose_logs_were_all_deleted_before_it_began_writes_nothing(redo: RedoWorld) -> None:
    require_nothing_written(redo, [])


def test_the_next_round_begins_where_the_last_one_ended(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    assert [record.sequence for record in redo.records] == [0, 1]
    first, second = [entry for entry in redo.entries if entry.name == "orders-1"]
    assert first.position + len(first.data) == second.position
    assert (first.end_offset, second.end_offset) == (2, 3)


@pytest.mark.parametrize("room_bytes", [0, 3 * BATCH_BYTES, MOST_ROUND_BYTES])
def test_what_was_not_kept_in_memory_is_read_from_the_page_cache(redo: RedoWorld, room_bytes: int) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    redo.opened.directories[0].redo_room_bytes = room_bytes
    for _ in range(3):
        redo.append_to(redo.logs)
    redo.files.history.clear()
    redo.round(redo.logs)
    assert any(call == "pread_nowait" for call, _ in redo.files.history) is (room_bytes < MOST_ROUND_BYTES)
    require_last_round(redo, 3)


def test_one_log_is_read_and_what_the_others_have_staged_is_taken_from_memory(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs[:1])
    for _ in range(3):
        redo.append_to(redo.logs)
    redo.files.history.clear()
    redo.round(redo.logs)
    read = [place for call, place in redo.files.history if call == "pread_nowait"]
    assert read == [redo.logs[1].directory / FIRST]
    require_last_round(redo, 3)


@pytest.mark.parametrize("place", ["head_of", "write_all", "pack_entry"])
def test_what_was_staged_when_there_was_no_memory_is_in_the_next_round(
    redo: RedoWorld, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Without it the next round would have only the later bytes of each log, and acknowledge all."""
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    redo.append_to(redo.logs)

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as short:
        if place == "write_all":  # the write itself
            short.setattr(type(redo.redo_log.file), "pwritev", fail)
        else:
            short.setattr(redo_log_module, place, fail)
        assert redo.redo_log.write(redo.logs) is None
    assert not redo.redo_log.is_due
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    require_last_round(redo, 2)


def test_a_record_after_which_there_was_no_memory_is_voided_by_a_checkpoint(
    redo: RedoWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its logs may not be known: a log that is rewritten later must not get these bytes back at a start."""
    redo.append_to(redo.logs)

    def fail(_: Log) -> None:
        raise MemoryError

    with monkeypatch.context() as short:
        short.setattr(Log, "begin_staging", fail)
        assert redo.redo_log.write(redo.logs) is None
    assert redo.redo_log.is_due
    redo.checkpoint()
    assert redo.entries == []
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    require_last_round(redo, 1)


def require_last_round(redo: RedoWorld, batches: int) -> None:
    """The last record has the end of each log, of this number of batches or more, and all of it is synced."""
    for log in redo.logs:
        content = redo.files.read_bytes(log.directory / FIRST)
        entries = [entry for entry in redo.records[-1].entries if entry.name == log.directory.name]
        data = b"".join(bytes(entry.data) for entry in entries)
        assert len(data) >= batches * BATCH_BYTES
        assert content[entries[0].position :] == data
        assert entries[-1].end_offset == log.synced_offset == log.log_end_offset


def test_what_a_log_outside_of_the_round_has_staged_is_read_for_a_later_one(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    for _ in range(2):
        redo.append_to(redo.logs)
        redo.round(redo.logs[:1])
        assert [entry.name for entry in redo.records[-1].entries] == ["orders-0"]
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    require_last_round(redo, 1)
    redo.power_cut(1)
    redo.open([0, 1])
    assert redo.ends() == [5, 5]


def test_each_round_has_what_a_log_of_the_page_cache_has_appended(redo: RedoWorld) -> None:
    """As `flush.messages` wants it: such appends stage nothing."""
    log = redo.logs[0]
    log.configure(redo.topic_config({"ottla.acks.all": "page-cache"}))
    for _ in range(3):
        redo.append_to(redo.logs)
        redo.round(redo.logs)
        require_last_round(redo, 1)


@pytest.mark.parametrize("has_room", [False, True])
def test_records_from_before_a_change_to_sync_are_in_the_next_round(redo: RedoWorld, has_room: bool) -> None:
    """They were promised less, and nothing has staged them."""
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    log = redo.logs[0]
    log.configure(redo.topic_config({"ottla.acks.all": "page-cache"}))
    redo.append_to([log])
    log.configure(redo.topic_config())
    if not has_room:
        redo.opened.directories[0].redo_room_bytes = 0
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    require_last_round(redo, 1)
    redo.power_cut(1)
    redo.open([0, 1])
    assert redo.ends() == [4, 3]


def test_a_round_of_what_is_not_in_memory_any_more_is_not_for_it(redo: RedoWorld) -> None:
    redo.opened.directories[0].redo_room_bytes = 0
    redo.files.cold.append("*/orders-1/*")
    redo.append_to(redo.logs)
    require_nothing_written(redo, redo.logs)


@pytest.mark.parametrize("room_bytes", [0, MOST_ROUND_BYTES])
def test_what_was_appended_while_a_round_ran_is_in_the_next_one(redo: RedoWorld, room_bytes: int) -> None:
    redo.opened.directories[0].redo_room_bytes = room_bytes
    redo.append_to(redo.logs)
    parts = redo.redo_log.write(redo.logs)
    assert parts is not None
    redo.append_to(redo.logs, 2)
    LogState.end_redo(parts)
    assert [log.synced_offset for log in redo.logs] == [2, 2]
    redo.round(redo.logs)
    assert [log.synced_offset for log in redo.logs] == [4, 4]
    for log in redo.logs:
        content = b"".join(bytes(entry.data) for entry in redo.entries if entry.name == log.directory.name)
        assert redo.files.read_bytes(log.directory / FIRST).endswith(content)
        assert len(content) > 2 * BATCH_BYTES


def test_a_round_whose_sync_did_not_begin_is_written_again_with_the_next(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    parts = redo.redo_log.write(redo.logs)
    assert parts is not None
    redo.append_to(redo.logs)
    redo.redo_log.take_back(parts)
    redo.round(redo.logs)
    last = redo.records[-1].entries[0]
    assert bytes(last.data) == redo.files.read_bytes(redo.logs[0].directory / FIRST)[last.position :]
    assert last.position == redo.logs[0].segments[-1].synced_bytes


def test_a_round_shows_what_is_in_it_and_leaves_the_recovery_point(redo: RedoWorld) -> None:
    redo.append_to(redo.logs, 3)
    redo.round(redo.logs)
    assert [(log.synced_offset, log.high_watermark, log.recovery_point) for log in redo.logs] == [(4, 4, 1)] * 2


def test_a_log_that_failed_while_the_round_ran_shows_nothing_of_it(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    parts = redo.redo_log.write(redo.logs)
    assert parts is not None
    redo.logs[0].fail(OSError(errno.EIO, "lost"))
    LogState.end_redo(parts)
    assert (redo.logs[0].synced_offset, redo.logs[0].high_watermark) == (1, 1)


# -- what it is not for


def test_a_partition_whose_names_are_not_on_disk_is_not_in_it(redo: RedoWorld) -> None:
    new = redo.create(redo.opened, 2)
    redo.append_to([redo.logs[0], new])
    require_nothing_written(redo, [redo.logs[0], new])


def test_a_log_with_a_new_segment_is_not_in_it_until_that_is_synced() -> None:
    redo = RedoWorld(log_segment_bytes=1_000_000, log_index_size_max_bytes=10_485_760)
    log = redo.logs[0]
    log.roll(redo.clock.wall_ms())
    redo.append_to(redo.logs)
    assert len(log.segments) == 2
    require_nothing_written(redo, redo.logs)
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    assert [entry.base_offset for entry in redo.entries] == [1, 0]


def test_a_log_whose_file_was_cut_is_not_in_it_until_that_is_synced(redo: RedoWorld) -> None:
    redo.files.fail("pwritev", "*/orders-0/*.log", errno.ENOSPC, after_bytes=10)
    with pytest.raises(AssertionError):
        redo.append(redo.logs[0], sync=False)
    redo.files.heal()
    redo.opened.directories[0].probe()
    redo.append_to(redo.logs)
    require_nothing_written(redo, redo.logs)
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    assert len(redo.entries) == 2


def test_a_cut_while_the_round_runs_leaves_the_bytes_of_the_round_synced_by_the_redo_log(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    parts = redo.redo_log.write(redo.logs)
    assert parts is not None
    redo.files.fail("pwritev", "*/orders-0/*.log", errno.ENOSPC, after_bytes=10)
    with pytest.raises(AssertionError):
        redo.append(redo.logs[0], sync=False)
    redo.files.heal()
    assert redo.redo_log.file is not None
    redo.redo_log.file.fdatasync()
    LogState.end_redo(parts)
    assert [log.synced_offset for log in redo.logs] == [2, 2]
    redo.power_cut(1)
    redo.open([0, 1])
    assert redo.ends() == [2, 2]


def test_a_log_that_has_failed_is_not_in_it(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    redo.logs[0].fail(OSError(errno.EIO, "lost"))
    assert redo.redo_log.write(redo.logs) is None


def test_the_cluster_metadata_is_never_in_it(redo: RedoWorld) -> None:
    metadata = redo.opened.create_log(CLUSTER_METADATA_TOPIC, 0, ORDERS_ID, redo.topic_config())
    redo.append(metadata)
    for logs in ([metadata, redo.logs[0]], [redo.logs[0], metadata]):
        redo.append_to(logs)
        require_nothing_written(redo, logs)


@pytest.mark.parametrize("more_bytes", [0, 1])
def test_a_round_of_one_log_with_more_than_16_kb_is_not_for_it(redo: RedoWorld, more_bytes: int) -> None:
    log = redo.logs[0]
    append_bytes(redo, log, MOST_ALONE_BYTES + more_bytes)
    if more_bytes:
        require_nothing_written(redo, [log])
    else:
        redo.round([log])
        assert [len(entry.data) for entry in redo.entries] == [MOST_ALONE_BYTES]


@pytest.mark.parametrize("more_bytes", [0, 1])
def test_a_round_of_more_than_512_kb_is_not_for_it(redo: RedoWorld, more_bytes: int) -> None:
    one, other = redo.logs
    redo.append_to([one])
    length = one.segments[-1].size_bytes - one.segments[-1].synced_bytes
    append_bytes(redo, other, MOST_ROUND_BYTES - length + more_bytes)
    if more_bytes:
        require_nothing_written(redo, redo.logs)
    else:
        redo.round(redo.logs)
        assert sum(len(entry.data) for entry in redo.entries) == MOST_ROUND_BYTES


def append_bytes(redo: RedoWorld, log: Log, size_bytes: int) -> None:
    """One batch of this size."""
    value = bytes(size_bytes - len(batch(b"")) - 100)
    for padding in range(200):
        data = batch(value + bytes(padding))
        if len(data) == size_bytes:
            (result,) = append(log, data, now_ms=redo.clock.wall_ms())
            assert not result.error_code
            return
    raise AssertionError(f"no batch has {size_bytes} bytes")


def test_the_file_grows_in_steps_so_that_most_syncs_leave_its_length(redo: RedoWorld) -> None:
    sizes = set()
    while redo.used_bytes <= GROWTH_BYTES:
        append_bytes(redo, redo.logs[0], 100_000)
        append_bytes(redo, redo.logs[1], 100_000)
        redo.round(redo.logs)
        sizes.add(redo.files.size(REDO_LOG))
    assert sizes == {GROWTH_BYTES, 2 * GROWTH_BYTES}
    assert [len(record.entries) for record in redo.records] == [2] * len(redo.records)


# -- errors of a write


@pytest.mark.parametrize("after_bytes", [0, 1, 30, 150])
def test_a_full_disk_leaves_the_round_to_the_files_and_the_next_one_may_come(redo: RedoWorld, after_bytes: int) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    redo.append_to(redo.logs)
    full = redo.files.fail("pwritev", str(REDO_LOG), errno.ENOSPC, after_bytes=after_bytes)
    assert redo.redo_log.write(redo.logs) is None
    redo.files.heal(full)
    assert redo.opened.directories[0].is_online
    assert len(redo.records) == 1, "what was written of it counts for nothing"
    for log in redo.logs:
        sync(log)
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    assert [record.sequence for record in redo.records] == [0, 1]
    redo.power_cut(1)
    redo.open([0, 1])
    assert redo.ends() == [4, 4]


def test_a_want_of_descriptors_leaves_the_round_to_the_files(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    redo.files.fail("pwritev", str(REDO_LOG), errno.EMFILE)
    require_nothing_written(redo, redo.logs)


# -- checkpoints


def test_a_void_redo_log_has_a_later_generation_and_no_entries(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    generation = redo.records[0].generation
    redo.checkpoint()
    assert redo.records == [(generation + 1, 0, [])]
    assert redo.files.synced_state()[str(REDO_LOG)] == redo.files.read_bytes(REDO_LOG)
    assert not redo.redo_log.logs


def test_a_round_after_a_checkpoint_is_written_to_the_beginning_of_the_file(redo: RedoWorld) -> None:
    for _ in range(3):
        redo.append_to(redo.logs)
        redo.round(redo.logs)
    size_bytes = redo.files.size(REDO_LOG)
    redo.checkpoint()
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    assert redo.files.size(REDO_LOG) == size_bytes
    assert [(record.sequence, len(record.entries)) for record in redo.records] == [(0, 0), (1, 2)]


def test_rounds_after_a_checkpoint_hold_no_bytes_that_it_has_synced(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    redo.append_to(redo.logs)  # more than the redo log has
    redo.checkpoint()
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    assert [len(entry.data) for entry in redo.entries] == [len(redo.entries[0].data)] * 2
    assert [entry.position for entry in redo.entries] == [log.segments[-1].synced_bytes for log in redo.logs]


def test_a_power_cut_beside_any_call_of_a_checkpoint_loses_nothing() -> None:
    def prepared() -> RedoWorld:
        redo = RedoWorld()
        for _ in range(2):
            redo.append_to(redo.logs)
            redo.round(redo.logs)
        return redo

    redo = prepared()
    before = redo.files.calls
    redo.checkpoint()
    calls = redo.files.calls - before
    assert calls > 3
    for call in range(1, calls + 2):
        redo = prepared()
        redo.files.crash_at = redo.files.calls + call
        try:
            redo.checkpoint()
        except CrashPoint:
            assert call <= calls
        redo.power_cut(call)
        redo.open([0, 1])
        assert redo.ends() == [3, 3]
        assert redo.counts() == [3, 3]


@pytest.mark.parametrize(("call", "error"), [("pwritev", errno.ENOSPC), ("fdatasync", errno.EMFILE)])
def test_after_a_checkpoint_that_could_not_void_it_nothing_is_written_before_another_has(
    redo: RedoWorld, call: str, error: int
) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    redo.files.fail(call, str(REDO_LOG), error)
    with pytest.raises((PartialWrite, NotOpened)):
        redo.redo_log.void()
    redo.append_to(redo.logs)
    assert redo.redo_log.write(redo.logs) is None
    redo.checkpoint()
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    assert len(redo.entries) == 2


def test_a_failed_sync_of_the_void_is_an_error_and_no_want_of_descriptors(redo: RedoWorld) -> None:
    redo.files.fail("fdatasync", str(REDO_LOG))
    with pytest.raises(OSError, match="error") as caught:
        redo.redo_log.void()
    assert not isinstance(caught.value, (NotOpened, PartialWrite))
    assert redo.redo_log.is_due


# -- limits


def test_a_checkpoint_is_due_when_a_round_might_not_find_room(redo: RedoWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    record_bytes = redo.used_bytes
    monkeypatch.setattr(redo_log_module, "MOST_BYTES", MOST_ROUND_BYTES + 2 * record_bytes)
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    assert not redo.redo_log.is_due
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    assert redo.redo_log.is_due
    redo.append_to(redo.logs)
    assert redo.redo_log.write(redo.logs) is None
    redo.checkpoint()
    assert not redo.redo_log.is_due


def test_a_checkpoint_is_due_when_many_logs_need_it() -> None:
    redo = RedoWorld(4)
    assert redo.redo_log.most_logs == MOST_LOGS_ALONE == 100
    redo.redo_log.most_logs = 3
    redo.append_to(redo.logs)
    redo.round(redo.logs[:2])
    redo.append_to(redo.logs[:2])
    redo.round(redo.logs[:2])
    assert not redo.redo_log.is_due
    redo.round(redo.logs[1:3])
    assert redo.redo_log.is_due


def test_a_log_that_is_closed_for_good_needs_it_no_more(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    redo.redo_log.forget(redo.logs[0])
    redo.redo_log.forget(redo.logs[0])
    assert list(redo.redo_log.logs) == [redo.logs[1]]


# -- its life


def test_its_name_is_on_disk_before_anything_is_written_to_it(redo: RedoWorld) -> None:
    assert redo.files.synced_state()[str(REDO_LOG)] == b""
    assert redo.redo_log.file is not None


def test_nothing_is_written_to_it_before_the_logs_are_open() -> None:
    redo = RedoWorld()
    redo.opened.close(clean=False)
    manager = redo.manager()
    [directory] = manager.directories
    assert directory.redo_log is not None
    assert directory.redo_log.file is None
    assert directory.redo_log.write([]) is None


def test_a_clean_stop_removes_it_before_the_mark_is_written(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    redo.opened.close()
    assert str(REDO_LOG) not in redo.files.synced_state()
    calls = [path for call, path in redo.files.history if call in ("unlink", "rename")]
    assert calls.index(REDO_LOG) < calls.index(ONE / ".kafka_cleanshutdown.tmp")


def test_another_stop_leaves_it(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    redo.opened.close(clean=False)
    assert len(redo.entries) == 2


def test_a_clean_start_removes_one_that_is_there_and_does_not_look_into_it() -> None:
    """Somebody else had the directory since, and what is in the logs is theirs."""
    redo = RedoWorld()
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    stale = redo.files.read_bytes(REDO_LOG)
    redo.opened.close()
    log = ONE / "orders-0" / FIRST
    file = redo.files.open(log, writable=True)
    file.truncate(BATCH_BYTES)  # as if Kafka had truncated it
    file.fdatasync()
    file.close()
    before = redo.files.read_bytes(log)
    redo.files.write_atomically(REDO_LOG, stale)
    manager = redo.manager()
    assert manager.was_clean
    assert redo.files.read_bytes(log) == before
    assert redo.files.read_bytes(REDO_LOG) == b""


def test_a_start_after_a_crash_goes_on_with_the_next_generation(redo: RedoWorld) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    generation = redo.records[0].generation
    redo.power_cut(1)
    redo.open([0, 1])
    assert redo.records == [(generation + 1, 0, [])]
    assert redo.files.synced_state()[str(REDO_LOG)] == redo.files.read_bytes(REDO_LOG)


def test_no_client_can_guess_a_generation() -> None:
    """Values of its records, which stay behind the last record of the file, could be read as promises after a crash."""
    generations = set()
    for _ in range(4):
        redo = RedoWorld()
        redo.append_to(redo.logs)
        redo.round(redo.logs)
        generations.add(redo.records[0].generation)
    assert len(generations) == 4
    assert min(generations) > 1 << 32


def test_where_the_key_says_so_there_is_none() -> None:
    redo = RedoWorld(ottla_redo_log_enable=False)
    assert redo.opened.directories[0].redo_log is None
    assert not redo.files.exists(REDO_LOG)
    redo.opened.close()
    assert redo.manager().was_clean


def test_where_the_key_says_so_now_what_is_there_is_written_and_removed_when_all_logs_are_open(
    redo: RedoWorld,
) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    redo.power_cut(3)
    redo.config = type(redo.config).of({"log.dirs": "/one", "ottla.redo.log.enable": False})
    redo.open([0, 1])
    assert redo.ends() == [2, 2]
    assert str(REDO_LOG) not in redo.files.synced_state()
    assert not redo.files.exists(REDO_LOG)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_log_that_cannot_be_opened_keeps_it_for_the_next_start(redo: RedoWorld, is_enabled: bool) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    content = redo.files.read_bytes(REDO_LOG)
    redo.power_cut(2)
    redo.config = type(redo.config).of({"log.dirs": "/one", "ottla.redo.log.enable": is_enabled})
    identity = ONE / "orders-0" / "partition.metadata"
    sound = redo.files.read_bytes(identity)
    redo.files.write_atomically(identity, b"version: 0\ntopic_id: ?")
    redo.open([0, 1])
    assert list(redo.loaded.failed) == [("orders", 0)]
    assert redo.files.read_bytes(REDO_LOG) == content
    redo.append_to(redo.logs)
    directory = redo.opened.directories[0]
    assert directory.redo_log is None or directory.redo_log.write(redo.logs) is None
    redo.files.write_atomically(identity, sound)
    redo.power_cut(2)
    redo.open([0, 1])
    assert redo.ends()[0] == 2
    assert redo.files.exists(REDO_LOG) is is_enabled


@pytest.mark.parametrize(("call", "error"), [("open", errno.EMFILE), ("open", errno.ENOSPC)])
def test_one_that_cannot_be_made_for_want_of_room_or_descriptors_keeps_no_broker_from_its_start(
    call: str, error: int
) -> None:
    redo = RedoWorld()
    redo.opened.close()
    redo.files.fail(call, str(REDO_LOG), error)
    redo.open([0, 1])
    [directory] = redo.opened.directories
    assert directory.is_online
    assert directory.redo_log is None
    redo.append(redo.logs[0])
    redo.opened.close()
    assert redo.manager().was_clean


def test_one_that_cannot_be_opened_for_want_of_descriptors_is_not_used(redo: RedoWorld) -> None:
    redo.opened.close(clean=False)
    redo.files.fail("open", str(REDO_LOG), errno.EMFILE, skip=2)
    redo.open([0, 1])
    [directory] = redo.opened.directories
    assert directory.is_online
    assert directory.redo_log is not None
    assert directory.redo_log.file is None
    redo.opened.close()
    assert str(REDO_LOG) not in redo.files.synced_state()


@pytest.mark.parametrize(
    ("call", "error", "is_offline"),
    [("fdatasync", errno.EIO, True), ("pwritev", errno.ENOSPC, False)],
)
def test_an_error_when_a_start_makes_it_void_is_one_of_the_directory(
    redo: RedoWorld, call: str, error: int, is_offline: bool
) -> None:
    redo.append_to(redo.logs)
    redo.round(redo.logs)
    redo.power_cut(4)
    redo.files.fail(call, str(REDO_LOG), error)
    redo.open([0, 1])
    [directory] = redo.opened.directories
    assert directory.is_offline is is_offline
    assert not directory.is_online
    assert redo.ends() == [2, 2]
    redo.power_cut(5)
    redo.open([0, 1])
    assert redo.ends() == [2, 2]


def test_a_redo_log_that_cannot_be_read_is_nothing_to_a_start_and_is_emptied() -> None:
    """What it holds could look like records of a later generation, else."""
    redo = RedoWorld()
    redo.opened.close(clean=False)
    unreadable = bytearray(redo_log_with([], []))
    unreadable[0] ^= 1
    for content in (b"x" * 5000, bytes(5000), redo_log_with([])[: HEAD_BYTES - 1], bytes(unreadable)):
        redo.files.write_atomically(REDO_LOG, content)
        redo.open([0, 1])
        assert redo.ends() == [1, 1]
        assert [(record.sequence, record.entries) for record in redo.records] == [(0, [])]
        assert redo.files.size(REDO_LOG) == HEAD_BYTES
        redo.opened.close(clean=False)


@pytest.mark.parametrize("generation", [-(2**63), -1, 0, 2**62, 2**63 - 1])
def test_counting_begins_again_after_a_generation_that_no_ottla_has_reached(redo: RedoWorld, generation: int) -> None:
    redo.opened.close(clean=False)
    redo.files.write_atomically(REDO_LOG, redo_log_with([], generation=generation) + bytes(100))
    redo.open([0, 1])
    [record] = redo.records
    assert 0 < record.generation < 2**62
    assert record.generation not in (generation, generation + 1)
    assert redo.files.size(REDO_LOG) == HEAD_BYTES


def test_closing_it_twice_is_no_error(redo: RedoWorld) -> None:
    redo_log = RedoLog(redo.files, ONE, redo.opened.directories[0])
    redo_log.close()
    redo.redo_log.close()
    redo.redo_log.close()
    assert redo.redo_log.write(redo.logs) is None
    assert REDO_LOG.name == REDO_LOG_FILE
