"""Compatibility levels: which versions a new schema is compared with, and in which direction. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.registry.errors import InvalidSchema
from ottla.registry.resolved import Resolved
from ottla.registry.schema import Schema
from ottla.registry.schemas import parse_schema

NONE: Final = "NONE"
_SHOWN: Final = 1_000
"""Characters of an earlier schema in a message."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier version, with what is needed to parse it."""

    version: int
    type: str
    text: str
    references: Sequence[Resolved]


def compared(level: str, earlier: Sequence[Earlier]) -> Sequence[Earlier]:
    """The versions that count at a level, the newest first."""
    if level == NONE:
        return []
    newest_first = list(reversed(earlier))
    return newest_first if level.endswith("_TRANSITIVE") else newest_first[:1]


def incompatibilities(level: str, schema: Schema, earlier: Sequence[Earlier]) -> list[str]:
    """Why a schema may not follow earlier ones, as lines for people; of the first version that is incompatible.

    Raises InvalidSchema if they cannot be compared.
    """
    for one in compared(level, earlier):
        lines = _between(level.removesuffix("_TRANSITIVE"), schema, one)
        if lines:
            place = [f"{{oldSchemaVersion: {one.version}}}", f"{{oldSchema: '{one.text[:_SHOWN]}'}}"]
            return [*lines, *place, f"{{compatibility: '{level}'}}"]
    return []


def _between(direction: str, schema: Schema, one: Earlier) -> list[str]:
    if one.type != schema.type:
        return [f"{{errorType:'TYPE_CHANGED', description:'the earlier schema is of type {one.type}'}}"]
    other = parse_schema(one.type, one.text, one.references)
    try:
        return _differences(direction, schema, other)
    except RecursionError:
        raise InvalidSchema("the schemas are nested too deeply to be compared") from None


def _differences(direction: str, schema: Schema, other: Schema) -> list[str]:
    lines: list[str] = []
    if direction in ("BACKWARD", "FULL"):
        lines += [f"{found} (the new schema reads data of the old one)" for found in schema.differences(other)]
    if direction in ("FORWARD", "FULL"):
        lines += [f"{found} (the old schema reads data of the new one)" for found in other.differences(schema)]
    return lines
