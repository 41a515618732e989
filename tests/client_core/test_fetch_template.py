"""Templates of Fetch: the bytes of a request are the encoder's, and an answer is read as the decoder reads it."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client_core.fetch_template import FIRST_VERSION, MOST_ALONE_BYTES, FetchTemplate, place
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.framing import SIZE_BYTES, frame
from ottla.protocol.headers import decode_response_header, encode_request_header, response_header
from ottla.protocol.message import decode, encode, encode_buffers

Data = FetchResponse.PartitionData
VERSIONS = range(FIRST_VERSION, FetchRequest.message_versions.last + 1)
TOPIC_ID = uuid.UUID(int=77)

versions = st.sampled_from(VERSIONS)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


def request_of(offset=0, epoch=-1, partition=0, topic="t", topic_id=TOPIC_ID, leader_epoch=-1, isolation_level=0):
    asked = FetchRequest.FetchPartition(
        partition=partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        partition_max_bytes=1000,
    )
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        isolation_level=isolation_level,
        topics=[FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=[asked])],
    )


def answer_to(version, *partitions, topic="t", topic_id=TOPIC_ID, **fields):
    """An answer as the broker writes it, without its size."""
    answer = FetchResponse.FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=list(partitions))
    return response_header(1, version, 5) + encode(FetchResponse(responses=[answer], **fields), version)


def data_of(records=b"records", **fields):
    numbers = {"high_watermark": 9, "last_stable_offset": 8, "log_start_offset": 3}
    return Data(**{"partition_index": 0, "records": records, **numbers, **fields})


def read(template, data):
    """What a template reads from an answer, in both ways."""
    found = template.fetched(data)
    received = len(data).to_bytes(SIZE_BYTES, "big") + data
    alone = template.fetched_alone(memoryview(received + b"old"), len(received), template.answer_front(5))
    assert alone == (found if len(received) <= MOST_ALONE_BYTES else None)
    return found


@given(
    versions,
    st.integers(0, 2**31 - 1),
    int64s,
    int32s,
    int32s,
    st.text(max_size=100),
    st.uuids(),
    int32s,
    st.text(max_size=20),
)
def test_a_request_has_the_bytes_that_the_encoder_writes(
    version, correlation_id, offset, epoch, partition, topic, topic_id, leader_epoch, client_id
):
    wanted = request_of(offset, epoch, partition, topic, topic_id, leader_epoch)
    header = encode_request_header(1, version, correlation_id, client_id)
    template = FetchTemplate(version, client_id, request_of(7, 7, partition, topic, topic_id, leader_epoch))
    made = b"".join(template.frame(correlation_id, place(offset, epoch)))
    assert made == b"".join(frame([header, *encode_buffers(wanted, version)]))


@given(
    versions,
    int64s,
    int64s,
    int64s,
    st.sampled_from([0, 1, 125, 126, 127, 128, 3_900, 16_383, 2_097_152]),
    st.booleans(),
)
def test_the_offsets_and_records_of_an_answer_without_an_error_are_read(
    version, high_watermark, last_stable_offset, log_start_offset, size_bytes, is_committed
):
    data = answer_to(
        version,
        data_of(
            b"r" * size_bytes,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=[] if is_committed else None,
        ),
    )
    template = FetchTemplate(version, "me", request_of(isolation_level=int(is_committed)))
    expected = high_watermark, last_stable_offset, log_start_offset, b"r" * size_bytes
    assert read(template, data) == expected
    assert template.fetched(memoryview(data)) == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("partitions", "fields"),
    [
        ([data_of(error_code=6)], {}),
        ([data_of(partition_index=1)], {}),
        ([data_of(), data_of(partition_index=1)], {}),
        ([data_of(None)], {}),
        ([], {}),
        ([data_of()], {"throttle_time_ms": 1}),
        ([data_of()], {"error_code": 70}),
        ([data_of()], {"session_id": 5}),
        ([data_of(diverging_epoch=FetchResponse.EpochEndOffset(epoch=1, end_offset=2))], {}),
        ([data_of(current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=2))], {}),
        ([data_of(aborted_transactions=[FetchResponse.AbortedTransaction(producer_id=1, first_offset=2)])], {}),
        ([data_of(preferred_read_replica=2)], {}),
    ],
)
def test_any_other_answer_is_left_to_the_decoder(version, partitions, fields):
    assert read(FetchTemplate(version, "me", request_of()), answer_to(version, *partitions, **fields)) is None


@given(versions, st.data())
def test_an_answer_with_other_bytes_is_read_as_the_decoder_reads_it_or_left_to_it(version, data):
    usual = bytearray(answer_to(version, data_of(b"r" * 200)))
    at = data.draw(st.integers(4, len(usual) - 1))
    usual[at] ^= data.draw(st.integers(1, 255))
    found = read(FetchTemplate(version, "me", request_of()), bytes(usual))
    if found is not None:
        _, position = decode_response_header(1, version, bytes(usual))
        answer = decode(FetchResponse, bytes(usual), version, position)
        (one,) = answer.responses[0].partitions
        assert found == (one.high_watermark, one.last_stable_offset, one.log_start_offset, one.records)
        assert (one.error_code, one.diverging_epoch, answer.throttle_time_ms) == (0, None, 0)


@given(versions, st.data())
def test_an_answer_of_another_length_is_left_to_the_decoder(version, data):
    usual = answer_to(version, data_of(b"r" * 200))
    template = FetchTemplate(version, "me", request_of())
    assert read(template, usual + data.draw(st.binary(min_size=1, max_size=9))) is None
    assert read(template, usual[: data.draw(st.integers(4, len(usual) - 1))]) is None


@pytest.mark.parametrize("sizes", [[60, 60, 0, 60], [126, 127, 126], [0, 128, 0]])
def test_answers_of_changing_sizes_are_read(sizes):
    template = FetchTemplate(VERSIONS[-1], "me", request_of())
    for size_bytes in sizes:
        assert read(template, answer_to(VERSIONS[-1], data_of(b"r" * size_bytes))).records == b"r" * size_bytes


def test_an_answer_to_another_request_or_of_another_size_is_not_the_one_that_comes_alone():
    template = FetchTemplate(VERSIONS[-1], "me", request_of())
    data = answer_to(VERSIONS[-1], data_of())
    received = len(data).to_bytes(SIZE_BYTES, "big") + data
    assert template.fetched_alone(received, len(received), template.answer_front(5)) is not None
    assert template.fetched_alone(received, len(received), template.answer_front(6)) is None
    assert template.fetched_alone(b"\0" + received[:-1], len(received), template.answer_front(5)) is None
    assert template.fetched_alone(b"\1" + received[1:], len(received), template.answer_front(5)) is None


def test_the_records_of_an_answer_that_came_alone_stay_when_the_next_one_is_received():
    template = FetchTemplate(VERSIONS[-1], "me", request_of())
    data = answer_to(VERSIONS[-1], data_of(b"first"))
    buffer = bytearray(len(data).to_bytes(SIZE_BYTES, "big") + data)
    found = template.fetched_alone(memoryview(buffer), len(buffer), template.answer_front(5))
    buffer[:] = bytes(len(buffer))
    assert found.records == b"first"


def test_a_length_that_never_ends_is_left_to_the_decoder():
    version = FIRST_VERSION
    usual = answer_to(version, data_of(b""))
    assert read(FetchTemplate(version, "me", request_of()), usual[:-4] + b"\xff" * 9) is None


def test_versions_without_varints_have_no_template():
    with pytest.raises(ValueError, match="from version 12 on"):
        FetchTemplate(FIRST_VERSION - 1, "me", request_of())
