"""StreamsGroupDescribe (key 89), versions 0-1: streams groups with their topology, members and tasks (KIP-1071).

A group of another type, or that does not exist, is GROUP_ID_NOT_FOUND; an empty id is INVALID_GROUP_ID.
UNSUPPORTED_VERSION where streams groups are not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.groups.streams.checks import check_streams_groups
from ottla.broker.runtime.pending import changed
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    undescribed,
)
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending

NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.GROUP, named=("group_ids",), answered="groups"),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, when="the topology has topics", lacking="the group is refused"),
)
CHUNKS = (Chunks(("group_ids",), ("groups",)),)


def handle(request: StreamsGroupDescribeRequest, context: Context) -> Pending[StreamsGroupDescribeResponse]:
    """Answer with what is durable."""
    groups = context.services.groups.get()
    check_streams_groups(groups.settings, context.services.catalog)
    answer = groups.describe_streams_groups(request, context)
    if context.services.authorizer is None:
        return answer

    def permitted(response: StreamsGroupDescribeResponse) -> StreamsGroupDescribeResponse:
        return response.replace(groups=[_permitted(group, request, context) for group in response.groups])

    return changed(answer, permitted)


def _permitted(
    group: StreamsGroupDescribeResponse.DescribedGroup, request: StreamsGroupDescribeRequest, context: Context
) -> StreamsGroupDescribeResponse.DescribedGroup:
    if not all(context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in sorted(_topics(group))):
        message = "The described group uses topics that the client is not authorized to describe."
        return undescribed(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
    if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
        group.authorized_operations = context.operations(
            group.authorized_operations, ResourceType.GROUP, group.group_id
        )
    return group


def _topics(group: StreamsGroupDescribeResponse.DescribedGroup) -> set[str]:
    """The topics of a group's topology, internal ones too."""
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    return {
        topic
        for one in subtopologies
        for topic in (
            *one.source_topics,
            *one.repartition_sink_topics,
            *(info.name for info in one.repartition_source_topics),
            *(info.name for info in one.state_changelog_topics),
        )
    }
