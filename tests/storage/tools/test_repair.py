"""A repair mends every kind of damage, offline: a second one finds nothing, and a broker starts on what is left."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.directory_damages import (
    DAMAGES,
    bad_batch,
    bad_epochs,
    bad_last_batch,
    flipped_identity,
    metadata_damage,
    metadata_without_a_byte,
    partitions_alone,
    unreadable_recovery_points,
)
from kit.left_behind import ALL, BATCHES, KEYS, METADATA, ORDERS, PLACE, flip, left_behind, logs_of
from kit.logs import NOW_MS, batch, stored
from kit.nodes import DATA, start_node
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.metadata.image import MetadataError
from ottla.broker.metadata.reading import METADATA_DIRECTORY
from ottla.broker.metadata.rebuild import REBUILT, MetadataRebuild
from ottla.broker.node import Node
from ottla.protocol.records.batch import HEADER_BYTES
from ottla.storage.errors import StorageError
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import read_offsets, write_offsets
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.formats.leader_epoch_checkpoint import EpochEntry, read_leader_epochs, write_leader_epochs
from ottla.storage.formats.partition_metadata import write_partition_metadata
from ottla.storage.log.append import AppendEntry
from ottla.storage.segment.scan import walk
from ottla.storage.tools.repair import DirectoryInUse, Repair
from ottla.storage.tools.verify import Severity, Verification

LATER_MS = NOW_MS + 1_000_000


def repair(files: SimulatedFiles, only: TopicPartition | None = None) -> list[tuple[Path, str]]:
    metadata = MetadataRebuild(files, DATA, LATER_MS)
    return list(Repair(files, DATA, LATER_MS, only, metadata, lambda question: True).run())


def findings(files: SimulatedFiles) -> list[object]:
    return [one for one in Verification(files, DATA).run() if one.severity is not Severity.NOTE]


def started(files: SimulatedFiles) -> Node:
    node, _, _ = start_node(files, **KEYS)
    return node


def served(node: Node) -> dict[int, bytes | None]:
    log = node.services.log_manager.get("orders", 0)
    assert log is not None
    return stored(log)


def kept(first_missing: int | None) -> dict[int, bytes]:
    return {offset: value for offset, value in ALL.items() if first_missing is None or offset < first_missing}


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_mended_stays_mended_and_a_broker_serves_it(
    damage: Callable[[SimulatedFiles], int | None], clean: bool
) -> None:
    files = left_behind(clean=clean)
    first_missing = damage(files)
    assert repair(files), "nothing was mended"
    assert findings(files) == []
    assert repair(files) == [], "a second repair finds nothing"
    node = started(files)
    assert served(node) == kept(first_missing)
    node.stop()
    assert findings(files) == []


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
def test_a_checkpoint_of_log_starts_that_was_taken_away_is_rewritten(clean: bool) -> None:
    files = left_behind(clean=clean)
    files.unlink(DATA / "log-start-offset-checkpoint")
    (line,) = [line for path, line in repair(files) if path == DATA / "log-start-offset-checkpoint"]
    assert "orders-0 begins at offset 0, with its first segment" in line
    assert findings(files) == []
    assert served(started(files)) == ALL


def test_a_log_whose_first_segment_was_taken_away_begins_with_the_next_one_from_now_on() -> None:
    files = left_behind()
    first, second = logs_of(files)[:2]
    for suffix in (".log", ".index", ".timeindex"):
        files.unlink(first.with_suffix(suffix))
    base = int(second.stem)
    lines = [line for path, line in repair(files) if path == DATA / "log-start-offset-checkpoint"]
    assert lines == [f"rows that contradict the logs are changed: orders-0 begins at offset {base}, not 0"]
    assert findings(files) == []
    assert repair(files) == []
    assert served(started(files)) == {offset: value for offset, value in ALL.items() if offset >= base}


@pytest.mark.parametrize("is_readable", [True, False], ids=["metadata", "no metadata"])
def test_the_only_batch_of_the_current_leader_epoch_keeps_it_where_the_metadata_has_that(is_readable: bool) -> None:
    files = left_behind(clean=False)
    node = started(files)  # an unclean start begins epoch 1
    log = node.services.log_manager.get("orders", 0)
    assert log is not None
    before, end_offset = read_leader_epochs(files, PLACE), log.log_end_offset
    log.append([AppendEntry(memoryview(batch(b"the first of epoch 1")), 1)], NOW_MS)
    files = files.kill()
    write_leader_epochs(files, PLACE, before)  # the kill came before the checkpoint was written
    if not is_readable:
        metadata_without_a_byte(files)
    repair(files)
    assert read_leader_epochs(files, PLACE) == [*before, *([EpochEntry(1, end_offset)] if is_readable else [])]


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
def test_a_sound_directory_is_left_as_it_is(clean: bool) -> None:
    files = left_behind(clean=clean)
    repair(files)
    before = {path: data for path, data in files.written_state().items() if not path.endswith(".lock")}
    assert repair(files) == []
    assert {path: data for path, data in files.written_state().items() if not path.endswith(".lock")} == before


def test_the_mark_of_a_clean_stop_stays_where_nothing_is_mended() -> None:
    files = left_behind()
    assert repair(files) == []
    assert files.exists(DATA / layout.CLEAN_SHUTDOWN_FILE)


def test_a_persons_directories_that_end_as_unfinished_files_do_are_nothing_to_mend() -> None:
    files = left_behind(clean=True)
    for path in (DATA / "old.tmp", DATA / str(ORDERS) / "old.tmp", DATA / str(ORDERS) / "backup.deleted"):
        files.make_directory(path)
    assert repair(files) == []


def test_looking_and_planning_change_nothing() -> None:
    for damage in DAMAGES:
        files = left_behind()
        damage(files)
        before = files.written_state()
        going = Repair(files, DATA, LATER_MS, None, MetadataRebuild(files, DATA, LATER_MS))
        list(going.look())
        assert going.plan(), damage.__name__
        assert files.written_state() == before


def test_a_directory_that_a_broker_has_is_refused() -> None:
    node, files, _ = start_node()
    with pytest.raises(DirectoryInUse, match="in use by a broker"):
        repair(files)
    node.stop()


def test_sound_batches_after_damage_are_quarantined_and_their_offsets_are_reported() -> None:
    files = left_behind()
    offset = bad_batch(files)
    reported = [line for path, line in repair(files) if path == PLACE]
    assert f"offsets {offset} to {BATCHES * 3 - 1} are not in the log any more" in reported
    aside = [name for name in files.list_directory(PLACE) if f".corrupt-{LATER_MS}" in name]
    assert aside
    assert [line for line in reported if line.startswith("quarantined as") and "sound batches of offsets" in line]
    assert any(f"sound batches of offsets {offset + 3} to" in line for line in reported)


def test_a_last_batch_that_was_acknowledged_is_quarantined_and_not_truncated() -> None:
    files = left_behind()
    bad_last_batch(files)
    repair(files)
    (aside,) = [name for name in files.list_directory(PLACE) if ".corrupt-" in name]
    assert files.size(PLACE / aside) > HEADER_BYTES


@pytest.mark.parametrize(
    "damage", [bad_batch, unreadable_recovery_points, metadata_damage, bad_epochs, partitions_alone]
)
@pytest.mark.parametrize("power_cut", [True, False], ids=["power cut", "kill"])
def test_a_repair_that_is_stopped_anywhere_is_finished_by_the_next(
    damage: Callable[[SimulatedFiles], int | None], power_cut: bool
) -> None:
    step, stops = 1, 0
    while True:
        files = left_behind()
        first_missing = damage(files)
        files.sync_directory(PLACE)
        changes = files.changes
        files.crash_when = lambda kind, path, files=files, at=changes + step: files.changes >= at
        try:
            repair(files)
        except CrashPoint:
            stops += 1
            step += 1 + step // 8
            files = files.crash(random.Random(step)) if power_cut else files.kill()
        else:
            break
        repair(files)
        assert findings(files) == []
        assert repair(files) == []
        node = started(files)
        assert served(node) == kept(first_missing)
        node.stop()
    assert stops > 5


# --- the metadata log


def test_what_was_configured_before_the_damage_is_kept_and_lost_configurations_keep_all_records() -> None:
    files = left_behind(configs=(("retention.ms", "1000"),))
    metadata_without_a_byte(files)
    reported = [line for path, line in repair(files) if path == METADATA]
    assert any("topic orders: its configuration is lost; retention.ms=-1" in line for line in reported)
    node = started(files)
    topic = node.services.catalog.topics.get("orders")
    assert topic is not None
    assert topic.overrides == {"retention.ms": "-1", "retention.bytes": "-1"}
    node.stop()


def test_a_rebuilt_metadata_log_keeps_the_topic_id_and_the_old_one_beside_it() -> None:
    files = left_behind()
    node = started(files)
    before = node.services.catalog.topics.get("orders")
    assert before is not None
    node.stop()
    metadata_damage(files)
    repair(files)
    assert any(name.startswith(METADATA_DIRECTORY) and name.endswith("-stray") for name in files.list_directory(DATA))
    assert not files.exists(DATA / REBUILT)
    node = started(files)
    after = node.services.catalog.topics.get("orders")
    assert after is not None
    assert after.id == before.id
    node.stop()


def test_producer_ids_are_not_given_out_twice_after_a_rebuild() -> None:
    files = left_behind()
    metadata_without_a_byte(files)
    repair(files)
    node = started(files)
    assert node.services.catalog.image.next_producer_id > 77
    node.stop()


def test_a_second_log_directory_is_not_given_a_metadata_log_unless_a_person_wants_that() -> None:
    other = Path("/other")
    node, files, _ = start_node(log_dirs=f"{DATA},{other}")
    node.services.catalog.create_topics([NewTopic("orders", partitions=4)], lambda outcomes: None)
    node.settle()
    node.stop()
    questions: list[str] = []

    def refuses(question: str) -> bool:
        questions.append(question)
        return False

    def mending(*others: Path) -> Repair:
        return Repair(files, other, LATER_MS, None, MetadataRebuild(files, other, LATER_MS, others), refuses)

    assert [one.severity for one in mending().look()] == [Severity.NOTE]
    assert list(mending().run()) == []
    assert not files.exists(other / METADATA_DIRECTORY)
    (question,) = questions
    assert question == (
        "Make a metadata log in /other, with topics of the 2 partitions that are there (orders)?"
        " Not where another log directory of this broker has it."
    )
    assert list(mending(DATA).look()) == []
    assert list(mending(DATA).run()) == []
    assert len(questions) == 1, "the other directory has it"


def test_partitions_in_other_log_directories_are_found_where_they_are_named() -> None:
    other = Path("/other")
    node, files, _ = start_node(log_dirs=f"{DATA},{other}")
    node.services.catalog.create_topics([NewTopic("orders", partitions=4)], lambda outcomes: None)
    node.settle()
    node.stop()
    homes = [sum(name.startswith("orders-") for name in files.list_directory(place)) for place in (DATA, other)]
    assert all(homes), "both directories have partitions"
    metadata_without_a_byte(files)
    metadata = MetadataRebuild(files, DATA, LATER_MS, [other])
    reported = list(Repair(files, DATA, LATER_MS, None, metadata, lambda question: True).run())
    assert any("/data, /other" in line for _, line in reported)
    node, _, _ = start_node(files, log_dirs=f"{DATA},{other}")
    assert len(node.services.catalog.topics["orders"].partitions) == 4
    assert not any(name.endswith("-stray") and name.startswith("orders") for name in files.list_directory(other))
    node.stop()


def test_a_start_takes_a_directory_whose_topic_id_has_a_flipped_bit() -> None:
    files = left_behind()
    before = files.read_bytes(PLACE / layout.PARTITION_METADATA_FILE)
    flipped_identity(files)
    node, _, _ = start_node(files, **KEYS)
    log = node.services.log_manager.get("orders", 0)
    assert log is not None
    assert stored(log) == ALL
    assert files.read_bytes(PLACE / layout.PARTITION_METADATA_FILE) == before


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (METADATA / "quorum-state", b'{"leaderId":1'),
        (METADATA / "quorum-state", b"{}"),
        (DATA / "bootstrap.checkpoint", b""),
        (METADATA / "00000000000000000000-0000000000.checkpoint", b""),
        (DATA / "bootstrap.checkpoint", bytes(100)),
    ],
)
def test_what_a_start_of_ottla_or_kafka_would_refuse_is_damage(path: Path, content: bytes) -> None:
    files = left_behind()
    files.write_atomically(path, content)
    going = Repair(files, DATA, LATER_MS, None, MetadataRebuild(files, DATA, LATER_MS))
    assert [(one.severity, one.path) for one in going.look()] == [(Severity.DAMAGE, path)]
    assert going.verification.counts.findings[Severity.DAMAGE] == 1
    assert [mend.path for mend in going.plan()] == [path]
    repair(files)
    again = Repair(files, DATA, LATER_MS, None, MetadataRebuild(files, DATA, LATER_MS))
    assert list(again.look()) == []
    assert served(started(files)) == ALL


def test_metadata_that_cannot_be_read_are_damage_though_all_checksums_match() -> None:
    files = left_behind()
    for path in logs_of(files, METADATA):
        files.write_atomically(path, b"")
    write_offsets(files, DATA / layout.RECOVERY_POINT_CHECKPOINT_FILE, {})
    write_offsets(files, DATA / layout.REPLICATION_OFFSET_CHECKPOINT_FILE, {})
    going = Repair(files, DATA, LATER_MS, None, MetadataRebuild(files, DATA, LATER_MS))
    assert METADATA in [one.path for one in going.look() if one.severity is Severity.DAMAGE]
    repair(files)
    again = Repair(files, DATA, LATER_MS, None, MetadataRebuild(files, DATA, LATER_MS))
    assert [one for one in again.look() if one.severity is not Severity.NOTE] == []
    assert served(started(files)) == ALL


@pytest.mark.parametrize("cut_in", ["a batch", "between batches"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_metadata_log_that_has_lost_what_was_on_disk_refuses_the_start_and_is_rebuilt(
    clean: bool, cut_in: str
) -> None:
    """It used to be taken for the whole log: its topics were gone, and their partitions renamed to `-stray`."""
    files = left_behind(clean=clean)
    (path,) = logs_of(files, METADATA)
    positions = [at for at, _ in walk(files.open(path).pread, 0, files.size(path))]
    file = files.open(path, writable=True)
    file.truncate(positions[1] + (20 if cut_in == "a batch" else 0))
    file.fdatasync()
    before = files.written_state()
    with pytest.raises(MetadataError, match=r"offsets below \d+ were on disk; `ottla log verify --repair /data`"):
        started(files)
    changed = {name for name, data in files.written_state().items() if before.get(name) != data}
    assert not {name for name in changed if name.endswith((".log", "-stray")) or ".corrupt-" in name}
    going = Repair(files, DATA, LATER_MS, None, MetadataRebuild(files, DATA, LATER_MS))
    damaged = [one.path for one in going.look() if one.severity is Severity.DAMAGE]
    assert METADATA in damaged or path in damaged
    repair(files)
    again = Repair(files, DATA, LATER_MS, None, MetadataRebuild(files, DATA, LATER_MS))
    assert [one for one in again.look() if one.severity is not Severity.NOTE] == []
    assert served(started(files)) == ALL


def test_a_crash_before_the_metadata_log_is_rebuilt_leaves_what_shows_that_it_ends_early() -> None:
    files = left_behind()
    (path,) = logs_of(files, METADATA)
    positions = [at for at, _ in walk(files.open(path).pread, 0, files.size(path))]
    files.open(path, writable=True).truncate(positions[1])
    interrupted = Repair(files, DATA, LATER_MS, None, MetadataRebuild(files, DATA, LATER_MS)).run()
    for _, line in interrupted:
        if "rebuilt" in line or "rewritten" in line:
            break
        assert "__cluster_metadata-0 from" not in line
    rows = read_offsets(files, DATA / layout.RECOVERY_POINT_CHECKPOINT_FILE)
    assert rows[TopicPartition(layout.CLUSTER_METADATA_TOPIC, 0)] > 1


def test_a_directory_of_a_kafka_with_zookeeper_is_left_to_it_until_a_repair_makes_a_metadata_log() -> None:
    files = left_behind()
    for name in files.list_directory(METADATA):
        files.unlink(METADATA / name)
    files.remove_directory(METADATA)
    for path in (DATA / "bootstrap.checkpoint", DATA / layout.FORMAT_FILE, PLACE / layout.PARTITION_METADATA_FILE):
        files.unlink(path)
    properties = b"#Sun Nov 22 01:33:45 UTC 2026\nbroker.id=1\nversion=0\ncluster.id=snStTyhwRxOLAX0YhcbINQ\n"
    files.write_atomically(DATA / layout.META_PROPERTIES_FILE, properties)
    before = files.written_state()
    with pytest.raises(StorageError, match="with ZooKeeper, which has its topics; `ottla log verify --repair /data`"):
        started(files)
    assert files.written_state() == before
    lines = [line for _, line in repair(files)]
    assert "topic orders: no directory says its topic id, so it gets a new one" in lines
    again = Repair(files, DATA, LATER_MS, None, MetadataRebuild(files, DATA, LATER_MS))
    assert [one for one in again.look() if one.severity is not Severity.NOTE] == []
    assert again.plan() == []
    assert served(started(files)) == ALL


def test_what_a_crash_left_of_a_deleted_topic_is_no_topic_after_a_repair() -> None:
    """Its removal can be read before the damage; its directory was not renamed yet."""
    files = left_behind()
    node = started(files)
    node.services.catalog.create_topics([NewTopic("gone")], lambda _: None)
    node.settle()
    topic_id = node.services.catalog.topics["gone"].id
    node.services.catalog.delete_topics(["gone"], lambda _: None)
    node.settle()
    node.services.catalog.create_topics([NewTopic("last")], lambda _: None)
    node.settle()
    node.services.log_manager.checkpoints.write_recovery_points()
    files = files.kill()
    files.make_directory(DATA / "gone-0")
    write_partition_metadata(files, DATA / "gone-0", topic_id)
    (path,) = logs_of(files, METADATA)
    last, _ = list(walk(files.open(path).pread, 0, files.size(path)))[-1]
    flip(files, path, last + HEADER_BYTES + 3)
    reported = [line for _, line in repair(files)]
    assert "gone-0: its topic was deleted; the next start removes it" in reported
    node = started(files)
    assert set(node.services.catalog.topics) == {"orders", "last"}
    assert [name for name in files.list_directory(DATA) if name.startswith(("gone", "last")) or "orders" in name] == [
        "last-0",
        "orders-0",
    ]


def test_the_tail_of_a_metadata_log_that_was_stopped_cleanly_is_not_torn_but_damaged() -> None:
    """Kafka keeps no recovery point for it: that it was stopped cleanly tells."""
    files = left_behind()
    (path,) = logs_of(files, METADATA)
    write_offsets(files, DATA / layout.RECOVERY_POINT_CHECKPOINT_FILE, {ORDERS: BATCHES * 3})
    positions = [at for at, _ in walk(files.open(path).pread, 0, files.size(path))]
    files.open(path, writable=True).truncate(positions[1] + 20)
    repair(files)
    assert served(started(files)) == ALL
