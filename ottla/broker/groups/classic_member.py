"""One member of a group of the classic protocol, and what it waits for (Kafka's `ClassicGroupMember`).

Protocols and timeouts come from the member, the assignment from its leader; they are written with the group. The waits,
the connection and `is_new` are soft: lost at a restart. Only `Roster` adds and removes members and sets their waits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.broker.coordination.effects import Waiter
from ottla.protocol.stored.group import GroupMetadataValue

NO_BYTES = b""


class ProtocolMetadata(NamedTuple):
    """An assignor that a member supports, by name, and what the leader receives for it: the member's subscription."""

    name: str
    metadata: bytes


class Wait(NamedTuple):
    """A parked request: the object that waits for its answer, its connection, and the version of the answer."""

    waiter: Waiter
    connection: object
    api_version: int


@dataclass(slots=True)
class ClassicMember:
    """A member. `protocols` are in the member's order of preference."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[ProtocolMetadata, ...]
    assignment: bytes = NO_BYTES
    connection: object = None
    """The connection of its last request; None when that connection has ended, and after a restart."""
    join_wait: Wait | None = None
    sync_wait: Wait | None = None
    is_new: bool = False
    """Whether it waits for its first generation. It knows no generation yet, so it cannot send heartbeats."""
    knows_its_id: bool = True
    """Whether it has received its member id. A member that has not cannot join again."""

    @property
    def is_static(self) -> bool:
        """Whether it has an instance id, and so may be replaced by its next run (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """Whether a parked request shows that it is alive. A new member's does not: its client may have given up."""
        return not self.is_new and (self.join_wait is not None or self.sync_wait is not None)

    def stored(self, protocol_name: str | None, assignment: bytes) -> GroupMetadataValue.MemberMetadata:
        """The member in the record of its group."""
        return GroupMetadataValue.MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for one protocol; empty for a protocol that it does not support."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return NO_BYTES

    def vote(self, candidates: Collection[str]) -> str | None:
        """The candidate that it prefers; None when it supports none of them."""
        return next((protocol.name for protocol in self.protocols if protocol.name in candidates), None)


def protocol_names(protocols: Sequence[ProtocolMetadata]) -> set[str]:
    """The names of `protocols`, each once: a client may name one twice."""
    return {protocol.name for protocol in protocols}
