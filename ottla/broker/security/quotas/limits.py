"""The quota that applies to a client: the first that is set of Kafka's eight levels (KIP-55, KIP-257).

    1  user and client id        5  default user and default client id
    2  user and default client   6  default user
    3  user                      7  client id
    4  default user, client id   8  default client id

An account is named by (user, client id): by the user alone at levels 3 and 6, by the client id alone at 7 and 8. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    Entity = tuple[tuple[str, str | None], ...]
    """Pairs of type and name; a name of None is the default of its type."""

PRODUCE, FETCH, REQUEST, MUTATION = KINDS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
"""The quotas of clients, by Kafka's names."""
CONNECTION_RATE = "connection_creation_rate"
"""The quota of addresses."""
USER, CLIENT_ID, IP = "user", "client-id", "ip"
_ABSENT = ""
"""The name for an entity without this type; no real name is empty."""


class Limit(NamedTuple):
    """A quota that applies to a client: its value, and the user and client id of its account."""

    bound: float
    user: str
    client_id: str


class Limits:
    """The quotas of one kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._bounds: dict[tuple[str | None, str | None], float] = {}

    def change(self, entities: Mapping[Entity, Mapping[str, float]]) -> None:
        """Set the quotas of these entities; other entities keep theirs."""
        for entity, values in entities.items():
            parts = dict(entity)
            if IP in parts:
                continue
            key = parts.get(USER, _ABSENT), parts.get(CLIENT_ID, _ABSENT)
            bound = values.get(self._kind)
            if bound is None:
                self._bounds.pop(key, None)
            else:
                self._bounds[key] = bound

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def of(self, user: str, client_id: str) -> Limit | None:
        """The quota of a client; None if it has none."""
        bounds = self._bounds
        for level, account in (
            ((user, client_id), (user, client_id)),
            ((user, None), (user, client_id)),
            ((user, _ABSENT), (user, "")),
            ((None, client_id), (user, client_id)),
            ((None, None), (user, client_id)),
            ((None, _ABSENT), (user, "")),
            ((_ABSENT, client_id), ("", client_id)),
            ((_ABSENT, None), ("", client_id)),
        ):
            bound = bounds.get(level)
            if bound is not None:
                return Limit(bound, *account)
        return None
