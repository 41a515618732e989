"""The interface by which the gate and handlers check the rights of clients (Kafka's `Authorizer`); refusal codes."""

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
"""The error for a client without a right to a resource, by its type (Kafka's `AclEntry.authorizationError`).

Rights to users are about their tokens.
"""


class Authorizer(Protocol):
    """Answers from memory, immediately. A change of rights must change the validity stamp: templates rely on it."""

    def is_allowed(self, peer: Peer, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may do this with the resource of that name."""

    def is_allowed_somewhere(self, peer: Peer, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client may do this with at least one resource of the type."""

    def allowed_operations(self, peer: Peer, operations: int, resource_type: ResourceType, name: str) -> int:
        """The operations among these that the client may do: bit sets of AclOperation (KIP-430)."""
