"""What the topic says: subjects, ids, configurations and modes. It changes only by replaying records, in their order.

So every registry that has read the topic to the same offset has the same state. The rule for two registries that write
at the same time: what is first in the log counts. A version whose number, or whose id, another schema had before is
ignored, and its writer finds out when it reads it back (`registry.py`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from ottla.registry.names import normal_subject, split_context
from ottla.registry.records import (
    Content,
    MalformedRecord,
    Reference,
    SchemaKey,
    ScopeKey,
    Stored,
    parse_key,
    parse_object,
    parse_schema_value,
)

logger = logging.getLogger(__name__)

DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"


class State:
    """See the module. Nobody else changes what is in it."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Stored]] = {}
        """Versions by number, of each subject, in the order of the log."""
        self.configs: dict[str | None, dict[str, Any]] = {}
        """By subject, by `:.ctx:`, and by None for all."""
        self.modes: dict[str | None, str] = {}
        self._holders: dict[str, dict[int, dict[tuple[str, int], None]]] = defaultdict(dict)
        """The versions that have an id, by context and id."""
        self._ids: dict[str, dict[Content, int]] = defaultdict(dict)
        self._highest_id: dict[str, int] = defaultdict(int)
        self._referrers: dict[tuple[str, int], dict[tuple[str, int], None]] = defaultdict(dict)

    # -- questions

    def version(self, subject: str, version: int) -> Stored | None:
        """A version, also a deleted one."""
        return self.subjects.get(subject, {}).get(version)

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[Stored]:
        """The versions of a subject by their numbers."""
        found = self.subjects.get(subject, {})
        return [found[number] for number in sorted(found) if with_deleted or not found[number].is_deleted]

    def holders(self, context: str, schema_id: int) -> list[Stored]:
        """The versions that have an id, also deleted ones."""
        return [self.subjects[subject][number] for subject, number in self._holders[context].get(schema_id, ())]

    def id_of(self, context: str, content: Content) -> int | None:
        """The id of a schema in a context."""
        return self._ids[context].get(content)

    def next_id(self, context: str) -> int:
        """The id for a schema that is new there."""
        return self._highest_id[context] + 1

    def highest_id(self, context: str) -> int:
        """The highest id that was ever given in a context."""
        return self._highest_id[context]

    def next_version(self, subject: str) -> int:
        """The number for a version that is new in a subject."""
        return max(self.subjects.get(subject, {0: None})) + 1

    def referrers(self, subject: str, version: int) -> list[Stored]:
        """The versions whose schemas refer to one, without deleted ones."""
        found = (self.subjects[name][number] for name, number in self._referrers.get((subject, version), ()))
        return [one for one in found if not one.is_deleted]

    def config(self, subject: str, name: str) -> Any:
        """A setting as it counts for a subject: its own, its context's, or that of all; else None."""
        for scope in self.scopes(subject):
            value = self.configs.get(scope, {}).get(name)
            if value is not None:
                return value
        return None

    def level(self, subject: str) -> str:
        """The compatibility level that counts for a subject."""
        level = self.config(subject, "compatibilityLevel")
        return level if isinstance(level, str) else DEFAULT_LEVEL

    def mode(self, subject: str) -> str:
        """The mode that counts for a subject."""
        for scope in self.scopes(subject):
            if scope in self.modes:
                return self.modes[scope]
        return DEFAULT_MODE

    @staticmethod
    def scopes(subject: str | None) -> Iterator[str | None]:
        """What may be set for a subject, the nearest first."""
        if subject:
            yield subject
            context, name = split_context(subject)
            if name and normal_subject(f":{context}:"):
                yield f":{context}:"
        yield None

    # -- changes

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record. One that is malformed, or that contradicts an earlier one, is logged and ignored."""
        try:
            match parse_key(key):
                case SchemaKey() as schema_key if value is None:
                    self._remove(schema_key.subject, schema_key.version)
                case SchemaKey():
                    assert value is not None
                    self._put(parse_schema_value(value))
                case ScopeKey("CONFIG", subject):
                    self._set(self.configs, subject, None if value is None else parse_object(value))
                case ScopeKey("MODE", subject):
                    mode = None if value is None else parse_object(value).get("mode")
                    self._set(self.modes, subject, mode if isinstance(mode, str) else None)
                case ScopeKey("DELETE_SUBJECT", str(subject)) if value is not None:
                    self._delete_softly(subject, parse_object(value).get("version"))
                case ScopeKey("CLEAR_SUBJECT", str(subject)) if value is not None:
                    for stored in self.versions(subject, with_deleted=True):
                        if stored.is_deleted:
                            self._remove(subject, stored.version)
        except MalformedRecord as error:
            logger.warning("a record of the schemas is ignored: %s", error)

    @staticmethod
    def _set(settings: dict[str | None, Any], subject: str | None, value: Any) -> None:
        if value is None:
            settings.pop(subject, None)
        else:
            settings[subject] = value

    def _put(self, stored: Stored) -> None:
        context = split_context(stored.subject)[0]
        present = self.version(stored.subject, stored.version)
        if present is not None and (present.schema_id, present.content.text) != (stored.schema_id, stored.content.text):
            logger.warning("version %d of %r is in the log twice: the first counts", stored.version, stored.subject)
            return
        holders = self.holders(context, stored.schema_id)
        if holders and holders[0].content.text != stored.content.text:
            logger.warning("id %d is in the log with two schemas: the first counts", stored.schema_id)
            return
        self._remove(stored.subject, stored.version)
        place = stored.subject, stored.version
        self.subjects.setdefault(stored.subject, {})[stored.version] = stored
        self._holders[context].setdefault(stored.schema_id, {})[place] = None
        self._ids[context].setdefault(stored.content, stored.schema_id)
        self._highest_id[context] = max(self._highest_id[context], stored.schema_id)
        for reference in stored.content.references:
            self._referrers[_place(reference)][place] = None

    def _delete_softly(self, subject: str, up_to: object) -> None:
        if not isinstance(up_to, int):
            raise MalformedRecord("the deletion of a subject without a version")
        for stored in self.versions(subject):
            if stored.version <= up_to:
                self.subjects[subject][stored.version] = stored.deleted()

    def _remove(self, subject: str, version: int) -> None:
        stored = self.version(subject, version)
        if stored is None:
            return
        context = split_context(subject)[0]
        del self.subjects[subject][version]
        if not self.subjects[subject]:
            del self.subjects[subject]
        holders = self._holders[context][stored.schema_id]
        del holders[subject, version]
        if not holders:
            del self._holders[context][stored.schema_id]
        if not any(one.content == stored.content for one in self.holders(context, stored.schema_id)):
            self._ids[context].pop(stored.content, None)
        for reference in stored.content.references:
            self._referrers[_place(reference)].pop((subject, version), None)


def _place(reference: Reference) -> tuple[str, int]:
    return normal_subject(reference.subject), reference.version
