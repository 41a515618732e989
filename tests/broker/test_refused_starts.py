"""A start that is refused leaves the disk as it was, the mark of a clean stop above all: so the next one is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.directory_damages import metadata_damage, metadata_gone, metadata_without_a_byte, quorum_state
from kit.left_behind import METADATA, left_behind, logs_of
from kit.nodes import DATA, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.metadata.image import MetadataError
from ottla.protocol.stored.metadata import PartitionChangeRecord
from ottla.storage.errors import StorageError
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import write_offsets
from ottla.storage.segment.scan import walk

Deed = Callable[[], SimulatedFiles]


def damaged(damage: Callable[[SimulatedFiles], object]) -> Deed:
    def deed() -> SimulatedFiles:
        files = left_behind()
        damage(files)
        return files

    return deed


def torn(files: SimulatedFiles) -> None:
    """The last batch of the metadata log is cut short, and nothing but the mark says that it was whole once."""
    (path,) = logs_of(files, METADATA)
    for name in (layout.RECOVERY_POINT_CHECKPOINT_FILE, layout.REPLICATION_OFFSET_CHECKPOINT_FILE):
        write_offsets(files, DATA / name, {})
    last, _ = list(walk(files.open(path).pread, 0, files.size(path)))[-1]
    file = files.open(path, writable=True)
    file.truncate(last + 20)
    file.fdatasync()


def identity_of_the_metadata(files: SimulatedFiles) -> None:
    files.write_atomically(METADATA / layout.PARTITION_METADATA_FILE, b"version: 0\ntopic_id: ?")


def larger_cluster() -> SimulatedFiles:
    node, files, _ = start_node()
    node.services.catalog.create_topics([NewTopic("orders")], lambda _: None)
    node.settle()
    topic_id = node.services.catalog.topics["orders"].id
    change = PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2])
    node.services.catalog.change(lambda image: [change], lambda error: None)
    node.settle()
    node.stop()
    return files


def two_metadata_logs() -> SimulatedFiles:
    files = left_behind()
    other = Path("/other") / METADATA.name
    files.make_directory(other, parents=True)
    for name in files.list_directory(METADATA):
        files.write_atomically(other / name, files.read_bytes(METADATA / name))
    return files


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        (damaged(metadata_damage), "the metadata log /data/__cluster_metadata-0 cannot be used"),
        (damaged(torn), "and it was stopped cleanly"),
        (damaged(quorum_state), "quorum-state cannot be read"),
        (damaged(metadata_gone), "is missing or empty"),
        (damaged(metadata_without_a_byte), "is missing or empty"),
        (damaged(identity_of_the_metadata), "`ottla log verify --repair /data`"),
        (larger_cluster, "directories of a larger cluster cannot be served"),
    ],
    ids=["damage", "torn", "quorum-state", "gone", "empty", "identity", "larger cluster"],
)
def test_a_refused_start_changes_nothing_and_the_next_is_refused_in_the_same_words(deed: Deed, words: str) -> None:
    files = deed()
    files.write_atomically(DATA / "x.tmp", b"x")
    before = files.written_state()
    assert any(layout.CLEAN_SHUTDOWN_FILE in str(path) for path in before)
    said = []
    for _ in range(2):
        with pytest.raises((MetadataError, StorageError)) as caught:
            start_node(files)
        said.append(str(caught.value))
        assert files.written_state() == before
    assert words in said[0]
    assert "\n" not in said[0]
    assert said[0] == said[1]


def test_two_directories_with_a_metadata_log_are_refused_and_unchanged() -> None:
    files = two_metadata_logs()
    files.write_atomically(Path("/other/.lock"), b"")  # the lock that a start takes stays
    before = files.written_state()
    with pytest.raises(
        StorageError, match=r"__cluster_metadata-0 is in /data/.* and /other/.*: move all but one of them away"
    ):
        start_node(files, log_dirs="/data,/other")
    assert files.written_state() == before
