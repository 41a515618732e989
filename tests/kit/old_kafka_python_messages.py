"""Our messages as the classes that kafka-python keeps from its second version: an oracle for what Kafka dropped.

Those classes state each version by hand, as tuples of types, so that they know versions that today's schemas have
forgotten.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from ottla.protocol.message import Message, Struct
from ottla.protocol.plan import FieldPlan, StructPlan, plan_message

MODULES = ("commit", "fetch", "group", "list_offsets", "metadata", "produce", "admin")


@cache
def old_kafka_python_class(cls: type[Message], version: int) -> Any:
    """The old class for a message at a version; None where there is none."""
    for module in MODULES:
        theirs = getattr(import_module(f"kafka.protocol.old.{module}"), f"{cls.__name__}_v{version}", None)
        if theirs is not None:
            return theirs
    return None


def to_old_kafka_python(message: Message, version: int) -> Any:
    """The same value in the old class, whose fields are in the order of the wire."""
    plan = plan_message(type(message), version)
    return old_kafka_python_class(type(message), version)(*_to_tuple(plan, message))


def _to_tuple(plan: StructPlan, struct: Struct) -> tuple[Any, ...]:
    return tuple(_to_value(field, getattr(struct, field.name)) for field in plan.fields)


def _to_value(field: FieldPlan, value: Any) -> Any:
    if value is None or field.struct is None:
        return value
    return [_to_tuple(field.struct, item) for item in value] if field.is_array else _to_tuple(field.struct, value)
