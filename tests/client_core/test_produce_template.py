"""Templates of Produce: the bytes of a request are the encoder's, and an answer is read as the decoder reads it."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client_core import produce_template
from ottla.client_core.produce_template import FIRST_VERSION, JOINED_BYTES, ProduceTemplate
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import UnencodableMessage
from ottla.protocol.framing import SIZE_BYTES, frame
from ottla.protocol.headers import decode_response_header, encode_request_header, response_header
from ottla.protocol.message import decode, encode, encode_buffers
from ottla.protocol.records.batch import HEADER_BYTES, seal_payload

Appended = ProduceResponse.PartitionProduceResponse
BadRecord = ProduceResponse.BatchIndexAndErrorMessage
VERSIONS = range(FIRST_VERSION, ProduceRequest.message_versions.last + 1)
TOPIC_ID = uuid.UUID(int=77)

versions = st.sampled_from(VERSIONS)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


def template_of(version, topic="t", partition=0, topic_id=TOPIC_ID, client_id="me", acks=-1):
    return ProduceTemplate(
        version,
        client_id=client_id,
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        acks=acks,
        timeout_ms=30_000,
    )


def answer_to(version, *partitions, topic="t", **fields):
    """An answer as the broker writes it, without its size."""
    answer = ProduceResponse.TopicProduceResponse(name=topic, topic_id=TOPIC_ID, partition_responses=list(partitions))
    return response_header(0, version, 5) + encode(ProduceResponse(responses=[answer], **fields), version)


def read(template, data):
    """What a template reads from an answer, in both ways."""
    found = template.appended(data)
    received = len(data).to_bytes(SIZE_BYTES, "big") + data
    assert template.appended_alone(memoryview(received + b"old"), len(received), template.answer_front(5)) == found
    return found


@given(
    versions,
    st.integers(0, 2**31 - 1),
    st.text(max_size=200),
    st.uuids(),
    int32s,
    st.text(max_size=20),
    st.sampled_from([-1, 1]),
    st.one_of(st.integers(1, 300), st.integers(16_000, 17_000)),
)
def test_a_request_has_the_bytes_that_the_encoder_writes(
    version, correlation_id, topic, topic_id, partition, client_id, acks, size_bytes
):
    records = bytes(size_bytes)
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
    )
    header = encode_request_header(0, version, correlation_id, client_id)
    template = template_of(version, topic, partition, topic_id, client_id, acks)
    made = b"".join(template.frame(correlation_id, records))
    assert made == b"".join(frame([header, *encode_buffers(request, version)]))


LARGEST_PACKED_BYTES = JOINED_BYTES - HEADER_BYTES


@given(
    versions,
    st.lists(
        st.tuples(
            st.integers(0, 2**31 - 1),
            st.one_of(
                st.binary(max_size=200),
                st.integers(LARGEST_PACKED_BYTES - 1, LARGEST_PACKED_BYTES + 1).map(bytes),
                st.integers(60, 70).map(bytearray),
            ),
            st.tuples(
                st.integers(-(2**15), 2**15 - 1),  # attributes
                int32s,
                int64s,
                int64s,
                int64s,
                st.integers(-(2**15), 2**15 - 1),  # epoch
                int32s,
                int32s,
            ),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_a_batch_is_framed_as_if_it_were_sealed_before(version, batches):
    template, other = template_of(version), template_of(version)
    for correlation_id, payload, fields, also_sealed in batches:
        sealed = seal_payload(payload, 0, -1, *fields)
        made = b"".join(template.frame_batch(correlation_id, payload, *fields))
        assert made == b"".join(other.frame(correlation_id, sealed))
        if also_sealed:  # sizes that one of the two has prepared are not right for the other
            assert b"".join(template.frame(correlation_id, sealed)) == made


@pytest.mark.parametrize(("size_bytes", "buffers"), [(LARGEST_PACKED_BYTES, 1), (LARGEST_PACKED_BYTES + 1, 3)])
def test_only_a_small_batch_is_packed_with_its_frame(size_bytes, buffers):
    assert len(template_of(13).frame_batch(0, bytes(size_bytes), 0, 0, 0, 0, -1, -1, -1, 1)) == buffers


@pytest.mark.parametrize("size_bytes", [127, 128, JOINED_BYTES, JOINED_BYTES + 1, 16_382, 16_383, 2**21 - 2, 2**21 - 1])
def test_lengths_of_records_take_as_many_bytes_as_they_need(size_bytes):
    buffers = template_of(13).frame(0, bytes(size_bytes))
    request = decode(ProduceRequest, b"".join(buffers)[SIZE_BYTES + 8 + 2 + len("me") + 1 :], 13)
    assert len(request.topic_data[0].partition_data[0].records) == size_bytes


def test_a_large_batch_is_not_copied():
    records = bytes(JOINED_BYTES + 1)
    assert any(buffer is records for buffer in template_of(13).frame(0, records))


def test_a_frame_that_no_size_can_announce_is_refused(monkeypatch):
    records = bytes(100)
    template = template_of(13)
    size_bytes = len(b"".join(template.frame(0, records))) - SIZE_BYTES
    monkeypatch.setattr(produce_template, "MAX_FRAME_BYTES", size_bytes)
    template.frame(0, records)
    with pytest.raises(UnencodableMessage):
        template.frame(0, records + b"1")


@given(versions, int64s, int64s, int64s)
def test_the_numbers_of_an_answer_without_an_error_are_read(version, base_offset, log_append_time_ms, log_start_offset):
    data = answer_to(
        version,
        Appended(
            index=3,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
        ),
    )
    assert read(template_of(version, partition=3), data) == (base_offset, log_append_time_ms)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("partitions", "fields"),
    [
        ([Appended(index=0, base_offset=-1, error_code=6)], {}),
        ([Appended(index=1, base_offset=7)], {}),
        ([Appended(index=0, base_offset=7), Appended(index=1, base_offset=8)], {}),
        ([], {}),
        ([Appended(index=0, base_offset=7)], {"throttle_time_ms": 1}),
        ([Appended(index=0, base_offset=7, error_message="why")], {}),
        (
            [
                Appended(
                    index=0, base_offset=7, record_errors=[ProduceResponse.BatchIndexAndErrorMessage(batch_index=0)]
                )
            ],
            {},
        ),
    ],
)
def test_any_other_answer_is_left_to_the_decoder(version, partitions, fields):
    assert read(template_of(version), answer_to(version, *partitions, **fields)) is None


@given(versions, st.data())
def test_an_answer_with_other_bytes_is_read_as_the_decoder_reads_it_or_left_to_it(version, data):
    usual = bytearray(answer_to(version, Appended(index=0, base_offset=7)))
    place = data.draw(st.integers(4, len(usual) - 1))
    usual[place] ^= data.draw(st.integers(1, 255))
    found = read(template_of(version), bytes(usual))
    if found is not None:
        _, position = decode_response_header(0, version, bytes(usual))
        (answered,) = decode(ProduceResponse, bytes(usual), version, position).responses[0].partition_responses
        assert found == (answered.base_offset, answered.log_append_time_ms)
        assert answered.error_code == 0


@given(versions, st.binary(max_size=100))
def test_an_answer_of_another_length_is_left_to_the_decoder(version, rest):
    usual = answer_to(version, Appended(index=0, base_offset=7))
    template = template_of(version)
    assert read(template, usual + b"0" + rest) is None
    assert read(template, usual[: -1 - len(rest)]) is None


@given(versions, st.integers(0, 7), st.integers(1, 255))
def test_an_answer_of_another_size_or_to_another_request_is_left_to_the_decoder(version, place, change):
    data = answer_to(version, Appended(index=0, base_offset=7))
    received = bytearray(len(data).to_bytes(SIZE_BYTES, "big") + data)
    template = template_of(version)
    assert template.appended_alone(memoryview(received), len(received), template.answer_front(5)) == (7, -1)
    received[place] ^= change
    assert template.appended_alone(memoryview(received), len(received), template.answer_front(5)) is None


def test_versions_without_varints_have_no_template():
    with pytest.raises(ValueError, match="from version 9 on"):
        template_of(FIRST_VERSION - 1)
