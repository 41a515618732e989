"""What a change comes to in a state: versions, references, and what the modes permit. Pure functions.

`registry.py` reads the topic before it asks, and writes what is decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.registry.errors import (
    INVALID_SCHEMA,
    RegistryError,
    not_permitted,
    reference_exists,
    subject_not_found,
    version_not_found,
)
from ottla.registry.names import normal_subject, split_context
from ottla.registry.records import Content, Reference, Stored
from ottla.registry.requests import Submitted
from ottla.registry.resolved import Resolved
from ottla.registry.state import State

MOST_RESOLVED: Final = 2_000
"""Schemas that one refers to, directly and through others."""
READ_ONLY: Final = ("READONLY", "READONLY_OVERRIDE")


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version that is to be written."""

    stored: Stored


def imported(state: State, context: str, subject: str, submitted: Submitted, content: Content) -> Stored | NewVersion:
    """The version of a schema that brings its id, in the mode IMPORT."""
    assert submitted.schema_id is not None
    holders = state.holders(context, submitted.schema_id)
    if holders and holders[0].content.text != content.text:
        raise not_permitted(f"Overwrite new schema with id {submitted.schema_id} is not permitted.")
    number = submitted.version or state.next_version(subject)
    wanted = Stored(subject, number, submitted.schema_id, content)
    present = state.version(subject, number)
    if present is not None and replace(present, is_deleted=False) != wanted:
        raise not_permitted(f"Overwrite version {number} of subject {subject} is not permitted.")
    return present if present == wanted else NewVersion(wanted)


def as_submitted(stored: Stored) -> Submitted:
    """A stored schema as a client would submit it again."""
    content = stored.content
    return Submitted(content.type, content.text, content.references, content.metadata, content.rule_set, None, None)


def version_of(state: State, subject: str, version: int | None, *, with_deleted: bool = False) -> Stored:
    """A version of a subject; None is the latest. Raises RegistryError if there is none."""
    versions = state.versions(subject, with_deleted=with_deleted)
    if not versions:
        raise subject_not_found(subject)
    if version is None:
        return versions[-1]
    for one in versions:
        if one.version == version:
            return one
    raise version_not_found(version)


def absolute(state: State, subject: str, reference: Reference) -> Reference:
    """A reference with its context and the number of its version; -1 is the latest."""
    name = reference.subject
    context = split_context(subject)[0]
    if not name.startswith(":.") and context != ".":
        name = f":{context}:{name}"
    if reference.version > 0:
        return Reference(reference.name, normal_subject(name), reference.version)
    versions = state.versions(normal_subject(name))
    return Reference(reference.name, normal_subject(name), versions[-1].version if versions else reference.version)


def resolve(state: State, subject: str, references: Sequence[Reference]) -> list[Resolved]:
    """The schemas of references and of theirs, each once, and after those that it needs. Raises RegistryError."""
    found: dict[tuple[str, int], Resolved | None] = {}
    waiting: list[tuple[Reference, bool]] = [(one, False) for one in reversed(references)]
    while waiting:
        reference, has_all = waiting.pop()
        place = normal_subject(reference.subject), reference.version
        stored = state.version(*place)
        if stored is None:
            line = f'No schema reference found for subject "{place[0]}" and version {place[1]}'
            raise RegistryError(INVALID_SCHEMA, f"Invalid schema: {line}")
        if has_all:
            if found.get(place) is None:
                found.pop(place, None)
                found[place] = Resolved(reference.name, stored.content.type, stored.content.text)
        elif place not in found:
            if len(found) >= MOST_RESOLVED:
                raise RegistryError(INVALID_SCHEMA, f"Invalid schema: it refers to more than {MOST_RESOLVED:,} schemas")
            found[place] = None
            waiting.append((reference, True))
            waiting += [(one, False) for one in reversed(stored.content.references)]
    return [one for one in found.values() if one is not None]


def check_mode(state: State, subject: str, schema_id: int | None) -> None:
    """Raise RegistryError if the mode does not permit a registration; `schema_id` is that of an import."""
    mode = state.mode(subject)
    if mode in READ_ONLY:
        raise not_permitted(f"Subject {subject} is in read-only mode")
    if schema_id is not None and mode != "IMPORT":
        raise not_permitted(f"Subject {subject} is not in import mode")
    if schema_id is None and mode == "IMPORT":
        raise not_permitted(f"Subject {subject} is not in read-write mode")


def check_deletion(state: State, subject: str) -> None:
    """Raise RegistryError if the mode does not permit a deletion."""
    if state.mode(subject) in READ_ONLY:
        raise not_permitted(f"Subject {subject} is in read-only mode")


def check_referrers(state: State, stored: Stored) -> None:
    """Raise RegistryError if other schemas refer to this version."""
    if state.referrers(stored.subject, stored.version):
        raise reference_exists(stored.subject, stored.version)


def has_versions(state: State, subject: str | None) -> bool:
    """Whether a subject, a context or the registry has versions that are not deleted."""
    if subject is None:
        return any(state.versions(one) for one in state.subjects)
    context, name = split_context(subject)
    if name:
        return bool(state.versions(subject))
    return any(state.versions(one) for one in state.subjects if split_context(one)[0] == context)


def named(subject: str | None) -> str:
    """A subject, or the whole registry, at the beginning of a sentence."""
    return f"Subject {subject}" if subject else "The registry"
