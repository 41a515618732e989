"""File and directory names are Kafka's, to the last digit."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.formats import layout
from ottla.storage.formats.layout import DirectoryKind, PartitionDirectory, TopicPartition

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in {".", ".."})


def test_a_base_offset_has_twenty_digits() -> None:
    assert layout.log_file(Path("t-0"), 368769) == Path("t-0/00000000000000368769.log")
    assert layout.offset_index_file(Path("t-0"), 0, ".deleted").name == "00000000000000000000.index.deleted"
    assert layout.time_index_file(Path("t-0"), 1).name == "00000000000000000001.timeindex"
    assert layout.txn_index_file(Path("t-0"), 1).name == "00000000000000000001.txnindex"
    assert layout.snapshot_file(Path("t-0"), 1).name == "00000000000000000001.snapshot"


def test_the_largest_offset_has_a_name() -> None:
    name = layout.offset_file_name(layout.MAX_OFFSET, ".log")
    assert name == "09223372036854775807.log"
    assert layout.parse_offset_file(name) == (layout.MAX_OFFSET, ".log")


@pytest.mark.parametrize("offset", [-1, layout.MAX_OFFSET + 1])
def test_an_impossible_offset_has_no_name(offset: int) -> None:
    with pytest.raises(ValueError, match="an offset lies between"):
        layout.offset_file_name(offset, ".log")


@pytest.mark.parametrize(
    "name",
    ["09223372036854775808.log", "0000000000000000000.log", "00000000000000000000", "x.log", "partition.metadata"],
)
def test_other_names_are_not_taken_for_segments(name: str) -> None:
    assert layout.parse_offset_file(name) is None


def test_a_suffix_chain_is_kept_whole() -> None:
    assert layout.parse_offset_file("00000000000000000007.timeindex.deleted") == (7, ".timeindex.deleted")
    assert layout.parse_offset_file("00000000000000000007.log.corrupt-1700") == (7, ".log.corrupt-1700")


@given(TOPICS, st.integers(0, layout.MAX_PARTITION))
def test_a_partition_directory_parses_back(topic: str, partition: int) -> None:
    name = layout.partition_directory_name(topic, partition)
    assert layout.parse_partition_directory(name) == PartitionDirectory(
        TopicPartition(topic, partition), DirectoryKind.PARTITION
    )


@given(TOPICS, st.integers(0, layout.MAX_PARTITION), st.uuids())
def test_a_deleted_directory_keeps_within_a_file_name_and_is_known_as_deleted(
    topic: str, partition: int, unique_id: uuid.UUID
) -> None:
    name = layout.delete_directory_name(topic, partition, unique_id)
    parsed = layout.parse_partition_directory(name)
    assert len(name) <= 255
    assert parsed is not None
    assert parsed.kind is DirectoryKind.DELETED
    assert topic.startswith(parsed.topic_partition.topic)


def test_the_names_of_deleted_and_stray_directories_are_kafkas() -> None:
    unique_id = uuid.UUID("9e107d9d-372b-b682-6bd8-1d3542a419d6")
    assert layout.delete_directory_name("a-b", 3, unique_id) == "a-b-3.9e107d9d372bb6826bd81d3542a419d6-delete"
    assert layout.stray_directory_name("a-b", 3, unique_id) == "a-b-3.9e107d9d372bb6826bd81d3542a419d6-stray"


@pytest.mark.parametrize(
    ("name", "topic", "partition", "kind"),
    [
        ("first-2-0", "first-2", 0, DirectoryKind.PARTITION),
        ("a--1", "a-", 1, DirectoryKind.PARTITION),
        ("orders-0-stray", "orders", 0, DirectoryKind.STRAY),
        ("orders-0.9e107d9d372bb6826bd81d3542a419d6-future", "orders", 0, DirectoryKind.FUTURE),
        ("__cluster_metadata-0", "__cluster_metadata", 0, DirectoryKind.PARTITION),
    ],
)
def test_the_last_dash_divides(name: str, topic: str, partition: int, kind: DirectoryKind) -> None:
    assert layout.parse_partition_directory(name) == PartitionDirectory(TopicPartition(topic, partition), kind)


@pytest.mark.parametrize(
    "name", ["lost+found", "orders", "orders-", "-0", "orders-01", "orders-x", "..-0", "o-2147483648"]
)
def test_foreign_directories_are_left_alone(name: str) -> None:
    assert layout.parse_partition_directory(name) is None


@pytest.mark.parametrize("name", ["a", "a" * 249, "A.b_c-9", "..."])
def test_legal_topic_names(name: str) -> None:
    assert layout.topic_name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "a/b", "ä", "a\n"])
def test_illegal_topic_names(name: str) -> None:
    assert layout.topic_name_problem(name) is not None


def test_names_that_differ_by_dot_and_underscore_collide() -> None:
    assert layout.collision_key("a.b_c") == layout.collision_key("a_b.c")
    assert layout.collision_key("a.b") != layout.collision_key("a-b")
