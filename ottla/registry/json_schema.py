"""JSON Schemas: whether a text is one, by the metaschema that it names, and what its `$ref`s mean.

Nothing is fetched: a `$ref` leads into the schema itself, or to a schema among the references of its registration, by
the name of the reference or by its `$id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from ottla.registry.differences import Difference
from ottla.registry.errors import InvalidSchema
from ottla.registry.json_compatibility import json_differences
from ottla.registry.json_text import read_json, sort_keys, write_json
from ottla.registry.records import JSON
from ottla.registry.resolved import Resolved
from ottla.registry.schema import Schema

DEEPEST: Final = 150
"""Objects and lists in each other."""
_MOST_DIGITS: Final = 10
"""Of an index in a JSON pointer; `int` refuses thousands of digits with an error of its own."""
_METASCHEMAS: Final = ("http://json-schema.org/", "https://json-schema.org/")


class JsonSchema(Schema):
    """A JSON Schema with its references."""

    type = JSON

    def __init__(self, text: str, references: Sequence[Resolved], *, normalizes: bool = False) -> None:
        content = read_json(text)
        _check_depth(content)
        _check(content)
        self.content: Any = sort_keys(content) if normalizes else content
        self.text = write_json(self.content)
        self._documents: dict[str, Any] = {}
        for one in references:
            other = read_json(one.text)
            self._documents[one.name] = other
            if isinstance(other, dict) and isinstance(other.get("$id"), str):
                self._documents[urldefrag(other["$id"]).url] = other
        self._base = str(content.get("$id", "")) if isinstance(content, dict) else ""
        for target in _targets(self.content):
            if not target.startswith(_METASCHEMAS):
                self.resolve(target)

    def differences(self, writer: Schema) -> list[Difference]:
        """See Schema."""
        assert isinstance(writer, JsonSchema)
        return json_differences(writer.content, self.content, writer.resolve, self.resolve)

    def resolve(self, target: str) -> Any:
        """The schema that a `$ref` names. Raises InvalidSchema."""
        if target.startswith(_METASCHEMAS):
            return True
        place, fragment = urldefrag(target)
        document = self._documents.get(place, self._documents.get(urljoin(self._base, place)))
        if document is None and place in ("", self._base, urldefrag(self._base).url):
            document = self.content
        if document is None:
            document = _with_id(self.content, place)
        if document is None:
            raise InvalidSchema(f"the $ref {target[:200]!r} is in no reference of the schema")
        found = _at(document, unquote(fragment))
        if found is None:
            raise InvalidSchema(f"the $ref {target[:200]!r} leads to nothing")
        return found


def _check(content: object) -> None:
    """Raise InvalidSchema for what is no JSON Schema."""
    try:
        from jsonschema import Draft7Validator
        from jsonschema.exceptions import SchemaError, best_match
        from jsonschema.validators import validator_for
    except ImportError:
        line = 'JSON Schema needs another package where the registry runs: pip install "ottla[registry]"'
        raise InvalidSchema(line) from None
    if not isinstance(content, (dict, bool)):
        raise InvalidSchema("a JSON Schema is an object, true or false")
    kind = validator_for(content, default=Draft7Validator)
    try:
        errors = kind(kind.META_SCHEMA).iter_errors(content)
        error = best_match(errors)
    except (SchemaError, ValueError, TypeError) as failed:
        raise InvalidSchema(f"it cannot be checked: {str(failed).splitlines()[0][:300]}") from None
    if error is not None:
        place = "/".join(str(part) for part in error.absolute_path)
        raise InvalidSchema(f"at #/{place[:200]}: {error.message.splitlines()[0][:300]}")


def _check_depth(content: object) -> None:
    level = [content]
    for _ in range(DEEPEST):
        level = [one for some in level if isinstance(some, (dict, list)) for one in _members(some)]
        if not level:
            return
    raise InvalidSchema(f"the JSON is nested more than {DEEPEST} levels deep")


def _members(some: dict[str, Any] | list[Any]) -> list[Any]:
    return list(some.values()) if isinstance(some, dict) else some


def _targets(content: Any) -> list[str]:
    """The `$ref`s; the words of `enum`, `const` and `default` are none."""
    if isinstance(content, list):
        return [target for one in content for target in _targets(one)]
    if not isinstance(content, dict):
        return []
    found = [content["$ref"]] if isinstance(content.get("$ref"), str) else []
    return found + [
        target
        for key, one in content.items()
        if key not in ("enum", "const", "default", "examples")
        for target in _targets(one)
    ]


def _with_id(content: Any, place: str) -> Any:
    """The part of a schema that has an `$id`."""
    if isinstance(content, dict):
        own = content.get("$id")
        if isinstance(own, str) and (own == place or own.rpartition("/")[2] == place):
            return content
    if isinstance(content, (dict, list)):
        for one in _members(content):
            found = _with_id(one, place)
            if found is not None:
                return found
    return None


def _at(document: Any, fragment: str) -> Any:
    """What a JSON pointer, or an `$anchor`, names."""
    if fragment and not fragment.startswith("/"):
        return _anchored(document, fragment)
    for part in fragment.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict) and key in document:
            document = document[key]
        elif isinstance(document, list) and _is_index(key) and int(key) < len(document):
            document = document[int(key)]
        else:
            return None
    return document if isinstance(document, (dict, bool)) else None


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdecimal() and len(key) <= _MOST_DIGITS


def _anchored(content: Any, name: str) -> Any:
    if isinstance(content, dict) and (content.get("$anchor") == name or content.get("$id") == f"#{name}"):
        return content
    if isinstance(content, (dict, list)):
        for one in _members(content):
            found = _anchored(one, name)
            if found is not None:
                return found
    return None
