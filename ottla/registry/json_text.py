"""JSON in texts from outside: read with limits, and written without spaces, as Jackson writes it."""

from __future__ import annotations

import json
from typing import Any, Final

from ottla.registry.errors import InvalidSchema

LONGEST_SCHEMA: Final = 1_000_000
"""Characters of a schema. A record of the topic has 1 MB at most, by Kafka's default."""


def read_json(text: str) -> Any:
    """The content of a schema's text. Raises InvalidSchema."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidSchema("the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidSchema(f"the schema is not JSON: {error}") from None


def write_json(content: object) -> str:
    """Without spaces, and with other letters than those of ASCII as they are."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def sort_keys(content: Any) -> Any:
    """The same JSON with the keys of all objects in order."""
    if isinstance(content, dict):
        return {key: sort_keys(content[key]) for key in sorted(content)}
    return [sort_keys(one) for one in content] if isinstance(content, list) else content


def shortened(content: object) -> str:
    """The beginning of JSON, for messages."""
    try:
        text = write_json(content)
    except RecursionError:
        return "…"
    return text if len(text) <= 200 else text[:200] + "…"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
