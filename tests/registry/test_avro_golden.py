"""Avro as Apache Avro for Java judges it (scripts/interop/avro-compatibility): valid, printed, compatible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from ottla.registry.avro_canonical import canonical_avro
from ottla.registry.avro_compatibility import avro_differences
from ottla.registry.avro_parsing import parse_avro
from ottla.registry.avro_types import AvroType
from ottla.registry.errors import InvalidSchema

LINES = (Path(__file__).parent / "golden" / "avro-pairs.jsonl").read_text().splitlines()
PAIRS: list[dict[str, Any]] = [json.loads(line) for line in LINES]


def parsed(content: object) -> AvroType | None:
    try:
        return parse_avro(content, {})[0]
    except InvalidSchema:
        return None


@pytest.mark.parametrize("index", range(len(PAIRS)))
def test_avro_for_java_says_the_same(index: int) -> None:
    pair, said = PAIRS[index]["pair"], PAIRS[index]["avro"]
    reader, writer = map(parsed, pair)
    printed = [None if one is None else canonical_avro(one, ()) for one in (reader, writer)]
    assert printed == [said["reader"], said["writer"]]
    if reader is not None and writer is not None:
        assert (not avro_differences(reader, writer)) == said["compatible"]


def test_the_pairs_are_of_all_kinds() -> None:
    verdicts = [one["avro"]["compatible"] for one in PAIRS]
    assert all(verdicts.count(verdict) > 50 for verdict in (True, False, None))


def canonical_form(schema: object) -> str | None:
    """fastavro's; None for one that it refuses, such as a name without its namespace, which Java finds."""
    try:
        return str(fastavro.schema.to_parsing_canonical_form(schema))
    except fastavro.schema.UnknownType:
        return None


def test_what_is_printed_is_the_same_schema_for_fastavro() -> None:
    """An independent parser sees the same names and fields in the text that is stored as in the one that was sent."""
    forms = [
        (canonical_form(sent), canonical_form(json.loads(printed)))
        for one in PAIRS
        for sent, printed in zip(one["pair"], (one["avro"]["reader"], one["avro"]["writer"]), strict=True)
        if printed is not None
    ]
    understood = [(sent, printed) for sent, printed in forms if sent is not None]
    assert len(understood) > 0.9 * len(forms) > 400
    assert [pair for pair in understood if pair[0] != pair[1]] == []
