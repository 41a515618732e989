"""JSON Schema: what is one, and what may follow what."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from ottla.registry.errors import InvalidSchema
from ottla.registry.json_schema import DEEPEST
from ottla.registry.records import JSON
from ottla.registry.resolved import Resolved
from ottla.registry.schemas import parse_schema

CLOSED = {"additionalProperties": False}


def parsed(schema: object, *references: Resolved, normalizes: bool = False) -> Any:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return parse_schema(JSON, text, references, normalizes=normalizes)


def kinds(writer: object, reader: object) -> list[str]:
    """Why the reader does not accept all documents of the writer."""
    return [one.kind for one in parsed(reader).differences(parsed(writer))]


def an_object(properties: object = None, **more: object) -> dict[str, object]:
    return {"type": "object", "properties": properties or {}, **more}


STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        (STRING, STRING, []),
        (STRING, True, []),
        (True, STRING, ["TYPE_NARROWED"]),
        (STRING, False, ["TYPE_NARROWED"]),
        (INTEGER, NUMBER, []),
        (NUMBER, INTEGER, ["TYPE_NARROWED"]),
        (STRING, INTEGER, ["TYPE_CHANGED"]),
        (STRING, {"type": ["string", "null"]}, []),
        ({"type": ["string", "null"]}, STRING, ["TYPE_NARROWED"]),
        (STRING, {"type": "string", "title": "t", "description": "d"}, []),
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 6}, []),
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 4}, ["MAX_LENGTH_DECREASED"]),
        (STRING, {"type": "string", "maxLength": 4}, ["MAX_LENGTH_ADDED"]),
        (STRING, {"type": "string", "minLength": 1}, ["MIN_LENGTH_ADDED"]),
        ({"type": "string", "pattern": "a"}, STRING, []),
        (STRING, {"type": "string", "pattern": "a"}, ["PATTERN_ADDED"]),
        ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, ["PATTERN_CHANGED"]),
        ({"type": "number", "maximum": 5}, {"type": "number", "maximum": 4}, ["MAXIMUM_DECREASED"]),
        ({"type": "number", "exclusiveMaximum": 5}, {"type": "number", "maximum": 5}, []),
        ({"type": "number", "maximum": 5}, {"type": "number", "exclusiveMaximum": 5}, ["EXCLUSIVE_MAXIMUM_DECREASED"]),
        (NUMBER, {"type": "number", "minimum": 0}, ["MINIMUM_ADDED"]),
        ({"type": "integer", "multipleOf": 10}, {"type": "integer", "multipleOf": 5}, []),
        ({"type": "integer", "multipleOf": 5}, {"type": "integer", "multipleOf": 10}, ["MULTIPLE_OF_CHANGED"]),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, []),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["ENUM_ARRAY_NARROWED"]),
        ({"enum": ["a", "b"]}, {"enum": ["a", "c"]}, ["ENUM_ARRAY_CHANGED"]),
        ({"const": "a"}, {"enum": ["a"]}, []),
        # open, closed and partly open content models
        (an_object(), an_object({"a": STRING}), ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
        (an_object(), an_object({"a": {}}), []),
        (an_object({"a": STRING}), an_object(), []),
        (an_object(**CLOSED), an_object({"a": STRING}, **CLOSED), []),
        (
            an_object({"a": STRING}, **CLOSED),
            an_object(**CLOSED),
            ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
        ),
        (
            an_object(**CLOSED),
            an_object({"a": STRING}, required=["a"], **CLOSED),
            ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"],
        ),
        (an_object(**CLOSED), an_object({"a": {**STRING, "default": "x"}}, required=["a"], **CLOSED), []),
        (an_object({"a": STRING}), an_object({"a": STRING}, required=["a"]), ["REQUIRED_ATTRIBUTE_ADDED"]),
        (an_object({"a": STRING}, required=["a"]), an_object({"a": STRING}), []),
        (an_object(), an_object(**CLOSED), ["ADDITIONAL_PROPERTIES_REMOVED"]),
        (an_object(**CLOSED), an_object(), []),
        (an_object(), an_object(additionalProperties=STRING), ["ADDITIONAL_PROPERTIES_NARROWED"]),
        (an_object(additionalProperties=STRING), an_object({"a": STRING}, additionalProperties=STRING), []),
        (
            an_object(additionalProperties=STRING),
            an_object({"a": INTEGER}, additionalProperties=STRING),
            ["PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
        ),
        (
            an_object({"a": INTEGER}, **CLOSED),
            an_object(additionalProperties=STRING),
            ["PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
        ),
        (an_object({"a1": INTEGER}, **CLOSED), an_object(patternProperties={"^a": INTEGER}, **CLOSED), []),
        ({"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}, []),
        ({"type": "array", "items": NUMBER}, {"type": "array", "items": INTEGER}, ["TYPE_NARROWED"]),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED"]),
        ({"type": "array"}, {"type": "array", "maxItems": 1}, ["MAX_ITEMS_ADDED"]),
        (STRING, {"oneOf": [STRING, {"type": "null"}]}, []),
        ({"oneOf": [STRING, INTEGER]}, {"oneOf": [STRING]}, ["SUM_TYPE_NARROWED"]),
        ({"oneOf": [STRING, INTEGER]}, {"oneOf": [INTEGER, STRING]}, []),
        ({"type": ["string", "null"]}, {"anyOf": [STRING, {"type": "null"}]}, []),
        ({"anyOf": [STRING, INTEGER]}, STRING, ["TYPE_CHANGED"]),
        ({"allOf": [STRING]}, {"allOf": [STRING, {"maxLength": 3}]}, ["PRODUCT_TYPE_EXTENDED"]),
        ({"allOf": [STRING, {"maxLength": 3}]}, {"allOf": [STRING]}, []),
        ({"not": STRING}, {"not": {"type": "string", "maxLength": 3}}, []),
        (True, {"not": STRING}, ["NOT_TYPE_EXTENDED"]),
        ({"if": STRING}, {"if": STRING}, []),
        (True, {"if": STRING}, ["TYPE_CHANGED"]),
    ],
)
def test_kinds_of_difference(writer: object, reader: object, expected: list[str]) -> None:
    assert kinds(writer, reader) == expected


def test_a_recursive_schema_is_compared() -> None:
    tree = an_object({"next": {"$ref": "#"}, "value": STRING}, **CLOSED)
    larger = an_object({"next": {"$ref": "#"}, "value": {"type": ["string", "null"]}}, **CLOSED)
    assert kinds(tree, larger) == []
    assert kinds(larger, tree) == ["TYPE_NARROWED"]


def test_references_lead_to_other_schemas() -> None:
    address = Resolved("address.json", JSON, '{"definitions":{"street":{"type":"string"}}}')
    schema = parsed(an_object({"street": {"$ref": "address.json#/definitions/street"}}, **CLOSED), address)
    assert schema.differences(parsed(an_object({"street": STRING}, **CLOSED))) == []
    assert schema.differences(parsed(an_object({"street": INTEGER}, **CLOSED)))[0].kind == "TYPE_CHANGED"


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ("{", "not JSON"),
        ("5", "an object, true or false"),
        ({"type": "strin"}, "at #/type"),
        ({"properties": {"a": {"minLength": -1}}}, "at #/properties/a/minLength"),
        ({"$ref": "other.json"}, "'other.json' is in no reference"),
        ({"$ref": "#/definitions/a"}, "leads to nothing"),
        ({"allOf": [True], "$ref": "#/allOf/" + "9" * 5_000}, "leads to nothing"),
        ({"$ref": "http://127.0.0.1:1/a.json"}, "is in no reference"),
    ],
)
def test_what_is_no_schema_is_refused_in_one_line(schema: object, line: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parsed(schema)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nesting_has_a_limit() -> None:
    schema: dict[str, object] = {}
    for _ in range(DEEPEST):
        schema = {"not": schema}
    with pytest.raises(InvalidSchema, match="nested more than"):
        parsed(schema)


def test_a_ref_to_itself_is_refused_when_it_is_compared() -> None:
    with pytest.raises(InvalidSchema, match="leads back to itself"):
        parsed({"$ref": "#"}).differences(parsed(STRING))


def test_the_text_keeps_the_order_of_its_keys_unless_it_is_normalized() -> None:
    text = '{ "type": "object",  "properties": {"b": true, "a": true} }'
    assert parsed(text).text == '{"type":"object","properties":{"b":true,"a":true}}'
    assert parsed(text, normalizes=True).text == '{"properties":{"a":true,"b":true},"type":"object"}'


# -- the independent judge: what is compatible must be so for documents, as jsonschema validates them

SCALARS = st.one_of(
    st.sampled_from([True, STRING, NUMBER, INTEGER, {"type": ["string", "null"]}, {"type": "boolean"}, False]),
    st.builds(lambda high: {"type": "string", "maxLength": high}, st.integers(0, 3)),
    st.builds(
        lambda low, high: {"type": "integer", "minimum": low, "maximum": high}, st.integers(0, 2), st.integers(1, 3)
    ),
    st.builds(
        lambda values: {"enum": values}, st.lists(st.sampled_from(["a", "bb", 1, None]), min_size=1, unique=True)
    ),
)
NAMES = st.sampled_from(["a", "b", "xa"])


def objects_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(NAMES, inner, max_size=2),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^x", "a$"]), inner, max_size=1),
            "maxProperties": st.integers(0, 2),
        },
    )


def arrays_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """`additionalItems` only beside a list: jsonschema raises TypeError beside `items: true`."""
    kind, fewest = {"type": st.just("array")}, st.integers(0, 2)
    several = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        st.fixed_dictionaries(kind, optional={"items": inner, "minItems": fewest}),
        st.fixed_dictionaries({**kind, "items": several}, optional={"additionalItems": inner, "minItems": fewest}),
    )


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        objects_of(inner),
        arrays_of(inner),
        st.builds(lambda one: {"anyOf": one}, several),
        st.builds(lambda one: {"allOf": one}, several),
        st.builds(lambda one: {"not": one}, inner),
    )


SCHEMAS = st.recursive(SCALARS, larger, max_leaves=4)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, 3, 1.5, "", "a", "bb", "cccc"]),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=2)),
    max_leaves=4,
)


@settings(max_examples=400, deadline=None)
@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=20, max_size=20))
def test_a_compatible_reader_accepts_all_documents(writer: Any, reader: Any, documents: list[Any]) -> None:
    if not kinds(writer, reader):
        accepted = [one for one in documents if Draft7Validator(writer).is_valid(one)]
        assert [one for one in accepted if not Draft7Validator(reader).is_valid(one)] == []


@settings(max_examples=200, deadline=None)
@given(SCHEMAS)
def test_a_schema_reads_its_own_documents(schema: Any) -> None:
    assert kinds(schema, schema) == []
