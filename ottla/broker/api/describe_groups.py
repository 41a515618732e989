"""DescribeGroups (key 15), versions 0-6: groups of the classic protocol with their members.

A group that does not exist, or that uses another protocol, is Dead without an error; from version 6 on it is
GROUP_ID_NOT_FOUND (KIP-1043). Without an authorizer the authorized operations are all operations on a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.runtime.pending import changed
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.GROUP, named=("groups",), answered="groups"),)
CHUNKS = (Chunks(("groups",), ("groups",)),)


def handle(request: DescribeGroupsRequest, context: Context) -> Pending[DescribeGroupsResponse]:
    """Answer with what is durable."""
    answer = context.services.groups.get().describe_groups(request, context)
    if context.services.authorizer is None or not request.include_authorized_operations:
        return answer

    def with_operations(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = context.operations(
                    group.authorized_operations, ResourceType.GROUP, group.group_id
                )
        return response

    return changed(answer, with_operations)
