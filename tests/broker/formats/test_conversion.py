"""Between message formats: what old clients produce, and what they are given."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder
from kit.examples import examples

from ottla.broker.formats.conversion import is_batch, to_batch, to_messages
from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import compute_crc, decode_batch, encode_batch, parse_header
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.control import ControlType, encode_control_key
from ottla.protocol.records.legacy import encode_message, encode_message_set, iter_messages
from ottla.protocol.records.record import Record
from ottla.storage.log.append import Refused

OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
MEBI = 1 << 20


def topic_config(**keys):
    overrides = {key.replace("_", "."): str(value) for key, value in keys.items()}
    return TopicConfig.resolve(overrides, BrokerConfig.of({}))


CONFIG = topic_config()


def up(message_set, config=CONFIG):
    return to_batch(memoryview(bytearray(message_set)), config)


def down(data, magic, offset=0, max_bytes=MEBI, max_decompressed_bytes=MEBI):
    return to_messages(bytes(data), magic, offset, max_bytes=max_bytes, max_decompressed_bytes=max_decompressed_bytes)


def refusal_of(message_set, config=CONFIG):
    with pytest.raises(Refused) as caught:
        up(message_set, config)
    return caught.value.code


def read_by_kafka_python(message_set, magic):
    read = []
    for position, header in iter_messages(message_set):
        opened = LegacyRecordBatch(message_set[position : position + header.size_bytes], magic)
        assert opened.validate_crc()
        read += [Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in opened]
    return read


RECORDS = st.lists(
    st.tuples(
        st.integers(-1, 2**41),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=15,
)


def old(record, magic):
    """What is left of a record in an old format."""
    return record._replace(timestamp=record.timestamp if magic else -1, headers=())


# Up -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=examples(40))
@given(loose=RECORDS, codec=st.sampled_from(OLD_CODECS))
def test_what_kafka_python_packs_in_an_old_format_becomes_one_batch_of_its_codec(magic, loose, codec):
    builder = LegacyRecordBatchBuilder(magic, int(codec), 10 * MEBI)
    for number, (timestamp, key, value, _) in enumerate(loose):
        builder.append(number, timestamp, key, value)
    batch = up(builder.build())
    header = parse_header(batch)
    assert (header.base_offset, header.size_bytes, header.compression) == (0, len(batch), codec)
    expected = [old(Record(number, *fields), magic) for number, fields in enumerate(loose)]
    assert decode_batch(batch) == expected


def test_offsets_that_the_client_gave_are_nothing_to_the_batch():
    messages = encode_message(1, 77, 5, None, b"a") + encode_message(1, 3, 6, None, b"b")
    assert [record.offset for record in decode_batch(up(messages))] == [0, 1]


def test_a_batch_v2_is_distinguished_from_messages():
    assert is_batch(encode_batch([Record(0, 5, None, b"a")]))
    assert not any(is_batch(encode_message(magic, 0, 5, None, b"a")) for magic in (0, 1))
    assert not is_batch(b"")


@pytest.mark.parametrize("source", OLD_CODECS)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "zstd"])
def test_a_topic_with_a_codec_of_its_own_gets_batches_in_it(source, target):
    messages = encode_message_set([Record(0, 5, None, b"a"), Record(1, 6, b"k", b"b")], 1, compression=source)
    batch = up(messages, topic_config(compression_type=target))
    codec = Compression.NONE if target == "uncompressed" else Compression.named(target)
    assert parse_header(batch).compression is codec
    assert [record.value for record in decode_batch(batch)] == [b"a", b"b"]


def test_many_messages_that_shrink_in_the_topics_codec_are_no_larger_than_it_takes():
    messages = b"".join(bytes(encode_message(1, 0, 5, None, bytes(900))) for _ in range(50))
    assert refusal_of(messages, topic_config(max_message_bytes=1000)) is ErrorCode.MESSAGE_TOO_LARGE
    assert len(up(messages, topic_config(max_message_bytes=1000, compression_type="gzip"))) < 1000


@settings(max_examples=examples(200))
@given(data=st.binary(min_size=1, max_size=150), magic=st.sampled_from([0, 1]), sound=st.booleans())
def test_noise_is_refused_and_nothing_worse(data, magic, sound):
    noise = bytearray(data)
    if len(noise) > 16:
        noise[16] = magic
        if sound:
            struct.pack_into(">i", noise, 8, len(noise) - 12)
            struct.pack_into(">I", noise, 12, zlib.crc32(noise[16:]))
    with suppress(Refused):
        up(noise)
    with suppress(KafkaError):
        down(noise, 0)


def broken(message_set, position):
    message_set = bytearray(message_set)
    message_set[position] ^= 1
    return message_set


PLAIN = bytes(encode_message(1, 0, 5, b"k", b"value"))


@pytest.mark.parametrize(
    "message_set", [broken(PLAIN, len(PLAIN) - 1), PLAIN[:-1], PLAIN + PLAIN[:20], b"\0" * 40, b"x", b""]
)
def test_bytes_that_are_no_whole_messages_are_corrupt(message_set):
    if message_set:
        assert refusal_of(message_set) is ErrorCode.CORRUPT_MESSAGE


def gzip_message(inside, magic=1, attributes=1):
    return encode_message(magic, 0, 5, None, zlib.compress(bytes(inside), wbits=31), attributes=attributes)


def test_a_wrong_checksum_inside_a_compressed_message_is_corrupt():
    assert refusal_of(gzip_message(broken(PLAIN, len(PLAIN) - 1))) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    "message_set",
    [
        gzip_message(gzip_message(PLAIN)),
        gzip_message(b""),
        gzip_message(PLAIN) + gzip_message(PLAIN),
        PLAIN + gzip_message(PLAIN),
        gzip_message(PLAIN, attributes=4),
        gzip_message(PLAIN, attributes=2),
        gzip_message(encode_message(0, 0, 0, None, b"v0")),
        PLAIN + encode_message(0, 0, 0, None, b"v0"),
        encode_message(1, 0, 5, None, None, attributes=1),
        gzip_message(PLAIN + PLAIN[:-1]),
    ],
    ids=[
        "nested",
        "nothing inside",
        "two compressed",
        "plain and compressed",
        "zstd",
        "another codec's data",
        "mixed inside",
        "mixed outside",
        "no value",
        "cut inside",
    ],
)
def test_messages_that_kafka_calls_invalid_are_invalid(message_set):
    assert refusal_of(message_set) is ErrorCode.INVALID_RECORD


def test_a_codec_that_does_not_exist_is_unsupported():
    assert refusal_of(encode_message(1, 0, 5, None, b"x", attributes=5)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_timestamp_before_all_time_is_invalid():
    assert refusal_of(encode_message(1, 0, -2, None, b"")) is ErrorCode.INVALID_TIMESTAMP


def test_the_brokers_timestamp_type_is_refused_where_the_message_has_no_time_of_its_own():
    broker_stamped = topic_config(message_timestamp_type="LogAppendTime")
    assert refusal_of(encode_message(1, 0, -1, None, b"", 8)) is ErrorCode.INVALID_TIMESTAMP
    assert refusal_of(encode_message(1, 0, 5, None, b"", 8), broker_stamped) is ErrorCode.INVALID_TIMESTAMP
    assert decode_batch(up(encode_message(1, 0, 5, None, b"", 8)))[0].timestamp == 5
    assert not parse_header(up(encode_message(1, 0, 5, None, b"", 8))).is_log_append_time


def test_a_message_larger_than_the_topic_takes_is_too_large():
    config = topic_config(max_message_bytes=1000)
    assert refusal_of(encode_message(1, 0, 5, None, bytes(1000)), config) is ErrorCode.MESSAGE_TOO_LARGE
    assert len(up(encode_message(1, 0, 5, None, bytes(900)), config)) < 1000


def test_what_a_compressed_message_may_expand_to_is_bounded():
    config = topic_config(ottla_batch_max_decompressed_bytes=MEBI)
    assert refusal_of(gzip_message(encode_message(1, 0, 5, None, bytes(MEBI))), config) is ErrorCode.MESSAGE_TOO_LARGE


def test_how_many_messages_are_converted_at_once_is_bounded(monkeypatch):
    monkeypatch.setattr("ottla.broker.formats.conversion.MAX_CONVERTED_RECORDS", 3)
    plain = [bytes(encode_message(1, 0, 5, None, b"v")) for _ in range(4)]
    assert len(decode_batch(up(b"".join(plain[:3])))) == 3
    assert refusal_of(b"".join(plain)) is ErrorCode.MESSAGE_TOO_LARGE
    assert len(decode_batch(up(gzip_message(b"".join(plain[:3]))))) == 3
    assert refusal_of(gzip_message(b"".join(plain))) is ErrorCode.MESSAGE_TOO_LARGE


# Down ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=examples(40))
@given(loose=RECORDS, codec=st.sampled_from(OLD_CODECS), first=st.integers(0, 2**40))
def test_kafka_python_reads_what_batches_become(magic, loose, codec, first):
    records = [Record(first + 2 * number, *fields) for number, fields in enumerate(loose)]
    converted = down(encode_batch(records, compression=codec), magic, first)
    assert read_by_kafka_python(converted.messages, magic) == [old(record, magic) for record in records]
    assert converted.next_offset == records[-1].offset + 1


def values(converted, magic=1):
    return [record.value for record in read_by_kafka_python(converted.messages, magic)]


def test_log_append_time_stays_log_append_time():
    batch = encode_batch([Record(0, 5, None, b"a"), Record(1, 6, None, b"b")], log_append_time_ms=99)
    converted = down(batch, 1)
    assert [record.timestamp for record in read_by_kafka_python(converted.messages, 1)] == [99, 99]
    assert all(header.is_log_append_time for _, header in iter_messages(converted.messages))


def test_in_the_middle_of_an_uncompressed_batch_only_what_was_asked_for_is_given():
    records = [Record(offset, 5, None, b"%d" % offset) for offset in range(5)]
    assert values(down(encode_batch(records), 1, 3)) == [b"3", b"4"]
    compressed = down(encode_batch(records, compression=Compression.GZIP), 1, 3)
    assert values(compressed) == [b"0", b"1", b"2", b"3", b"4"]


CONTROL = encode_batch([Record(0, 5, encode_control_key(ControlType.COMMIT), b"\0" * 6)], is_control=True)


def test_control_batches_are_left_out():
    data = CONTROL + encode_batch([Record(1, 5, None, b"a")])
    assert values(down(data, 1)) == [b"a"]
    assert down(CONTROL, 1) == (b"", 1)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_batch_of_which_compaction_left_nothing_to_give_is_passed_over(codec):
    batch = encode_batch([Record(0, 5, b"k", b"old")], compression=codec)
    struct.pack_into(">i", batch, 23, 9)
    struct.pack_into(">I", batch, 17, compute_crc(batch))
    assert down(batch, 1, 4) == (b"", 10)


def test_zstd_cannot_be_said_in_old_formats():
    batch = encode_batch([Record(0, 5, None, b"a")], compression=Compression.ZSTD)
    with pytest.raises(KafkaError) as caught:
        down(batch, 1)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_what_stands_before_a_batch_that_cannot_be_given_is_given_first():
    sound = encode_batch([Record(0, 5, None, b"a")])
    zstd = encode_batch([Record(1, 5, None, b"b")], compression=Compression.ZSTD)
    damaged = broken(encode_batch([Record(1, 5, None, b"b")]), 65)
    for behind in (zstd, damaged):
        converted = down(sound + behind, 1)
        assert (values(converted), converted.next_offset) == ([b"a"], 1)
    with pytest.raises(KafkaError) as caught:
        down(damaged, 1, 1)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_messages_end_at_the_clients_limit_and_there_is_one_at_least():
    batches = [encode_batch([Record(offset, 5, None, bytes(100))]) for offset in range(10)]
    one = len(down(batches[0], 1).messages)
    assert len(down(b"".join(batches), 1, max_bytes=1).messages) == one
    limited = down(b"".join(batches), 1, max_bytes=3 * one + 1)
    assert (len(limited.messages), limited.next_offset) == (3 * one, 3)


def test_no_more_is_opened_once_enough_came_out():
    batches = [
        encode_batch([Record(offset, 5, None, bytes(1000))], compression=Compression.GZIP) for offset in range(10)
    ]
    assert down(b"".join(batches), 1, max_decompressed_bytes=2500).next_offset == 2


def test_old_messages_stay_as_they_are_where_that_is_old_enough():
    v0 = encode_message_set([Record(0, -1, None, b"a")], 0)
    v1 = encode_message_set([Record(1, 7, None, b"b"), Record(2, 8, None, b"c")], 1, compression=Compression.LZ4)
    v2 = encode_batch([Record(3, 9, None, b"d")])
    assert down(v0 + v1 + v2, 1).messages[: len(v0) + len(v1)] == v0 + v1
    for_v0 = down(v0 + v1 + v2, 0)
    assert read_by_kafka_python(for_v0.messages, 0) == [
        Record(offset, -1, None, value) for offset, value in enumerate([b"a", b"b", b"c", b"d"])
    ]


def too_large_for(data, **limits):
    with pytest.raises(KafkaError) as caught:
        down(data, 0, **limits)
    return caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_holds_too_much_is_not_converted(monkeypatch):
    records = [Record(number, 5, None, bytes(100)) for number in range(4)]
    batch = encode_batch(records, compression=Compression.GZIP)
    message = encode_message_set(records, 1, compression=Compression.GZIP)
    for data in (batch, message):
        assert too_large_for(data, max_decompressed_bytes=300)
        assert len(read_by_kafka_python(down(data, 0).messages, 0)) == 4
    monkeypatch.setattr("ottla.broker.formats.conversion.MAX_CONVERTED_RECORDS", 3)
    assert too_large_for(batch)
    assert too_large_for(message)


def test_a_cut_at_the_end_of_what_was_read_is_left_for_the_next_fetch():
    batch = encode_batch([Record(0, 5, None, b"a")])
    assert down(batch + batch[:30], 1) == down(batch, 1)
