"""What knows the rights of clients, as the gate and handlers ask it (Kafka's `Authorizer`); the codes of refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ottla.protocol.acls import ResourceType
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.peer import Peer
    from ottla.protocol.acls import AclOperation

AUTHORIZATION_CODES: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""What a client is answered that lacks a right to a resource of a type (Kafka's `AclEntry.authorizationError`).

Rights to users are about their tokens.
"""


class Authorizer(Protocol):
    """Answers from memory, at once. A change of rights changes the validity stamp, or templates go by the old ones."""

    def is_allowed(self, peer: Peer, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may do this with the resource of that name."""

    def is_allowed_somewhere(self, peer: Peer, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client may do this with at least one resource of the type."""

    def allowed_operations(self, peer: Peer, operations: int, resource_type: ResourceType, name: str) -> int:
        """Which of these operations it may do: bit sets of AclOperation (KIP-430)."""
