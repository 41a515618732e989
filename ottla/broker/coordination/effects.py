"""The effects of one step of a coordinator's state machine: records to write, and replies that wait for them.

A state machine is pure: it gets an event and its time, and returns `Effects`. The runtime appends the records in one
batch, and sends a reply only when all records of the state that it shows are durable
(docs/decisions/groups-change-by-replay.md). If a step cannot be appended, the shard is unloaded, so a state machine
never takes a record back.

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
"""The object that waits for a reply: a `Pending`, or one with its `complete` and `fail`. A state machine keeps it and
returns it, and never looks inside.
"""

Reply: TypeAlias = "tuple[Waiter, Response | KafkaError]"
"""A waiter and its response, or an error from which the API's own error response is made."""


class Now(NamedTuple):
    """The time of a step: `monotonic_ms` for sessions and timeouts, which counts only time in which the broker listens;
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
        """Add the effects of `other`, after these."""
        self.records.extend(other.records)
        self.replies.extend(other.replies)
