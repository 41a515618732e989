"""Whatever arrives, decoding gives a message or MalformedMessage: no other exception, no long loop, no large list."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.golden import ALL_MESSAGES, Golden, golden_messages

from ottla.protocol.api.api_versions import ApiVersionsResponse
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.decoder_source import MAX_ELEMENTS, MAX_ELEMENTS_IN_ONE_PIECE, MAX_REQUEST_ELEMENTS
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.message import Message, decode, decode_prefix, encode
from ottla.protocol.stored.metadata import MetadataRecord, decode_metadata_record

REQUEST_FRAMES = [golden for golden in golden_messages() if not issubclass(golden.cls, MetadataRecord)]
VERSIONS = [(cls, version) for cls in ALL_MESSAGES for version in cls.message_versions.versions()]


@pytest.mark.parametrize("golden", REQUEST_FRAMES, ids=lambda golden: f"{golden.cls.__name__}-v{golden.version}")
def test_a_message_cut_at_any_byte_is_malformed(golden: Golden) -> None:
    for length in range(len(golden.data)):
        with pytest.raises(MalformedMessage):
            decode(golden.cls, golden.data[:length], golden.version)


def test_a_metadata_record_cut_at_any_byte_is_malformed() -> None:
    for golden in golden_messages():
        for length in range(len(golden.data) if issubclass(golden.cls, MetadataRecord) else 0):
            with pytest.raises(MalformedMessage):
                decode_metadata_record(golden.data[:length])


@settings(max_examples=examples(400))
@given(case=st.sampled_from(VERSIONS), data=st.binary(max_size=80))
def test_random_bytes_give_a_message_or_malformed(case: tuple[type[Message], int], data: bytes) -> None:
    cls, version = case
    try:
        message, end = decode_prefix(cls, data, version, 0)
    except MalformedMessage:
        return
    assert 0 <= end <= len(data)
    again = encode(message, version)
    assert encode(decode(cls, again, version), version) == again


@settings(max_examples=examples(400))
@given(golden=st.sampled_from(REQUEST_FRAMES), position=st.integers(0), value=st.integers(0, 255))
def test_a_changed_byte_gives_a_message_or_malformed(golden: Golden, position: int, value: int) -> None:
    data = bytearray(golden.data) or bytearray(1)
    data[position % len(data)] = value
    try:
        _, end = decode_prefix(golden.cls, data, golden.version, 0)
    except MalformedMessage:
        return
    assert 0 <= end <= len(data)


@settings(max_examples=examples(100))
@given(data=st.binary(max_size=60))
def test_random_bytes_are_a_metadata_record_or_malformed(data: bytes) -> None:
    try:
        record = decode_metadata_record(data)
    except MalformedMessage:
        return
    assert isinstance(record, MetadataRecord)


def test_a_hostile_count_is_refused_before_anything_is_made() -> None:
    legacy = struct.pack(">hhii", -1, 1, 1000, 0x7FFF_FFFF)
    compact = b"\0" + struct.pack(">hi", 1, 1000) + b"\xff\xff\xff\xff\x0f"
    tracemalloc.start()
    try:
        for version, data in ((3, legacy), (9, compact)):
            with pytest.raises(MalformedMessage, match="topic_data"):
                decode(ProduceRequest, data, version)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_hostile_count_of_integers_is_refused() -> None:
    request = FetchRequest(
        max_wait_ms=1,
        min_bytes=1,
        topics=[],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="t", partitions=[7])],
    )
    data = encode(request, 7).replace(struct.pack(">ii", 1, 7), struct.pack(">ii", 0x4000_0000, 7))
    with pytest.raises(MalformedMessage, match="partitions of 1073741824 elements"):
        decode(FetchRequest, data, 7)


def test_elements_are_bounded_even_where_they_would_fit() -> None:
    most = MAX_REQUEST_ELEMENTS
    fits = struct.pack(">i", most) + b"\0\0" * most
    assert len(decode(MetadataRequest, fits, 0).topics or []) == most
    beyond = struct.pack(">i", most + 1) + b"\0\0" * (most + 1)
    with pytest.raises(MalformedMessage, match="topics of 65537 elements"):
        decode(MetadataRequest, beyond, 0)


def test_a_response_may_have_more_elements_than_a_request() -> None:
    key = b"\0\1\0\0\0\3"
    fits = b"\0\0" + struct.pack(">i", MAX_REQUEST_ELEMENTS + 1) + key * (MAX_REQUEST_ELEMENTS + 1)
    assert len(decode(ApiVersionsResponse, fits, 0).api_keys) == MAX_REQUEST_ELEMENTS + 1
    with pytest.raises(MalformedMessage, match="api_keys of 1048577 elements"):
        decode(ApiVersionsResponse, b"\0\0" + struct.pack(">i", MAX_ELEMENTS + 1) + key * (MAX_ELEMENTS + 1), 0)


def test_elements_are_bounded_over_all_arrays_together() -> None:
    topic = b"\0\1t" + struct.pack(">i", MAX_ELEMENTS_IN_ONE_PIECE // 2) + bytes(8 * (MAX_ELEMENTS_IN_ONE_PIECE // 2))
    data = struct.pack(">hhii", -1, 1, 1000, 2) + topic + topic
    with pytest.raises(MalformedMessage, match="partition_data"):
        decode(ProduceRequest, data, 3)


@pytest.mark.parametrize("count", [-2, -(2**31)])
def test_a_negative_count_is_malformed(count: int) -> None:
    with pytest.raises(MalformedMessage, match="negative"):
        decode(MetadataRequest, struct.pack(">i", count), 1)


def test_null_where_the_version_has_none_is_malformed() -> None:
    assert decode(MetadataRequest, struct.pack(">i", -1), 1).topics is None
    with pytest.raises(MalformedMessage, match="topics is null"):
        decode(MetadataRequest, struct.pack(">i", -1), 0)


def test_a_negative_length_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="name is null or has a negative length"):
        decode(MetadataRequest, struct.pack(">ih", 1, -5), 1)


def test_a_varint_of_more_than_32_bits_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="varint"):
        decode(MetadataRequest, b"\xff\xff\xff\xff\x7f" + bytes(50), 9)
    with pytest.raises(MalformedMessage, match="varint"):
        decode(MetadataRequest, b"\xff\xff\xff\xff\xff\x01" + bytes(50), 9)


def test_text_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="UTF-8"):
        decode(MetadataRequest, struct.pack(">ih", 1, 2) + b"\xc3\x28", 1)


def test_a_compact_string_above_the_limit_is_malformed() -> None:
    data = b"\x02" + bytes(16) + b"\x81\x80\x02" + b"a" * 40_000
    with pytest.raises(MalformedMessage, match="name of 32768 bytes"):
        decode(MetadataRequest, data, 10)


def test_unknown_tags_are_skipped_wherever_they_stand() -> None:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    plain = encode(request, 9)
    assert plain == b"\x02" + b"\x02t" + b"\0" + b"\x01\0\0" + b"\0"
    tags = b"\x02" + b"\x05\x03abc" + b"\xc8\x01\0"
    with_tags = b"\x02" + b"\x02t" + tags + b"\x01\0\0" + tags
    assert decode_prefix(MetadataRequest, with_tags, 9, 0) == (request, len(with_tags))


def test_unknown_tags_beside_known_ones_are_skipped() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], cluster_id="c")
    data = encode(request, 12)
    assert data.endswith(b"\x01\x00\x02\x02c")
    more = data[: -len(b"\x01\x00\x02\x02c")] + b"\x02\x00\x02\x02c" + b"\x63\x04wxyz"
    assert decode_prefix(FetchRequest, more, 12, 0) == (request, len(more))


@pytest.mark.parametrize("size", [1, 3, 60])
def test_a_tag_that_is_not_as_long_as_it_says_is_malformed(size: int) -> None:
    data = encode(FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], cluster_id="c"), 12)
    wrong = data[: -len(b"\x02\x02c")] + bytes([size]) + b"\x02c" + b"pad"
    with pytest.raises(MalformedMessage, match="tagged field 0"):
        decode(FetchRequest, wrong, 12)


def test_more_tags_than_can_follow_are_malformed() -> None:
    with pytest.raises(MalformedMessage, match="tagged fields cannot fit"):
        decode(MetadataRequest, b"\x01\x01\0\0" + b"\xff\xff\xff\xff\x0f" + bytes(9), 9)


def test_bytes_behind_a_request_are_ignored_as_kafka_does() -> None:
    data = encode(MetadataRequest(topics=None), 9)
    assert decode(MetadataRequest, data + b"garbage", 9) == decode(MetadataRequest, data, 9)
