"""What one step of a group machine asks of the world: records to keep, and replies that wait for them.

A machine is pure: it is told what happened and when, and gives back `Effects`. The shell appends the records in one
batch, and lets a reply go only when everything that the group's state rests on is durable
(docs/decisions/groups-change-by-replay.md). A step that fails to append unloads the coordinator, so a machine never
takes a record back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ottla.protocol.errors import KafkaError
from ottla.protocol.message import Response, Struct

GroupRecord: TypeAlias = "tuple[Struct, Struct | None]"
"""(key, value) as declared in `ottla.protocol.stored.group`; a value of None is a tombstone."""

Waiter: TypeAlias = object
"""Whoever waits for a reply. A machine keeps it and gives it back, and never looks inside."""

Reply: TypeAlias = "tuple[Waiter, Response | KafkaError]"
"""A waiter and its response, or an error which the API's own error response is made of."""


class Now(NamedTuple):
    """The moment of a step: `monotonic_ms` for sessions and timeouts, `wall_ms` for what is stored."""

    monotonic_ms: float
    wall_ms: int


class Caller(NamedTuple):
    """Who sent a request: client id and host as they are shown in descriptions, and the connection it came by.

    `connection` is compared by identity only; the same object comes with `on_disconnect` when it ends.
    """

    client_id: str
    client_host: str
    connection: object


@dataclass(slots=True)
class Effects:
    """Records in the order in which they must be replayed, and the replies of this step."""

    records: list[GroupRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    def reply(self, waiter: Waiter, response: Response | KafkaError) -> None:
        """Answer `waiter`, which must not be answered again."""
        self.replies.append((waiter, response))

    def join(self, other: Effects) -> None:
        """Do also what `other` asks for, after this."""
        self.records.extend(other.records)
        self.replies.extend(other.replies)
