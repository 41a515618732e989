"""Texts to schemas, whatever their type: parsed, in canonical form, and compared.

Avro needs nothing but Ottla. JSON Schema and Protobuf need packages of the extra `registry`, which are imported when
the first such schema comes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.registry.avro_canonical import canonical_avro
from ottla.registry.avro_compatibility import avro_differences
from ottla.registry.avro_parsing import parse_avro
from ottla.registry.avro_types import AvroType, Named
from ottla.registry.differences import Difference
from ottla.registry.errors import InvalidSchema
from ottla.registry.json_text import LONGEST_SCHEMA, read_json, sort_keys
from ottla.registry.records import AVRO, JSON, PROTOBUF
from ottla.registry.resolved import Resolved
from ottla.registry.schema import Schema

TYPES = (AVRO, JSON, PROTOBUF)
"""The types of schemas, as `GET /schemas/types` lists them."""


def parse_schema(kind: str, text: str, references: Sequence[Resolved], *, normalizes: bool = False) -> Schema:
    """The schema of a text. `references` are in an order in which each has what it needs before it; `normalizes`: the
    keys of JSON are sorted, whose order has no meaning. Raises InvalidSchema.
    """
    if len(text) > LONGEST_SCHEMA:
        raise InvalidSchema(f"a schema has {LONGEST_SCHEMA:,} characters at most, not {len(text):,}")
    for one in references:
        if one.type != kind:
            raise InvalidSchema(f"the reference {one.name[:200]!r} is of type {one.type}, the schema of type {kind}")
    try:
        if kind == AVRO:
            return AvroSchema(text, references, normalizes=normalizes)
        if kind == JSON:
            from ottla.registry.json_schema import JsonSchema

            return JsonSchema(text, references, normalizes=normalizes)
        if kind == PROTOBUF:
            from ottla.registry.protobuf_schema import ProtobufSchema

            return ProtobufSchema(text, references)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
    raise InvalidSchema(f"the type {kind[:100]!r} is not known: {', '.join(TYPES)}")


class AvroSchema(Schema):
    """An Avro schema, with the named types of its references."""

    type = AVRO

    def __init__(self, text: str, references: Sequence[Resolved], *, normalizes: bool = False) -> None:
        known: dict[str, Named] = {}
        for one in references:
            known = parse_avro(read_json(one.text), known)[1]
        content = _avro_content(text)
        self._parsed: AvroType = parse_avro(sort_keys(content) if normalizes else content, known)[0]
        self.text = canonical_avro(self._parsed, known)

    def differences(self, writer: Schema) -> list[Difference]:
        """See Schema."""
        assert isinstance(writer, AvroSchema)
        try:
            return avro_differences(self._parsed, writer._parsed)
        except RecursionError:
            raise InvalidSchema("the schemas are nested too deeply to be compared") from None


def _avro_content(text: str) -> object:
    """The JSON of a schema. A name alone may come without quotes, as Avro's parser for Java accepts it."""
    name = text.strip()
    return name if name.replace(".", "").isidentifier() and name not in ("true", "false") else read_json(text)
