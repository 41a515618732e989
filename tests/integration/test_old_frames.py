"""Produce 0-2, Fetch 0-3 and ListOffsets 0 by raw frames over a socket.

Promises that Apache Kafka 3.9, the last release with these versions, keeps too: it judges them by
`scripts/interop/apache-kafka --version 3.9.0 -- pytest tests/integration/test_old_frames.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest
from kit.broker import BrokerProcess
from kit.exchange import STAMP_MS, fetch_request, produce_request
from kit.old_segments import old_messages
from kit.wire import Wire

from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import decode_response_header
from ottla.protocol.message import decode
from ottla.protocol.records.batch import decode_batch, encode_batch, iter_batches
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.legacy import decode_message, encode_message, iter_messages
from ottla.protocol.records.record import Record

OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
HEADERS = (("h", b"x"),)


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connected:
        yield connected


def create(wire: Wire, topic: str, **configs: str) -> str:
    pairs = [
        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    creatable = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=pairs
    )
    code = wire.call(CreateTopicsRequest(topics=[creatable], timeout_ms=30_000), 5).topics[0].error_code
    assert code == ErrorCode.NONE
    return topic


def produce(wire: Wire, topic: str, records: bytes, version: int) -> ProduceResponse.PartitionProduceResponse:
    """Again while the topic is on its way, as it may be in Kafka."""
    for _ in range(200):
        answer = wire.call(produce_request(topic, records), version).responses[0].partition_responses[0]
        if answer.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            break
    assert isinstance(answer, ProduceResponse.PartitionProduceResponse)
    return answer


def batches_of(wire: Wire, topic: str) -> tuple[list[Record], set[int]]:
    """Records and codecs, as a client of today is given them."""
    data = wire.call(fetch_request(topic, 0, max_wait_ms=1000), 11).responses[0].partitions[0]
    view = memoryview(data.records)
    found = list(iter_batches(view))
    return [one for at, _ in found for one in decode_batch(view[at:])], {header.codec for _, header in found}


def messages_of(wire: Wire, topic: str, version: int, offset: int = 0) -> tuple[list[Record], set[int], int]:
    """Records, magics, and the error code, as an old client is given them."""
    data = wire.call(fetch_request(topic, offset, max_wait_ms=1000), version).responses[0].partitions[0]
    view = memoryview(data.records or b"")
    found = list(iter_messages(view, allow_partial_tail=True))
    records = [one for at, _ in found for one in decode_message(view[at:])]
    return records, {header.magic for _, header in found}, data.error_code


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_old_messages_become_one_batch_of_their_codec(wire: Wire, topic: str, version: int, codec: Compression) -> None:
    create(wire, topic)
    magic = 1 if version == 2 else 0
    sent = old_messages(0, 5, magic, codec, stamp_ms=STAMP_MS)
    for first in (0, 5):
        stored = produce(wire, topic, sent.data, version)
        assert (stored.error_code, stored.base_offset) == (0, first)
    records, codecs = batches_of(wire, topic)
    again = [record._replace(offset=record.offset + 5) for record in sent.records]
    assert records == sent.records + again
    assert codecs == {codec}


def test_messages_of_one_connection_keep_their_order_whatever_it_takes_to_convert_them(wire: Wire, topic: str) -> None:
    create(wire, topic)
    large, small = old_messages(0, 900, 1, Compression.GZIP), old_messages(0, 1, 1)
    plain = old_messages(0, 900, 1)
    assert produce(wire, topic, small.data, 2).base_offset == 0
    sent = [large, small, plain, small, large, small]
    asked = [wire.send_request(produce_request(topic, one.data), 2) for one in sent]
    expected = 1
    for correlation_id, one in zip(asked, sent, strict=True):
        frame = wire.read_frame()
        found, position = decode_response_header(0, 2, frame)
        stored = decode(ProduceResponse, frame, 2, position).responses[0].partition_responses[0]
        assert (found, stored.error_code, stored.base_offset) == (correlation_id, 0, expected)
        expected += len(one.records)


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_batches_become_old_messages(wire: Wire, topic: str, version: int, codec: Compression) -> None:
    create(wire, topic)
    sent = [Record(number, STAMP_MS + number, b"k", b"v%d" % number, HEADERS) for number in range(5)]
    assert produce(wire, topic, bytes(encode_batch(sent, compression=codec)), 8).error_code == 0
    magic = 1 if version >= 2 else 0
    records, magics, _ = messages_of(wire, topic, version)
    assert magics == {magic}
    assert records == [record._replace(timestamp=record.timestamp if magic else -1, headers=()) for record in sent]


@pytest.mark.parametrize("version", range(4))
def test_from_the_middle_of_an_uncompressed_batch_on(wire: Wire, topic: str, version: int) -> None:
    create(wire, topic)
    sent = [Record(number, STAMP_MS + number, b"k", b"v") for number in range(5)]
    produce(wire, topic, bytes(encode_batch(sent)), 8)
    records, _, _ = messages_of(wire, topic, version, 3)
    assert [record.offset for record in records] == [3, 4]


@pytest.mark.parametrize("version", range(4))
def test_log_append_time_is_what_an_old_consumer_sees(wire: Wire, topic: str, version: int) -> None:
    create(wire, topic, message_timestamp_type="LogAppendTime")
    stored = produce(wire, topic, old_messages(0, 2, 1, Compression.GZIP).data, 2)
    assert stored.log_append_time_ms > STAMP_MS
    records, _, _ = messages_of(wire, topic, version)
    stamp = stored.log_append_time_ms if version >= 2 else -1
    assert [record.timestamp for record in records] == [stamp, stamp]


@pytest.mark.parametrize("version", range(4))
def test_zstd_cannot_be_given_to_an_old_consumer(wire: Wire, topic: str, version: int) -> None:
    create(wire, topic)
    produce(wire, topic, bytes(encode_batch([Record(0, STAMP_MS, b"k", b"v")], compression=Compression.ZSTD)), 8)
    records, _, code = messages_of(wire, topic, version)
    assert (records, code) == ([], ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


PLAIN = bytes(encode_message(1, 0, STAMP_MS, b"k", b"value"))


def gzip_message(inside: bytes, attributes: int = 1) -> bytes:
    value = zlib.compress(inside, wbits=31)
    return bytes(encode_message(1, 0, STAMP_MS, None, value, attributes=attributes))


def broken(message: bytes) -> bytes:
    return message[:-1] + bytes((message[-1] ^ 1,))


REFUSED = {
    "a wrong checksum": (broken(PLAIN), ErrorCode.CORRUPT_MESSAGE),
    "a wrong checksum inside": (gzip_message(broken(PLAIN)), ErrorCode.CORRUPT_MESSAGE),
    "a compressed message inside": (gzip_message(gzip_message(PLAIN)), ErrorCode.INVALID_RECORD),
    "nothing inside": (gzip_message(b""), ErrorCode.INVALID_RECORD),
    "two compressed messages": (gzip_message(PLAIN) * 2, ErrorCode.INVALID_RECORD),
    "two formats": (PLAIN + bytes(encode_message(0, 0, 0, b"k", b"v0")), ErrorCode.INVALID_RECORD),
    "two formats inside": (gzip_message(bytes(encode_message(0, 0, 0, b"k", b"v"))), ErrorCode.INVALID_RECORD),
    "zstd": (gzip_message(PLAIN, attributes=4), ErrorCode.INVALID_RECORD),
    "the broker's timestamp type": (bytes(encode_message(1, 0, -1, b"k", b"v", 8)), ErrorCode.INVALID_TIMESTAMP),
    "a size of nothing": (bytes(40), ErrorCode.CORRUPT_MESSAGE),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_messages_are_refused_with_kafkas_code(wire: Wire, topic: str, what: str) -> None:
    create(wire, topic)
    records, code = REFUSED[what]
    assert produce(wire, topic, records, 2).error_code == code
    assert produce(wire, topic, PLAIN, 2).base_offset == 0


def test_a_message_over_the_topic_limit_is_too_large(wire: Wire, topic: str) -> None:
    create(wire, topic, max_message_bytes="1000")
    large = bytes(encode_message(1, 0, STAMP_MS, b"k", bytes(1000)))
    assert produce(wire, topic, large, 2).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_messages_that_are_too_large_together_are_too_large(wire: Wire, topic: str) -> None:
    create(wire, topic, max_message_bytes="1000")
    many = bytes(encode_message(1, 0, STAMP_MS, b"k", bytes(400))) * 3
    assert produce(wire, topic, many, 2).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_message_without_a_key_is_refused_by_a_compacted_topic(wire: Wire, topic: str) -> None:
    create(wire, topic, cleanup_policy="compact")
    keyless = bytes(encode_message(1, 0, STAMP_MS, None, b"v"))
    assert produce(wire, topic, keyless, 2).error_code == ErrorCode.INVALID_RECORD


def test_a_timestamp_out_of_range_is_invalid(wire: Wire, topic: str) -> None:
    create(wire, topic, message_timestamp_before_max_ms="1000")
    assert produce(wire, topic, PLAIN, 2).error_code == ErrorCode.INVALID_TIMESTAMP


def test_version_3_takes_no_old_messages(wire: Wire, topic: str) -> None:
    create(wire, topic)
    assert produce(wire, topic, PLAIN, 3).error_code == ErrorCode.INVALID_RECORD


def offsets(wire: Wire, topic: str, timestamp: int, most: int = 10) -> list[int]:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=most)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    answer = wire.call(request, 0).topics[0].partitions[0]
    assert answer.error_code == 0
    return list(answer.old_style_offsets)


def test_list_offsets_0_reports_the_end_and_the_beginning(wire: Wire, topic: str) -> None:
    create(wire, topic)
    produce(wire, topic, old_messages(0, 5, 1).data, 2)
    assert offsets(wire, topic, -1) == [5, 0]
    assert offsets(wire, topic, -1, 1) == [5]
    assert offsets(wire, topic, -2) == [0]
    assert offsets(wire, topic, 1) == []
    assert offsets(wire, topic, 1 << 60) == [5, 0]
