"""Messages that Apache Kafka's own classes wrote (see kit/golden.py): we write and read the same bytes."""

from __future__ import annotations

import pytest
from kit.golden import ALL_MESSAGES, Golden, golden_messages, versions_of_kafka
from kit.kafka_json import from_kafka_json

from ottla.protocol.message import Message, decode_prefix, encode
from ottla.protocol.stored.metadata import MetadataRecord, decode_metadata_record, encode_metadata_record


def _identity(golden: Golden) -> str:
    return f"{golden.cls.__name__}-v{golden.version}"


@pytest.mark.parametrize("golden", golden_messages(), ids=_identity)
def test_our_bytes_are_those_of_kafka(golden: Golden) -> None:
    message = from_kafka_json(golden.cls, golden.version, golden.fields)
    assert _encode(message, golden.version) == golden.data


@pytest.mark.parametrize("golden", golden_messages(), ids=_identity)
def test_what_kafka_wrote_reads_as_it_was_meant(golden: Golden) -> None:
    message = from_kafka_json(golden.cls, golden.version, golden.fields)
    if issubclass(golden.cls, MetadataRecord):
        assert decode_metadata_record(golden.data) == message
    else:
        assert decode_prefix(golden.cls, golden.data, golden.version, 0) == (message, len(golden.data))


def test_kafka_was_asked_about_every_message_and_version() -> None:
    asked = {(golden.cls, golden.version) for golden in golden_messages()}
    declared = {(cls, version) for cls in ALL_MESSAGES for version in versions_of_kafka(cls)}
    assert asked == declared


def _encode(message: Message, version: int) -> bytes:
    if isinstance(message, MetadataRecord):
        return encode_metadata_record(message, version)
    return encode(message, version)
