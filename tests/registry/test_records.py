"""The records of `_schemas`, with the bytes of Confluent's registry."""

from __future__ import annotations

import pytest

from ottla.registry.records import (
    JSON,
    Content,
    MalformedRecord,
    OtherKey,
    Reference,
    SchemaKey,
    ScopeKey,
    Stored,
    parse_key,
    parse_schema_value,
    schema_value,
)


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (SchemaKey("a-value", 1), b'{"keytype":"SCHEMA","subject":"a-value","version":1,"magic":1}'),
        (SchemaKey("é", 2), '{"keytype":"SCHEMA","subject":"é","version":2,"magic":1}'.encode()),
        (ScopeKey("CONFIG", None), b'{"keytype":"CONFIG","subject":null,"magic":0}'),
        (ScopeKey("MODE", "a"), b'{"keytype":"MODE","subject":"a","magic":0}'),
        (ScopeKey("DELETE_SUBJECT", "a"), b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}'),
    ],
)
def test_keys_have_the_bytes_that_compaction_compares(key: SchemaKey | ScopeKey, data: bytes) -> None:
    assert key.to_bytes() == data
    assert parse_key(data) == key


@pytest.mark.parametrize("kind", ["NOOP", "CONTEXT", "later"])
def test_keys_of_other_types_are_no_error(kind: str) -> None:
    assert parse_key(b'{"keytype":"%s","magic":0}' % kind.encode()) == OtherKey(kind)


@pytest.mark.parametrize(
    "data",
    [None, b"", b"x", b"[]", b"{}", b'{"keytype":"SCHEMA","subject":"a"}', b'{"keytype":"MODE","subject":1}', b"\xff"],
)
def test_malformed_keys(data: bytes | None) -> None:
    with pytest.raises(MalformedRecord):
        parse_key(data)


def test_a_value_of_avro_has_no_type() -> None:
    stored = Stored("a", 1, 7, Content("AVRO", '"int"'))
    data = b'{"subject":"a","version":1,"id":7,"schema":"\\"int\\"","deleted":false}'
    assert schema_value(stored) == data
    assert parse_schema_value(data) == stored


def test_a_value_keeps_everything() -> None:
    content = Content(JSON, "{}", (Reference("r", "b", 2),), '{"tags":{"a":["b"]}}', '{"domainRules":[]}')
    stored = Stored("a", 1, 7, content, is_deleted=True)
    assert parse_schema_value(schema_value(stored)) == stored


def test_values_of_other_registries_have_more_fields() -> None:
    data = (
        b'{"subject":"a","version":1,"id":7,"md5":"x","schemaType":"AVRO","references":[],"metadata":null,'
        b'"schema":"\\"int\\"","schemaTags":[],"offset":4,"deleted":true}'
    )
    assert parse_schema_value(data) == Stored("a", 1, 7, Content("AVRO", '"int"'), is_deleted=True)


@pytest.mark.parametrize(
    "data",
    [
        b"5",
        b'{"subject":"a","version":1,"id":7}',
        b'{"subject":"a","version":1,"id":7,"schema":"x","references":5}',
        b'{"subject":"a","version":1,"id":7,"schema":"x","references":[{}]}',
    ],
)
def test_malformed_values(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        parse_schema_value(data)
