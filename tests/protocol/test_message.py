"""Declarations: constructors, defaults, equality, what a version lacks, and records that are never copied."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode, MalformedMessage, UnencodableMessage
from ottla.protocol.message import Request, Struct, decode, encode, encode_buffers, since
from ottla.protocol.types import ZERO_UUID, Int32, String

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def _produce(records: bytes | bytearray | memoryview | None) -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(index=3, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def _fetched(*records: bytes | None) -> FetchResponse:
    partitions = [
        FetchResponse.PartitionData(partition_index=index, high_watermark=9, records=content)
        for index, content in enumerate(records)
    ]
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)])


def test_a_field_without_default_is_asked_for_by_name() -> None:
    with pytest.raises(TypeError, match="topic_data"):
        ProduceRequest(acks=1, timeout_ms=1)  # type: ignore[call-arg]  # what is tested
    with pytest.raises(TypeError, match="ack"):
        ProduceRequest(ack=1, acks=1, timeout_ms=1, topic_data=[])  # type: ignore[call-arg]  # what is tested


def test_lists_are_not_shared_between_messages() -> None:
    one, other = (DeleteTopicsRequest(timeout_ms=1) for _ in range(2))
    one.topic_names.append("t")
    assert other.topic_names == []


def test_messages_compare_by_value_and_print_their_fields() -> None:
    assert _produce(b"x") == _produce(b"x")
    assert _produce(b"x") != _produce(b"y")
    assert _produce(b"x") != "something else"
    assert repr(MetadataRequest.MetadataRequestTopic(name="t", topic_id=ZERO_UUID)) == (
        "MetadataRequest.MetadataRequestTopic(topic_id=UUID('00000000-0000-0000-0000-000000000000'), name='t')"
    )


def test_a_message_has_no_room_for_other_attributes() -> None:
    with pytest.raises(AttributeError):
        _produce(None).ack = 1  # type: ignore[attr-defined]  # what is tested


def test_replace_gives_a_changed_copy() -> None:
    request = _produce(None)
    assert request.replace(acks=1).acks == 1
    assert request.acks == -1
    with pytest.raises(TypeError):
        request.replace(ack=1)


def test_fields_that_a_version_lacks_read_as_their_defaults() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], session_id=5, rack_id="r")
    decoded = decode(FetchRequest, encode(request, 4), 4)
    assert (decoded.session_id, decoded.session_epoch, decoded.rack_id) == (0, -1, "")
    assert decoded.forgotten_topics_data == []


def test_a_value_that_a_version_may_not_drop_is_refused() -> None:
    forgotten = FetchRequest.ForgottenTopic(topic="t", partitions=[1])
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], forgotten_topics_data=[forgotten])
    with pytest.raises(UnencodableMessage, match=r"FetchRequest.forgotten_topics_data is set, but version 6"):
        encode(request, 6)


def test_a_topic_name_is_dropped_where_ids_take_its_place() -> None:
    decoded = decode(ProduceRequest, encode(_produce(b"x"), 13), 13)
    assert (decoded.topic_data[0].name, decoded.topic_data[0].topic_id) == ("", TOPIC_ID)


@pytest.mark.parametrize("version", [-1, 14])
def test_a_version_outside_the_declaration_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match="ProduceRequest has versions 0-13"):
        encode(_produce(b""), version)
    with pytest.raises(ValueError, match="ProduceRequest has versions 0-13"):
        decode(ProduceRequest, b"", version)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ProduceRequest(acks=40_000, timeout_ms=1, topic_data=[]), "acks is 40000, which does not fit an Int16"),
        (ProduceRequest(acks=None, timeout_ms=1, topic_data=[]), "acks is None"),  # type: ignore[arg-type]  # tested
        (ProduceRequest(acks=1, timeout_ms=1, topic_data="t"), "topic_data is 't', not a list"),  # type: ignore[arg-type]  # tested
        (_produce("text"), r"topic_data\[0\].partition_data\[0\].records is 'text'"),  # type: ignore[arg-type]  # tested
        (
            ProduceRequest(transactional_id="\ud800", acks=1, timeout_ms=1, topic_data=[]),
            "transactional_id is .*, which does not fit a NullableString",
        ),
        (ProduceRequest(acks=1, timeout_ms=1, topic_data=[3]), r"topic_data\[0\] is 3, not a TopicProduceData"),  # type: ignore[list-item]  # tested
    ],
)
def test_a_value_that_does_not_fit_is_named(request_: ProduceRequest, reason: str) -> None:
    with pytest.raises(UnencodableMessage, match=f"ProduceRequest v9: {reason}"):
        encode(request_, 9)


@pytest.mark.parametrize("version", [2, 5])
def test_a_string_above_the_limit_is_refused(version: int) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name="a" * 32_768, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    with pytest.raises(UnencodableMessage, match="name has 32768 bytes"):
        encode(CreateTopicsRequest(topics=[topic]), version)
    topic.name = "a" * 32_767
    assert decode(CreateTopicsRequest, encode(CreateTopicsRequest(topics=[topic]), version), version).topics == [topic]


def test_null_is_refused_where_the_version_cannot_say_it() -> None:
    with pytest.raises(UnencodableMessage, match="topics is None, which this version cannot say"):
        encode(MetadataRequest(topics=None), 0)
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize("version", [3, 9, 13])
def test_decoded_records_are_views_into_the_frame(version: int) -> None:
    frame = bytearray(encode(_produce(b"records!"), version))
    records = decode(ProduceRequest, frame, version).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert not records.readonly
    records[0] = ord("R")
    assert b"Records!" in frame


def test_records_of_a_frame_that_cannot_be_written_are_readable_only() -> None:
    records = decode(ProduceRequest, encode(_produce(b"x"), 9), 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.readonly


@pytest.mark.parametrize("version", [4, 12, 18])
def test_records_pass_through_encoding_untouched(version: int) -> None:
    contents = [memoryview(bytearray(b"first" * 100)), memoryview(b"second" * 50)]
    response = _fetched(None, None)
    for partition, content in zip(response.responses[0].partitions, contents, strict=True):
        partition.records = content
    buffers = encode_buffers(response, version)
    assert [buffer for buffer in buffers if any(buffer is content for content in contents)] == contents
    assert b"".join(buffers) == encode(response, version)
    assert decode(FetchResponse, encode(response, version), version).responses[0].partitions[1].records == contents[1]


@pytest.mark.parametrize("version", [4, 12])
def test_no_records_and_null_records_are_two_things(version: int) -> None:
    decoded = decode(FetchResponse, encode(_fetched(b"", None), version), version).responses[0].partitions
    assert [None if data.records is None else bytes(data.records) for data in decoded] == [b"", None]


def test_a_message_may_begin_within_the_data() -> None:
    frame = b"header" + encode(_produce(b"x"), 9)
    assert decode(ProduceRequest, memoryview(frame), 9, 6) == decode(ProduceRequest, frame[6:], 9)


def test_error_codes_are_accepted_and_read_back_as_numbers() -> None:
    answer = ProduceResponse.PartitionProduceResponse(
        index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1
    )
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[answer])
    decoded = decode(ProduceResponse, encode(ProduceResponse(responses=[topic]), 9), 9)
    assert decoded.responses[0].partition_responses[0].error_code == 6


def test_an_absent_tag_reads_as_none_and_a_present_one_as_its_struct() -> None:
    response = _fetched(None, None)
    leader = FetchResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=7)
    response.responses[0].partitions[1].current_leader = leader
    decoded = decode(FetchResponse, encode(response, 13), 13).responses[0].partitions
    assert [data.current_leader for data in decoded] == [None, leader]


def test_a_tag_that_says_nothing_is_not_written() -> None:
    response = _fetched(None)
    plain = encode(response, 13)
    response.responses[0].partitions[0].current_leader = FetchResponse.LeaderIdAndEpoch()
    assert encode(response, 13) == plain


def test_a_field_that_versions_lack_needs_a_default() -> None:
    class Incomplete(Request, key=1, versions="0-1", flexible="none"):
        number: Int32 = since("1+")

    with pytest.raises(TypeError, match=r"Incomplete.number"):
        Incomplete(number=1)


def test_structs_that_contain_themselves_are_refused() -> None:
    with pytest.raises(TypeError, match="nest deeper"):
        encode(Endless(inner=None), 0)  # type: ignore[arg-type]  # never looked at


def test_a_struct_that_is_not_declared_in_its_message_is_refused() -> None:
    with pytest.raises(TypeError, match="Orphan has no Missing"):
        decode(Orphan, b"", 0)


def test_decoding_errors_name_message_and_version() -> None:
    with pytest.raises(MalformedMessage, match="ProduceRequest v9 ends early: 1 bytes"):
        decode(ProduceRequest, b"\0", 9)


class Endless(Request, key=1, versions="0", flexible="none"):
    """A struct that would need itself."""

    class Inner(Struct):
        """Holds another of its kind."""

        name: String
        inner: Endless.Inner

    inner: Inner


class Orphan(Request, key=1, versions="0", flexible="none"):
    """Refers to a struct that is nowhere."""

    inner: list[Missing]  # type: ignore[name-defined]  # noqa: F821  (what is tested)
