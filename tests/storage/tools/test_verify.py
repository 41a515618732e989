"""Verification of a directory that a broker has left: sound ones are called sound, and each damage is found."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.left_behind import BATCHES, ORDERS, PLACE, change, flip, left_behind, logs_of
from kit.logs import NOW_MS, batch, stored
from kit.nodes import DATA, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.catalog.catalog import NewTopic
from ottla.protocol.records.batch import HEADER_BYTES, parse_header, set_offset_and_epoch
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import read_offsets, write_offsets
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.formats.leader_epoch_checkpoint import EpochEntry, write_leader_epochs
from ottla.storage.formats.partition_metadata import write_partition_metadata
from ottla.storage.segment.scan import walk
from ottla.storage.tools.verify import Finding, NothingToVerify, Severity, Verification
from ottla.storage.tools.verify_index import TimeIndexCheck


def findings(files: SimulatedFiles, only: TopicPartition | None = None) -> list[Finding]:
    return list(Verification(files, DATA, only).run())


def damages(files: SimulatedFiles) -> list[Finding]:
    return [one for one in findings(files) if one.severity is Severity.DAMAGE]


def the_one(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def positions_of(files: SimulatedFiles, path: Path) -> list[int]:
    return [position for position, _ in walk(files.open(path).pread, 0, files.size(path))]


# --- sound


def test_what_a_broker_leaves_is_sound_and_counted() -> None:
    files = left_behind()
    going = Verification(files, DATA)
    assert list(going.run()) == []
    assert going.counts.partitions == 2
    assert going.counts.segments == len(logs_of(files)) + 1 > 3
    assert going.counts.batches >= BATCHES
    assert going.counts.size_bytes == going.size_bytes()


def test_what_a_crash_leaves_is_sound_up_to_the_recovery_point() -> None:
    assert damages(left_behind(clean=False)) == []


def test_a_verification_writes_nothing() -> None:
    files = left_behind()
    flip(files, logs_of(files)[0], 100)
    before = files.written_state()
    findings(files)
    assert files.written_state() == before


def test_progress_adds_up_to_the_bytes_of_the_logs() -> None:
    files = left_behind()
    seen: list[int] = []
    going = Verification(files, DATA)
    list(going.run(seen.append))
    assert sum(seen) == going.size_bytes()


def test_one_partition_is_looked_at_alone() -> None:
    files = left_behind()
    flip(files, DATA / "__cluster_metadata-0" / layout.offset_file_name(0, ".log"), 70)
    going = Verification(files, DATA, ORDERS)
    assert list(going.run()) == []
    assert going.counts.partitions == 1


def test_what_is_no_log_directory_is_refused_in_one_line() -> None:
    files = left_behind()
    for path, only in ((DATA / "nothing", None), (PLACE, None), (DATA, TopicPartition("orders", 7))):
        with pytest.raises(NothingToVerify):
            Verification(files, path, only)


# --- logs


@settings(max_examples=examples(60))
@given(where=st.floats(min_value=0, max_value=1, exclude_max=True), mask=st.integers(1, 255))
def test_any_byte_of_a_log_that_changes_is_damage(where: float, mask: int) -> None:
    files = left_behind()
    sizes = [(path, files.size(path)) for path in logs_of(files)]
    at = int(where * sum(size for _, size in sizes))
    for path, size in sizes:
        if at < size:
            flip(files, path, at, mask)
            break
        at -= size
    found = damages(files)
    assert found, (path, at)


def test_a_wrong_checksum_names_place_and_offsets_and_the_rest_is_read_on() -> None:
    files = left_behind()
    path = logs_of(files)[1]
    second = positions_of(files, path)[1]
    flip(files, path, second + HEADER_BYTES + 2)
    base = int(path.name[:20])
    found = the_one(damages(files))
    assert (found.path, found.position, found.offset) == (path, second, base + 3)
    assert f"offsets {base + 3} to {base + 5} cannot be read" in found.problem
    going = Verification(files, DATA)
    list(going.run())
    assert going.counts.batches >= BATCHES


def test_bytes_that_are_no_batch_are_one_finding_with_the_place_where_reading_goes_on() -> None:
    files = left_behind()
    path = logs_of(files)[0]
    positions = positions_of(files, path)
    change(files, path, positions[1], bytes(HEADER_BYTES + 5))
    found = next(one for one in damages(files) if one.path == path)
    assert (found.position, found.offset) == (positions[1], 3)
    assert f"the next sound one is at position {positions[2]}" in found.problem


def test_a_torn_tail_is_damage_after_a_clean_stop_and_unsure_after_a_crash() -> None:
    for clean, severity in ((True, Severity.DAMAGE), (False, Severity.UNSURE)):
        files = left_behind(clean=clean)
        path = logs_of(files)[-1]
        size = files.size(path)
        change(files, path, size, b"torn")
        found = next(one for one in findings(files) if one.path == path)
        assert (found.severity, found.position) == (severity, size)
        assert "the last 4 bytes are no batch" in found.problem


def test_damage_below_the_recovery_point_of_a_crashed_broker_is_damage() -> None:
    files = left_behind(clean=False)
    assert read_offsets(files, DATA / layout.RECOVERY_POINT_CHECKPOINT_FILE)[ORDERS] == BATCHES * 3
    flip(files, logs_of(files)[0], HEADER_BYTES + 1)
    assert the_one(damages(files)).offset == 0


def remove_a_segment(files: SimulatedFiles) -> Path:
    path = logs_of(files)[1]
    for name in files.list_directory(PLACE):
        if name.startswith(path.stem):
            files.unlink(PLACE / name)
    return logs_of(files)[1]


def test_a_segment_that_is_missing_is_damage() -> None:
    files = left_behind()
    following = remove_a_segment(files)
    found = next(one for one in damages(files) if one.path == following)
    assert "are missing, and the topic is not compacted" in found.problem


def test_offsets_may_be_missing_in_a_compacted_topic() -> None:
    files = left_behind(configs=(("cleanup.policy", "compact"),))
    following = remove_a_segment(files)
    assert [one for one in findings(files) if one.path == following] == []


def test_offsets_may_be_missing_where_the_cleaner_has_been_whatever_started_it() -> None:
    """The policy may be the whole broker's, in a server.properties that a tool does not see, or have been another."""
    files = left_behind()
    following = remove_a_segment(files)
    write_offsets(files, DATA / layout.CLEANER_OFFSET_CHECKPOINT_FILE, {ORDERS: 0})
    assert [one for one in findings(files) if one.path == following] == []


def test_offsets_that_a_power_cut_took_are_unsure_in_a_compacted_topic_too() -> None:
    """Past the recovery point nothing was cleaned: the next start ends the log there."""
    files = left_behind(clean=False, configs=(("cleanup.policy", "compact"),))
    second = layout.parse_offset_file(logs_of(files)[1].name)
    assert second is not None
    write_offsets(files, DATA / layout.RECOVERY_POINT_CHECKPOINT_FILE, {ORDERS: second.offset})
    following = remove_a_segment(files)
    found = next(one for one in findings(files) if one.path == following)
    assert found.severity is Severity.UNSURE
    assert "are missing, beyond all that was cleaned" in found.problem
    node, _, _ = start_node(files)
    log = node.services.log_manager.get("orders", 0)
    assert log is not None
    assert log.log_end_offset == second.offset == found.offset


def test_missing_offsets_are_a_note_where_nobody_knows_of_compaction() -> None:
    files = left_behind()
    following = remove_a_segment(files)
    for name in files.list_directory(DATA / "__cluster_metadata-0"):
        files.unlink(DATA / "__cluster_metadata-0" / name)
    found = next(one for one in findings(files) if one.path == following)
    assert found.severity is Severity.NOTE


def test_a_segment_that_comes_twice_is_damage() -> None:
    files = left_behind()
    first, second = logs_of(files)[:2]
    change(files, first, files.size(first), files.read_bytes(second))
    assert any("the next segment begins at" in one.problem for one in damages(files))


# --- indexes


def first_index(files: SimulatedFiles, suffix: str) -> Path:
    path = logs_of(files)[0].with_suffix(suffix)
    assert files.size(path) > 0
    return path


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_any_byte_of_an_index_that_changes_is_damage(suffix: str) -> None:
    for position in range(left_behind().size(PLACE / layout.offset_file_name(0, suffix))):
        files = left_behind()
        path = first_index(files, suffix)
        flip(files, path, position)
        found = damages(files)
        assert found, position
        assert {one.path for one in found} == {path}
        assert found[0].problem.endswith("(the broker rebuilds the index)")


@pytest.mark.parametrize(
    ("timestamp", "relative", "is_sound"), [(-1, 0, True), (-1, -(1 << 31), False), (-3, 0, False), (5, 0, False)]
)
def test_the_entry_of_a_segment_without_records_names_no_time_and_its_base(
    timestamp: int, relative: int, is_sound: bool
) -> None:
    files = SimulatedFiles()
    files.make_directory(DATA)
    files.write_atomically(DATA / "00.timeindex", struct.pack(">qi", timestamp, relative))
    check = TimeIndexCheck(files, DATA / "00.timeindex", 40)
    check.end(40)
    assert (not list(check.problems())) is is_sound


def test_a_time_index_entry_names_an_offset_of_the_first_batch_that_has_its_time() -> None:
    files = left_behind()
    path = first_index(files, ".timeindex")
    (relative,) = struct.unpack(">i", files.read_bytes(path)[8:12])
    change(files, path, 8, struct.pack(">i", relative - 1))
    assert damages(files) == [], "another offset of the same batch"
    change(files, path, 8, struct.pack(">i", relative + 1))
    assert damages(files)


def test_a_time_index_entry_that_names_a_later_batch_of_the_same_time_is_damage() -> None:
    files = SimulatedFiles()
    files.make_directory(DATA)
    for offset, is_sound in ((42, True), (41, True), (45, False)):
        files.write_atomically(DATA / "00.timeindex", struct.pack(">qi", NOW_MS, offset - 40))
        check = TimeIndexCheck(files, DATA / "00.timeindex", 40)
        for base_offset in (40, 43, 46):
            data = batch(b"a", b"b", b"c")
            set_offset_and_epoch(data, base_offset, 0)
            check.batch(parse_header(data))
        check.end(49)
        assert (not list(check.problems())) is is_sound


@pytest.mark.parametrize(
    ("suffix", "spoil", "words"),
    [
        (".index", lambda files, path: files.unlink(path), "the file is not there"),
        (".index", lambda files, path: change(files, path, files.size(path), b"xx"), "not a multiple of the 8 bytes"),
        (".timeindex", lambda files, path: files.unlink(path), "the file is not there"),
    ],
)
def test_an_index_that_is_none_is_damage(
    suffix: str, spoil: Callable[[SimulatedFiles, Path], object], words: str
) -> None:
    files = left_behind()
    path = first_index(files, suffix)
    spoil(files, path)
    assert words in the_one(damages(files)).problem


def test_an_index_without_its_log_is_damage() -> None:
    files = left_behind()
    path = PLACE / layout.offset_file_name(999, ".index")
    files.write_atomically(path, b"")
    assert the_one(damages(files)).path == path


def test_an_index_whose_log_a_deletion_took_before_it_was_killed_is_for_the_next_start() -> None:
    files = left_behind()
    files.unlink(DATA / layout.CLEAN_SHUTDOWN_FILE)
    path = PLACE / layout.offset_file_name(999, ".index")
    files.write_atomically(path, b"")
    found = the_one([one for one in Verification(files, DATA).run() if one.severity is not Severity.NOTE])
    assert (found.severity, found.path) == (Severity.UNSURE, path)


# --- what stands beside the log


@pytest.mark.parametrize("name", [layout.RECOVERY_POINT_CHECKPOINT_FILE, layout.REPLICATION_OFFSET_CHECKPOINT_FILE])
def test_a_checkpoint_beyond_the_log_end_is_damage(name: str) -> None:
    files = left_behind()
    write_offsets(files, DATA / name, {ORDERS: 1000})
    found = the_one(damages(files))
    assert (found.path, found.offset) == (DATA / name, 1000)
    assert f"and the log ends at {BATCHES * 3}" in found.problem


def test_a_checkpoint_that_does_not_read_is_damage_with_its_line() -> None:
    files = left_behind()
    path = DATA / layout.LOG_START_OFFSET_CHECKPOINT_FILE
    files.write_atomically(path, b"0\n1\norders 0 x\n")
    found = the_one(damages(files))
    assert found.path == path
    assert found.problem.startswith("line 3: an offset expected")


def test_a_checkpoint_row_without_its_partition_is_a_note() -> None:
    files = left_behind()
    path = DATA / layout.LOG_START_OFFSET_CHECKPOINT_FILE
    write_offsets(files, path, {TopicPartition("gone", 3): 5})
    assert the_one(findings(files)) == Finding(Severity.NOTE, path, "a row for gone-3, which is not here")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([EpochEntry(5, 0)], "offset 0 was written in epoch 0, the file says epoch 5"),
        ([EpochEntry(0, 10)], "the file says no epoch"),
        ([EpochEntry(0, 0), EpochEntry(1, 500)], "epoch 1 begins at 500, the log ends at 36"),
    ],
)
def test_leader_epochs_that_contradict_the_batches_are_damage(entries: list[EpochEntry], words: str) -> None:
    files = left_behind()
    write_leader_epochs(files, PLACE, entries)
    assert words in the_one(damages(files)).problem


@pytest.mark.parametrize("content", [b"", bytes(12)], ids=["empty", "zeros"])
def test_blank_leader_epochs_are_damage_only_where_they_were_on_disk(content: bytes) -> None:
    """A crash while a partition is made leaves its file without content, and then nothing is lost."""
    path = PLACE / layout.LEADER_EPOCH_CHECKPOINT_FILE
    for clean in (True, False):
        files = left_behind(clean=clean)
        replace(files, path, content)
        assert the_one(of_file(files, path)).severity is Severity.DAMAGE
    write_offsets(files, DATA / layout.RECOVERY_POINT_CHECKPOINT_FILE, {})
    assert the_one(of_file(files, path)).severity is Severity.UNSURE
    node, files, _ = start_node(SimulatedFiles(), None)
    node.services.catalog.create_topics([NewTopic("orders")], lambda results: None)
    node.settle()
    node.stop()
    replace(files, path, content)
    assert [one.severity for one in findings(files)] == [Severity.NOTE]


def of_file(files: SimulatedFiles, path: Path) -> list[Finding]:
    return [one for one in findings(files) if one.path == path]


def replace(files: SimulatedFiles, path: Path, content: bytes) -> None:
    files.unlink(path)
    files.write_new(path, content)


def snapshot_of(files: SimulatedFiles) -> Path:
    return PLACE / layout.offset_file_name(BATCHES * 3, ".snapshot")


def test_a_producer_snapshot_that_is_torn_is_damage() -> None:
    files = left_behind()
    flip(files, snapshot_of(files), 20)
    assert "the checksum does not match" in the_one(damages(files)).problem


def test_a_producer_snapshot_that_contradicts_the_log_is_damage() -> None:
    files = left_behind()
    older = sorted(name for name in files.list_directory(PLACE) if name.endswith(".snapshot"))[0]
    files.write_atomically(snapshot_of(files), files.read_bytes(PLACE / older))
    found = the_one(damages(files))
    assert "producer 77 is said to have ended with offset" in found.problem


def test_a_snapshot_beyond_the_log_end_is_damage() -> None:
    files = left_behind()
    path = PLACE / layout.offset_file_name(500, ".snapshot")
    files.write_atomically(path, files.read_bytes(snapshot_of(files)))
    assert "it speaks of offsets up to 500" in the_one(damages(files)).problem


def test_partitions_of_one_topic_with_two_ids_are_damage() -> None:
    files = left_behind()
    files.make_directory(DATA / "orders-1")
    text = b"version: 0\ntopic_id: nhB9nTcrtoJr2B01QqQZ1g\n"
    files.write_atomically(DATA / "orders-1" / layout.PARTITION_METADATA_FILE, text)
    found = the_one(damages(files))
    assert found.problem.startswith("topic id nhB9nTcrtoJr2B01QqQZ1g, while __cluster_metadata-0 says")


def test_without_metadata_partitions_of_one_topic_are_held_against_each_other() -> None:
    files = left_behind()
    files.make_directory(DATA / "orders-1")
    text = b"version: 0\ntopic_id: nhB9nTcrtoJr2B01QqQZ1g\n"
    files.write_atomically(DATA / "orders-1" / layout.PARTITION_METADATA_FILE, text)
    for name in files.list_directory(DATA / "__cluster_metadata-0"):
        files.unlink(DATA / "__cluster_metadata-0" / name)
    found = the_one([one for one in damages(files) if one.path.name == layout.PARTITION_METADATA_FILE])
    assert found.problem.startswith("topic id nhB9nTcrtoJr2B01QqQZ1g, while orders-0 says")


def test_a_directory_of_an_earlier_topic_of_that_name_is_for_the_next_start_after_a_crash() -> None:
    files = left_behind()
    files.unlink(DATA / layout.CLEAN_SHUTDOWN_FILE)
    text = b"version: 0\ntopic_id: nhB9nTcrtoJr2B01QqQZ1g\n"
    files.write_atomically(PLACE / layout.PARTITION_METADATA_FILE, text)
    found = [one for one in Verification(files, DATA).run() if one.path.name == layout.PARTITION_METADATA_FILE]
    assert [one.severity for one in found] == [Severity.UNSURE]


@pytest.mark.parametrize("name", [layout.META_PROPERTIES_FILE, layout.FORMAT_FILE])
def test_a_small_file_that_does_not_read_is_damage(name: str) -> None:
    files = left_behind()
    files.write_atomically(DATA / name, b"\xff")
    assert the_one(damages(files)).path == DATA / name


def test_a_known_time_that_does_not_read_is_a_note() -> None:
    files = left_behind()
    files.write_atomically(DATA / layout.CLOCK_FILE, b"\xff")
    (note,) = findings(files)
    assert (note.severity, note.path) == (Severity.NOTE, DATA / layout.CLOCK_FILE)
    assert "the next start rewrites it" in note.problem


def test_what_a_start_has_quarantined_and_strays_are_notes() -> None:
    files = left_behind()
    kept = PLACE / f"{layout.offset_file_name(0, '.log')}.corrupt-1700000000000"
    files.write_atomically(kept, b"x")
    files.make_directory(DATA / "old-0-stray")
    assert {(one.severity, one.path) for one in findings(files)} == {
        (Severity.NOTE, kept),
        (Severity.NOTE, DATA / "old-0-stray"),
    }


def test_a_metadata_snapshot_with_a_wrong_checksum_is_damage() -> None:
    files = left_behind()
    place = DATA / "__cluster_metadata-0"
    name = next(one for one in files.list_directory(place) if one.endswith(".checkpoint"))
    flip(files, place / name, HEADER_BYTES + 3)
    assert place / name in {one.path for one in damages(files)}


def remove_folder(files: SimulatedFiles, path: Path) -> None:
    for name in files.list_directory(path):
        files.unlink(path / name)
    files.remove_directory(path)


def copy_folder(files: SimulatedFiles, path: Path, copy: Path) -> None:
    files.make_directory(copy)
    for name in files.list_directory(path):
        files.write_atomically(copy / name, files.read_bytes(path / name))


def test_a_partition_whose_folder_is_gone_is_damage_where_it_is_known_to_have_held_records() -> None:
    files = left_behind()
    remove_folder(files, PLACE)
    found = the_one(findings(files))
    assert (found.severity, found.path) == (Severity.DAMAGE, PLACE)
    assert "the log had reached offset 36: put it back before" in found.problem


def test_a_partition_whose_folder_is_gone_is_a_note_where_nobody_knows_of_records() -> None:
    files = left_behind()
    remove_folder(files, PLACE)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        rows = read_offsets(files, DATA / name)
        write_offsets(files, DATA / name, {one: offset for one, offset in rows.items() if one != ORDERS})
    found = the_one(findings(files))
    assert (found.severity, found.path) == (Severity.NOTE, PLACE)
    assert "the next start creates it, empty" in found.problem


def test_a_partition_that_the_metadata_has_in_another_directory_is_not_missed() -> None:
    node, files, _ = start_node(log_dirs="/data,/data2")
    node.services.catalog.create_topics([NewTopic("orders", 2)], lambda outcomes: None)
    node.settle()
    node.stop()
    assert findings(files) == []


@pytest.mark.parametrize("name", ["orders-7", "other-0"])
def test_a_folder_that_the_metadata_does_not_know_is_a_note_that_says_what_becomes_of_it(name: str) -> None:
    files = left_behind()
    copy_folder(files, PLACE, DATA / name)
    found = the_one(findings(files))
    assert (found.severity, found.path) == (Severity.NOTE, DATA / name)
    assert "the next start renames it to -stray" in found.problem
    start_node(files)
    assert not files.is_directory(DATA / name)


def test_what_a_crash_left_of_a_deleted_topic_is_a_note_that_says_what_becomes_of_it() -> None:
    node, files, _ = start_node()
    node.services.catalog.create_topics([NewTopic("gone")], lambda outcomes: None)
    node.settle()
    topic_id = node.services.catalog.topics["gone"].id
    node.services.catalog.delete_topics(["gone"], lambda outcomes: None)
    node.settle()
    files = files.kill()
    files.make_directory(DATA / "gone-0")
    write_partition_metadata(files, DATA / "gone-0", topic_id)
    found = [one for one in findings(files) if one.path == DATA / "gone-0"]
    assert {one.severity for one in found} == {Severity.NOTE}
    assert found[-1].problem == "its topic was deleted, and the stop came first: the next start removes it"


def test_the_records_of_a_stray_are_served_where_it_takes_the_place_of_a_new_partition() -> None:
    """As docs/log-verify.md says."""
    files = left_behind()
    copy_folder(files, PLACE, DATA / "other-0")
    node, _, _ = start_node(files)
    node.services.catalog.create_topics([NewTopic("other")], lambda outcomes: None)
    node.settle()
    node.stop()
    (stray,) = [name for name in files.list_directory(DATA) if name.endswith("-stray")]
    remove_folder(files, DATA / "other-0")
    copy_folder(files, DATA / stray, DATA / "other-0")
    files.unlink(DATA / "other-0" / "partition.metadata")
    node, _, _ = start_node(files)
    log = node.services.log_manager.get("other", 0)
    assert log is not None
    assert sorted(stored(log)) == list(range(BATCHES * 3))


def test_topics_that_a_running_broker_makes_and_deletes_meanwhile_are_no_damage() -> None:
    files = left_behind()
    node, _, _ = start_node(files)
    node.services.catalog.create_topics([NewTopic("doomed")], lambda outcomes: None)
    node.settle()
    verification = Verification(files, DATA)
    node.services.catalog.delete_topics(["doomed"], lambda outcomes: None)
    node.services.catalog.create_topics([NewTopic("young")], lambda outcomes: None)
    node.settle()
    assert verification.size_bytes() > 0
    found = [one for one in verification.run() if one.path.name in ("doomed-0", "young-0")]
    words = "a running broker has deleted it meanwhile: not looked at to its end"
    assert found == [Finding(Severity.NOTE, DATA / "doomed-0", words)]
    assert verification.partition_directories() == [DATA / "__cluster_metadata-0", PLACE]


def test_a_log_whose_first_segment_was_taken_away_is_damage_after_a_clean_stop() -> None:
    files = left_behind()
    first, second = sorted(one for one in files.list_directory(PLACE) if one.endswith(".log"))[:2]
    for suffix in (".log", ".index", ".timeindex"):
        files.unlink(PLACE / first.replace(".log", suffix))
    base = int(second.removesuffix(".log"))
    found = the_one(findings(files))
    assert (found.severity, found.offset) == (Severity.DAMAGE, 0)
    assert f"orders-0: the log begins at offset 0, and its first segment at {base}" in found.problem


@pytest.mark.parametrize("has_retention", [False, True])
def test_a_log_whose_first_records_were_deleted_is_sound(has_retention: bool) -> None:
    node, files, _ = start_node(left_behind(), log_segment_bytes=1024)
    log = node.services.log_manager.get("orders", 0)
    assert log is not None
    log.delete_records(20)
    if has_retention:
        log.retention.apply(NOW_MS)
        assert log.segments[0].base_offset > 0
    node.stop()
    assert findings(files) == []


def test_a_checkpoint_of_log_starts_that_was_taken_away_is_damage() -> None:
    """Records that DeleteRecords deleted would be seen again, and nobody would know."""
    files = left_behind()
    files.unlink(DATA / "log-start-offset-checkpoint")
    found = the_one(findings(files))
    assert (found.severity, found.path) == (Severity.DAMAGE, DATA / "log-start-offset-checkpoint")
    assert "records that DeleteRecords had deleted" in found.problem


def test_segments_that_a_running_broker_replaces_meanwhile_are_no_damage() -> None:
    """The cleaner joins two segments after their names were read."""
    files = left_behind(configs=(("cleanup.policy", "compact"),))
    looking = Verification(files, DATA, ORDERS).run()
    first, second = logs_of(files)[:2]
    real, calls = files.size, []

    def size(path: Path) -> int:
        if path == first and not calls:
            calls.append(path)
            joined = files.read_bytes(first) + files.read_bytes(second)
            for old in (first, second):
                for suffix in (".log", ".index", ".timeindex"):
                    files.unlink(old.with_suffix(suffix))
            files.open(first, create=True).pwritev([joined], 0)
        return real(path)

    files.size = size  # type: ignore[method-assign]  # the broker's hand
    found = list(looking)
    assert calls
    assert {one.severity for one in found} <= {Severity.NOTE}
    assert [one.path for one in found if "replaced it meanwhile" in one.problem] == [first, second]
