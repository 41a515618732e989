"""The interface of a group, which is the same for all protocols of its members.

A group is in one partition of `__consumer_offsets`. Its *durable* state changes only in `replay`, which a state machine
also calls for each record that it requests to be written. Its *soft* state (members that are joining, sessions) is lost
at a restart, as in Kafka. All times are passed in. Committed offsets are not here: they belong to `offsets.py` and
outlive members.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now

if TYPE_CHECKING:
    from ottla.protocol.message import Struct

PartitionCheck: TypeAlias = Callable[[str, UUID, int], None]
"""Check that an offset of this partition (topic, topic id, partition) may be committed. It raises KafkaError if not,
which refuses the whole commit."""


def sees_all(topic: str) -> bool:
    """Whether a client may know of a topic: always, where no rights are configured."""
    return True


class Caller(NamedTuple):
    """The sender of a request: client id and host as they are shown in descriptions, and its connection.
    `may_see` returns whether the client may know of a topic, by its name.

    `connection` is compared by identity only; `on_disconnect` gets the same object when it ends.
    """

    client_id: str
    client_host: str
    connection: object
    may_see: Callable[[str], bool] = sees_all


class GroupType(Enum):
    """The protocol of a group, as ListGroups names it (Kafka's `Group.GroupType`)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Group(ABC):
    """One group; see the module."""

    type: GroupType

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def state(self) -> str:
        """The state as ListGroups shows it: `Empty`, `PreparingRebalance`, `Stable`, `Assigning`, `Reconciling`, ..."""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """`consumer`, `connect`, ...; empty for a group that only keeps offsets."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members."""

    @property
    @abstractmethod
    def next_deadline_ms(self) -> float | None:
        """Monotonic time at which `on_deadline` must be called; None when nothing is awaited."""

    @abstractmethod
    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply a record of this group: at load, and when a step has requested it."""

    @abstractmethod
    def on_load(self, now: Now) -> Effects:
        """Begin the sessions of the members, after all records have been replayed at a start."""

    @abstractmethod
    def on_deadline(self, now: Now) -> Effects:
        """Handle a `next_deadline_ms` that has passed (calling it early or twice is harmless)."""

    @abstractmethod
    def on_disconnect(self, connection: object, now: Now) -> Effects:
        """Handle the end of a connection. Its members may be removed early (`ottla.group.evict.on.disconnect.ms`)."""

    @abstractmethod
    def on_unload(self) -> Effects:
        """Answer every waiter with NOT_COORDINATOR: the coordinator gives the group up. No records."""

    @abstractmethod
    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> PartitionCheck | None:
        """Check whether this member may commit offsets, by an OffsetCommit (or TxnOffsetCommit) of `api_version`.

        None where it may commit any offset; else the check for each partition that it names. Raises KafkaError with
        Kafka's code.
        """

    @abstractmethod
    def note_commit(self, member_id: str, now: Now) -> None:
        """A commit of a member was accepted: in the classic protocol it counts as a heartbeat."""

    @abstractmethod
    def check_fetch_offsets(self, member_id: str | None, member_epoch: int) -> None:
        """Check whether this member may read committed offsets (OffsetFetch 9). Raises KafkaError."""

    @abstractmethod
    def check_delete(self) -> None:
        """Check whether the group may be deleted. Raises KafkaError(NON_EMPTY_GROUP)."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of `topic` may neither expire nor be deleted, because members use it."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that remove this group, without its offsets."""

    @abstractmethod
    def offsets_idle_since_ms(self) -> int | None:
        """Wall time since which the group's offsets are unused; None when each offset's own commit time counts.

        Topics for which `is_subscribed_to` is true do not expire. Kafka's `Group.offsetExpirationCondition`.
        """
