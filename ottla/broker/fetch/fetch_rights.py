"""Who may read what by a Fetch: consumers the topics that they have READ on, replicas all with CLUSTER_ACTION.

Asked for each partition when it is found, so that what waits does not go on once the right is taken away.
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
    """Whether the request says that a broker sends it, to replicate."""
    return (request.replica_id if request.replica_state is None else request.replica_state.replica_id) >= 0


def reading_rights(request: FetchRequest, ask: Ask, authorizer: Authorizer | None) -> Callable[[str], bool] | None:
    """Whether the client may read a topic, by its name; None where everybody may."""
    if authorizer is None:
        return None
    if is_of_replica(request):
        return lambda topic: ask(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    return lambda topic: ask(AclOperation.READ, ResourceType.TOPIC, topic)
