"""The content of the records that brokers write for themselves: control records such as markers, metadata, groups,
transactions, the state of share groups.

Each function returns what a dump adds to the record's row; its `kind` names the record. A record that cannot be read is
a row of kind `unreadable`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

from ottla.cli.show import json_bytes
from ottla.protocol.records.batch import CorruptBatch, Record
from ottla.storage.formats import layout
from ottla.storage.formats.kafka_uuid import uuid_to_text

Row: TypeAlias = dict[str, Any]
"""One JSON object; the values are what `json.dumps` takes."""
Words: TypeAlias = Callable[[Record], Row]

BROKER_RESOURCE = 4
"""In a ConfigRecord."""
HIDDEN = "[hidden]"
DELIVERY_STATES = {0: "available", 2: "acknowledged", 3: "archiving", 4: "archived"}
"""The states in `__share_group_state` of records that were delivered; a record that a member has is `available`."""


def words_of(path: Path) -> Words | None:
    """How the records of a log or a metadata snapshot are read; None for those of clients."""
    directory = path.parent.name
    if path.name.endswith(".checkpoint") or directory.startswith(f"{layout.CLUSTER_METADATA_TOPIC}-"):
        return metadata_words
    by_topic: dict[str, Words] = {
        layout.TRANSACTIONS_TOPIC: transaction_words,
        layout.OFFSETS_TOPIC: group_words,
        layout.SHARE_GROUP_STATE_TOPIC: share_state_words,
    }
    return next((words for topic, words in by_topic.items() if directory.startswith(f"{topic}-")), None)


def control_words(record: Record) -> Row:
    """A control record: COMMIT or ABORT with the coordinator's epoch, or one of the metadata log."""
    from ottla.protocol.errors import MalformedMessage

    try:
        return {"control": _control(record)}
    except (CorruptBatch, MalformedMessage) as error:
        return {"control": _unreadable(error)}


def _control(record: Record) -> Row:
    from ottla.protocol.records.control import ControlType, decode_control_key, decode_end_transaction_marker
    from ottla.protocol.stored import control

    classes: dict[ControlType, type[control.ControlRecord]] = {
        ControlType.LEADER_CHANGE: control.LeaderChangeMessage,
        ControlType.SNAPSHOT_HEADER: control.SnapshotHeaderRecord,
        ControlType.SNAPSHOT_FOOTER: control.SnapshotFooterRecord,
        ControlType.KRAFT_VERSION: control.KRaftVersionRecord,
        ControlType.KRAFT_VOTERS: control.VotersRecord,
    }
    kind = decode_control_key(record.key)
    if kind is None:
        return {"kind": "unknown"}
    if kind is ControlType.COMMIT or kind is ControlType.ABORT:
        return {"kind": kind.name, **decode_end_transaction_marker(record.value)._asdict()}
    if record.value is None:
        return {"kind": kind.name}
    return {"kind": kind.name, **_fields(control.decode_control_record(classes[kind], record.value))}


def metadata_words(record: Record) -> Row:
    """A record of the metadata log, in place of its value."""
    from ottla.protocol.errors import MalformedMessage
    from ottla.protocol.stored.metadata import decode_metadata_record

    try:
        decoded = decode_metadata_record(record.value or b"")
    except MalformedMessage as error:
        return {"value": None, "metadata": {**_unreadable(error), "value": json_bytes(record.value)}}
    fields = _fields(decoded)
    return {"value": None, "metadata": {"kind": type(decoded).__name__, **fields, **_hidden(fields)}}


def _hidden(fields: Row) -> Row:
    """The fields that replace secrets in a record of the metadata log. With the keys of a SCRAM credential an attacker
    can pose as the broker, and as the user after recording a login; keys of brokers may be passwords.
    """
    hidden: Row = {name: HIDDEN for name in ("stored_key", "server_key") if name in fields}
    if fields.get("resource_type") == BROKER_RESOURCE and fields.get("value") is not None:
        from ottla.config.broker import ALL_BROKER_KEYS
        from ottla.config.on_listener import listener_option

        key = str(fields["name"])
        option = ALL_BROKER_KEYS.get(key) or listener_option(key)
        if option is None or option.is_sensitive:  # an unknown key may be a secret, too
            hidden["value"] = HIDDEN
    return hidden


def transaction_words(record: Record) -> Row:
    """A record of `__transaction_state`, in place of its key and value; its kind is the state, or `tombstone`."""
    return {"key": None, "value": None, "transaction": _transaction(record)}


def _transaction(record: Record) -> Row:
    from ottla.protocol.errors import MalformedMessage
    from ottla.protocol.stored.transaction import (
        TransactionLogKey,
        TransactionLogValue,
        TransactionStatus,
        decode_transaction_record,
    )

    raw = {"key": json_bytes(record.key), "value": json_bytes(record.value)}
    try:
        key, value = decode_transaction_record(record.key or b"", record.value)
    except MalformedMessage as error:
        return {**_unreadable(error), **raw}
    if not isinstance(key, TransactionLogKey):
        return {"kind": "unknown", **raw}
    if not isinstance(value, TransactionLogValue):
        return {"kind": "tombstone", **_fields(key)}
    state = TransactionStatus(value.transaction_status).name.title().replace("_", "")
    return {"kind": state, **_fields(key), **_fields(value)}


def group_words(record: Record) -> Row:
    """A record of `__consumer_offsets`, in place of its key and value; its kind is its type, or `tombstone`."""
    from ottla.protocol.stored.group import decode_group_record

    return {"key": None, "value": None, "group": _stored(record, decode_group_record)}


def share_state_words(record: Record) -> Row:
    """A record of `__share_group_state`, in place of its key and value: `ShareSnapshot`, `ShareUpdate`, `tombstone`."""
    from ottla.protocol.stored.share_state import decode_share_state_record

    found = _stored(record, decode_share_state_record)
    for batch in found.get("state_batches", ()):
        batch["delivery_state"] = DELIVERY_STATES.get(batch["delivery_state"], batch["delivery_state"])
    return {"key": None, "value": None, "share_state": found}


def _stored(record: Record, decode: Callable[[bytes, bytes | None], tuple[object, object]]) -> Row:
    """The fields of the key and of the value. A tombstone has the type of the record that it removes in `of`."""
    from ottla.protocol.errors import MalformedMessage
    from ottla.protocol.stored.unknown import UnknownRecord

    raw = {"key": json_bytes(record.key), "value": json_bytes(record.value)}
    try:
        key, value = decode(record.key or b"", record.value)
    except MalformedMessage as error:
        return {**_unreadable(error), **raw}
    if isinstance(key, UnknownRecord):
        return {"kind": "unknown", "record_type": key.record_type, **raw}
    name = type(key).__name__.removesuffix("Key")
    if value is None:
        return {"kind": "tombstone", "of": name, **_fields(key)}
    return {"kind": name, **_fields(key), **_fields(value)}


def _unreadable(error: Exception) -> Row:
    return {"kind": "unreadable", "problem": str(error)}


def _fields(message: object) -> Row:
    """The fields of a message, in JSON's types."""
    slots: tuple[str, ...] = getattr(type(message), "__slots__", ())
    return {name: _json(getattr(message, name)) for name in slots}


def _json(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return json_bytes(bytes(value))
    if isinstance(value, UUID):
        return uuid_to_text(value)
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    return _fields(value) if getattr(type(value), "__slots__", None) and hasattr(value, "fields") else str(value)
