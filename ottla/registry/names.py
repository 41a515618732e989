"""Names of subjects, with or without a context: `orders-value`, `:.staging:orders-value`; `:.staging:` is a whole one.

Contexts have separate ids. The default one is `.`, whose names are written without it.
"""

from __future__ import annotations

from typing import Final

from ottla.registry.errors import INVALID_SUBJECT, RegistryError

DEFAULT_CONTEXT: Final = "."
LONGEST_SUBJECT: Final = 1_000
"""Characters. A topic's name has 249; Confluent's registry has no limit."""
_RESERVED: Final = frozenset({"", "__GLOBAL", "__EMPTY"})


def split_context(subject: str) -> tuple[str, str]:
    """The context of a subject, and its name there; empty for the whole context."""
    if subject.startswith(":.") and ":" in subject[1:]:
        context, _, name = subject[1:].partition(":")
        return context, name
    return DEFAULT_CONTEXT, subject


def normal_subject(subject: str) -> str:
    """The one way to write a subject: the default context is left out."""
    context, name = split_context(subject)
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def checked_subject(subject: str) -> str:
    """The subject of a request, as it is stored. Raises RegistryError 42208."""
    normal = normal_subject(subject)
    name = split_context(normal)[1]
    if (
        name in _RESERVED
        or len(normal) > LONGEST_SUBJECT
        or any(ord(letter) < 32 or letter == "\x7f" for letter in name)
    ):
        raise RegistryError(INVALID_SUBJECT, f"The specified subject {subject[:100]!r} is not a valid subject.")
    return normal


def scope_of(subject: str) -> str | None:
    """What a configuration for a subject of a path is kept under: None for all, `:.ctx:` for a whole context."""
    return normal_subject(subject) or None
