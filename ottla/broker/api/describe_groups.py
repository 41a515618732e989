"""DescribeGroups (key 15), versions 0-6: groups of the classic protocol with their members.

A group that does not exist, or that speaks another protocol, is Dead and no error; from version 6 on it is
GROUP_ID_NOT_FOUND, as KIP-1043 has it. Without an authorizer everybody may do everything with a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.GROUP),)
CHUNKS = (Chunks(("groups",), ("groups",)),)


def handle(request: DescribeGroupsRequest, context: Context) -> Pending[DescribeGroupsResponse]:
    """Answer with what is durable."""
    return context.services.groups.get().describe_groups(request, context)
