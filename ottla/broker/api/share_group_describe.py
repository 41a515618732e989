"""ShareGroupDescribe (key 77), version 1: share groups with their members (KIP-932).

A group of another type, or that does not exist, is GROUP_ID_NOT_FOUND; an empty id is INVALID_GROUP_ID.
UNSUPPORTED_VERSION where share groups are not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.runtime.pending import changed
from ottla.broker.share.settings import check_share_groups
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    undescribed,
)
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending

NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.GROUP, named=("group_ids",), answered="groups"),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, when="members have topics", lacking="the group is refused"),
)
CHUNKS = (Chunks(("group_ids",), ("groups",)),)


def handle(request: ShareGroupDescribeRequest, context: Context) -> Pending[ShareGroupDescribeResponse]:
    """Answer with what is durable."""
    check_share_groups(context.services.catalog)
    answer = context.services.groups.get().describe_share_groups(request, context)
    if context.services.authorizer is None:
        return answer

    def permitted(response: ShareGroupDescribeResponse) -> ShareGroupDescribeResponse:
        return response.replace(groups=[_permitted(group, request, context) for group in response.groups])

    return changed(answer, permitted)


def _permitted(
    group: ShareGroupDescribeResponse.DescribedGroup, request: ShareGroupDescribeRequest, context: Context
) -> ShareGroupDescribeResponse.DescribedGroup:
    topics = {one.topic_name for member in group.members for one in member.assignment.topic_partitions}
    if not all(context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in sorted(topics)):
        message = "the group has topics that the client may not describe"
        return undescribed(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
    if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
        group.authorized_operations = context.operations(
            group.authorized_operations, ResourceType.GROUP, group.group_id
        )
    return group
