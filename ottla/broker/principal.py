"""The identity of a client: Kafka's `KafkaPrincipal`, a type and a name."""

from __future__ import annotations

from typing import NamedTuple

USER = "User"
"""The only type that authentication assigns; ACLs may name other types, which match no client."""


class Principal(NamedTuple):
    """A type and a name. `str(principal)` is `User:alice`, as in ACLs, super.users and log lines."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""The principal of a client that has not authenticated."""


def parse_principal(text: str) -> Principal:
    """The principal of a `Type:name`; the name may contain colons. Raises ValueError with the reason."""
    kind, colon, name = text.strip().partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{text!r} must be a principal, as User:alice")
    return Principal(kind, name)
