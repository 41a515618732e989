"""Our messages as those of `kio`, whose classes are generated from Kafka's own schemas: an oracle for the wire."""

from __future__ import annotations

import datetime
import io
from dataclasses import fields
from functools import cache
from typing import Any, get_args

from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.protocol.message import Message, Request, Response, Struct
from ottla.protocol.plan import FieldPlan
from ottla.protocol.types import ZERO_UUID

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ONE_MS = datetime.timedelta(milliseconds=1)
STORED = {
    "LeaderChangeMessage": "leader_change_message",
    "SnapshotHeaderRecord": "snapshot_header_record",
    "SnapshotFooterRecord": "snapshot_footer_record",
    "KRaftVersionRecord": "k_raft_version_record",
    "VotersRecord": "voters_record",
    "ConsumerProtocolSubscription": "consumer_protocol_subscription",
    "ConsumerProtocolAssignment": "consumer_protocol_assignment",
}

RENAMED_BY_KAFKA = {
    ("StreamsGroupHeartbeatResponse", "acceptable_recovery_lag"): "acceptable_recovery_lag_legacy",
    ("TxnOffsetCommitRequest", "generation_id"): "generation_id_or_member_epoch",
}
"""Fields of which Kafka 4.4 changed the name, by kio's class and the name in its older schemas."""


@cache
def kio_class(cls: type[Message], version: int) -> Any:
    """kio's class for a message at a version; None where it has none."""
    return load_entity_schema(*_place(cls, version)) if kio_knows(cls, version) else None


def kio_knows(cls: type[Message], version: int) -> bool:
    """Whether kio has a class for a message at a version. Nothing is imported: all its classes take 2 s."""
    name, version, entity_type = _place(cls, version)
    return entity_type in schema_name_map.get(name, {}).get(version, {})


def _place(cls: type[Message], version: int) -> tuple[str, int, Any]:
    """What kio finds a class by."""
    if issubclass(cls, Request | Response):
        name = api_key_map.get(cls.message_key, "")
        return name, version, EntityType.request if issubclass(cls, Request) else EntityType.response
    return STORED.get(cls.__name__, ""), version, EntityType.data


def narrow_to_kio(field: FieldPlan) -> st.SearchStrategy[Any] | None:
    """kio gives some numbers a meaning, and refuses what is outside of it; far times it rounds."""
    if field.name.endswith("error_code"):
        return st.sampled_from([code.value for code in KioErrorCode])
    if field.name in ("log_append_time_ms", "last_fetch_timestamp", "last_caught_up_timestamp", "last_timestamp"):
        return st.just(-1) | st.integers(0, 4_000_000_000_000)
    if field.name == "transaction_start_time_ms":
        return st.integers(0, 4_000_000_000_000)
    if field.name in ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"):
        return st.integers(0, 4_000_000_000_000)
    if field.name in (
        "retention_time_ms",
        "session_lifetime_ms",
        "max_lifetime_ms",
        "renew_period_ms",
        "expiry_time_period_ms",
    ):
        return st.integers(-1, 2**51)  # kio writes it from seconds in a float: exact that far
    return None


def kio_bytes(message: Any) -> bytes:
    """What kio writes."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def kio_message(cls: Any, data: bytes) -> tuple[Any, int]:
    """What kio reads, and how many bytes of it."""
    return entity_reader(cls)(data, 0)


def to_kio(struct: Struct, cls: Any) -> Any:
    """The same value in kio's class. Field names have to agree, up to the unit that kio puts into the type."""
    names = [field.name for field in struct.fields() if int(cls.__version__) in field.versions]
    theirs = fields(cls)
    assert [_their_name(cls.__name__, field.name, field.metadata.get("kafka_type", "")) for field in theirs] == names
    values = {}
    for name, field in zip(names, theirs, strict=True):
        values[field.name] = _to_kio_value(getattr(struct, name), field.type, field.metadata.get("kafka_type", ""))
    return cls(**values)


def _their_name(class_name: str, name: str, kafka_type: str) -> str:
    name = RENAMED_BY_KAFKA.get((class_name, name), name).replace("k_raft", "kraft")
    return f"{name}_ms" if "timedelta" in kafka_type or "datetime" in kafka_type else name


def _to_kio_value(value: Any, annotation: Any, kafka_type: str) -> Any:
    options = [option for option in get_args(annotation) if option is not type(None)] or [annotation]
    if getattr(annotation, "__origin__", None) is tuple:
        options = [annotation]
    chosen = options[0]
    if getattr(chosen, "__origin__", None) is tuple:
        element = get_args(chosen)[0]
        return None if value is None else tuple(_to_kio_value(item, element, kafka_type) for item in value)
    if hasattr(chosen, "__version__"):
        if value is None and type(None) in get_args(annotation):
            return None
        return chosen() if value is None else to_kio(value, chosen)
    if value is None:
        return None
    if kafka_type == "error_code":
        return KioErrorCode(value)
    if kafka_type.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    if kafka_type.startswith("datetime"):
        return None if value == -1 else EPOCH + value * ONE_MS
    if kafka_type == "uuid" and value == ZERO_UUID and type(None) in get_args(annotation):
        return None
    return bytes(value) if kafka_type == "records" else value
