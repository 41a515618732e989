"""The layout of a message at one version: the step between a declaration and the code generated from it.

Fields of the version are in wire order, tagged ones in the order of their tags. Fields that it lacks are separate,
because they are still set to their defaults. Structs are resolved by name in the message in which they are nested.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.protocol.fields import Field, fields_of
from ottla.protocol.types import Primitive

MAX_DEPTH = 8
"""The maximum nesting of structs. Kafka's deepest messages reach four; a deeper one refers to itself."""


class FieldPlan(NamedTuple):
    """A field that this version has."""

    name: str
    primitive: Primitive | None
    struct: StructPlan | None
    """The type of the field or its elements: exactly one of the two is set."""
    is_array: bool
    is_nullable: bool
    """Whether null may be sent: for arrays, instead of the array."""
    tag: int | None
    default: object
    """For tagged fields: the value that is not written. An empty list for lists."""
    min_bytes: int
    """The smallest size of the field."""

    @property
    def element_min_bytes(self) -> int:
        """The smallest size of one element of the array."""
        if self.struct is not None:
            return self.struct.min_bytes
        assert self.primitive is not None
        return self.primitive.size_bytes or 1


class StructPlan(NamedTuple):
    """A struct at this version."""

    cls: type
    name: str
    version: int
    is_flexible: bool
    fields: tuple[FieldPlan, ...]
    tagged: tuple[FieldPlan, ...]
    absent: tuple[Field, ...]
    min_bytes: int


def plan_message(cls: Any, version: int) -> StructPlan:
    """The plan of a message class at a version. Raises ValueError for a version that it does not have."""
    if version not in cls.message_versions:
        raise ValueError(f"{cls.__name__} has versions {cls.message_versions}, not {version}")
    return _plan_struct(cls, cls, version, version in cls.flexible_versions, 0)


def _plan_struct(cls: type, message: type, version: int, is_flexible: bool, depth: int) -> StructPlan:
    if depth > MAX_DEPTH:
        raise TypeError(f"{message.__name__}: structs nest deeper than {MAX_DEPTH}")
    fields: list[FieldPlan] = []
    tagged: list[FieldPlan] = []
    absent: list[Field] = []
    for field in fields_of(cls):
        if version not in field.versions:
            absent.append(field)
            continue
        struct = None
        if field.primitive is None:
            nested = getattr(message, field.type_name, None)
            if not isinstance(nested, type):
                raise TypeError(f"{cls.__qualname__}.{field.name}: {message.__name__} has no {field.type_name}")
            struct = _plan_struct(nested, message, version, is_flexible, depth + 1)
        (fields if field.tag is None else tagged).append(_plan_field(field, struct, version, is_flexible))
    if tagged and not is_flexible:
        raise TypeError(f"{cls.__qualname__} has tagged fields in version {version}, which is not flexible")
    min_bytes = sum(field.min_bytes for field in fields) + is_flexible
    tagged.sort(key=lambda field: field.tag or 0)
    return StructPlan(cls, cls.__name__, version, is_flexible, tuple(fields), tuple(tagged), tuple(absent), min_bytes)


def _plan_field(field: Field, struct: StructPlan | None, version: int, is_flexible: bool) -> FieldPlan:
    is_nullable = version in field.nullable_versions
    default = field.factory() if field.factory is not None else field.default
    if field.is_array:
        min_bytes = 1 if is_flexible else 4
    elif struct is not None:
        min_bytes = 1 if is_nullable else struct.min_bytes
    else:
        assert field.primitive is not None
        length_bytes = 1 if is_flexible else 2 if "String" in field.type_name else 4
        min_bytes = field.primitive.size_bytes or length_bytes
    plan = FieldPlan(field.name, field.primitive, struct, field.is_array, is_nullable, field.tag, default, min_bytes)
    if plan.is_array and plan.element_min_bytes == 0:
        raise TypeError(f"{field.name}: elements of no bytes could come in any number")
    return plan
