"""Descriptors to `.proto` files: the text that the registry stores, the same for each way a schema was sent.

Comments and custom options are not in it. `protobuf_schema.py` checks that the text means the same descriptor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2 as pb

from ottla.registry.protobuf_text import SCALARS

_SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
_TEXTS = (pb.FieldDescriptorProto.TYPE_STRING, pb.FieldDescriptorProto.TYPE_BYTES)


def print_proto(file: Any) -> str:
    """The text of a FileDescriptorProto whose names of types are full ones."""
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    if file.package:
        lines.append(f"package {file.package};")
    for index, name in enumerate(file.dependency):
        kind = "public " if index in file.public_dependency else "weak " if index in file.weak_dependency else ""
        lines.append(f"import {kind}{json.dumps(name)};")
    lines += [f"option {one};" for one in _options(file.options)]
    for message in file.message_type:
        lines += ["", *_message(message, file.syntax == "proto3")]
    for enum in file.enum_type:
        lines += ["", *_enum(enum)]
    for service in file.service:
        lines += ["", *_service(service)]
    return "\n".join(lines) + "\n"


def _options(options: Any) -> Iterator[str]:
    """The plain ones; a schema with others is refused, as its text would not say the same."""
    for field, value in options.ListFields():
        if field.name == "map_entry" or field.is_extension or field.is_repeated or field.message_type is not None:
            continue
        yield f"{field.name} = {_value(field, value)}"


def _value(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _message(message: Any, is_proto3: bool) -> Iterator[str]:
    entries = {one.name: one for one in message.nested_type if one.options.map_entry}
    yield f"message {message.name} {{"
    inside: list[str] = [f"option {one};" for one in _options(message.options)]
    inside += _reserved(message, 2**29 - 1, past_the_end=1)
    for one in message.extension_range:
        inside.append(f"extensions {_range(one.start, one.end - 1, 2**29 - 1)};")
    done: set[int] = set()
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            inside.append(_field(field, entries, is_proto3))
        elif field.oneof_index not in done:
            done.add(field.oneof_index)
            inside.append(f"oneof {message.oneof_decl[field.oneof_index].name} {{")
            members = [one for one in message.field if one.HasField("oneof_index")]
            inside += [
                f"  {_field(one, entries, True)}"
                for one in members
                if one.oneof_index == field.oneof_index and not one.proto3_optional
            ]
            inside.append("}")
    for nested in message.nested_type:
        if not nested.options.map_entry:
            inside += _message(nested, is_proto3)
    for enum in message.enum_type:
        inside += _enum(enum)
    yield from (f"  {line}" for line in inside)
    yield "}"


def _field(field: Any, entries: dict[str, Any], is_proto3: bool) -> str:
    entry = entries.get(field.type_name.rpartition(".")[2]) if field.label == 3 else None
    if entry is not None:
        kind, label = f"map<{_type(entry.field[0])}, {_type(entry.field[1])}>", ""
    else:
        kind = _type(field)
        is_plain = field.label == 1 and is_proto3 and not field.proto3_optional
        label = "" if is_plain else {1: "optional ", 2: "required ", 3: "repeated "}[field.label]
    options = list(_options(field.options))
    if field.HasField("default_value"):
        quoted = field.type in _TEXTS
        options.insert(0, f"default = {json.dumps(field.default_value) if quoted else field.default_value}")
    if field.HasField("json_name"):
        options.append(f"json_name = {json.dumps(field.json_name)}")
    more = f" [{', '.join(options)}]" if options else ""
    return f"{label}{kind} {field.name} = {field.number}{more};"


def _type(field: Any) -> str:
    return _SCALAR_NAMES[field.type] if field.type in _SCALAR_NAMES else str(field.type_name)


def _enum(enum: Any) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    yield from (f"  option {one};" for one in _options(enum.options))
    for value in enum.value:
        options = ", ".join(_options(value.options))
        yield f"  {value.name} = {value.number}{f' [{options}]' if options else ''};"
    yield from (f"  {line}" for line in _reserved(enum, 2**31 - 1, past_the_end=0))
    yield "}"


def _reserved(declared: Any, highest: int, *, past_the_end: int) -> Iterator[str]:
    for one in declared.reserved_range:
        yield f"reserved {_range(one.start, one.end - past_the_end, highest)};"
    if declared.reserved_name:
        yield f"reserved {', '.join(json.dumps(name) for name in declared.reserved_name)};"


def _range(low: int, high: int, highest: int) -> str:
    return str(low) if low == high else f"{low} to {'max' if high == highest else high}"


def _service(service: Any) -> Iterator[str]:
    yield f"service {service.name} {{"
    yield from (f"  option {one};" for one in _options(service.options))
    for one in service.method:
        given = f"{'stream ' if one.client_streaming else ''}{one.input_type}"
        returned = f"{'stream ' if one.server_streaming else ''}{one.output_type}"
        options = "".join(f" option {option};" for option in _options(one.options))
        yield f"  rpc {one.name} ({given}) returns ({returned}){f' {{{options} }}' if options else ';'}"
    yield "}"
