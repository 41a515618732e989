"""ListGroups (key 16), versions 0-5: the groups of this broker, all or by state (version 4) and type (version 5).

Filters do not mind case, and one that names nothing known finds nothing. COORDINATOR_LOAD_IN_PROGRESS while groups are
loaded: a list with holes would look like a whole one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.runtime.pending import changed
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


def handle(request: ListGroupsRequest, context: Context) -> Pending[ListGroupsResponse]:
    """Answer with what is durable."""
    answer = context.services.groups.get().list_groups(request, context)
    if context.has(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return answer

    def filtered(response: ListGroupsResponse) -> ListGroupsResponse:
        return response.replace(
            groups=[
                group
                for group in response.groups
                if context.has(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
            ]
        )

    return changed(answer, filtered)
