"""The text of an Avro schema as the registry stores it: what Java's `Schema.toString()` prints, as in Confluent's.

Two texts that differ in white space, in the order of keys, in `{"type": "int"}` for `"int"` or in how names are written
become the same; documentation, defaults and properties stay. It is not the Parsing Canonical Form, which leaves these
out. A named type is written in full where it is first used, and by its name elsewhere and if a reference defines it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ottla.registry.avro_types import PRIMITIVES, Array, AvroType, Enum, Field, Fixed, Map, Primitive, Record, Union
from ottla.registry.json_text import write_json


def canonical_avro(of_type: AvroType, referenced: Collection[str]) -> str:
    """The text. `referenced`: the full names that references define."""
    return write_json(_written(of_type, "", set(referenced)))


def _written(of_type: AvroType, space: str, known: set[str]) -> object:
    match of_type:
        case Primitive():
            return {"type": of_type.kind, **of_type.properties} if of_type.properties else of_type.kind
        case Union():
            return [_written(one, space, known) for one in of_type.branches]
        case Array():
            return {"type": "array", "items": _written(of_type.items, space, known), **of_type.properties}
        case Map():
            return {"type": "map", "values": _written(of_type.values, space, known), **of_type.properties}
        case Record() | Enum() | Fixed():
            if of_type.name in known:
                return _name_in(of_type.name, space)
            known.add(of_type.name)
            return _definition(of_type, space, known)


def _definition(named: Record | Enum | Fixed, space: str, known: set[str]) -> dict[str, object]:
    kind = "error" if isinstance(named, Record) and named.is_error else named.kind
    written: dict[str, object] = {"type": kind, "name": named.short_name}
    if named.namespace != space:
        written["namespace"] = named.namespace
    if named.doc is not None:
        written["doc"] = named.doc
    match named:
        case Record():
            written["fields"] = [_field(one, named.namespace, known) for one in named.fields.values()]
        case Enum():
            written["symbols"] = list(named.symbols)
            if named.default is not None:
                written["default"] = named.default
        case Fixed():
            written["size"] = named.size
    written |= named.properties
    if named.aliases:
        written["aliases"] = [_name_in(one, named.namespace) for one in named.aliases]
    return written


def _field(field: Field, space: str, known: set[str]) -> Mapping[str, Any]:
    written: dict[str, Any] = {"name": field.name, "type": _written(field.type, space, known)}
    if field.doc is not None:
        written["doc"] = field.doc
    if field.has_default:
        written["default"] = field.default
    if field.order != "ascending":
        written["order"] = field.order
    if field.aliases:
        written["aliases"] = list(field.aliases)
    return written | dict(field.properties)


def _name_in(name: str, space: str) -> str:
    """A full name as it is written inside a namespace; in full if the short one is that of a primitive type."""
    namespace, _, short = name.rpartition(".")
    return short if not namespace or (namespace == space and short not in PRIMITIVES) else name
