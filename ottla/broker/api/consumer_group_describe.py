"""ConsumerGroupDescribe (key 69), versions 0-1: groups of the consumer protocol with their members (KIP-848).

A group of another protocol, or one that does not exist, is GROUP_ID_NOT_FOUND; an empty id is INVALID_GROUP_ID. Without
an authorizer the authorized operations are all operations on a group. UNSUPPORTED_VERSION where the consumer protocol
is not enabled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.groups.consumer_checks import check_consumer_protocol
from ottla.broker.runtime.pending import changed
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending

NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.GROUP, named=("group_ids",), answered="groups"),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, when="members have topics", lacking="the group is refused"),
)
CHUNKS = (Chunks(("group_ids",), ("groups",)),)


def handle(request: ConsumerGroupDescribeRequest, context: Context) -> Pending[ConsumerGroupDescribeResponse]:
    """Answer with what is durable."""
    groups = context.services.groups.get()
    check_consumer_protocol(groups.settings, context.services.catalog)
    answer = groups.describe_consumer_groups(request, context)
    if context.services.authorizer is None:
        return answer

    def permitted(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        return response.replace(groups=[_permitted(group, request, context) for group in response.groups])

    return changed(answer, permitted)


def _permitted(
    group: ConsumerGroupDescribeResponse.DescribedGroup, request: ConsumerGroupDescribeRequest, context: Context
) -> ConsumerGroupDescribeResponse.DescribedGroup:
    topics = {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }
    if not all(context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in sorted(topics)):
        message = "the group has topics that the client may not describe"
        return ConsumerGroupDescribeResponse.DescribedGroup(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message=message,
            group_id=group.group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
    if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
        group.authorized_operations = context.operations(
            group.authorized_operations, ResourceType.GROUP, group.group_id
        )
    return group
