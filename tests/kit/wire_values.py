"""Random values of messages, drawn from the declarations themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from ottla.protocol.api.share_fetch import ShareFetchResponse
from ottla.protocol.message import Message
from ottla.protocol.plan import FieldPlan, StructPlan, plan_message

Narrow = Callable[[FieldPlan], st.SearchStrategy[Any] | None]
"""Gives the values of a field where only some are wanted, None where all are."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = {
    "Bool": st.booleans(),
    "Int8": st.integers(-(2**7), 2**7 - 1),
    "Int16": st.integers(-(2**15), 2**15 - 1),
    "Int32": st.integers(-(2**31), 2**31 - 1),
    "Int64": st.integers(-(2**63), 2**63 - 1),
    "Uint16": st.integers(0, 2**16 - 1),
    "Uint32": st.integers(0, 2**32 - 1),
    "Float64": st.floats(allow_nan=False),
    "Uuid": st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number)),
    "String": TEXT,
    "NullableString": TEXT,
    "Bytes": st.binary(max_size=20),
    "NullableBytes": st.binary(max_size=20),
    "Records": st.binary(max_size=40),
}


def wide(field: FieldPlan) -> None:
    """No field is narrowed."""


def with_records(cls: type[Message], narrow: Narrow) -> Narrow:
    """Without null for records in the message where Kafka writes none: a ShareFetch."""
    if cls is not ShareFetchResponse:
        return narrow
    return lambda field: NUMBERS["Records"] if field.name == "records" else narrow(field)


def messages(cls: type[Message], version: int, narrow: Narrow = wide) -> st.SearchStrategy[Any]:
    """Messages of a class in which every field of the version may have any value, and the others their default."""
    return _structs(plan_message(cls, version), narrow)


def _structs(plan: StructPlan, narrow: Narrow) -> st.SearchStrategy[Any]:
    fields = {field.name: _values(field, narrow) for field in (*plan.fields, *plan.tagged)}
    return st.builds(plan.cls, **fields)


def _values(field: FieldPlan, narrow: Narrow) -> st.SearchStrategy[Any]:
    narrowed = narrow(field)
    if narrowed is not None:
        return narrowed
    if field.struct is not None:
        values = _structs(field.struct, narrow)
    else:
        assert field.primitive is not None
        values = NUMBERS[field.primitive.name]
    if field.is_array:
        values = st.lists(values, max_size=3)
    if field.tag is not None:
        # A tag may also be absent; a struct of nothing but defaults is the same as none, unless null may travel.
        if field.struct is not None and not field.is_array and not field.is_nullable:
            unset = field.struct.cls()
            return st.none() | values.filter(lambda value: value != unset)
        return st.just(field.default) | values
    return st.none() | values if field.is_nullable else values
