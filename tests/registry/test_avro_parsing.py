"""Avro schemas that are refused, and the canonical text of those that are not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.registry.avro_parsing import DEEPEST
from ottla.registry.errors import InvalidSchema
from ottla.registry.json_text import LONGEST_SCHEMA
from ottla.registry.records import AVRO
from ottla.registry.resolved import Resolved
from ottla.registry.schemas import parse_schema


def text_of(schema: object, *references: Resolved, normalizes: bool = False) -> str:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return parse_schema(AVRO, text, references, normalizes=normalizes).text


def a_record(**field: object) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", **field}]}


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ("{", "the schema is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"type": "int", "x": NaN}', "NaN is not JSON"),
        (5, "5 is not a schema"),
        ({}, "{} has no 'type'"),
        ({"type": {"type": "string"}}, "has no 'type'"),
        ({"type": "array"}, "has no 'items'"),
        ({"type": "map"}, "has no 'values'"),
        ("string5", "'string5' is not a type"),
        (["int", ["null"]], "a union is directly in a union"),
        (["int", {"type": "int"}], "'int' is in a union twice"),
        ({"type": "record", "fields": []}, "has no 'name'"),
        ({"type": "record", "name": "R", "fields": 5}, "the record 'R' has no list of fields"),
        ({"type": "record", "name": "R", "fields": [5]}, "5 is not a field of the record 'R'"),
        ({"type": "record", "name": "1R", "fields": []}, "'1R' is not a name"),
        ({"type": "record", "name": "int", "fields": []}, "cannot be named after the primitive type"),
        (a_record(), "the field 'f' of the record 'R' has no type"),
        (a_record(type="int", order="sideways"), "the order is ascending, descending or ignore"),
        (a_record(type="int", default="1"), 'the default "1" is not of its type'),
        (a_record(type="int", default=2**31), "the default 2147483648 is not of its type"),
        (a_record(type="double", default="x"), "the default 'x' is not a number"),
        (a_record(type="R", default={}), "a default is a record 'R', in whose definition it is"),
        (a_record(type="int", aliases="g"), "are not a list of names"),
        ({"type": "record", "name": "R", "fields": [{"name": "f", "type": "int"}] * 2}, "has the field 'f' twice"),
        ({"type": "enum", "name": "E"}, "the enum 'E' has no list of symbols"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "has a symbol twice"),
        ({"type": "enum", "name": "E", "symbols": ["A-B"]}, "'A-B' is not a name"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "is not one of its symbols"),
        ({"type": "fixed", "name": "F"}, "the fixed 'F' has no size in bytes"),
        ({"type": "fixed", "name": "F", "size": True}, "the fixed 'F' has no size in bytes"),
        ([a_record(type="int"), a_record(type="int")], "'R' is defined twice"),
    ],
)
def test_what_is_no_schema_is_refused_in_one_line(schema: object, line: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        text_of(schema)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def nested(depth: int) -> Any:
    schema: Any = "int"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def test_types_may_be_nested_to_a_limit() -> None:
    assert text_of(nested(DEEPEST)).count("items") == DEEPEST
    with pytest.raises(InvalidSchema, match="nested more than"):
        text_of(nested(DEEPEST + 1))


def test_a_text_has_a_limit() -> None:
    longest = json.dumps({"type": "int", "x": ""})
    filled = longest.replace('""', '"' + "x" * (LONGEST_SCHEMA - len(longest)) + '"')
    assert len(text_of(filled)) == len(filled) - 3
    with pytest.raises(InvalidSchema, match="1,000,000 characters at most, not 1,000,001"):
        text_of(filled + " ")


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("string", '"string"'),
        (' "string" ', '"string"'),
        ({"type": "string"}, '"string"'),
        ({"logicalType": "date", "type": "int"}, '{"type":"int","logicalType":"date"}'),
        (
            {"fields": [{"type": "R", "name": "f", "doc": "d"}], "name": "a.R", "type": "record"},
            '{"type":"record","name":"R","namespace":"a","fields":[{"name":"f","type":"R","doc":"d"}]}',
        ),
        ({"type": "fixed", "name": "F", "size": 2, "doc": "café"}, '{"type":"fixed","name":"F","doc":"café","size":2}'),
    ],
)
def test_the_text_that_is_stored(sent: object, stored: str) -> None:
    assert text_of(sent) == stored
    assert text_of(stored) == stored


def test_a_type_of_a_reference_is_written_by_its_name() -> None:
    address = Resolved("a.Address", AVRO, '{"type":"record","name":"Address","namespace":"a","fields":[]}')
    text = '{"type":"record","name":"R","namespace":"a","fields":[{"name":"f","type":"Address"}]}'
    assert text_of(text, address) == text
    with pytest.raises(InvalidSchema, match="'Address' is not a type"):
        text_of(text)


def test_normalizing_sorts_properties() -> None:
    first, second = '{"type":"int","b":1,"a":{"d":1,"c":2}}', '{"a":{"c":2,"d":1},"type":"int","b":1}'
    assert text_of(first) != text_of(second)
    assert text_of(first, normalizes=True) == text_of(second, normalizes=True)
