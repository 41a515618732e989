"""Groups and offsets come back from the log: Kafka's own, torn, damaged, strange, and large ones."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from kit.cleaning import clean
from kit.clock import ManualClock
from kit.group_requests import (
    COMMIT_VERSION,
    FETCH_VERSION,
    HEARTBEAT_VERSION,
    JOIN_VERSION,
    begin,
    code_of,
    commit,
    commit_request,
    committed,
    delete_group,
    describe,
    fetch_request,
    group_ids,
    join,
    join_request,
    make_topic,
    settled,
    sync,
)
from kit.nodes import DATA, ask, pass_time, start_node
from kit.simulated_files import SimulatedFiles
from kit.transactional_offsets import UNSTABLE, end, stable_offset

from ottla.broker.coordination.definition import java_hash
from ottla.broker.coordination.loader import STEP_BYTES
from ottla.broker.coordination.runtime import LOAD_AT_START_BYTES
from ottla.broker.coordination.shard_map import RELOAD_INTERVAL_MS
from ottla.broker.metadata.reading import METADATA_DIRECTORY
from ottla.broker.metadata.rebuild import MetadataRebuild
from ottla.broker.node import Node
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.list_groups import ListGroupsRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import encode_batch, iter_batches
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.control import (
    ControlType,
    EndTransactionMarker,
    encode_control_key,
    encode_end_transaction_marker,
)
from ottla.protocol.records.record import Record
from ottla.protocol.stored.group import OffsetCommitKey, OffsetCommitValue, encode_group_key, encode_group_value
from ottla.storage.formats.layout import OFFSETS_TOPIC, PARTITION_METADATA_FILE
from ottla.storage.tools.repair import Repair

KAFKAS_LOG = Path(__file__).parent / "golden" / "kafka-4.1.0-consumer-offsets.log"
"""Written by Apache Kafka 4.1.0 (`scripts/interop/group-exchange --golden`): a static classic member, a member of the
consumer protocol, a group that was left, offsets committed by hand, in a transaction that was committed, one that was
aborted and one that was left open, a deleted group, and a deleted topic."""
LOG_FILE = DATA / f"{OFFSETS_TOPIC}-0" / "00000000000000000000.log"


def offset_record(group: str, offset: int, *, partition: int = 0, at: int = 0, tombstone: bool = False) -> Record:
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1)
    key = encode_group_key(OffsetCommitKey(group=group, topic="t", partition=partition))
    return Record(at, 1, key, None if tombstone else encode_group_value(value), ())


def log_of(batches: Sequence[tuple[list[Record], dict[str, object]]]) -> bytes:
    """Batches one behind the other, offsets in order."""
    data, offset = b"", 0
    for records, more in batches:
        placed = [record._replace(offset=offset + place) for place, record in enumerate(records)]
        data += encode_batch(placed, leader_epoch=0, **more)  # type: ignore[arg-type]  # keywords of encode_batch
        offset += len(records)
    return data


def node_on(data: bytes, *, settle: bool = True) -> tuple[Node, SimulatedFiles, ManualClock]:
    """A node whose `__consumer_offsets-0` holds these bytes, started as after a crash."""
    node, files, clock = start_node()
    for topic in ("t", "orders", "payments"):
        make_topic(node, topic, 4)
    assert commit(node, "founder", {0: 1}) == ErrorCode.NONE
    node.stop()
    file = files.open(LOG_FILE, writable=True)
    file.truncate(0)
    file.pwritev([data], 0)
    file.fdatasync()
    file.close()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        files.unlink(DATA / name)
    node, _, _ = start_node(files, clock)
    if settle:
        node.settle()
    return node, files, clock


def marker(kind: ControlType) -> list[Record]:
    return [Record(0, 1, encode_control_key(kind), encode_end_transaction_marker(EndTransactionMarker(0)), ())]


# Kafka's own log -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kafkas() -> Node:
    node, _, _ = node_on(KAFKAS_LOG.read_bytes())
    return node


def test_the_offsets_that_kafka_sent_are_sent_here(kafkas: Node) -> None:
    def offsets(group: str) -> dict[tuple[str, int], tuple[int, str | None]]:
        asked = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)])
        response = settled(kafkas, begin(kafkas, asked, FETCH_VERSION), OffsetFetchResponse)
        return {
            (topic.name, each.partition_index): (each.committed_offset, each.metadata)
            for topic in response.groups[0].topics
            for each in topic.partitions
        }

    assert offsets("classic") == {("orders", index): (25, "") for index in range(4)}
    assert offsets("modern") == {("payments", index): (25, "") for index in range(4)}
    assert offsets("left") == {("orders", index): (25, "") for index in range(4)}
    assert offsets("simple") == {("orders", 0): (4, ""), ("orders", 1): (8, "")}
    assert offsets("deleted-topic") == {("orders", 3): (9, "")}
    assert offsets("tx-commit") == {("orders", 2): (17, "")}
    for group in ("tx-abort", "tx-open", "deleted-group"):
        assert offsets(group) == {}


def test_the_groups_that_kafka_wrote_are_there_with_their_members(kafkas: Node) -> None:
    assert group_ids(kafkas, types_filter=["classic"]) == {
        "classic",
        "left",
        "simple",
        "deleted-topic",
        "tx-commit",
        "tx-open",
    }
    assert group_ids(kafkas, types_filter=["Consumer"]) == {"modern"}
    classic = describe(kafkas, "classic")
    assert (classic.group_state, classic.protocol_type, classic.protocol_data) == ("Stable", "consumer", "range")
    (member,) = classic.members
    assert (member.group_instance_id, member.client_id, member.client_host) == ("i-1", "one", "/127.0.0.1")


def test_a_member_of_kafkas_group_goes_on_here(kafkas: Node) -> None:
    (member,) = describe(kafkas, "classic").members
    beat = HeartbeatRequest(
        group_id="classic", generation_id=1, member_id=member.member_id, group_instance_id=member.group_instance_id
    )
    assert settled(kafkas, begin(kafkas, beat, HEARTBEAT_VERSION), HeartbeatResponse).error_code == ErrorCode.NONE


def test_a_transaction_that_kafka_left_open_is_held_back_and_ends_here() -> None:
    node, files, clock = node_on(KAFKAS_LOG.read_bytes())
    assert stable_offset(node, "tx-open", 2, topic="orders") == UNSTABLE
    assert end(node, 2) is None
    assert committed(node, "tx-open", 2, topic="orders") == 17
    node.stop()
    node, _, _ = start_node(files, clock)
    assert stable_offset(node, "tx-open", 2, topic="orders") == 17


# Transactions --------------------------------------------------------------------------------------------------------


def in_transaction(producer_id: int = 9) -> dict[str, object]:
    return {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}


def ended(producer_id: int = 9) -> dict[str, object]:
    return {"producer_id": producer_id, "producer_epoch": 0, "is_transactional": True, "is_control": True}


def test_offsets_of_a_transaction_count_from_its_commit_and_not_over_newer_ones() -> None:
    node, _, _ = node_on(
        log_of(
            [
                ([offset_record("g", 1), offset_record("g", 2, partition=1)], {}),
                ([offset_record("g", 10), offset_record("g", 20, partition=1)], in_transaction()),
                ([offset_record("g", 3)], {}),
                (marker(ControlType.COMMIT), ended()),
            ]
        )
    )
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (3, 20)


def test_of_two_committed_transactions_the_newer_record_counts_whichever_ends_first() -> None:
    for first, second in ((1, 2), (2, 1)):
        node, _, _ = node_on(
            log_of(
                [
                    ([offset_record("g", 10)], in_transaction(1)),
                    ([offset_record("g", 20)], in_transaction(2)),
                    (marker(ControlType.COMMIT), ended(first)),
                    (marker(ControlType.COMMIT), ended(second)),
                ]
            )
        )
        assert committed(node, "g") == 20


def test_a_tombstone_drops_what_an_open_transaction_has_written_before_it() -> None:
    node, _, _ = node_on(
        log_of(
            [
                ([offset_record("g", 10), offset_record("g", 11, partition=1)], in_transaction()),
                ([offset_record("g", 0, tombstone=True)], {}),
            ]
        )
    )
    assert (stable_offset(node, "g", 0), stable_offset(node, "g", 1)) == (-1, UNSTABLE)


def test_offsets_of_an_aborted_or_open_transaction_do_not_count() -> None:
    node, _, _ = node_on(
        log_of(
            [
                ([offset_record("g", 1), offset_record("h", 2)], {}),
                ([offset_record("g", 10)], in_transaction(1)),
                ([offset_record("h", 20)], in_transaction(2)),
                (marker(ControlType.ABORT), ended(1)),
            ]
        )
    )
    assert (committed(node, "g"), committed(node, "h")) == (1, 2)


# Strange and damaged logs --------------------------------------------------------------------------------------------


def test_a_torn_tail_is_cut_and_the_rest_counts() -> None:
    data = log_of([([offset_record("g", 1)], {}), ([offset_record("g", 2)], {})])
    node, _, _ = node_on(data[:-3])
    assert committed(node, "g") == 1
    assert commit(node, "g", {0: 3}) == ErrorCode.NONE


def test_records_that_cannot_be_used_are_skipped_counted_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    good = offset_record("g", 5)
    assert good.key is not None
    strange = [
        Record(0, 1, b"\x00\x12\x00\x01g", b"\x00\x00streams", ()),
        Record(0, 1, None, b"no key", ()),
        Record(0, 1, b"\x00", b"x", ()),
        Record(0, 1, good.key, b"\x00\x63", ()),
        Record(0, 1, b"\x00\x02\x00\x01h", b"\x00\x03broken", ()),
    ]
    data = log_of([(strange, {}), ([good], {})])
    node, files, _ = node_on(data)
    assert committed(node, "g") == 5
    assert group_ids(node) == {"g"}
    assert node.services.metrics.groups.skipped_records == 4  # the fifth was followed by a sound one of the same key
    assert "records of type 18" in caplog.text
    assert files.read_bytes(LOG_FILE)[: len(data)] == data


@pytest.mark.parametrize("damaged_byte", [70, 17, 8, 16])
def test_damage_in_the_middle_is_passed_over_and_said(damaged_byte: int, caplog: pytest.LogCaptureFixture) -> None:
    """In the records, the checksum, the length and the magic of a batch that lies below the recovery point."""
    node, files, clock = start_node(offsets_topic_segment_bytes=1024)
    make_topic(node, "t", 4)
    for group in ("early", "hit", *(f"late{number}" for number in range(20))):
        assert commit(node, group, {0: 7}) == ErrorCode.NONE
    node.stop()
    (first, header), (second, _), *_ = iter_batches(files.read_bytes(LOG_FILE))
    assert (first, second) == (0, header.size_bytes)
    file = files.open(LOG_FILE, writable=True)
    place = second + damaged_byte
    file.pwritev([bytes([file.pread(1, place)[0] ^ 0x55])], place)
    file.fdatasync()
    file.close()
    node, _, _ = start_node(files, clock, offsets_topic_segment_bytes=1024)
    assert committed(node, "early") == 7
    assert committed(node, "hit") == -1
    assert committed(node, "late19") == 7
    assert node.services.metrics.groups.skipped_records == 1
    assert f"{OFFSETS_TOPIC}-0" in caplog.text


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("size_bytes", [LOAD_AT_START_BYTES // 2, 3 * LOAD_AT_START_BYTES])
def test_damage_is_passed_over_be_it_cold_or_not_within_the_start_or_after_it(size_bytes: int, is_cold: bool) -> None:
    """Where a piece ends: the look-up for the next one comes upon it, in a worker where the bytes are cold."""
    node, files, clock = start_node(offsets_topic_segment_bytes=size_bytes - 20_000)
    make_topic(node, "t", 4)
    filler = dict.fromkeys(range(4), 7)
    assert commit(node, "early", {0: 7}) == ErrorCode.NONE
    log = node.services.catalog.topics[OFFSETS_TOPIC].partitions[0].log
    while log.size_bytes < size_bytes:
        assert commit(node, "g" * 1000, filler) == ErrorCode.NONE
    assert commit(node, "late", {0: 7}) == ErrorCode.NONE
    node.stop()
    damage_at = max(position for position, _ in iter_batches(files.read_bytes(LOG_FILE)) if position <= STEP_BYTES)
    file = files.open(LOG_FILE, writable=True)
    file.pwritev([b"\xff" * 20], damage_at)
    file.fdatasync()
    file.close()
    files.cold = ["*.log"] if is_cold else []
    node, _, _ = start_node(files, clock, offsets_topic_segment_bytes=size_bytes - 20_000)
    pass_time(node, clock, 100, step_ms=1)
    assert (committed(node, "early"), committed(node, "late")) == (7, 7)
    assert node.services.metrics.groups.skipped_records == 1


def test_the_oldest_kind_of_offset_key_is_the_same_offset() -> None:
    old, new = offset_record("g", 1), offset_record("g", 2)
    assert old.key is not None
    legacy = old._replace(key=b"\x00\x00" + old.key[2:])
    node, _, _ = node_on(log_of([([new], {}), ([legacy], {})]))
    assert committed(node, "g") == 1


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_compressed_batches_are_read(compression: Compression) -> None:
    records = [offset_record("g", index, partition=index) for index in range(4)]
    node, _, _ = node_on(log_of([(records, {"compression": compression})]))
    assert [committed(node, "g", index) for index in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("codec", range(5))
def test_what_is_written_with_a_codec_is_read_again(codec: int) -> None:
    node, files, clock = start_node(offsets_topic_compression_codec=codec)
    make_topic(node, "t", 4)
    assert commit(node, "g", dict.fromkeys(range(4), 7)) == ErrorCode.NONE
    (_, header) = next(iter_batches(files.read_bytes(LOG_FILE)))
    assert header.compression == Compression(codec)
    node.stop()
    node, _, _ = start_node(files, clock)
    assert committed(node, "g", 3) == 7


# Large logs ----------------------------------------------------------------------------------------------------------


def large_log() -> tuple[bytes, int]:
    """More than a start loads at once; the newest offset of each of 40 groups counts."""
    batches: list[tuple[list[Record], dict[str, object]]] = []
    rounds = 0
    size = 0
    while size < 3 * LOAD_AT_START_BYTES:
        batches.append(([offset_record(f"g{group}", rounds) for group in range(40)], {}))
        size += 40 * 60
        rounds += 1
    return log_of(batches), rounds


def test_while_a_large_log_is_loaded_requests_are_refused_and_heartbeats_accepted() -> None:
    data, rounds = large_log()
    node, _, clock = node_on(data, settle=False)
    assert node.services.groups.get().shards.loads_under_way == 1
    assert code_of(begin(node, commit_request("g1", {0: 1}), COMMIT_VERSION)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert code_of(begin(node, join_request("g1"), JOIN_VERSION)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert code_of(begin(node, ListGroupsRequest(), 5)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    fetched = settled(node, begin(node, fetch_request("g1", [0]), FETCH_VERSION), OffsetFetchResponse)
    assert fetched.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    beat = HeartbeatRequest(group_id="g1", generation_id=1, member_id="m")
    assert settled(node, begin(node, beat, HEARTBEAT_VERSION), HeartbeatResponse).error_code == ErrorCode.NONE
    pass_time(node, clock, 100, step_ms=1)
    assert node.services.groups.get().shards.loads_under_way == 0
    assert {committed(node, f"g{group}") for group in range(40)} == {rounds - 1}


def test_a_cold_log_is_read_by_workers_and_loaded_all_the_same() -> None:
    data, rounds = large_log()
    node, files, clock = node_on(data, settle=False)
    files.cold.append("*.log")
    pass_time(node, clock, 100, step_ms=1)
    assert committed(node, "g39") == rounds - 1


def test_a_load_that_could_not_read_is_done_again() -> None:
    data, rounds = large_log()
    node, files, clock = node_on(data, settle=False)
    files.fail("pread*", f"*{OFFSETS_TOPIC}-0/*.log", error=errno.EIO)
    pass_time(node, clock, 10, step_ms=1)
    assert code_of(begin(node, commit_request("g1", {0: 1}), COMMIT_VERSION)) is ErrorCode.NOT_COORDINATOR
    pass_time(node, clock, RELOAD_INTERVAL_MS + 200, step_ms=1)
    assert committed(node, "g39") == rounds - 1


def test_a_node_that_stops_while_it_loads_stops() -> None:
    data, _ = large_log()
    node, files, clock = node_on(data, settle=False)
    node.stop()
    pass_time(start_node(files, clock)[0], clock, 100, step_ms=1)


# The hash ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("polygenelubricants", 0),  # Integer.MIN_VALUE, which has no absolute value
        ("group-1", 293427299),
        ("käse", 3410411),
        ("\U0001d4b3", 1772318),  # two units of UTF-16
        ("g0-consumers", 617878759),  # negative in Java
    ],
)
def test_the_hash_of_a_group_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


# Compaction ----------------------------------------------------------------------------------------------------------


def test_a_log_that_was_compacted_holds_the_same_groups_and_offsets() -> None:
    node, files, clock = start_node(offsets_topic_segment_bytes=4096)
    make_topic(node, "t", 4)
    joined = join(node, "members")
    sync(node, "members", joined)
    for round_number in range(200):
        assert commit(node, f"g{round_number % 7}", {0: round_number, 1: -1}) == ErrorCode.NONE
    assert delete_group(node, "g6") == ErrorCode.NONE
    partition = node.services.catalog.partition(OFFSETS_TOPIC, 0)
    assert partition is not None
    partition.log.roll(clock.wall_ms())
    node.settle()
    before = partition.log.size_bytes
    clean(partition.log, now_ms=clock.wall_ms())
    assert partition.log.size_bytes < before / 5
    expected = {f"g{group}": committed(node, f"g{group}") for group in range(7)}
    node.stop()
    node, _, _ = start_node(files, clock, offsets_topic_segment_bytes=4096)
    assert {f"g{group}": committed(node, f"g{group}") for group in range(7)} == expected
    assert group_ids(node) == {"members", *(f"g{group}" for group in range(6))}
    assert [member.member_id for member in describe(node, "members").members] == [joined.member_id]


# Topics that were made again -----------------------------------------------------------------------------------------


def with_topic_id(record: Record, topic_id: UUID) -> Record:
    value = OffsetCommitValue(offset=7, metadata="", commit_timestamp=1, topic_id=topic_id)
    return record._replace(value=encode_group_value(value))


@pytest.mark.parametrize("is_open", [False, True])
def test_offsets_of_a_topic_that_was_made_again_do_not_count_at_a_load(is_open: bool) -> None:
    of_another = with_topic_id(offset_record("g", 7), UUID(int=99))
    node, files, clock = node_on(log_of([([of_another], in_transaction() if is_open else {})]))
    assert (committed(node, "g"), stable_offset(node, "g")) == (-1, -1)
    assert end(node, 9) is None
    assert committed(node, "g") == -1
    node.stop()
    node, _, _ = start_node(files, clock)
    assert committed(node, "g") == -1


def test_a_topic_whose_id_is_lost_everywhere_is_read_from_its_beginning_and_a_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may be a new topic of the same name, whose records must not be skipped."""
    node, files, clock = start_node()
    make_topic(node, "t", 4)
    assert commit(node, "g", {0: 5}) == ErrorCode.NONE
    node.stop()
    for index in range(4):
        files.unlink(DATA / f"t-{index}" / PARTITION_METADATA_FILE)
    for name in files.list_directory(DATA / METADATA_DIRECTORY):
        if name.endswith((".log", ".checkpoint")):
            files.write_atomically(DATA / METADATA_DIRECTORY / name, b"")
    later_ms = clock.wall_ms() + 1_000
    list(Repair(files, DATA, later_ms, None, MetadataRebuild(files, DATA, later_ms), lambda question: True).run())
    node, _, _ = start_node(files, clock)
    pass_time(node, clock, 1_000, step_ms=10)
    assert committed(node, "g") == -1
    assert "group 'g': its offsets of t are removed" in caplog.text


def test_offsets_with_the_present_topics_id_or_none_count_at_a_load() -> None:
    node, files, clock = start_node()
    make_topic(node, "t", 4)
    assert commit(node, "g", {0: 5}) == ErrorCode.NONE
    assert commit(node, "g", {1: 6}, version=3, retention_ms=1_000_000) == ErrorCode.NONE  # its record has no topic id
    node.stop()
    node, _, _ = start_node(files, clock)
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (5, 6)


def test_a_topic_that_is_made_again_during_a_load_is_read_from_its_beginning_after_a_power_cut() -> None:
    node, files, clock = start_node(ottla_acks_all="sync")
    make_topic(node, "t", 4)
    for number in range(LOAD_AT_START_BYTES // 4_000 + 10):
        assert commit(node, "g", {0: number}, metadata="x" * 4_000) == ErrorCode.NONE
    node.stop()
    node, _, _ = start_node(files, clock, ottla_acks_all="sync")
    ask(node, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    make_topic(node, "t", 4)
    assert node.services.groups.get().shards.is_loading("g")
    node, _, _ = start_node(files.crash(Random(1)), clock, ottla_acks_all="sync")
    pass_time(node, clock, 1_000, step_ms=10)
    assert committed(node, "g") == -1
