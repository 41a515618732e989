"""Our messages in the JSON of Apache Kafka's generated converters, in both directions.

Names in lower camel case, ids as URL-safe base64 without padding, bytes as base64, structs as objects.
"""

from __future__ import annotations

import base64
from typing import Any
from uuid import UUID

from ottla.protocol.fields import fields_of
from ottla.protocol.message import Message, Struct
from ottla.protocol.plan import FieldPlan, StructPlan, plan_message

ODD_NAMES = {"kraft_version": "kRaftVersion", "kraft_version_feature": "kRaftVersionFeature"}


def to_kafka_json(message: Message, version: int) -> dict[str, Any]:
    """The fields that the version has; tags that are absent are left out."""
    return _to_object(plan_message(type(message), version), message)


def from_kafka_json(cls: type[Message], version: int, fields: dict[str, Any]) -> Any:
    """The message that `to_kafka_json` was given. What is left out has its default; zero, where it has none."""
    return _from_object(plan_message(cls, version), fields)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return ODD_NAMES.get(name) or first + "".join(part.capitalize() for part in others)


def _to_object(plan: StructPlan, struct: Struct) -> dict[str, Any]:
    values = {field.name: getattr(struct, field.name) for field in (*plan.fields, *plan.tagged)}
    # A struct that may be null says so: left out it would be a struct of defaults to Kafka.
    absent = {
        field.name
        for field in plan.tagged
        if values[field.name] == field.default and not (field.struct is not None and field.is_nullable)
    }
    return {
        _camel(field.name): _to_value(field, values[field.name])
        for field in (*plan.fields, *plan.tagged)
        if field.name not in absent
    }


def _to_value(field: FieldPlan, value: Any) -> Any:
    if isinstance(value, list):
        return [_to_value(field, item) for item in value]
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _to_object(field.struct, value) if field.struct is not None and value is not None else value


def _from_object(plan: StructPlan, values: dict[str, Any]) -> Any:
    fields = {field.name: field for field in (*plan.fields, *plan.tagged)}
    given = {name: _from_value(field, values[_camel(name)]) for name, field in fields.items() if _camel(name) in values}
    required = {field.name for field in fields_of(plan.cls) if field.is_required} - given.keys()
    return plan.cls(**given, **{name: _zero(fields[name]) for name in required})


def _zero(field: FieldPlan) -> Any:
    if field.is_nullable:
        return None
    if field.is_array:
        return []
    if field.struct is not None:
        return _from_object(field.struct, {})
    assert field.primitive is not None
    kind = field.primitive.name
    return UUID(int=0) if kind == "Uuid" else "" if kind == "String" else b"" if kind == "Bytes" else 0


def _from_value(field: FieldPlan, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_from_value(field, item) for item in value]
    if field.struct is not None:
        return _from_object(field.struct, value)
    assert field.primitive is not None
    if field.primitive.name == "Uuid":
        return UUID(bytes=base64.urlsafe_b64decode(value + "=="))
    if field.primitive.name in ("Bytes", "NullableBytes", "Records"):
        return base64.b64decode(value)
    return value
