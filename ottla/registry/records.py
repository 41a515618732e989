"""The records of the topic `_schemas`, in the format of Confluent's registry: keys and values are JSON. Pure.

    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}
    {"subject":"orders-value","version":1,"id":7,"schema":"\\"string\\"","deleted":false}

The topic is compacted, so a key has to be written with the same bytes each time, and by each registry: no spaces, and
the fields in this order. A value may have more fields than are known here; a type of key that is not known is no error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from ottla.registry.json_text import write_json

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"


class MalformedRecord(Exception):
    """A record that is not one of a registry, in one line."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A version of a subject, under the name by which a schema refers to it."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, object]:
        """As in the API and in the topic."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Content:
    """What makes two schemas the same: then they have one id. `metadata` and `rule_set` are kept, not understood."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None

    def to_json(self) -> dict[str, object]:
        """The fields of a schema in the API and in the topic; Avro is the type that is not written."""
        fields: dict[str, object] = {} if self.type == AVRO else {"schemaType": self.type}
        if self.references:
            fields["references"] = [one.to_json() for one in self.references]
        for name, text in (("metadata", self.metadata), ("ruleSet", self.rule_set)):
            if text is not None:
                fields[name] = json.loads(text)
        return {**fields, "schema": self.text}


@dataclass(frozen=True, slots=True)
class Stored:
    """A version of a subject. `is_deleted`: softly, so that it can still be read by its id."""

    subject: str
    version: int
    schema_id: int
    content: Content
    is_deleted: bool = False

    def deleted(self) -> Stored:
        """The same, softly deleted."""
        return replace(self, is_deleted=True)

    def to_json(self) -> dict[str, object]:
        """As in the API."""
        return {"subject": self.subject, "version": self.version, "id": self.schema_id, **self.content.to_json()}


@dataclass(frozen=True, slots=True)
class SchemaKey:
    """The key of a version."""

    subject: str
    version: int

    def to_bytes(self) -> bytes:
        """As in the topic."""
        return _bytes({"keytype": "SCHEMA", "subject": self.subject, "version": self.version, "magic": 1})


@dataclass(frozen=True, slots=True)
class ScopeKey:
    """The key of what is said of a subject, a context, or all: `CONFIG`, `MODE`, `DELETE_SUBJECT`, `CLEAR_SUBJECT`."""

    type: str
    subject: str | None

    def to_bytes(self) -> bytes:
        """As in the topic."""
        return _bytes({"keytype": self.type, "subject": self.subject, "magic": 0})


@dataclass(frozen=True, slots=True)
class OtherKey:
    """`NOOP`, by which Confluent's registry finds the end of the topic, or a type that came later."""

    type: str


Key: TypeAlias = SchemaKey | ScopeKey | OtherKey
_SCOPED: Final = ("CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT")


def parse_key(data: bytes | None) -> Key:
    """The key of a record. Raises MalformedRecord."""
    fields = _object(data)
    match fields:
        case {"keytype": "SCHEMA", "subject": str(subject), "version": int(version)}:
            return SchemaKey(subject, version)
        case {"keytype": str(kind), **rest} if kind in _SCOPED:
            scope = rest.get("subject")
            if scope is not None and not isinstance(scope, str):
                raise MalformedRecord(f"a key of type {kind} whose subject is no text")
            return ScopeKey(kind, scope)
        case {"keytype": str(kind)} if kind != "SCHEMA":
            return OtherKey(kind)
    raise MalformedRecord("a key without type or subject")


def schema_value(stored: Stored) -> bytes:
    """The value of a version."""
    fields = stored.to_json()
    text = fields.pop("schema")
    return _bytes({**fields, "schema": text, "deleted": stored.is_deleted})


def parse_schema_value(data: bytes) -> Stored:
    """The version in a value. Raises MalformedRecord."""
    fields = _object(data)
    match fields:
        case {"subject": str(subject), "version": int(version), "id": int(schema_id), "schema": str(text)}:
            content = Content(
                str(fields.get("schemaType") or AVRO),
                text,
                tuple(_references(fields.get("references") or [])),
                _kept(fields.get("metadata")),
                _kept(fields.get("ruleSet")),
            )
            return Stored(subject, version, schema_id, content, fields.get("deleted") is True)
    raise MalformedRecord("a schema without subject, version, id or text")


def parse_object(data: bytes) -> dict[str, Any]:
    """The value of another record. Raises MalformedRecord."""
    return _object(data)


def object_value(fields: Mapping[str, object]) -> bytes:
    """The value of another record."""
    return _bytes(fields)


def _references(given: object) -> list[Reference]:
    if not isinstance(given, list):
        raise MalformedRecord("references that are no list")
    found = []
    for one in given:
        match one:
            case {"name": str(name), "subject": str(subject), "version": int(version)}:
                found.append(Reference(name, subject, version))
            case _:
                raise MalformedRecord("a reference without name, subject or version")
    return found


def _kept(given: object) -> str | None:
    return write_json(given) if given else None


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        content = json.loads(data or b"null")
    except (ValueError, RecursionError):
        raise MalformedRecord("not JSON") from None
    if not isinstance(content, dict):
        raise MalformedRecord("not a JSON object")
    return content


def _bytes(content: object) -> bytes:
    return write_json(content).encode()
