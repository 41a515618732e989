"""The types of a parsed Avro schema. A named type that is used again is the same object, so that schemas may be cyclic.

Names are full names. Properties are what the specification does not reserve, such as `logicalType`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """One of the eight simple types."""

    kind: str
    properties: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Named:
    """What records, enums and fixeds have in common."""

    name: str
    doc: str | None
    aliases: tuple[str, ...]
    properties: Mapping[str, Any]

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        """The namespace; empty for none."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a record. `default` counts only if `has_default`: it may be null."""

    name: str
    type: AvroType
    doc: str | None
    has_default: bool
    default: Any
    order: str
    aliases: tuple[str, ...]
    properties: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Record(Named):
    """A record, or an `error`. Its fields may refer to it: it gets them when all of them are parsed."""

    is_error: bool = False
    fields: dict[str, Field] = field(default_factory=dict)
    is_complete: bool = False
    kind: str = "record"


@dataclass(slots=True, eq=False)
class Enum(Named):
    """An enum. `default` is the symbol for symbols that a reader does not know."""

    symbols: tuple[str, ...] = ()
    default: str | None = None
    kind: str = "enum"


@dataclass(slots=True, eq=False)
class Fixed(Named):
    """A number of bytes."""

    size: int = 0
    kind: str = "fixed"


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """A list of items of one type."""

    items: AvroType
    properties: Mapping[str, Any]
    kind: str = "array"


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """Values of one type by strings."""

    values: AvroType
    properties: Mapping[str, Any]
    kind: str = "map"


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """One of several types."""

    branches: tuple[AvroType, ...]
    kind: str = "union"


AvroType: TypeAlias = Primitive | Record | Enum | Fixed | Array | Map | Union
