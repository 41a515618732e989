"""Quotas and their entities in words, and which quota a client is under. Pure; it knows no broker.

An entity is a user, a client id, both together, or an address; a name of None is the default of its type. The first of
Kafka's eight levels that is set counts (KIP-55, KIP-257): user and client id; user and default client id; user;
default user and client id; both defaults; default user; client id; default client id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.client.admin_settings_results import QuotaEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"

CLIENT_QUOTAS: Final = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "% of a processor",
    "controller_mutation_rate": "partitions/s",
}
"""The quotas of users and client ids, with their units."""
IP_QUOTAS: Final = {"connection_creation_rate": "connections/s"}
"""The quotas of addresses, with their units."""
ALL_QUOTAS: Final = CLIENT_QUOTAS | IP_QUOTAS

_NOUNS: Final = {USER: "user", CLIENT_ID: "client", IP: "address"}


class InEffect(NamedTuple):
    """A quota that counts for a client: its value, and the entity for which that is set."""

    value: float
    entity: QuotaEntity


def entity_of(parts: Mapping[str, str | None]) -> QuotaEntity:
    """The entity with these names by type."""
    return tuple(sorted(parts.items()))


def entity_words(entity: QuotaEntity) -> str:
    """An entity for people: `user alice`, `user alice, client app`, `default address`."""
    parts = dict(entity)
    words = []
    for kind in (*_NOUNS, *sorted(parts.keys() - _NOUNS.keys())):  # a type that this program does not know
        if kind in parts:
            noun, name = _NOUNS.get(kind, kind), parts[kind]
            words.append(f"default {noun}" if name is None else f"{noun} {name}")
    return ", ".join(words)


def quotas_of_client(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], user: str, client_id: str | None
) -> dict[str, InEffect]:
    """The quotas that count for a client. A `client_id` of None means one that has no quota of its own."""
    own = [] if client_id is None else [client_id]
    levels: list[dict[str, str | None]] = [
        *({USER: user, CLIENT_ID: one} for one in (*own, None)),
        {USER: user},
        *({USER: None, CLIENT_ID: one} for one in (*own, None)),
        {USER: None},
        *({CLIENT_ID: one} for one in (*own, None)),
    ]
    return _first(quotas, map(entity_of, levels))


def quotas_of_address(quotas: Mapping[QuotaEntity, Mapping[str, float]], address: str) -> dict[str, InEffect]:
    """The quotas that count for an address."""
    return _first(quotas, [entity_of({IP: address}), entity_of({IP: None})])


def _first(quotas: Mapping[QuotaEntity, Mapping[str, float]], levels: Iterable[QuotaEntity]) -> dict[str, InEffect]:
    found: dict[str, InEffect] = {}
    for entity in levels:
        for name, value in quotas.get(entity, {}).items():
            found.setdefault(name, InEffect(value, entity))
    return found


def shown_value(value: float) -> int | float:
    """The value, as an int if it is a whole number."""
    return int(value) if value == int(value) else value
