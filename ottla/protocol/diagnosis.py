"""Finds the field of a message that cannot be encoded, and the reason: the slow path for `UnencodableMessage`.

The generated encoders do not check values: ``struct`` and the string codec refuse them. Only then is the message
searched for the field: ``FetchRequest v12: topics[0].partitions[3].partition is 2**40, which does not fit an Int32``.
"""

from __future__ import annotations

import struct
from uuid import UUID

from ottla.protocol.plan import FieldPlan, StructPlan
from ottla.protocol.types import Primitive


def find_unencodable(plan: StructPlan, value: object, path: str = "") -> str | None:
    """The first field that cannot be written, with the reason; None if all can."""
    if type(value) is not plan.cls:
        return f"{path or plan.name} is {value!r:.60}, not a {plan.name}"
    for field in (*plan.fields, *plan.tagged):
        name = f"{path}.{field.name}" if path else field.name
        problem = _check_field(field, getattr(value, field.name), name)
        if problem is not None:
            return problem
    return None


def _check_field(field: FieldPlan, value: object, path: str) -> str | None:
    if value is None:
        is_unset_tag = field.tag is not None and field.default is None
        return None if field.is_nullable or is_unset_tag else f"{path} is None, which this version cannot say"
    if not field.is_array:
        return _check_value(field, value, path)
    if not isinstance(value, list | tuple):
        return f"{path} is {value!r:.60}, not a list"
    problems = (_check_value(field, element, f"{path}[{index}]") for index, element in enumerate(value))
    return next((problem for problem in problems if problem is not None), None)


def _check_value(field: FieldPlan, value: object, path: str) -> str | None:
    if field.struct is not None:
        return find_unencodable(field.struct, value, path)
    assert field.primitive is not None
    if _fits(field.primitive, value):
        return None
    return f"{path} is {value!r:.60}, which does not fit {_article(field.primitive.name)}"


def _fits(primitive: Primitive, value: object) -> bool:
    if "String" in primitive.name:
        return isinstance(value, str) and _is_utf8(value)
    if primitive.name == "Uuid":
        return isinstance(value, UUID)
    if not primitive.size_bytes:
        return isinstance(value, bytes | bytearray | memoryview)
    try:
        struct.pack(">" + primitive.format, value)
    except struct.error:
        return False
    return True


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "AEIOU" else f"a {name}"
