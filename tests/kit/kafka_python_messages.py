"""Our messages as those of kafka-python 3, which reads Kafka's schemas at run time: a second oracle for the wire."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from hypothesis import strategies as st
from kafka.protocol.data_container import DataContainer
from kafka.protocol.schemas.fields.codecs import BitField
from kit.wire_values import Narrow

from ottla.protocol.api.api_versions import ApiVersionsResponse
from ottla.protocol.message import Message, Struct
from ottla.protocol.plan import FieldPlan, StructPlan, plan_message

MODULES = ("producer", "consumer", "metadata", "admin", "sasl")


@cache
def kafka_python_class(cls: type[Message], version: int) -> Any:
    """kafka-python's class for a message; None where it has none, or none of this version."""
    for module in MODULES:
        theirs = getattr(import_module(f"kafka.protocol.{module}"), cls.__name__, None)
        if theirs is not None:
            first, last = theirs.valid_versions
            return theirs if first <= version <= last else None
    return None


def narrow_to_kafka_python(cls: type[Message]) -> Narrow:
    """The values that kafka-python can say. It reads an ApiVersions response with an error as version 0."""
    if cls is ApiVersionsResponse:
        return lambda field: st.just(0) if field.name == "error_code" else None
    return _operations


def _operations(field: FieldPlan) -> st.SearchStrategy[Any] | None:
    """Operations are a set of bits there, and all unset bits but the lowest mean that nobody asked."""
    if field.name.endswith("authorized_operations") and field.primitive is not None and field.primitive.name == "Int32":
        return st.just(-(2**31)) | st.integers(1, 2**30 - 1)
    return None


def reencoded(cls: type[Message], data: bytes, version: int) -> bytes:
    """What kafka-python writes of what it read."""
    read = kafka_python_class(cls, version).decode(data, version=version)
    read._header = None
    return bytes(read.encode(version))


def to_kafka_python(message: Message, version: int) -> Any:
    """The same value in kafka-python's class."""
    return _to_struct(plan_message(type(message), version), message, kafka_python_class(type(message), version))


def _to_struct(plan: StructPlan, struct: Struct, cls: Any) -> Any:
    ours = [field.name for field in struct.fields() if plan.version in field.versions]
    theirs = [field for field in cls._struct._fields if field.for_version_q(plan.version)]
    by_name = {field.name: field for field in (*plan.fields, *plan.tagged)}
    values = {}
    for name, their_field in zip(ours, theirs, strict=True):
        field = by_name[name]
        value = getattr(struct, name)
        if field.tag is None or value != field.default:
            values[their_field.name] = _to_value(field, their_field, value)
    return cls(version=plan.version, **values)


def _struct_class(field: Any) -> Any:
    """The class of a nested struct; kafka-python leaves out some of the deeper ones."""
    if field.data_class is None:
        field.set_data_class(type(field.type_str, (DataContainer,), {"_struct": field}))
    return field.data_class


def _to_value(field: FieldPlan, theirs: Any, value: Any) -> Any:
    if value is None:
        return None
    if field.struct is not None:
        cls = _struct_class(theirs)
        if field.is_array:
            return [_to_struct(field.struct, item, cls) for item in value]
        return _to_struct(field.struct, value, cls)
    are_bits: bool = getattr(theirs, "_type", None) is BitField
    if are_bits:
        return None if value == -(2**31) else BitField.from_32_bit_field(value)
    return value
