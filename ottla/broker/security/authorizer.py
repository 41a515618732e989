"""What knows the rights of clients, as the gate and handlers ask it (Kafka's `Authorizer`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.broker.peer import Peer
    from ottla.protocol.acls import AclOperation, ResourceType


class Authorizer(Protocol):
    """Answers from memory, at once. A change of rights changes the validity stamp, or templates go by the old ones."""

    def is_allowed(self, peer: Peer, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may do this with the resource of that name."""

    def is_allowed_somewhere(self, peer: Peer, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client may do this with at least one resource of the type."""

    def allowed_operations(self, peer: Peer, operations: int, resource_type: ResourceType, name: str) -> int:
        """Which of these operations it may do: bit sets of AclOperation (KIP-430)."""
