"""Checkpoints and identity files: Kafka's bytes out, Kafka's bytes in, and a clear word for anything else."""

from __future__ import annotations

import uuid
from pathlib import Path

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.simulated_files import SimulatedFiles

from ottla.storage.formats.checkpoint import BrokenFile, read_offsets, write_offsets
from ottla.storage.formats.directory_format import (
    read_clean_shutdown,
    read_format,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_format,
)
from ottla.storage.formats.kafka_uuid import random_uuid, uuid_from_text, uuid_to_text
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.formats.leader_epoch_checkpoint import EpochEntry, read_leader_epochs, write_leader_epochs
from ottla.storage.formats.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from ottla.storage.formats.partition_metadata import read_partition_metadata, write_partition_metadata

ROOT = Path("/")
TOPIC_ID = uuid.UUID("9e107d9d-372b-b682-6bd8-1d3542a419d6")
TOPIC_ID_TEXT = "nhB9nTcrtoJr2B01QqQZ1g"


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


# -- offset checkpoints


def test_an_offset_checkpoint_has_kafkas_bytes(files: SimulatedFiles) -> None:
    write_offsets(files, ROOT / "c", {TopicPartition("orders", 0): 4711, TopicPartition("first-2", 1): 15})
    assert files.read_bytes(ROOT / "c") == b"0\n2\nfirst-2 1 15\norders 0 4711\n"


def test_an_empty_checkpoint_has_no_rows(files: SimulatedFiles) -> None:
    write_offsets(files, ROOT / "c", {})
    assert files.read_bytes(ROOT / "c") == b"0\n0\n"
    assert read_offsets(files, ROOT / "c") == {}


def test_a_missing_checkpoint_says_nothing(files: SimulatedFiles) -> None:
    assert read_offsets(files, ROOT / "c") == {}


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.from_regex(r"[a-z]{1,9}", fullmatch=True), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1),
        max_size=5,
    )
)
def test_offsets_read_back_as_written(offsets: dict[TopicPartition, int]) -> None:
    files = SimulatedFiles()
    write_offsets(files, ROOT / "c", offsets)
    assert read_offsets(files, ROOT / "c") == offsets


@pytest.mark.parametrize(
    ("content", "line", "expected"),
    [
        (b"", 1, "the file is empty"),
        (b"\0\0\0", 1, "nothing but 3 zeros"),
        (b"1\n0\n", 1, "version 0"),
        (b"0\n", 2, "the number of rows"),
        (b"0\nx\n", 2, "the number of rows"),
        (b"0\n99999999999\n", 2, "the number of rows"),
        (b"0\n2\na 0 1\n", 3, "2 rows expected, got 1"),
        (b"0\n1\na 0 1\nb 0 1\n", 4, "1 rows expected, got 2"),
        (b"0\n1\na 0\n", 3, "'topic partition offset'"),
        (b"0\n1\na b 0 1\n", 3, "'topic partition offset'"),
        (b"0\n1\na/b 0 1\n", 3, "'topic partition offset'"),
        (b"0\n1\na -1 1\n", 3, "a partition"),
        (b"0\n1\na 0 9223372036854775808\n", 3, "an offset"),
        (b"0\n1\na 0 1_0\n", 3, "an offset"),
        (b"0\n1\n\0\0\0\0\n", 3, "'topic partition offset'"),
        (b"0\n1\na 0 \xff\n", 3, "not UTF-8"),
    ],
)
def test_a_broken_checkpoint_names_file_line_and_expectation(
    files: SimulatedFiles, content: bytes, line: int, expected: str
) -> None:
    files.write_atomically(ROOT / "recovery-point-offset-checkpoint", content)
    with pytest.raises(BrokenFile) as caught:
        read_offsets(files, ROOT / "recovery-point-offset-checkpoint")
    assert str(caught.value).startswith(f"/recovery-point-offset-checkpoint: line {line}: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


# -- leader epochs


def test_leader_epochs_have_kafkas_bytes(files: SimulatedFiles) -> None:
    entries = [EpochEntry(0, 0), EpochEntry(3, 4711)]
    write_leader_epochs(files, ROOT, entries)
    assert files.read_bytes(ROOT / "leader-epoch-checkpoint") == b"0\n2\n0 0\n3 4711\n"
    assert read_leader_epochs(files, ROOT) == entries


@pytest.mark.parametrize("rows", [b"1 5\n1 6\n", b"2 5\n1 6\n", b"1 5\n2 4\n", b"1\n2\n", b"-1 0\n2 1\n"])
def test_leader_epochs_that_go_back_are_refused(files: SimulatedFiles, rows: bytes) -> None:
    files.write_atomically(ROOT / "leader-epoch-checkpoint", b"0\n2\n" + rows)
    with pytest.raises(BrokenFile, match=r"leader-epoch-checkpoint: line [34]: "):
        read_leader_epochs(files, ROOT)


# -- uuids and partition.metadata


def test_a_uuid_has_kafkas_text() -> None:
    assert uuid_to_text(TOPIC_ID) == TOPIC_ID_TEXT
    assert uuid_from_text(TOPIC_ID_TEXT) == TOPIC_ID
    assert uuid_to_text(uuid.UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"


@given(st.uuids())
def test_every_uuid_reads_back(value: uuid.UUID) -> None:
    assert uuid_from_text(uuid_to_text(value)) == value


@pytest.mark.parametrize(
    "text", ["", "AAAA", "nhB9nTcrtoJr2B01QqQZ1", "nhB9nTcrtoJr2B01QqQZ1g1g", "nhB9+Tcrt/Jr2B01QqQZ1g", "ü" * 22]
)
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a uuid"):
        uuid_from_text(text)


def test_a_random_uuid_never_looks_like_an_option() -> None:
    assert not any(uuid_to_text(random_uuid()).startswith("-") for _ in range(500))


def test_partition_metadata_has_kafkas_bytes(files: SimulatedFiles) -> None:
    write_partition_metadata(files, ROOT, TOPIC_ID)
    assert files.read_bytes(ROOT / "partition.metadata") == b"version: 0\ntopic_id: nhB9nTcrtoJr2B01QqQZ1g"
    assert read_partition_metadata(files, ROOT) == TOPIC_ID


def test_missing_partition_metadata_is_none(files: SimulatedFiles) -> None:
    assert read_partition_metadata(files, ROOT) is None


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", 1),
        (b"version: 1\ntopic_id: nhB9nTcrtoJr2B01QqQZ1g", 1),
        (b"version: 0", 2),
        (b"version: 0\nid: nhB9nTcrtoJr2B01QqQZ1g", 2),
        (b"version: 0\ntopic_id: short", 2),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2),
    ],
)
def test_broken_partition_metadata_is_refused(files: SimulatedFiles, content: bytes, line: int) -> None:
    files.write_atomically(ROOT / "partition.metadata", content)
    with pytest.raises(BrokenFile, match=rf"partition.metadata: line {line}: "):
        read_partition_metadata(files, ROOT)


# -- meta.properties


def test_meta_properties_read_back_with_keys_of_others(files: SimulatedFiles) -> None:
    properties = MetaProperties("cluster=x", 7, TOPIC_ID, others={"rack": "a: b"})
    write_meta_properties(files, ROOT, properties)
    assert read_meta_properties(files, ROOT) == properties


def test_meta_properties_as_kafka_4_writes_them(files: SimulatedFiles) -> None:
    files.write_atomically(
        ROOT / "meta.properties",
        b"#\n#Thu Jul 04 10:00:00 UTC 2025\nnode.id=1\ndirectory.id=nhB9nTcrtoJr2B01QqQZ1g\nversion=1\n"
        b"cluster.id=4L6g3nShT-eMCtK--X86sw\n",
    )
    assert read_meta_properties(files, ROOT) == MetaProperties("4L6g3nShT-eMCtK--X86sw", 1, TOPIC_ID)


@pytest.mark.parametrize(
    "text",
    [
        "version=1\nnode.id=1\ncluster.id=abc\n",
        "#\n#Fri Nov 21 06:48:56 UTC 2026\n!x\n\nversion=1\nnode.id=1\ncluster.id=a-b_c\n",
        "version=1\r\nnode.id=1\r\ncluster.id=abc\r\n",
        "#comment\rversion=1\rnode.id=1\rcluster.id=abc",
        "version: 1\nnode.id 1\n  cluster.id = abc\n",
        "version=1\nnode.id=1\ncluster.id=a\\\n  bc\n",
        "version=1\nnode.id=1\ncluster.id=a\\u0062c\nother=\\=x\\:y \nlast=",
        "version=1\nnode.id=2\nnode.id=1\ncluster.id=abc\nother= x y \nanother=x y \n",
        "version=1\nnode.id=1\ncluster.id=abc\nkey\\=x=y=z\nempty=\nlonely\n",
    ],
)
def test_meta_properties_mean_what_java_says(files: SimulatedFiles, text: str) -> None:
    expected = javaproperties.loads(text)
    files.write_atomically(ROOT / "meta.properties", text.encode())
    found = read_meta_properties(files, ROOT)
    assert found is not None
    others = {key: value for key, value in expected.items() if key not in ("version", "node.id", "cluster.id")}
    assert found == MetaProperties(expected["cluster.id"], int(expected["node.id"]), None, others=others)


@pytest.mark.parametrize("other", ["plain", "", " x", "x ", "a b", "a=b", "a:b", "#", "\\", "ü", "x\ny", "\t"])
def test_meta_properties_are_written_so_that_java_reads_them(files: SimulatedFiles, other: str) -> None:
    written = MetaProperties("abc", 1, None, others={"other": other, f"k{other}": "x"})
    write_meta_properties(files, ROOT, written)
    parsed = javaproperties.loads(files.read_bytes(ROOT / "meta.properties").decode())
    assert parsed == {"version": "1", "node.id": "1", "cluster.id": "abc", "other": other, f"k{other}": "x"}
    assert read_meta_properties(files, ROOT) == written


def test_meta_properties_of_version_0_give_the_broker_id(files: SimulatedFiles) -> None:
    files.write_atomically(ROOT / "meta.properties", b"broker.id=3\nversion=0\ncluster.id=abc\n")
    assert read_meta_properties(files, ROOT) == MetaProperties("abc", 3, None, version=0)


@pytest.mark.parametrize(
    ("content", "line", "expected"),
    [
        (b"cluster.id=a\nnode.id=1\n", 2, "version"),
        (b"version=2\ncluster.id=a\nnode.id=1\n", 1, "version"),
        (b"version=1\ncluster.id=a\n", 2, "node.id"),
        (b"version=1\ncluster.id=a\nnode.id=one\n", 3, "node.id"),
        (b"version=1\nnode.id=1\n", 2, "cluster.id"),
        (b"version=1\nnode.id=1\ncluster.id=a\ndirectory.id=zz\n", 4, "uuid"),
        (b"version=1\nnode.id=\\u00zz\n", 1, "a property file"),
    ],
)
def test_broken_meta_properties_name_the_line(files: SimulatedFiles, content: bytes, line: int, expected: str) -> None:
    files.write_atomically(ROOT / "meta.properties", content)
    with pytest.raises(BrokenFile, match=rf"meta.properties: line {line}: .*{expected}"):
        read_meta_properties(files, ROOT)


# -- ottla.format and the mark of a clean stop


def test_our_format_reads_back(files: SimulatedFiles) -> None:
    assert read_format(files, ROOT) is None
    write_format(files, ROOT)
    assert files.read_bytes(ROOT / "ottla.format") == b"version=1\n"
    assert read_format(files, ROOT) == 1


def test_a_broken_format_is_refused(files: SimulatedFiles) -> None:
    files.write_atomically(ROOT / "ottla.format", b"who knows")
    with pytest.raises(BrokenFile, match="version=<number>"):
        read_format(files, ROOT)


def test_the_mark_of_a_clean_stop_is_kafkas(files: SimulatedFiles) -> None:
    assert read_clean_shutdown(files, ROOT) is None
    write_clean_shutdown(files, ROOT, 17)
    assert files.read_bytes(ROOT / ".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":17}'
    assert read_clean_shutdown(files, ROOT) == 17
    remove_clean_shutdown(files, ROOT)
    remove_clean_shutdown(files, ROOT)
    assert read_clean_shutdown(files, ROOT) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"7", b'{"brokerEpoch":"x"}', b"\xff"])
def test_a_mark_without_an_epoch_counts(files: SimulatedFiles, content: bytes) -> None:
    files.write_atomically(ROOT / ".kafka_cleanshutdown", content)
    assert read_clean_shutdown(files, ROOT) == -1


def test_a_removed_mark_does_not_come_back_after_a_crash(files: SimulatedFiles) -> None:
    write_clean_shutdown(files, ROOT, 17)
    remove_clean_shutdown(files, ROOT)
    assert "/.kafka_cleanshutdown" not in files.synced_state()
