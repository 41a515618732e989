"""What every kind of group can do, whichever protocol its members speak.

A group lives in one partition of `__consumer_offsets`. Its *durable* state changes only in `replay`, which a machine
also calls for each record that it asks to be written; its *soft* state (members that are joining, sessions) is lost at
a restart, as in Kafka. All times are passed in. Committed offsets are not here: they belong to `offsets.py` and
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
"""Whether an offset of this partition (topic, topic id, partition) may be committed. Raises KafkaError if not, which
refuses the whole commit."""


def sees_all(topic: str) -> bool:
    """Whether a client may know of a topic: each does where nobody has to have rights."""
    return True


class Caller(NamedTuple):
    """The sender of a request: client id and host as they are shown in descriptions, and the connection it came by.
    `may_see` says of a topic's name whether the client may know of it.

    `connection` is compared by identity only; the same object comes with `on_disconnect` when it ends.
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


class Group(ABC):
    """One group; see the module's text for what holds."""

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
        """Apply a record of this group: at load, and when a step has asked for it."""

    @abstractmethod
    def on_load(self, now: Now) -> Effects:
        """All records have been replayed after a start: begin the sessions of the members that are there."""

    @abstractmethod
    def on_deadline(self, now: Now) -> Effects:
        """`next_deadline_ms` has come (calling early or twice does no harm)."""

    @abstractmethod
    def on_disconnect(self, connection: object, now: Now) -> Effects:
        """A connection ended: members that came by it may be removed early (`ottla.group.evict.on.disconnect.ms`)."""

    @abstractmethod
    def on_unload(self) -> Effects:
        """The coordinator goes: every waiter gets NOT_COORDINATOR. No records."""

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
        """Whether this member may commit offsets, by an OffsetCommit (or TxnOffsetCommit) of `api_version`.

        None where it may commit any; else what each partition that it names has to pass. Raises KafkaError with
        Kafka's code.
        """

    @abstractmethod
    def note_commit(self, member_id: str, now: Now) -> None:
        """A commit of a member was accepted: in the classic protocol that is as good as a heartbeat."""

    @abstractmethod
    def check_fetch_offsets(self, member_id: str | None, member_epoch: int) -> None:
        """Whether committed offsets may be read by this member (OffsetFetch 9). Raises KafkaError."""

    @abstractmethod
    def check_delete(self) -> None:
        """Whether the group may be deleted. Raises KafkaError(NON_EMPTY_GROUP)."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of `topic` may neither expire nor be deleted, because members use it."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that remove this group, without its offsets."""

    @abstractmethod
    def offsets_idle_since_ms(self) -> int | None:
        """Wall time since which the group's offsets count as unused; None when each offset's own commit time counts.

        `is_subscribed_to` keeps single topics from expiring. Kafka's `Group.offsetExpirationCondition`.
        """
