"""ListGroups (key 16), versions 0-5: the groups of this broker, all or by state (version 4) and type (version 5).

Filters ignore case, and an unknown state or type matches nothing. COORDINATOR_LOAD_IN_PROGRESS while groups are loaded,
since an incomplete list would look like a complete one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse

NEEDS = (
    Need(
        AclOperation.DESCRIBE,
        ResourceType.GROUP,
        unless=(AclOperation.DESCRIBE, ResourceType.CLUSTER),
        lacking="the group is left out",
    ),
)
CHUNKS = ()


def handle(request: ListGroupsRequest, context: Context) -> ListGroupsResponse | Pending[ListGroupsResponse]:
    """Answer with what is durable."""
    sees_all = context.has(AclOperation.DESCRIBE, ResourceType.CLUSTER)

    def may_see(group_id: str) -> bool:
        return sees_all or context.has(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)

    return context.in_steps(context.services.groups.get().list_groups(request, may_see))
