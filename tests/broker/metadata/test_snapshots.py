"""Snapshots of the metadata: when they are taken, what they replay to, and a disk that refuses them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from kit.nodes import DATA, pass_time, start_node
from kit.topics import create, delete

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.metadata import journal
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.image_records import records_of
from ottla.broker.metadata.reading import METADATA_DIRECTORY
from ottla.broker.metadata.snapshot import decode_snapshot, list_snapshots
from ottla.protocol.stored.metadata import MetadataRecord, TopicRecord

METADATA = DATA / METADATA_DIRECTORY


def test_snapshot_and_log_replay_to_the_image_of_the_log_alone() -> None:
    node, files, clock = start_node(metadata_log_max_record_bytes_between_snapshots=2_000)
    for number in range(40):
        create(node, NewTopic(f"t{number}", partitions=2, configs=[("retention.ms", str(number))]))
        if number % 3 == 0:
            delete(node, f"t{number}")
        pass_time(node, clock, 1_000)
    assert node.services.catalog.snapshots_taken > 3
    live = node.services.catalog.image
    node.stop()
    again, _, _ = start_node(files, clock)
    found = again.services.catalog.image
    assert set(found.topics) == set(live.topics)
    assert _essence(found) == _essence(live)
    kept = [name for name in files.list_directory(METADATA) if name.endswith(".checkpoint")]
    assert len(kept) == 3
    bases = [name for name in files.list_directory(METADATA) if name.endswith(".log")]
    assert bases[0] > f"{0:020d}.log"


def _essence(image: MetadataImage) -> object:
    return image.topics, image.configs, image.next_producer_id, image.features, image.partition_count


def test_a_snapshot_is_taken_by_time_only_when_something_changed() -> None:
    node, _, clock = start_node(metadata_log_max_snapshot_interval_ms=10_000)
    pass_time(node, clock, 15_000)
    taken = node.services.catalog.snapshots_taken
    pass_time(node, clock, 30_000)
    assert node.services.catalog.snapshots_taken == taken
    create(node, NewTopic("t"))
    pass_time(node, clock, 2_000)
    assert node.services.catalog.snapshots_taken == taken + 1


def test_a_snapshot_that_the_disk_refuses_does_no_harm() -> None:
    node, files, clock = start_node(metadata_log_max_record_bytes_between_snapshots=1)
    files.fail("*", "*.checkpoint.tmp", errno.ENOSPC)
    create(node, NewTopic("t"))
    pass_time(node, clock, 2_000)
    assert node.services.catalog.snapshots_taken == 0
    assert node.services.metrics.chore("metadata snapshot").failures == 1
    create(node, NewTopic("u"))
    pass_time(node, clock, 2_000)
    assert node.services.catalog.snapshots_taken == 1
    node.stop()
    again, _, _ = start_node(files, clock)
    assert set(again.services.catalog.topics) == {"t", "u"}


def test_a_snapshot_is_made_by_a_worker_of_the_image_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what has changed meanwhile is in the log after it."""
    node, files, clock = start_node(metadata_log_max_record_bytes_between_snapshots=1)
    create(node, NewTopic("t"))
    held: list[Callable[[], None]] = []

    def hold(work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        held.append(lambda: done(work(), None))

    made: list[str] = []

    def note(record: MetadataRecord) -> MetadataRecord:
        made.append(type(record).__name__)
        return record

    monkeypatch.setattr(journal, "records_of", lambda image: map(note, records_of(image)))
    with monkeypatch.context() as patch:
        patch.setattr(node.services.workers, "run", hold)
        pass_time(node, clock, 2_000)
    before = node.services.catalog.image.end_offset
    assert made == []
    delete(node, "t")
    create(node, NewTopic("u", partitions=3))
    for work in held:
        work()
    assert "TopicRecord" in made
    (taken,) = list_snapshots(files, METADATA)
    assert taken.end_offset == before
    records = decode_snapshot(bytes(files.read_bytes(METADATA / taken.file_name)), "x")
    assert [record.name for record in records if isinstance(record, TopicRecord)] == ["t"]
    node.stop()
    again, _, _ = start_node(files, clock)
    assert set(again.services.catalog.topics) == {"u"}


def test_the_segments_that_a_snapshot_replaces_are_removed_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for a sync of its name, for which the broker's thread has no time."""
    node, files, clock = start_node(metadata_log_max_record_bytes_between_snapshots=1)
    in_worker = False
    run, call = node.services.workers.run, files.call

    def noting(work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        def in_its_thread() -> object:
            nonlocal in_worker
            in_worker = True
            try:
                return work()
            finally:
                in_worker = False

        run(in_its_thread, done)

    syncs: list[bool] = []

    def calling(kind: str, path: Path) -> AbstractContextManager[object]:
        if kind == "sync_directory" and path == METADATA:
            syncs.append(in_worker)
        return call(kind, path)

    for number in range(4):
        create(node, NewTopic(f"t{number}"))
        monkeypatch.setattr(node.services.workers, "run", noting)
        monkeypatch.setattr(files, "call", calling)
        pass_time(node, clock, 2_000)
        monkeypatch.undo()
    assert node.services.catalog.snapshots_taken > 3
    assert node.services.catalog.metadata_log.segments[0].base_offset > 0
    assert len(syncs) > 4
    assert all(syncs)
