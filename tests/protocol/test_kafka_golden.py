"""Messages that Apache Kafka's own classes wrote (see kit/golden.py): we write and read the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.golden import (
    ALL_MESSAGES,
    RELEASES,
    Golden,
    golden_file,
    golden_messages,
    kept_fields,
    read_golden,
    versions_of_kafka,
)
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


@pytest.mark.parametrize("release", RELEASES)
def test_values_that_kafka_was_given_are_given_again_by_the_next_run(release: str) -> None:
    """Else each run of scripts/interop/wire-golden would rewrite what has not changed."""
    file = golden_file(release)
    kept = kept_fields(file)
    assert [fields for several in kept.values() for fields in several] == [one.fields for one in read_golden(file)]


def test_values_of_a_version_whose_declaration_has_changed_are_drawn_again(tmp_path: Path) -> None:
    lines = golden_file(RELEASES[1]).read_text(encoding="utf-8").splitlines()[:4]
    first, *_ = rows = [json.loads(line) for line in lines]
    assert len({(row["message"], row["version"]) for row in rows}) == 2
    first["fields"]["renamed"] = 1
    file = tmp_path / "kafka.jsonl"
    file.write_text("\n".join(map(json.dumps, [*rows, {**first, "message": "GoneRequest"}])) + "\n")
    assert {(cls.__name__, version) for cls, version in kept_fields(file)} == {(rows[2]["message"], rows[2]["version"])}
    assert kept_fields(tmp_path / "none.jsonl") == {}


def _encode(message: Message, version: int) -> bytes:
    if isinstance(message, MetadataRecord):
        return encode_metadata_record(message, version)
    return encode(message, version)
