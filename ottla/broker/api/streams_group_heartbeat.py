"""StreamsGroupHeartbeat (key 88), versions 0-1: the only request of members of streams groups (KIP-1071).

UNSUPPORTED_VERSION unless `group.coordinator.rebalance.protocols` has `streams` and the feature `streams.version` is at
level 1, as in Kafka. Other refusals: `groups/streams`. Internal topics that the group lacks are created once the answer
is durable; without the right to create them, or after an error, its status says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.groups.streams.checks import check_streams_groups
from ottla.broker.groups.streams.topology import check_topic_names, named_topics
from ottla.broker.runtime.pending import changed
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatResponse, StreamsGroupStatus
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.groups.coordinator import GroupCoordinator
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest

NEEDS = (
    Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        when="a topology is sent: all topics that it names",
        lacking="the request is refused",
    ),
    Need(
        AclOperation.CREATE,
        ResourceType.TOPIC,
        when="internal topics are missing",
        unless=(AclOperation.CREATE, ResourceType.CLUSTER),
        lacking="none is created, and the status MISSING_INTERNAL_TOPICS names the topic",
    ),
)
CHUNKS = ()


def handle(request: StreamsGroupHeartbeatRequest, context: Context) -> Pending[StreamsGroupHeartbeatResponse]:
    """Join, stay, or leave; answered when all that the answer reports is durable."""
    groups = context.services.groups.get()
    check_streams_groups(groups.settings, context.services.catalog)
    if request.topology is not None:
        names = named_topics(request.topology)
        check_topic_names(names)
        if not all(context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def finished(response: StreamsGroupHeartbeatResponse) -> StreamsGroupHeartbeatResponse:
        _create_topics(request, response, groups, context)
        return response

    return changed(groups.streams_heartbeat(request, context), finished)


def _create_topics(
    request: StreamsGroupHeartbeatRequest,
    response: StreamsGroupHeartbeatResponse,
    groups: GroupCoordinator,
    context: Context,
) -> None:
    """Create the internal topics that the answer calls missing, and add to its status what prevents that."""
    code = StreamsGroupStatus.MISSING_INTERNAL_TOPICS
    status = next((one for one in response.status or () if one.status_code == code), None)
    group = groups.streams_group_if_ready(request.group_id)
    if status is None or group is None or group.configured is None:
        return
    topics = group.configured.topics_to_create
    if not context.has(AclOperation.CREATE, ResourceType.CLUSTER):
        names = [topic.name for topic in topics]
        lacking = [name for name in names if not context.may(AclOperation.CREATE, ResourceType.TOPIC, name)]
        if lacking:
            status.status_detail += f"; Unauthorized to CREATE on topics {', '.join(lacking)}."
            return
    keep_errors_ms = 2 * group.current_settings().heartbeat_interval_ms
    groups.internal_topics.create(topics, keep_errors_ms, context.charge)
    if failures := groups.internal_topics.failures(topics):
        status.status_detail += f"; Creation failed: {failures}."
