"""Whether data that was written with one Avro schema can be read with another: the specification's schema resolution.

The rules and their order are those of `org.apache.avro.SchemaCompatibility`, which Confluent's registry asks; where the
specification and that class differ, the class counts: names are compared without namespaces, and a `string` and `bytes`
can be read as each other. `scripts/interop/avro-compatibility` compares the two over random schemas.
"""

from __future__ import annotations

from typing import Final

from ottla.registry.avro_types import Array, AvroType, Enum, Field, Fixed, Map, Primitive, Record, Union
from ottla.registry.differences import Difference
from ottla.registry.errors import InvalidSchema

MOST_COMPARISONS: Final = 500_000
"""Pairs of types in one comparison: two unions of 5,000 records would be 25 million."""
_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""What a reader's primitive type accepts besides itself."""


def avro_differences(reader: AvroType, writer: AvroType) -> list[Difference]:
    """What keeps a reader from reading what a writer has written. Raises InvalidSchema if they are too large."""
    try:
        return _Comparison().compare(reader, writer, "/")
    except _Ambiguous as ambiguous:
        return [ambiguous.difference]


class _Ambiguous(Exception):
    """A field's name and aliases name several fields. Nothing else counts then: the class raises an exception."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference


class _Comparison:
    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], list[Difference]] = {}

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        pair = id(reader), id(writer)
        if pair in self._seen:
            return self._seen[pair]
        if len(self._seen) >= MOST_COMPARISONS:
            raise InvalidSchema("the schemas are too large to be compared")
        self._seen[pair] = []  # of a cycle: compatible unless something else is not
        found = self._seen[pair] = self._compare(reader, writer, path)
        return found

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        match reader, writer:
            case Union(), Union():
                return self._each_branch(reader, writer, path)
            case _, Union():
                return [one for branch in writer.branches for one in self.compare(reader, branch, path)]
            case Union(), _:
                if any(not self.compare(branch, writer, path) for branch in reader.branches):
                    return []
                return [_missing_branch(writer, path)]
            case Primitive(), Primitive():
                is_readable = reader.kind == writer.kind or writer.kind in _PROMOTIONS.get(reader.kind, ())
                return [] if is_readable else [_mismatch(reader, writer, path)]
            case Array(), Array():
                return self.compare(reader.items, writer.items, f"{path}items/")
            case Map(), Map():
                return self.compare(reader.values, writer.values, f"{path}values/")
            case Fixed(), Fixed():
                return _names(reader, writer, path) + _sizes(reader, writer, path)
            case Enum(), Enum():
                return _names(reader, writer, path) + _symbols(reader, writer, path)
            case Record(), Record():
                return _names(reader, writer, path) + self._fields(reader, writer, path)
        return [_mismatch(reader, writer, path)]

    def _each_branch(self, reader: Union, writer: Union, path: str) -> list[Difference]:
        found = []
        for index, branch in enumerate(writer.branches):
            place = f"{path}{index}/"
            if self.compare(reader, branch, place):
                found.append(_missing_branch(branch, place))
        return found

    def _fields(self, reader: Record, writer: Record, path: str) -> list[Difference]:
        found = []
        for index, field in enumerate(reader.fields.values()):
            place = f"{path}fields/{index}/"
            written = [writer.fields[name] for name in (field.name, *field.aliases) if name in writer.fields]
            if len(written) > 1:
                line = f"the field {field.name!r} and its aliases name several fields of the other schema"
                raise _Ambiguous(Difference("NAME_MISMATCH", place[:-1], line))
            if written:
                found += self.compare(field.type, written[0].type, f"{place}type/")
            elif not field.has_default:
                found.append(_missing_default(field, place))
        return found


def _missing_default(field: Field, place: str) -> Difference:
    if isinstance(field.type, Enum) and field.type.default is not None:  # as the class: the enum's default does not do
        line = (
            f"the field {field.name!r} is missing in the other schema, and the default of its enum is none of the field"
        )
        return Difference("TYPE_MISMATCH", f"{place}type", line)
    line = f"the field {field.name!r} has no default value, and is missing in the other schema"
    return Difference("READER_FIELD_MISSING_DEFAULT_VALUE", place[:-1], line)


def _names(reader: Record | Enum | Fixed, writer: Record | Enum | Fixed, path: str) -> list[Difference]:
    if reader.short_name == writer.short_name or writer.name in reader.aliases:
        return []
    return [
        Difference(
            "NAME_MISMATCH", f"{path}name", f"the name is {reader.name!r} in one and {writer.name!r} in the other"
        )
    ]


def _sizes(reader: Fixed, writer: Fixed, path: str) -> list[Difference]:
    if reader.size == writer.size:
        return []
    line = f"the size is {reader.size} in one and {writer.size} in the other"
    return [Difference("FIXED_SIZE_MISMATCH", f"{path}size", line)]


def _symbols(reader: Enum, writer: Enum, path: str) -> list[Difference]:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return []
    line = f"symbols are missing in the reader's enum, which has no default: {', '.join(missing)[:200]}"
    return [Difference("MISSING_ENUM_SYMBOLS", f"{path}symbols", line)]


def _missing_branch(branch: AvroType, path: str) -> Difference:
    line = f"the reader has no type in its union that reads {_shown(branch)}"
    return Difference("MISSING_UNION_BRANCH", path.rstrip("/") or "/", line)


def _mismatch(reader: AvroType, writer: AvroType, path: str) -> Difference:
    line = f"{_shown(writer)} cannot be read as {_shown(reader)}"
    return Difference("TYPE_MISMATCH", path.rstrip("/") or "/", line)


def _shown(of_type: AvroType) -> str:
    return f"{of_type.kind} {of_type.name}" if isinstance(of_type, (Record, Enum, Fixed)) else of_type.kind
