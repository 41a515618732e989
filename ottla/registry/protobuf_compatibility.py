"""Whether Protobuf data of one file can be read with another: differences, by Confluent's kinds.

Messages are compared by their names, fields by their numbers. Adding, removing and renaming fields is compatible, and
so are changes within a group of types that look alike on the wire. The package, options and services are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ottla.registry.differences import Difference

_ALIKE: Final = (
    frozenset({"int32", "uint32", "int64", "uint64", "bool"}),
    frozenset({"sint32", "sint64"}),
    frozenset({"string", "bytes"}),
    frozenset({"fixed32", "sfixed32"}),
    frozenset({"fixed64", "sfixed64"}),
)
_TYPES: Final = (
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message",
    "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
"""By the numbers of FieldDescriptorProto.Type."""


def protobuf_differences(writer: Any, reader: Any) -> list[Difference]:
    """What keeps programs with the reader's file from reading data of the writer's; both are FileDescriptors."""
    found: list[Difference] = []
    before, after = dict(_messages(writer)), dict(_messages(reader))
    for name, message in before.items():
        if name in after:
            found += _fields(message, after[name], name)
        else:
            found.append(Difference("MESSAGE_REMOVED", f"#/{name}", "the reader does not have the message"))
    return found


def _messages(file: Any) -> Iterator[tuple[str, Any]]:
    """The messages of a file with those in them, by their names without the package; entries of maps are fields."""
    waiting = list(file.message_types_by_name.items())
    while waiting:
        name, one = waiting.pop(0)
        if one.GetOptions().map_entry:
            continue
        yield name, one
        waiting += [(f"{name}.{inner}", nested) for inner, nested in one.nested_types_by_name.items()]


def _fields(before: Any, after: Any, name: str) -> Iterator[Difference]:
    for number, old in before.fields_by_number.items():
        place, new = f"#/{name}/{number}", after.fields_by_number.get(number)
        if new is not None:
            yield from _field(old, new, place)
        elif _is_required(old):
            yield Difference("REQUIRED_FIELD_REMOVED", place, f"the field {old.name!r} is required in the writer")
        elif _oneof(old) is not None:
            yield Difference("ONEOF_FIELD_REMOVED", place, f"the field {old.name!r} of a oneof is missing")
    for number, new in after.fields_by_number.items():
        if number not in before.fields_by_number and _is_required(new):
            yield Difference("REQUIRED_FIELD_ADDED", f"#/{name}/{number}", f"the field {new.name!r} is required")
    for oneof in after.oneofs:
        moved = [
            one.number
            for one in oneof.fields
            if one.number in before.fields_by_number and _oneof(before.fields_by_number[one.number]) is None
        ]
        if _is_synthetic(oneof):
            continue
        place, is_new = f"#/{name}/{oneof.name}", oneof.name not in before.oneofs_by_name
        if len(moved) > 1:
            yield Difference("MULTIPLE_FIELDS_MOVED_TO_ONEOF", place, "several fields are now of one oneof")
        elif moved and not is_new:
            yield Difference("FIELD_MOVED_TO_EXISTING_ONEOF", place, "a field is now of a oneof that there was")


def _field(old: Any, new: Any, place: str) -> Iterator[Difference]:
    before, after = _TYPES[old.type], _TYPES[new.type]
    if _shape(old) != _shape(new):
        line = f"the field {new.name!r} is {_shape(new)} in the reader, and {_shape(old)} in the writer"
        yield Difference("FIELD_KIND_CHANGED", place, line)
    elif before == "message" and _is_map(old):
        for key in ("key", "value"):
            yield from _field(
                old.message_type.fields_by_name[key], new.message_type.fields_by_name[key], f"{place}/{key}"
            )
    elif before in ("message", "enum"):
        names = [(one.message_type or one.enum_type) for one in (old, new)]
        if before == "message" and _local(names[0]) != _local(names[1]):
            line = (
                f"the field {new.name!r} is a {_local(names[1])} in the reader, and a {_local(names[0])} in the writer"
            )
            yield Difference("FIELD_NAMED_TYPE_CHANGED", place, line)
    elif before != after and not any({before, after} <= group for group in _ALIKE):
        line = f"the field {new.name!r} is {after} in the reader, and {before} in the writer"
        yield Difference("FIELD_SCALAR_KIND_CHANGED", place, line)
    if old.is_repeated != new.is_repeated and not (_is_map(old) or _is_map(new)):
        is_number = before not in ("string", "bytes", "message")
        if is_number:
            yield Difference("FIELD_NUMERIC_LABEL_CHANGED", place, f"the field {new.name!r} is repeated in only one")
        elif before != "message":
            yield Difference(
                "FIELD_STRING_OR_BYTES_LABEL_CHANGED", place, f"the field {new.name!r} is repeated in only one"
            )
    if _is_required(old) != _is_required(new):
        kind = "REQUIRED_FIELD_ADDED" if _is_required(new) else "REQUIRED_FIELD_REMOVED"
        yield Difference(kind, place, f"the field {new.name!r} is required in only one")


def _shape(field: Any) -> str:
    if _is_map(field):
        return "a map"
    return "a message" if field.message_type is not None else "a scalar"


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _is_required(field: Any) -> bool:
    return bool(field.is_required)


def _oneof(field: Any) -> Any:
    oneof = field.containing_oneof
    return None if oneof is None or _is_synthetic(oneof) else oneof


def _is_synthetic(oneof: Any) -> bool:
    """Whether it stands for `optional` of proto3."""
    return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"


def _local(named: Any) -> str:
    """The name without the package."""
    package = named.file.package
    return str(named.full_name.removeprefix(f"{package}.") if package else named.full_name)
