"""Whether each JSON document that one JSON Schema accepts is accepted by another: differences, by Confluent's kinds.

`writer` is the schema of the documents that are there, `reader` the one that has to accept them. A difference is in the
result only if it is one that the reader does not accept. The rules are those of Confluent's registry:

- **Open content model** (`additionalProperties` is true or not there): documents may have any other property, so a
  property that is added may meet a value that does not fit. **Closed** (false): it cannot, but a property that is
  removed is refused. **Partly open** (a schema, or `patternProperties`): what covers the property is compared with it.
- A limit that is added or made narrower is a difference; one that is removed or made wider is none.
- `anyOf` and `oneOf`: each of the writer's types needs one of the reader's. `allOf`: each of the reader's types needs
  one of the writer's.

Other keywords, such as `if` and `contains`, are not compared: where they differ, that is a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ottla.registry.differences import Difference
from ottla.registry.errors import InvalidSchema
from ottla.registry.json_limits import array_limits, number_limits, object_limits, string_limits

Resolve: TypeAlias = Callable[[str], Any]
MOST_COMPARISONS: Final = 100_000
ALL_TYPES: Final = frozenset({"null", "boolean", "integer", "fraction", "string", "array", "object"})
"""`number` is `integer` and `fraction`."""
_SUMS: Final = ("anyOf", "oneOf")
_ANNOTATIONS: Final = frozenset(
    {
        "$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "description", "default", "examples",
        "readOnly", "writeOnly", "deprecated", "format", "contentEncoding", "contentMediaType",
    }
)  # fmt: skip
_COMPARED: Final = frozenset(
    {
        "type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "$ref", "properties", "required",
        "patternProperties", "additionalProperties", "maxProperties", "minProperties", "dependencies",
        "dependentRequired", "dependentSchemas", "items", "prefixItems", "additionalItems", "maxItems", "minItems",
        "uniqueItems", "maxLength", "minLength", "pattern", "maximum", "minimum",
        "exclusiveMaximum", "exclusiveMinimum", "multipleOf",
    }
)  # fmt: skip


def json_differences(writer: Any, reader: Any, of_writer: Resolve, of_reader: Resolve) -> list[Difference]:
    """What keeps the reader from accepting the writer's documents; the functions give what a `$ref` names.

    Raises InvalidSchema if the schemas are too large to be compared.
    """
    return _Comparison(of_writer, of_reader).compare(writer, reader, "#")


class _Comparison:
    def __init__(self, of_writer: Resolve, of_reader: Resolve) -> None:
        self._of_writer = of_writer
        self._of_reader = of_reader
        self._open: set[tuple[int, int]] = set()
        self._kept: list[Any] = []
        """Schemas that were made here: their ids must not be given again."""
        self._count = 0

    def compare(self, writer: Any, reader: Any, path: str) -> list[Difference]:
        self._count += 1
        if self._count > MOST_COMPARISONS:
            raise InvalidSchema("the schemas are too large to be compared")
        writer, reader = _resolved(writer, self._of_writer), _resolved(reader, self._of_reader)
        pair = id(writer), id(reader)
        if pair in self._open or is_empty(reader) or is_false(writer):
            return []
        if is_false(reader):
            return [Difference("TYPE_NARROWED", path, "the reader accepts nothing")]
        writer = {} if writer is True else writer
        self._open.add(pair)
        try:
            return self._compare(writer, reader, path)
        finally:
            self._open.discard(pair)

    def accepts(self, writer: Any, reader: Any) -> bool:
        return not self.compare(writer, reader, "#")

    def _compare(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[Difference]:
        for key in _SUMS:
            if key in reader:
                found = self._sum(writer, reader, key, path)
                if found:
                    return found
                reader = self._keep({name: value for name, value in reader.items() if name != key})
        if is_empty(reader):
            return []
        for key in _SUMS:
            if key in writer:
                return self._each_type(writer, reader, key, path)
        found = self._products(writer, reader, path) + self._negations(writer, reader, path)
        found += _enums(writer, reader, path)
        found += self._types(writer, reader, path)
        for key in sorted(reader.keys() - _COMPARED - _ANNOTATIONS):
            if key not in writer or writer[key] != reader[key]:
                found.append(Difference("TYPE_CHANGED", f"{path}/{key[:100]}", "the keyword cannot be compared"))
        return found

    # -- combinations

    def _each_type(self, writer: dict[str, Any], reader: dict[str, Any], key: str, path: str) -> list[Difference]:
        """The reader has to accept each of the writer's types."""
        rest = {name: value for name, value in writer.items() if name != key}
        return [
            found
            for index, one in enumerate(writer[key])
            for found in self.compare(self._merged(rest, one), reader, f"{path}/{key}/{index}")
        ]

    def _sum(self, writer: dict[str, Any], reader: dict[str, Any], key: str, path: str) -> list[Difference]:
        for one in reader[key]:
            if _resolved(one, self._of_reader) is True:
                return []
        given = next((name for name in _SUMS if name in writer), None)
        if given is not None:
            rest = {name: value for name, value in writer.items() if name != given}
            pieces = [self._merged(rest, one) for one in writer[given]]
        elif isinstance(writer.get("type"), list):
            pieces = [self._keep({**writer, "type": one}) for one in writer["type"]]
        else:
            pieces = [writer]
        missing = [one for one in pieces if not any(self.accepts(one, branch) for branch in reader[key])]
        if not missing:
            return []
        kind = "SUM_TYPE_NARROWED" if given and len(pieces) > len(reader[key]) else "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
        return [Difference(kind, f"{path}/{key}", f"{len(missing)} of the writer's types fit none of the reader's")]

    def _products(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[Difference]:
        found = []
        rest = {name: value for name, value in writer.items() if name != "allOf"}
        candidates = [self._keep(rest), *writer.get("allOf", [])]
        for index, one in enumerate(reader.get("allOf", [])):
            if not any(self.accepts(candidate, one) for candidate in candidates):
                line = "none of the writer's types ensures this one"
                found.append(Difference("PRODUCT_TYPE_EXTENDED", f"{path}/allOf/{index}", line))
        return found

    def _negations(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[Difference]:
        if "not" not in reader:
            return []
        if "not" in writer:  # what the reader forbids must be forbidden before
            turned = _Comparison(self._of_reader, self._of_writer)
            if not turned.compare(reader["not"], writer["not"], path):
                return []
        return [Difference("NOT_TYPE_EXTENDED", f"{path}/not", "the reader forbids more")]

    def _merged(self, rest: dict[str, Any], one: Any) -> Any:
        one = _resolved(one, self._of_writer)
        if one is False:
            return False
        return self._keep({**rest, **one}) if isinstance(one, dict) else self._keep(rest)

    def _keep(self, made: dict[str, Any]) -> dict[str, Any]:
        self._kept.append(made)
        return made

    # -- types

    def _types(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[Difference]:
        before, after = _types_of(writer), _types_of(reader)
        if not before <= after:
            kind = "TYPE_NARROWED" if before & after else "TYPE_CHANGED"
            return [Difference(kind, path, f"{_named(before)} is not always {_named(after)}")]
        found = []
        if "string" in before:
            found += string_limits(writer, reader, path)
        if before & {"integer", "fraction"}:
            found += number_limits(writer, reader, path)
        if "object" in before:
            found += object_limits(writer, reader, path, self.compare)
        if "array" in before:
            found += array_limits(writer, reader, path, self.compare)
        return found


def is_empty(schema: Any) -> bool:
    """Whether a schema accepts everything."""
    return schema is True or (isinstance(schema, dict) and not schema.keys() - _ANNOTATIONS)


def is_false(schema: Any) -> bool:
    """Whether a schema accepts nothing."""
    return schema is False or (isinstance(schema, dict) and is_empty(schema.get("not", False)))


def _resolved(schema: Any, resolve: Resolve) -> Any:
    for _ in range(100):  # a $ref to itself has no end
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        schema = resolve(schema["$ref"])
    raise InvalidSchema("a $ref leads back to itself")


def _types_of(schema: dict[str, Any]) -> frozenset[str]:
    given = schema.get("type")
    if given is None:
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        return ALL_TYPES if values is None else frozenset(map(_type_of_value, values))
    names = [given] if isinstance(given, str) else given
    return frozenset(one for name in names for one in (("integer", "fraction") if name == "number" else (name,)))


def _type_of_value(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "fraction"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _named(types: frozenset[str]) -> str:
    names = types - {"integer", "fraction"} | {"number"} if {"integer", "fraction"} <= types else types
    return " or ".join(sorted(names))


def _enums(writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[Difference]:
    before, after = _values(writer), _values(reader)
    if after is None:
        return []
    if before is None:
        return [Difference("ENUM_ARRAY_NARROWED", f"{path}/enum", "the reader accepts only some values")]
    missing = [one for one in before if not any(_is_same(one, other) for other in after)]
    if not missing:
        return []
    kind = "ENUM_ARRAY_NARROWED" if len(missing) + len(after) == len(before) else "ENUM_ARRAY_CHANGED"
    return [Difference(kind, f"{path}/enum", f"{len(missing)} of the writer's values are missing")]


def _values(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _is_same(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)
