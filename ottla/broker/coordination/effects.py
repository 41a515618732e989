"""What one step of a coordinator's state machine asks for: records to keep, and replies that wait for them.

A machine is pure: it gets what happened and when, and returns `Effects`. The runtime appends the records in one batch,
and lets a reply go only when everything that the state behind it rests on is durable
(docs/decisions/groups-change-by-replay.md). A step that fails to append unloads the shard, so a machine never takes a
record back.

Source: Kafka's `CoordinatorResult` and `CoordinatorRecord`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ottla.protocol.errors import KafkaError
from ottla.protocol.message import Response, Struct

CoordinatorRecord: TypeAlias = "tuple[Struct, Struct | None]"
"""(key, value), as the coordinator's `RecordCodec` encodes them; a value of None is a tombstone."""

Waiter: TypeAlias = object
"""What waits for a reply: a `Pending`, or what has its `complete` and `fail`. A machine keeps it and gives it back, and
never looks inside.
"""

Reply: TypeAlias = "tuple[Waiter, Response | KafkaError]"
"""A waiter and its response, or an error which the API's own error response is made of."""


class Now(NamedTuple):
    """The moment of a step: `monotonic_ms` for sessions and timeouts, of the time in which the broker listens;
    `wall_ms` for what is stored.
    """

    monotonic_ms: float
    wall_ms: int


@dataclass(slots=True)
class Effects:
    """Records in the order in which they must be replayed, and the replies of this step."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    def reply(self, waiter: Waiter, response: Response | KafkaError) -> None:
        """Answer `waiter`, which must not be answered again."""
        self.replies.append((waiter, response))

    def join(self, other: Effects) -> None:
        """Do also what `other` asks for, after this."""
        self.records.extend(other.records)
        self.replies.extend(other.replies)
