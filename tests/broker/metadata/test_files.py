"""The metadata directory's files to the byte, and what is read of them when they are damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from kit.simulated_files import SimulatedFiles

from ottla.broker.metadata.batches import encode_data_batch, leader_change_batch, single_voter
from ottla.broker.metadata.image import MetadataError, MetadataImage
from ottla.broker.metadata.journal import bootstrap_records
from ottla.broker.metadata.metadata_version import METADATA_VERSION
from ottla.broker.metadata.opening import known_features
from ottla.broker.metadata.quorum_state import QuorumState, decode_quorum_state
from ottla.broker.metadata.scan import scan_log
from ottla.broker.metadata.snapshot import (
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
    parse_snapshot_name,
)
from ottla.protocol.message import decode
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.protocol.records.control import ControlType, decode_control_key
from ottla.protocol.stored.control import LeaderChangeMessage
from ottla.protocol.stored.metadata import FeatureLevelRecord, MetadataRecord, NoOpRecord, TopicRecord

DIRECTORY = Path("/data/__cluster_metadata-0")
NOW_MS = 1_700_000_000_000


def topics(count: int) -> list[MetadataRecord]:
    return [TopicRecord(name=f"t{number}", topic_id=UUID(int=1000 + number)) for number in range(count)]


def snapshot(records: list[MetadataRecord]) -> bytes:
    voters = single_voter(1, UUID(int=9), [("CONTROLLER", "localhost", 9093)])
    return encode_snapshot(records, epoch=3, now_ms=NOW_MS, last_contained_log_timestamp=NOW_MS, voters=voters)


def test_quorum_state_is_the_line_that_kafka_4_writes() -> None:
    line = b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    assert QuorumState(1, 3).encode() == line
    assert decode_quorum_state(line) == QuorumState(1, 3)


def test_quorum_state_of_data_version_0_is_read() -> None:
    older = {
        "clusterId": "",
        "leaderId": -1,
        "leaderEpoch": 2,
        "votedId": 1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }
    assert decode_quorum_state(json.dumps(older).encode()) == QuorumState(-1, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"leaderId":1,"leaderEpoch":3,"data_version":2}',
        b"\xff",
        b'{"leaderId":1,"leaderEpoch":2543020800000,"data_version":1}',
        b'{"leaderId":1,"leaderEpoch":2147483647,"data_version":1}',
        b'{"leaderId":2147483648,"leaderEpoch":3,"data_version":1}',
    ],
)
def test_a_quorum_state_that_cannot_be_read_says_so(data: bytes) -> None:
    with pytest.raises(MetadataError, match="quorum-state"):
        decode_quorum_state(data)


def test_a_leader_change_elects_the_one_voter_in_its_epoch() -> None:
    batch = leader_change_batch(base_offset=7, epoch=4, now_ms=NOW_MS, node_id=1)
    ((_, header),) = iter_batches(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.is_control) == (7, 4, True)
    (record,) = decode_batch(batch)
    assert decode_control_key(record.key) is ControlType.LEADER_CHANGE
    message = decode(LeaderChangeMessage, record.value or b"", 0)
    assert message.leader_id == 1
    assert [voter.voter_id for voter in message.voters] == [1]
    assert message.granting_voters == message.voters


def test_a_snapshot_is_named_by_end_offset_and_epoch() -> None:
    assert SnapshotId(4711, 3).file_name == "00000000000000004711-0000000003.checkpoint"
    assert parse_snapshot_name("00000000000000004711-0000000003.checkpoint") == SnapshotId(4711, 3)


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000004711-0000000003.checkpoint.tmp",
        "00000000000000004711-0000000003.checkpoint.deleted",
        "00000000000000004711-0000000003-1234.checkpoint.part",
        "bootstrap.checkpoint",
        "4711-3.checkpoint",
    ],
)
def test_an_unfinished_snapshot_is_not_one(name: str) -> None:
    assert parse_snapshot_name(name) is None


def test_a_snapshot_is_header_data_and_footer_with_offsets_of_its_own() -> None:
    content = snapshot(topics(500))
    headers = [header for _, header in iter_batches(content)]
    assert [header.is_control for header in headers] == [True, False, False, False, True]
    assert [header.base_offset for header in headers] == [0, 3, 203, 403, 503]
    assert {header.partition_leader_epoch for header in headers} == {3}
    kinds = [decode_control_key(record.key) for record in decode_batch(content)]
    assert kinds == [ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    assert decode_snapshot(content, "x") == topics(500)


def test_an_encoding_rests_after_every_200_records() -> None:
    made = rests = 0
    most = 0

    def records() -> Iterator[MetadataRecord]:
        nonlocal made, most
        for record in topics(500):
            made += 1
            most = max(most, made)
            yield record

    def rest() -> None:
        nonlocal made, rests
        made = 0
        rests += 1

    encode_snapshot(records(), epoch=3, now_ms=NOW_MS, last_contained_log_timestamp=NOW_MS, pause=rest)
    assert (most, rests) == (200, 3)


def test_a_snapshot_without_its_footer_is_refused() -> None:
    content = snapshot(topics(3))
    *_, (position, _) = iter_batches(content)
    with pytest.raises(MetadataError, match="is incomplete"):
        decode_snapshot(content[:position], "x")


def test_a_snapshot_that_begins_without_its_header_or_continues_after_its_footer_is_named_once() -> None:
    content = snapshot(topics(3))
    _, (position, _), *_ = iter_batches(content)
    for wrong, said in (
        (content[position:], "does not begin with its header"),
        (content * 2, "continues after its footer"),
    ):
        with pytest.raises(MetadataError) as refused:
            decode_snapshot(wrong, "x")
        assert str(refused.value) == f"the snapshot x is damaged: it {said}"


def test_a_snapshot_is_refused_whatever_byte_of_it_is_damaged() -> None:
    content = bytearray(snapshot(topics(2)))
    harmless = _bytes_outside_of_checksums(content)
    for position in range(len(content)):
        if position in harmless:
            continue
        content[position] ^= 0x10
        with pytest.raises(MetadataError):
            decode_snapshot(bytes(content), "x")
        content[position] ^= 0x10


def _bytes_outside_of_checksums(content: bytearray) -> set[int]:
    """Base offset and leader epoch of each batch: no checksum covers them, as in every log of Kafka's."""
    return {position + byte for position, _ in iter_batches(content) for byte in (*range(8), *range(12, 16))}


def test_bootstrap_names_the_metadata_version_of_kafka_4_1_and_then_the_other_features() -> None:
    assert METADATA_VERSION == 27
    assert bootstrap_records() == [
        FeatureLevelRecord(name="metadata.version", feature_level=27),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
        FeatureLevelRecord(name="share.version", feature_level=1),
        FeatureLevelRecord(name="streams.version", feature_level=1),
    ]


def test_a_log_that_is_not_empty_gets_the_features_that_it_lacks() -> None:
    known = {"metadata.version", "transaction.version", "share.version", "streams.version"}
    assert bootstrap_records(known) == [FeatureLevelRecord(name="group.version", feature_level=1)]


@pytest.mark.parametrize(
    ("level", "given"),
    [
        (17, []),
        (21, []),
        (22, ["group.version"]),
        (25, ["group.version"]),
        (26, ["group.version", "share.version"]),
        (27, ["group.version", "share.version"]),
    ],
)
def test_a_directory_of_an_older_kafka_gets_no_feature_that_this_kafka_would_refuse(
    level: int, given: list[str]
) -> None:
    """Kafka 3.9 (level 21) ends at a record of group.version 1, Kafka 4.0 (25) at one of share.version 1, and Kafka 4.1
    (27) at one of streams.version 1.
    """
    image = MetadataImage()
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=level))
    lacks = [record.name for record in bootstrap_records(known_features(image, node_id=1))]
    assert lacks == given


# --- The log


def segment(files: SimulatedFiles, base_offset: int, content: bytes) -> None:
    files.make_directory(DIRECTORY, parents=True)
    files.write_atomically(DIRECTORY / f"{base_offset:020d}.log", content)


def batch(base_offset: int, count: int = 1) -> bytes:
    return bytes(encode_data_batch([NoOpRecord()] * count, base_offset=base_offset, epoch=1, now_ms=NOW_MS))


def scanned(files: SimulatedFiles, from_offset: int = 0) -> list[int]:
    return [header.base_offset for header, _ in scan_log(files, DIRECTORY, from_offset)]


def test_scanning_goes_over_segments_from_the_one_that_holds_the_offset() -> None:
    files = SimulatedFiles()
    segment(files, 0, batch(0) + batch(1))
    segment(files, 2, batch(2, 3) + batch(5))
    assert scanned(files) == [0, 1, 2, 5]
    assert scanned(files, 5) == [5]
    assert scanned(files, 6) == []


@pytest.mark.parametrize("kept", [1, 20, 60, 61, 70])
def test_a_torn_last_batch_is_left_out(kept: int) -> None:
    files = SimulatedFiles()
    segment(files, 0, batch(0) + batch(1) + batch(2)[:kept])
    assert scanned(files) == [0, 1]


def test_zeros_at_the_end_are_left_out() -> None:
    files = SimulatedFiles()
    segment(files, 0, batch(0) + bytes(500))
    assert scanned(files) == [0]


@pytest.mark.parametrize("position", [9, 30, 65])
def test_a_bad_batch_with_a_sound_one_behind_it_is_damage(position: int) -> None:
    files = SimulatedFiles()
    damaged = bytearray(batch(0) + batch(1) + batch(2))
    damaged[len(batch(0)) + position] ^= 0xFF
    segment(files, 0, bytes(damaged))
    with pytest.raises(MetadataError, match="is after it"):
        scanned(files)


def test_a_bad_end_of_a_segment_that_is_not_the_last_is_damage() -> None:
    files = SimulatedFiles()
    segment(files, 0, batch(0) + batch(1)[:-1])
    segment(files, 2, batch(2))
    with pytest.raises(MetadataError, match="is after it"):
        scanned(files)


def test_a_missing_segment_is_damage() -> None:
    files = SimulatedFiles()
    segment(files, 0, batch(0))
    segment(files, 2, batch(2))
    with pytest.raises(MetadataError, match="where offset 1 belongs"):
        scanned(files)


def test_a_log_that_begins_behind_what_is_needed_is_damage() -> None:
    files = SimulatedFiles()
    segment(files, 5, batch(5))
    with pytest.raises(MetadataError, match="begins at offset 5"):
        scanned(files, 4)


def test_only_finished_snapshots_are_listed_the_oldest_first() -> None:
    files = SimulatedFiles()
    files.make_directory(DIRECTORY, parents=True)
    for name in (
        "00000000000000000000-0000000000.checkpoint",
        "00000000000000000030-0000000002.checkpoint",
        "00000000000000000007-0000000001.checkpoint",
        "00000000000000000040-0000000002.checkpoint.deleted",
    ):
        files.write_atomically(DIRECTORY / name, b"x")
    assert list_snapshots(files, DIRECTORY) == [SnapshotId(7, 1), SnapshotId(30, 2)]
