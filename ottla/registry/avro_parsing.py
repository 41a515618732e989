"""Parse Avro schemas, as strictly as Avro's own library for Java (`Schema.Parser` with validated names and defaults).

The schema that a client registers is the one that consumers in all languages have to parse later, so that what Java
refuses is refused here: a field twice, a union in a union, a default that does not fit. (fastavro, which the tests use
as a second opinion, accepts these.) Errors are `InvalidSchema`, one line that names the place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ottla.registry.avro_types import (
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Union,
)
from ottla.registry.errors import InvalidSchema
from ottla.registry.json_text import shortened

DEEPEST: Final = 100
"""Nested types in one schema."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_RESERVED_IN_FIELDS: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_ORDERS: Final = ("ascending", "descending", "ignore")


def parse_avro(content: object, known: Mapping[str, Named]) -> tuple[AvroType, dict[str, Named]]:
    """The type of a schema's JSON, and all named types: the known ones, of its references, and its own.

    Raises InvalidSchema.
    """
    parser = _Parser(dict(known))
    return parser.parse(content, "", 0), parser.named


class _Parser:
    def __init__(self, named: dict[str, Named]) -> None:
        self.named = named

    def parse(self, content: object, space: str, depth: int) -> AvroType:
        if depth > DEEPEST:
            raise InvalidSchema(f"types are nested more than {DEEPEST} levels deep")
        if isinstance(content, str):
            return Primitive(content, {}) if content in PRIMITIVES else self._reference(content, space)
        if isinstance(content, list):
            return self._union(content, space, depth)
        if not isinstance(content, dict):
            raise InvalidSchema(f"{shortened(content)} is not a schema: a name, an object or a list of schemas is")
        kind = _text(content, "type", content)
        properties = {name: value for name, value in content.items() if name not in _RESERVED}
        if kind in PRIMITIVES:
            return Primitive(kind, properties)
        match kind:
            case "record" | "error":
                return self._record(content, kind, properties, space, depth)
            case "enum":
                return self._enum(content, properties, space)
            case "fixed":
                return self._fixed(content, properties, space)
            case "array":
                return Array(self._inner(content, "items", space, depth), properties)
            case "map":
                return Map(self._inner(content, "values", space, depth), properties)
        return self._reference(kind, space)

    def _reference(self, name: str, space: str) -> AvroType:
        found = self.named.get(f"{space}.{name}" if space and "." not in name else name)
        if found is None:
            found = self.named.get(name)
        if found is None:
            raise InvalidSchema(f"{name[:200]!r} is not a type: no reference and nothing before it defines that name")
        assert isinstance(found, (Record, Enum, Fixed))
        return found

    def _inner(self, content: dict[str, Any], key: str, space: str, depth: int) -> AvroType:
        if key not in content:
            raise InvalidSchema(f"{shortened(content)} has no {key!r}")
        return self.parse(content[key], space, depth + 1)

    def _union(self, content: list[object], space: str, depth: int) -> Union:
        branches: list[AvroType] = []
        seen: set[str] = set()
        for one in content:
            branch = self.parse(one, space, depth + 1)
            if isinstance(branch, Union):
                raise InvalidSchema(f"a union is directly in a union: {shortened(content)}")
            name = branch.name if isinstance(branch, (Record, Enum, Fixed)) else branch.kind
            if name in seen:
                raise InvalidSchema(f"{name!r} is in a union twice: {shortened(content)}")
            seen.add(name)
            branches.append(branch)
        return Union(tuple(branches))

    def _define(self, content: dict[str, Any], space: str) -> tuple[str, str | None, tuple[str, ...]]:
        """The full name, the documentation and the full names of the aliases."""
        given = _text(content, "name", content)
        own = _optional_text(content, "namespace")
        prefix, dot, last = given.rpartition(".")
        space = prefix if dot else space if own is None else own
        if not _NAME.fullmatch(last):
            raise InvalidSchema(f"{given[:200]!r} is not a name: letters, digits and _ are allowed, not first a digit")
        name = f"{space}.{last}" if space else last
        if name in PRIMITIVES:
            raise InvalidSchema(f"a type cannot be named after the primitive type {name!r}")
        if name in self.named:
            raise InvalidSchema(f"{name!r} is defined twice")
        aliases = tuple(one if "." in one or not space else f"{space}.{one}" for one in _aliases(content))
        return name, _optional_text(content, "doc"), aliases

    def _record(self, content: dict[str, Any], kind: str, properties: dict[str, Any], space: str, depth: int) -> Record:
        name, doc, aliases = self._define(content, space)
        record = Record(name, doc, aliases, properties, is_error=kind == "error")
        self.named[name] = record
        fields = content.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"the record {name!r} has no list of fields")
        parsed: dict[str, Field] = {}
        for one in fields:
            made = self._field(one, record, depth)
            if made.name in parsed:
                raise InvalidSchema(f"the record {name!r} has the field {made.name!r} twice")
            parsed[made.name] = made
        record.fields, record.is_complete = parsed, True
        return record

    def _field(self, content: object, record: Record, depth: int) -> Field:
        if not isinstance(content, dict):
            raise InvalidSchema(f"{shortened(content)} is not a field of the record {record.name!r}")
        name = _text(content, "name", content)
        where = f"the field {name[:200]!r} of the record {record.name!r}"
        if not _NAME.fullmatch(name):
            raise InvalidSchema(f"{where}: letters, digits and _ are allowed, not first a digit")
        if "type" not in content:
            raise InvalidSchema(f"{where} has no type")
        of_type = self.parse(content["type"], record.namespace, depth + 1)
        order = str(content.get("order", "ascending")).lower()
        if order not in _ORDERS:
            raise InvalidSchema(f"{where}: the order is {', '.join(_ORDERS[:-1])} or {_ORDERS[-1]}")
        has_default = "default" in content
        default = content.get("default")
        if isinstance(default, str) and of_type.kind in ("float", "double"):
            default = _number(default, where)
        if has_default and not is_value(of_type, default, 0):
            raise InvalidSchema(f"{where}: the default {shortened(default)} is not of its type")
        properties = {key: value for key, value in content.items() if key not in _RESERVED_IN_FIELDS}
        doc, aliases = _optional_text(content, "doc"), tuple(_aliases(content))
        return Field(name, of_type, doc, has_default, default, order, aliases, properties)

    def _enum(self, content: dict[str, Any], properties: dict[str, Any], space: str) -> Enum:
        name, doc, aliases = self._define(content, space)
        symbols = content.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
            raise InvalidSchema(f"the enum {name!r} has no list of symbols")
        for one in symbols:
            if not _NAME.fullmatch(one):
                raise InvalidSchema(f"the enum {name!r}: {one[:200]!r} is not a name")
        if len(set(symbols)) != len(symbols):
            raise InvalidSchema(f"the enum {name!r} has a symbol twice")
        default = _optional_text(content, "default")
        if default is not None and default not in symbols:
            raise InvalidSchema(f"the enum {name!r}: the default {default[:200]!r} is not one of its symbols")
        properties.pop("default", None)
        made = Enum(name, doc, aliases, properties, symbols=tuple(symbols), default=default)
        self.named[name] = made
        return made

    def _fixed(self, content: dict[str, Any], properties: dict[str, Any], space: str) -> Fixed:
        name, doc, aliases = self._define(content, space)
        size = content.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
            raise InvalidSchema(f"the fixed {name!r} has no size in bytes")
        made = Fixed(name, doc, aliases, properties, size=size)
        self.named[name] = made
        return made


def is_value(of_type: AvroType, value: object, depth: int) -> bool:
    """Whether JSON is a value of a type, as the defaults of fields are written; for a union, of any branch."""
    if depth > DEEPEST:
        return False
    match of_type:
        case Primitive("null"):
            return value is None
        case Primitive("boolean"):
            return isinstance(value, bool)
        case Primitive("int" | "long" as kind):
            bits = 31 if kind == "int" else 63
            return isinstance(value, int) and not isinstance(value, bool) and -(2**bits) <= value < 2**bits
        case Primitive("float" | "double"):
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case Primitive() | Enum() | Fixed():
            return isinstance(value, str)
        case Array():
            return isinstance(value, list) and all(is_value(of_type.items, one, depth + 1) for one in value)
        case Map():
            if not isinstance(value, dict):
                return False
            return all(is_value(of_type.values, one, depth + 1) for one in value.values())
        case Union():
            return any(is_value(one, value, depth + 1) for one in of_type.branches)
        case Record():
            if not isinstance(value, dict):
                return False
            if not of_type.is_complete:
                raise InvalidSchema(f"a default is a record {of_type.name!r}, in whose definition it is")
            return all(
                is_value(one.type, value[one.name], depth + 1) if one.name in value else one.has_default
                for one in of_type.fields.values()
            )


def _text(content: Mapping[str, Any], key: str, shown: object) -> str:
    text = content.get(key)
    if not isinstance(text, str):
        raise InvalidSchema(f"{shortened(shown)} has no {key!r}")
    return text


def _optional_text(content: Mapping[str, Any], key: str) -> str | None:
    text = content.get(key)
    return text if isinstance(text, str) else None


def _aliases(content: Mapping[str, Any]) -> list[str]:
    aliases = content.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(one, str) for one in aliases):
        raise InvalidSchema(f"the aliases {shortened(aliases)} are not a list of names")
    return aliases


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidSchema(f"{where}: the default {text[:200]!r} is not a number") from None
