"""Produce 0-2, Fetch 0-3 and ListOffsets 0, frame by frame: what clients from before Kafka 0.11 send and get."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder
from kit.clock import ManualClock
from kit.examples import examples
from kit.exchange import STAMP_MS, Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.node import Node
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import decode_batch, encode_batch, iter_batches
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.control import ControlType, encode_control_key
from ottla.protocol.records.legacy import encode_message, iter_messages
from ottla.protocol.records.record import Record
from ottla.storage.segment.slice import LogSlice

OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


@pytest.fixture
def setting() -> tuple[Node, ManualClock]:
    node, _, clock = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", 3)
    return node, clock


@pytest.fixture
def node(setting: tuple[Node, ManualClock]) -> Node:
    return setting[0]


def message_set(values: Sequence[bytes | None], magic: int, codec: Compression = Compression.NONE) -> bytes:
    """As kafka-python packs it."""
    builder = LegacyRecordBatchBuilder(magic, int(codec), 1 << 20)
    for number, value in enumerate(values):
        builder.append(number, STAMP_MS + number, b"k%d" % number, value)
    return bytes(builder.build())


def magic_of(produce_version: int) -> int:
    return 1 if produce_version == 2 else 0


def produce(node: Node, records: bytes, version: int, **more: object) -> ProduceResponse.PartitionProduceResponse:
    answer = Exchange(node).ask(produce_request(more.pop("topic", "t"), records, **more), version)  # type: ignore[arg-type]
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0]


def fetch(
    node: Node, version: int, offset: int = 0, *, topic: str = "t", **more: object
) -> FetchResponse.PartitionData:
    answer = Exchange(node).ask(fetch_request(topic, offset, **more), version)  # type: ignore[arg-type]
    assert isinstance(answer, FetchResponse)
    return answer.responses[0].partitions[0]


def read_old(data: FetchResponse.PartitionData, magic: int) -> list[Record]:
    """As kafka-python reads it."""
    assert data.error_code == 0
    records = bytes(data.records or b"")
    read = []
    for position, header in iter_messages(records):
        assert header.magic == magic
        opened = LegacyRecordBatch(records[position : position + header.size_bytes], magic)
        assert opened.validate_crc()
        read += [Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in opened]
    return read


def read_new(data: FetchResponse.PartitionData) -> list[Record]:
    view = memoryview(data.records or b"")
    return [record for position, _ in iter_batches(view) for record in decode_batch(view[position:])]


def expected(values: Sequence[bytes | None], magic: int, first: int = 0) -> list[Record]:
    return [
        Record(first + number, STAMP_MS + number if magic else -1, b"k%d" % number, value)
        for number, value in enumerate(values)
    ]


# Produce ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_what_an_old_producer_sends_is_read_by_a_new_consumer(node: Node, version: int, codec: Compression) -> None:
    magic = magic_of(version)
    for round_ in range(2):
        stored = produce(node, message_set([b"a", None, b"c"], magic, codec), version)
        assert (stored.error_code, stored.base_offset) == (0, 3 * round_)
    data = fetch(node, 12)
    assert read_new(data) == expected([b"a", None, b"c"], magic) + expected([b"a", None, b"c"], magic, 3)
    assert {header.compression for _, header in iter_batches(data.records)} == {codec}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_every_kind_of_acknowledgement_works_for_old_producers(
    node: Node, version: int, acks: int, codec: Compression
) -> None:
    client = Exchange(node)
    client.send(produce_request("t", message_set([b"a"], 0, codec), acks=acks), version)
    node.settle()
    assert len(client.replies()) == (0 if acks == 0 else 1)
    assert not client.transport.is_closing()
    assert len(read_new(fetch(node, 12))) == 1


def test_log_append_time_is_reported_from_version_2_on(node: Node) -> None:
    make_topic(node, "stamped", message_timestamp_type="LogAppendTime")
    stored = produce(node, message_set([b"a"], 1), 2, topic="stamped")
    assert stored.log_append_time_ms == node.services.clock.wall_ms()
    assert read_new(fetch(node, 12, topic="stamped"))[0].timestamp == node.services.clock.wall_ms()
    assert produce(node, message_set([b"a"], 1), 1, topic="stamped").log_append_time_ms == -1


def test_a_topic_with_a_codec_of_its_own_packs_old_messages_in_it(node: Node) -> None:
    make_topic(node, "packed", compression_type="zstd")
    assert produce(node, message_set([b"a", b"b"], 1, Compression.GZIP), 2, topic="packed").error_code == 0
    data = fetch(node, 12, topic="packed")
    assert [record.value for record in read_new(data)] == [b"a", b"b"]
    assert {header.compression for _, header in iter_batches(data.records)} == {Compression.ZSTD}


def test_a_compacted_topic_takes_no_old_message_without_a_key(node: Node) -> None:
    make_topic(node, "compacted", cleanup_policy="compact")
    refused = produce(node, bytes(encode_message(1, 0, STAMP_MS, None, b"v")), 2, topic="compacted")
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert produce(node, message_set([b"v"], 1), 2, topic="compacted").error_code == 0


def wrong_checksum(records: bytes) -> bytes:
    return records[:-1] + bytes((records[-1] ^ 1,))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_message_with_a_wrong_checksum_is_refused_and_its_neighbours_are_stored(node: Node, version: int) -> None:
    request = produce_request("t", wrong_checksum(message_set([b"a"], 1)))
    sound = produce_request("t", message_set([b"b"], 1), partition=1)
    request.topic_data[0].partition_data += sound.topic_data[0].partition_data
    answer = Exchange(node).ask(request, version)
    assert isinstance(answer, ProduceResponse)
    codes = [data.error_code for data in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.CORRUPT_MESSAGE, 0]
    assert node.services.catalog.topics["t"].partitions[0].log.log_end_offset == 0


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_a_bad_message_with_acks_0_ends_the_connection(node: Node, codec: Compression) -> None:
    client = Exchange(node)
    client.send(produce_request("t", wrong_checksum(message_set([b"a"], 1, codec)), acks=0), 2)
    node.settle()
    assert client.transport.is_closing()


def test_a_bug_in_the_conversion_is_logged_and_the_client_gets_an_error(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def buggy(*arguments: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("ottla.broker.formats.produce_conversion.to_batch", buggy)
    for codec in (Compression.NONE, Compression.GZIP):
        assert produce(node, message_set([b"a"], 1, codec), 2).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "oops" in caplog.text
        caplog.clear()


def test_version_3_still_takes_exactly_one_batch(node: Node) -> None:
    assert produce(node, message_set([b"a"], 1), 3).error_code == ErrorCode.INVALID_RECORD
    assert produce(node, batch() + batch(), 3).error_code == ErrorCode.INVALID_RECORD
    assert produce(node, batch(), 3).error_code == 0


def test_a_batch_in_an_old_request_is_taken_as_kafka_takes_it(node: Node) -> None:
    assert produce(node, batch(2), 2).error_code == 0
    assert len(read_new(fetch(node, 12))) == 2


def test_an_empty_message_set_is_refused(node: Node) -> None:
    assert produce(node, b"", 2).error_code == ErrorCode.INVALID_RECORD


# Fetch --------------------------------------------------------------------------------------------------------------


def magic_for(fetch_version: int) -> int:
    return 1 if fetch_version >= 2 else 0


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_what_a_new_producer_sends_is_read_by_an_old_consumer(node: Node, version: int, codec: Compression) -> None:
    records = [Record(0, STAMP_MS, b"k", b"a", (("h", b"1"),)), Record(1, STAMP_MS + 1, None, None)]
    assert produce(node, bytes(encode_batch(records, compression=codec)), 9).error_code == 0
    assert produce(node, bytes(encode_batch(records, compression=codec)), 9).error_code == 0
    stamp = STAMP_MS if version >= 2 else -1
    next_stamp = STAMP_MS + 1 if version >= 2 else -1
    assert read_old(fetch(node, version), magic_for(version)) == [
        Record(0, stamp, b"k", b"a"),
        Record(1, next_stamp, None, None),
        Record(2, stamp, b"k", b"a"),
        Record(3, next_stamp, None, None),
    ]


@pytest.mark.parametrize("version", range(4))
def test_an_old_consumer_may_start_in_the_middle_of_a_batch(node: Node, version: int) -> None:
    produce(node, batch(5), 9)
    assert [record.offset for record in read_old(fetch(node, version, 3), magic_for(version))] == [3, 4]


@pytest.mark.parametrize("version", range(4))
def test_an_old_consumers_errors_are_those_of_a_new_one(node: Node, version: int) -> None:
    assert fetch(node, version, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(node, version, topic="nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    data = fetch(node, version)
    assert (data.error_code, bytes(data.records), data.high_watermark) == (0, b"", 0)


@pytest.mark.parametrize("version", range(4))
def test_zstd_cannot_be_read_by_an_old_consumer(node: Node, version: int) -> None:
    produce(node, batch(compression=Compression.ZSTD), 9)
    assert fetch(node, version).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    make_topic(node, "packed", compression_type="zstd")
    assert fetch(node, version, topic="packed").error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert fetch(node, 9).error_code == 0


@pytest.mark.parametrize("version", range(4))
def test_a_parked_old_fetch_is_answered_by_the_next_produce(node: Node, version: int) -> None:
    client = Exchange(node)
    client.send(fetch_request("t", 0, partitions=3, max_wait_ms=10_000), version)
    node.settle()
    assert client.replies() == []
    produce(node, batch(2), 9, partition=2)
    answer = client.reply()
    assert isinstance(answer, FetchResponse)
    assert [len(read_old(data, magic_for(version))) for data in answer.responses[0].partitions] == [0, 0, 2]


def test_a_parked_old_fetch_ends_with_its_time(setting: tuple[Node, ManualClock]) -> None:
    node, clock = setting
    client = Exchange(node)
    client.send(fetch_request("t", 0, max_wait_ms=500), 2)
    node.settle()
    clock.advance(500)
    node.run_due()
    answer = client.reply()
    assert isinstance(answer, FetchResponse)
    assert bytes(answer.responses[0].partitions[0].records) == b""


@pytest.mark.parametrize(("version", "counts"), [(0, [1, 1]), (1, [1, 1]), (2, [1, 1]), (3, [1, 0])])
def test_a_message_larger_than_the_clients_limit_comes_all_the_same(
    node: Node, version: int, counts: list[int]
) -> None:
    for partition in (0, 1):
        produce(node, batch(value=bytes(5000)), 9, partition=partition)
    request = fetch_request("t", 0, partitions=2)
    for asked in request.topics[0].partitions:
        asked.partition_max_bytes = 100
    answer = Exchange(node).ask(request, version)
    assert isinstance(answer, FetchResponse)
    assert [len(read_old(data, magic_for(version))) for data in answer.responses[0].partitions] == counts


WRITTEN = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, "control"]), st.sampled_from(OLD_CODECS), st.integers(1, 6), st.integers(0, 100)
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(30))
@given(
    written=WRITTEN, version=st.integers(0, 3), limit=st.integers(1, 2000), segment_bytes=st.sampled_from([1024, 4096])
)
def test_an_old_consumer_reads_every_record_once_and_in_order_whatever_its_limit(
    written: list[tuple[int | str, Compression, int, int]], version: int, limit: int, segment_bytes: int
) -> None:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", 1, segment_bytes=str(segment_bytes))
    expected: list[tuple[int, bytes | None]] = []
    for number, (kind, codec, count, size) in enumerate(written):
        values = [b"%d/%d" % (number, slot) + b"x" * size for slot in range(count)]
        if kind == "control":
            control_batch(node, count)
            continue
        if kind == 2:
            records = bytes(
                encode_batch([Record(i, STAMP_MS, b"k", v) for i, v in enumerate(values)], compression=codec)
            )
            stored = produce(node, records, 9)
        else:
            assert isinstance(kind, int)
            stored = produce(node, message_set(values, kind, codec), 2)
        assert stored.error_code == 0
        expected += [(stored.base_offset + slot, value) for slot, value in enumerate(values)]
    read: list[tuple[int, bytes | None]] = []
    position = 0
    while True:
        request = fetch_request("t", position)
        request.topics[0].partitions[0].partition_max_bytes = limit
        answer = Exchange(node).ask(request, version)
        assert isinstance(answer, FetchResponse)
        got = [one for one in read_old(answer.responses[0].partitions[0], magic_for(version)) if one.offset >= position]
        if not got:
            break
        read += [(record.offset, record.value) for record in got]
        position = got[-1].offset + 1
    assert read == expected
    node.stop()


def control_batch(node: Node, count: int) -> None:
    """Control batches as a coordinator will write them, appended behind the clients' back."""
    partition = node.services.catalog.topics["t"].partitions[0]
    assert partition is not None
    key = encode_control_key(ControlType.COMMIT)
    for _ in range(count):
        offset = partition.log.log_end_offset
        marker = encode_batch([Record(offset, STAMP_MS, key, bytes(6))], is_control=True, base_offset=offset)
        partition.log.append_internal(marker, STAMP_MS)
    partition.settle()
    partition._advance()


@pytest.mark.parametrize("version", range(4))
def test_an_old_consumer_gets_past_any_number_of_control_batches(node: Node, version: int) -> None:
    control_batch(node, 30)
    request = fetch_request("t", 0)
    request.topics[0].partitions[0].partition_max_bytes = 200
    answer = Exchange(node).ask(request, version)
    assert isinstance(answer, FetchResponse)
    assert read_old(answer.responses[0].partitions[0], magic_for(version)) == []
    produce(node, batch(), 9)
    answer = Exchange(node).ask(request, version)
    assert isinstance(answer, FetchResponse)
    assert [r.offset for r in read_old(answer.responses[0].partitions[0], magic_for(version))] == [30]


@pytest.mark.parametrize("version", range(4))
def test_cold_bytes_are_read_and_converted(node: Node, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(node, batch(3), 9)
    partition = node.services.catalog.topics["t"].partitions[0]
    assert partition is not None
    hot = partition.read(0, 1 << 20, at_least_one=True)
    monkeypatch.setattr(
        type(partition), "read", lambda *_, **__: LogSlice(None, hot.length, load=lambda: bytes(hot.view))
    )
    assert len(read_old(fetch(node, version), magic_for(version))) == 3


def fails() -> bytes:
    raise OSError(5, "the disk failed")


@pytest.mark.parametrize("version", range(8))
def test_a_disk_that_fails_is_reported_in_a_code_that_the_client_knows(
    node: Node, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(node, batch(3), 9)
    partition = node.services.catalog.topics["t"].partitions[0]
    monkeypatch.setattr(type(partition), "read", lambda *_, **__: LogSlice(None, 100, load=fails))
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER if version < 6 else ErrorCode.KAFKA_STORAGE_ERROR
    assert fetch(node, version).error_code == code


def test_an_old_fetch_that_is_like_the_one_before_is_converted_too(node: Node) -> None:
    produce(node, batch(3), 9)
    client = Exchange(node)
    for offset in (0, 1, 2):
        answer = client.ask(fetch_request("t", offset), 2)
        assert isinstance(answer, FetchResponse)
        assert [r.offset for r in read_old(answer.responses[0].partitions[0], 1)] == list(range(offset, 3))
    for count in (1, 2, 3):
        answer = client.ask(produce_request("t", message_set([b"x"], 1)), 2)
        assert isinstance(answer, ProduceResponse)
        assert answer.responses[0].partition_responses[0].base_offset == 2 + count


# ListOffsets --------------------------------------------------------------------------------------------------------


def offsets(node: Node, timestamp: int, most: int = 10, topic: str = "t") -> list[int] | int:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=most)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    answer = Exchange(node).ask(request, 0)
    assert isinstance(answer, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    return found.error_code or found.old_style_offsets


def test_version_0_lists_where_segments_begin_and_the_end_first(node: Node) -> None:
    assert offsets(node, -1) == [0]
    for _ in range(3):
        produce(node, batch(2), 9)
        partition = node.services.catalog.topics["t"].partitions[0]
        assert partition is not None
        partition.log.roll(node.services.clock.wall_ms())
    produce(node, batch(1), 9)
    assert offsets(node, -1) == [7, 6, 4, 2, 0]
    assert offsets(node, -1, most=1) == [7]
    assert offsets(node, -1, most=2) == [7, 6]
    assert offsets(node, -2) == [0]
    assert offsets(node, -1, most=-5) == []


def test_version_0_begins_at_the_log_start(node: Node) -> None:
    produce(node, batch(5), 9)
    partition = node.services.catalog.topics["t"].partitions[0]
    assert partition is not None
    partition.log.delete_records(3)
    assert (offsets(node, -2), offsets(node, -1)) == ([3], [5, 3])


def test_version_0_looks_at_when_segments_were_last_written(setting: tuple[Node, ManualClock]) -> None:
    node, clock = setting
    partition = node.services.catalog.topics["t"].partitions[0]
    assert partition is not None
    assert isinstance(node.services.files, SimulatedFiles)
    for written_ms in (1000, 2000, 3000):
        node.services.files.now_ms = written_ms
        produce(node, batch(2), 9)
        partition.log.roll(clock.wall_ms())
    produce(node, batch(2), 9)
    assert offsets(node, clock.wall_ms()) == [8, 6, 4, 2, 0]
    assert offsets(node, 2500) == [2, 0]
    assert offsets(node, 500) == []
    assert offsets(node, -3) == ErrorCode.UNSUPPORTED_VERSION


def test_version_0_of_a_topic_that_is_not_there(node: Node) -> None:
    assert offsets(node, -1, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_named_twice_in_an_old_fetch_is_given_twice(node: Node) -> None:
    produce(node, batch(1), 9)
    request = fetch_request("t", 0)
    request.topics[0].partitions += [
        FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    ]
    answer = Exchange(node).ask(request, 1)
    assert isinstance(answer, FetchResponse)
    assert [len(read_old(data, 0)) for data in answer.responses[0].partitions] == [1, 1]
