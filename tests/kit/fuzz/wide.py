"""Wide requests: one array of one request with so many elements that whoever looks through them twice is noticed.

Each list of each request, at each nesting, once with the same element over and over and once with names that are all
different. What is asked is how cost grows: `seconds` for the command, nothing for the tests, which do not measure time.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from kit.fuzz.values import MessageMaker
from kit.fuzz.vocabulary import Vocabulary

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.errors import UnencodableMessage
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import Struct, encode
from ottla.protocol.plan import FieldPlan, StructPlan, plan_message

MOST_BYTES = 3 << 20


class Wide(NamedTuple):
    """One list of one request."""

    key: ApiKey
    version: int
    path: tuple[str, ...]
    is_distinct: bool

    def __str__(self) -> str:
        alike = "all different" if self.is_distinct else "all the same"
        return f"{self.key.name} v{self.version} {'.'.join(self.path)}, {alike}"


def all_lists(keys: tuple[ApiKey, ...]) -> Iterator[Wide]:
    """Every list of the newest version of the requests."""
    for key in keys:
        api = REGISTRY[key]
        for path in _paths(plan_message(api.request, api.max_version)):
            for is_distinct in (False, True):
                yield Wide(key, api.max_version, path, is_distinct)


def frame_of(wide: Wide, chance: random.Random, count: int, number: int = 0) -> bytes | None:
    """The request with `count` elements in that list, sane otherwise; None where it would be too large to be sent."""
    maker = MessageMaker(chance, Vocabulary())
    maker.elements = 10**9
    plan = plan_message(REGISTRY[wide.key].request, wide.version)
    message = maker.struct(plan)
    _widen(message, plan, wide, maker, count)
    try:
        body = encode_request_header(wide.key, wide.version, number, "wide") + encode(message, wide.version)
    except UnencodableMessage:
        return None
    return struct.pack(">i", len(body)) + body if len(body) <= MOST_BYTES else None


def _paths(plan: StructPlan) -> Iterator[tuple[str, ...]]:
    for field in (*plan.fields, *plan.tagged):
        if field.is_array:
            yield (field.name,)
        if field.struct is not None:
            for rest in _paths(field.struct):
                yield (field.name, *rest)


def _widen(message: Any, plan: StructPlan, wide: Wide, maker: MessageMaker, count: int) -> None:
    holder = message
    for slot, name in enumerate(wide.path):
        field = next(each for each in (*plan.fields, *plan.tagged) if each.name == name)
        if slot == len(wide.path) - 1:
            setattr(holder, name, _elements(field, wide, maker, count))
            return
        assert field.struct is not None
        inner = getattr(holder, name)
        if not inner:
            inner = [maker.struct(field.struct)] if field.is_array else maker.struct(field.struct)
            setattr(holder, name, inner)
        if field.is_array:
            del inner[1:]
            holder = inner[0]
        else:
            holder = inner
        plan = field.struct


def _elements(field: FieldPlan, wide: Wide, maker: MessageMaker, count: int) -> list[Any]:
    if not wide.is_distinct:
        return [maker.element(field)] * count
    made = []
    for number in range(count):
        if field.struct is None:
            value: Any = maker.element(field)
            if isinstance(value, str):
                value = f"n{number}"
            elif isinstance(value, int):
                value = number % 128
            made.append(value)
            continue
        element = maker.struct(field.struct)
        for each in field.struct.fields:  # the first name or number tells them apart
            value = getattr(element, each.name)
            if (
                each.primitive is not None
                and not each.is_array
                and isinstance(value, str | int)
                and not isinstance(value, bool)
            ):
                setattr(element, each.name, f"n{number}" if isinstance(value, str) else number % 128)
                break
        _without_lists(element)
        made.append(element)
    return made


def _without_lists(element: Struct) -> None:
    for field in element.fields():
        value = getattr(element, field.name)
        if isinstance(value, list):
            del value[1:]
