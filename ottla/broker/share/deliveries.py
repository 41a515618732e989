"""What the parts of this room say to each other of deliveries: states of records, and ranges of offsets."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

UNLIMITED = 1 << 30


class RecordState(IntEnum):
    """The state of a record in flight, by Kafka's numbers. ARCHIVING: its dead letter is to be written first."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class Cause(Enum):
    """Why a record has a dead letter, in the words that are in it."""

    REJECTED = "Offset rejected by client."
    DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class StateBatch(NamedTuple):
    """Offsets, both inclusive, their state, and how often they were delivered."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int


class DeadLetters(NamedTuple):
    """Offsets, both inclusive, of records that are archiving: how often they were delivered, and why they are."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause


class Acquired(NamedTuple):
    """Offsets, both inclusive, that a member has acquired together; `delivery_count` includes this delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Span(NamedTuple):
    """The offsets of a record batch in the log, both inclusive; `is_skipped`: it is not to be delivered."""

    first_offset: int
    last_offset: int
    is_skipped: bool = False


class Acknowledgement(NamedTuple):
    """What a member says of offsets, both inclusive: one type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Wanted(NamedTuple):
    """What a member may acquire: so many records at most, and, unless `is_strict`, the rest of the batch of the last.

    `batch_size`: the records that one entry of acquired records should have. `most_in_flight`: no record is acquired
    for the first time while there are so many between the start and the end. `most_deliveries`: records close to it
    are acquired in small portions.
    """

    member_id: str
    most_records: int
    batch_size: int
    most_in_flight: int
    deadline_ms: float
    is_strict: bool = False
    most_deliveries: int = UNLIMITED

    def portion(self, delivery_count: int, record_count: int) -> int | None:
        """How many of so many available records, delivered so often, are acquired together; None where any number is.

        Source: Kafka's `SharePartition` since 4.2 (KAFKA-17541).
        """
        from_count = max((self.most_deliveries + 1) // 2, 2)
        if delivery_count < from_count:
            return None
        if delivery_count >= self.most_deliveries - 1:
            return 1
        return max(record_count >> (delivery_count - from_count + 1), 1)
