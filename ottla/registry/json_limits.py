"""Differences between the limits of two JSON Schemas, by type: of strings, numbers, objects and arrays. Pure."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, TypeAlias

import re2

from ottla.registry.differences import Difference

Compare: TypeAlias = Callable[[Any, Any, str], list[Difference]]
_OPEN: Final = True


def string_limits(writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[Difference]:
    """Of strings."""
    found = _upper(writer, reader, "maxLength", "MAX_LENGTH", path) + _lower(
        writer, reader, "minLength", "MIN_LENGTH", path
    )
    pattern = reader.get("pattern")
    if pattern is not None and pattern != writer.get("pattern"):
        kind = "PATTERN_CHANGED" if "pattern" in writer else "PATTERN_ADDED"
        found.append(Difference(kind, f"{path}/pattern", "the reader has a pattern that the writer does not have"))
    return found


def number_limits(writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[Difference]:
    """Of numbers. In draft 4 `exclusiveMaximum: true` makes `maximum` exclusive."""
    before, after = _numeric(writer), _numeric(reader)
    found = []
    for name, kind, is_upper in (("imum", "IMUM", True), ("imum", "IMUM", False)):
        side, word = ("max", "MAX") if is_upper else ("min", "MIN")
        found += _bound(before, after, (side + name, word + kind), path, is_upper=is_upper)
    step, old = after.get("multipleOf"), before.get("multipleOf")
    if step is not None and (old is None or Fraction(str(old)) % Fraction(str(step))):
        kind = "MULTIPLE_OF_ADDED" if old is None else "MULTIPLE_OF_CHANGED"
        found.append(Difference(kind, f"{path}/multipleOf", f"{old} is not always a multiple of {step}"))
    return found


def _bound(
    before: dict[str, Any], after: dict[str, Any], names: tuple[str, str], path: str, *, is_upper: bool
) -> list[Difference]:
    """A bound and its exclusive form: the reader's has to hold for all that the writer's allows."""
    name, word = names
    exclusive = f"exclusive{name[0].upper()}{name[1:]}"
    sign = 1 if is_upper else -1
    found = []
    for key, kind in ((name, word), (exclusive, f"EXCLUSIVE_{word}")):
        if key not in after:
            continue
        limit = after[key] * sign
        within = [before[one] * sign for one in (name, exclusive) if one in before]
        holds = any(one < limit for one in within) or (
            before.get(exclusive) == after[key] or (key == name and before.get(name) == after[key])
        )
        if not holds:
            change = ("DECREASED" if is_upper else "INCREASED") if within else "ADDED"
            found.append(Difference(f"{kind}_{change}", f"{path}/{key}", f"the reader's limit is {after[key]}"))
    return found


def _numeric(schema: dict[str, Any]) -> dict[str, Any]:
    made = dict(schema)
    for exclusive, name in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
        given = made.get(exclusive)
        if isinstance(given, bool):
            del made[exclusive]
            if given and name in made:
                made[exclusive] = made.pop(name)
    return made


def object_limits(writer: dict[str, Any], reader: dict[str, Any], path: str, compare: Compare) -> list[Difference]:
    """Of objects: their properties, by content model, and how many there may be."""
    found = _upper(writer, reader, "maxProperties", "MAX_PROPERTIES", path)
    found += _lower(writer, reader, "minProperties", "MIN_PROPERTIES", path)
    before, after = writer.get("properties", {}), reader.get("properties", {})
    required, was_required = set(reader.get("required", [])), set(writer.get("required", []))
    for name in sorted(before.keys() | after.keys()):
        place = f"{path}/properties/{name[:100]}"
        if name not in after:
            found += _removed(name, before[name], reader, place, compare)
        elif name not in before:
            found += _added(name, after[name], writer, place, compare)
        else:
            found += compare(before[name], after[name], place)
    for name in sorted(required - was_required):
        if not _has_default(after.get(name)):
            kind = "REQUIRED_ATTRIBUTE_ADDED" if name in before else "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
            line = "the reader requires it, has no default for it, and the writer does not require it"
            found.append(Difference(kind, f"{path}/required/{name[:100]}", line))
    found += _additional(writer, reader, path, compare)
    return found + _patterns(writer, reader, path, compare) + _dependencies(writer, reader, path, compare)


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _removed(name: str, schema: Any, reader: dict[str, Any], place: str, compare: Compare) -> list[Difference]:
    covers = _covering(name, reader)
    if schema is False or all(one is _OPEN for one in covers):
        return []
    if covers == [False]:
        line = "the reader has a closed content model without this property"
        return [Difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", place, line)]
    if all(not compare(schema, one, place) for one in covers):
        return []
    line = "what the reader has for other properties does not accept this one"
    return [Difference("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place, line)]


def _added(name: str, schema: Any, writer: dict[str, Any], place: str, compare: Compare) -> list[Difference]:
    covers = _covering(name, writer)
    if any(not compare(one, schema, place) for one in covers):
        return []
    if all(one is _OPEN for one in covers):
        line = "the writer has an open content model: its documents may have anything there"
        return [Difference("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", place, line)]
    line = "what the writer has for other properties is not always accepted by this one"
    return [Difference("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place, line)]


def _covering(name: str, schema: dict[str, Any]) -> list[Any]:
    """The schemas for a property that is not listed: of patterns, else of all others."""
    patterns = [one for pattern, one in schema.get("patternProperties", {}).items() if _matches(pattern, name)]
    return patterns or [schema.get("additionalProperties", _OPEN)]


def _matches(pattern: str, name: str) -> bool:
    """In time that is linear in the name; a pattern that RE2 does not have matches nothing."""
    try:
        return re2.search(pattern, name) is not None
    except re2.error:
        return False


def _additional(writer: dict[str, Any], reader: dict[str, Any], path: str, compare: Compare) -> list[Difference]:
    before, after = writer.get("additionalProperties", _OPEN), reader.get("additionalProperties", _OPEN)
    place = f"{path}/additionalProperties"
    if after is False and before is not False:
        return [Difference("ADDITIONAL_PROPERTIES_REMOVED", place, "the reader accepts no other properties")]
    if compare(before, after, place):
        return [Difference("ADDITIONAL_PROPERTIES_NARROWED", place, "the reader accepts fewer other properties")]
    return []


def _patterns(writer: dict[str, Any], reader: dict[str, Any], path: str, compare: Compare) -> list[Difference]:
    """Each of the reader's patterns needs one of the writer's, or a closed writer without properties that match."""
    found = []
    before = writer.get("patternProperties", {})
    others = writer.get("additionalProperties", _OPEN)
    for pattern, schema in reader.get("patternProperties", {}).items():
        place = f"{path}/patternProperties/{pattern[:100]}"
        if pattern in before:
            found += compare(before[pattern], schema, place)
            continue
        listed = [one for name, one in writer.get("properties", {}).items() if _matches(pattern, name)]
        if any(compare(one, schema, place) for one in [*listed, *before.values(), others]):
            line = "the writer's properties are not always accepted by this pattern"
            found.append(Difference("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place, line))
    after = reader.get("patternProperties", {})
    for pattern, schema in before.items():  # what no pattern has any more is one of the other properties
        if pattern not in after and compare(schema, reader.get("additionalProperties", _OPEN), path):
            place = f"{path}/patternProperties/{pattern[:100]}"
            line = "the reader has this pattern no more, and does not accept its properties as others"
            found.append(Difference("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place, line))
    return found


def _dependencies(writer: dict[str, Any], reader: dict[str, Any], path: str, compare: Compare) -> list[Difference]:
    before, after = _dependent(writer), _dependent(reader)
    found = []
    for name, needed in after.items():
        place, old = f"{path}/dependencies/{name[:100]}", before.get(name)
        if isinstance(needed, list):
            if not isinstance(old, list):
                found.append(Difference("DEPENDENCY_ARRAY_ADDED", place, "the reader requires more with it"))
            elif not set(needed) <= set(old):
                found.append(Difference("DEPENDENCY_ARRAY_EXTENDED", place, "the reader requires more with it"))
        elif old is None or isinstance(old, list):
            found.append(Difference("DEPENDENCY_SCHEMA_ADDED", place, "the reader has a schema for documents with it"))
        else:
            found += compare(old, needed, place)
    return found


def _dependent(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        **schema.get("dependencies", {}),
        **schema.get("dependentSchemas", {}),
        **schema.get("dependentRequired", {}),
    }


def array_limits(writer: dict[str, Any], reader: dict[str, Any], path: str, compare: Compare) -> list[Difference]:
    """Of arrays: how many items, and which; items at their own places, and all others."""
    found = _upper(writer, reader, "maxItems", "MAX_ITEMS", path) + _lower(
        writer, reader, "minItems", "MIN_ITEMS", path
    )
    if reader.get("uniqueItems") is True and writer.get("uniqueItems") is not True:
        found.append(Difference("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems", "the reader accepts no item twice"))
    (before, others), (after, further) = _items(writer), _items(reader)
    for index in range(max(len(before), len(after))):
        place = f"{path}/items/{index}"
        old, new = before[index : index + 1] or [others], after[index : index + 1] or [further]
        if index < len(before) and index < len(after):
            found += compare(old[0], new[0], place)
        elif compare(old[0], new[0], place):
            kind = (
                "ITEM_ADDED_TO_OPEN_CONTENT_MODEL" if index < len(after) else "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"
            )
            found.append(Difference(kind, place, "the reader does not accept all that the writer has there"))
    if further is False and others is not False:
        found.append(Difference("ADDITIONAL_ITEMS_REMOVED", f"{path}/items", "the reader accepts no further items"))
    else:
        found += compare(others, further, f"{path}/items")
    return found


def _items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, and that of the others, in either draft's words."""
    items = schema.get("items", _OPEN)
    if "prefixItems" in schema:
        return schema["prefixItems"], items
    if isinstance(items, list):
        return items, schema.get("additionalItems", _OPEN)
    return [], items


def _upper(writer: dict[str, Any], reader: dict[str, Any], key: str, kind: str, path: str) -> list[Difference]:
    limit, old = reader.get(key), writer.get(key)
    if limit is None or (old is not None and old <= limit):
        return []
    change = "ADDED" if old is None else "DECREASED"
    return [Difference(f"{kind}_{change}", f"{path}/{key}", f"the reader's limit is {limit}")]


def _lower(writer: dict[str, Any], reader: dict[str, Any], key: str, kind: str, path: str) -> list[Difference]:
    limit, old = reader.get(key), writer.get(key)
    if limit is None or limit == 0 or (old is not None and old >= limit):
        return []
    change = "ADDED" if old is None else "INCREASED"
    return [Difference(f"{kind}_{change}", f"{path}/{key}", f"the reader's limit is {limit}")]
