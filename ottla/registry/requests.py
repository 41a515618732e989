"""The bodies of requests, checked. Pure. Fields that are not known are ignored, as Confluent's registry does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.registry.errors import (
    INVALID_LEVEL,
    INVALID_MODE,
    INVALID_SCHEMA,
    RegistryError,
)
from ottla.registry.json_text import write_json
from ottla.registry.records import AVRO, Reference

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
MOST_REFERENCES: Final = 500
"""Direct references of a schema."""
_NOT_SUPPORTED: Final = (
    "alias",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
_BAD_REQUEST: Final = 400
_UNPROCESSABLE: Final = 422


@dataclass(frozen=True, slots=True)
class Submitted:
    """A schema as a client sends it. `schema_id` and `version` are for the mode IMPORT, else None."""

    type: str
    text: str
    references: tuple[Reference, ...]
    metadata: str | None
    rule_set: str | None
    schema_id: int | None
    version: int | None


def read_body(body: bytes) -> dict[str, Any]:
    """The object of a body. Raises RegistryError."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise RegistryError(_BAD_REQUEST, "the body is not JSON") from None
    if not isinstance(content, dict):
        raise RegistryError(_UNPROCESSABLE, "the body must be a JSON object")
    return content


def submitted_schema(body: Mapping[str, Any]) -> Submitted:
    """The schema of a request. Raises RegistryError."""
    text, kind = body.get("schema"), body.get("schemaType") or AVRO
    if not isinstance(text, str) or not text.strip():
        raise RegistryError(INVALID_SCHEMA, "Empty schema" if not text else "Invalid schema: `schema` must be a text")
    if not isinstance(kind, str):
        raise RegistryError(_UNPROCESSABLE, "schemaType must be a text")
    if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise RegistryError(INVALID_SCHEMA, "Invalid schema: the text has half of a character")
    return Submitted(
        kind.upper(),
        text,
        _references(body.get("references")),
        _object(body, "metadata"),
        _object(body, "ruleSet"),
        _number(body, "id"),
        _number(body, "version"),
    )


def _references(given: object) -> tuple[Reference, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MOST_REFERENCES:
        raise RegistryError(_UNPROCESSABLE, f"references must be a list of at most {MOST_REFERENCES}")
    found = []
    for one in given:
        match one:
            case {"name": str(name), "subject": str(subject), "version": int(version)} if version > 0 or version == -1:
                found.append(Reference(name, subject, version))
            case _:
                raise RegistryError(_UNPROCESSABLE, "a reference must have a name, a subject and a version")
    return tuple(found)


def _object(body: Mapping[str, Any], name: str) -> str | None:
    given = body.get(name)
    if given is not None and not isinstance(given, dict):
        raise RegistryError(_UNPROCESSABLE, f"{name} must be an object")
    return write_json(given) if given else None


def _number(body: Mapping[str, Any], name: str) -> int | None:
    given = body.get(name)
    if given is None or given == -1:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or not 0 < given < 2**31:
        raise RegistryError(_UNPROCESSABLE, f"{name} must be a number from 1 to 2^31-1")
    return given


def config_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a request as they are stored. Raises RegistryError."""
    for name in _NOT_SUPPORTED:
        if body.get(name) is not None:
            raise RegistryError(_UNPROCESSABLE, f"{name} is not supported by this registry")
    settings: dict[str, Any] = {}
    level = body.get("compatibility", body.get("compatibilityLevel"))
    if level is not None or "normalize" not in body:
        if not isinstance(level, str) or level.upper() not in LEVELS:
            known = ", ".join(one.lower() for one in LEVELS)
            raise RegistryError(INVALID_LEVEL, f"Invalid compatibility level. Valid values are {known}")
        settings["compatibilityLevel"] = level.upper()
    normalizes = body.get("normalize")
    if normalizes is not None:
        if not isinstance(normalizes, bool):
            raise RegistryError(_UNPROCESSABLE, "normalize must be true or false")
        settings["normalize"] = normalizes
    return settings


def mode_of(body: Mapping[str, Any]) -> str:
    """The mode of a request. Raises RegistryError."""
    mode = body.get("mode")
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise RegistryError(INVALID_MODE, f"Invalid mode. Valid values are {', '.join(MODES)}")
    return mode.upper()
