"""The rights to read by a Fetch: consumers need READ on a topic, replicas need CLUSTER_ACTION for all topics.

They are checked for each partition when it is found, so that a request that waits ends when the right is taken away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.security.authorizer import Authorizer
    from ottla.protocol.api.fetch import FetchRequest


class Ask(Protocol):
    """`may` or `has` of a request's `Context`."""

    def __call__(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME, /) -> bool:
        """Whether the client may do this."""


def is_of_replica(request: FetchRequest) -> bool:
    """Whether the request says that it comes from a broker that replicates."""
    return (request.replica_id if request.replica_state is None else request.replica_state.replica_id) >= 0


def reading_rights(request: FetchRequest, ask: Ask, authorizer: Authorizer | None) -> Callable[[str], bool] | None:
    """A function that returns whether the client may read a topic, by its name; None where no rights are configured."""
    if authorizer is None:
        return None
    if is_of_replica(request):
        return lambda topic: ask(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    return lambda topic: ask(AclOperation.READ, ResourceType.TOPIC, topic)
