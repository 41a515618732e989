"""The source partitions of all members that answer interactive queries, by their endpoints, for a heartbeat's answer.

A client sends a query for a key to the instance that has the task of the key, so each instance gets all partitions.
Source: Kafka's `StreamsGroup.buildEndpointToPartitions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.groups.streams.endpoints import topic_partitions
from ottla.broker.groups.streams.tasks import NO_PARTITIONS
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.groups.streams.configured_topology import ConfiguredTopology
    from ottla.broker.groups.streams.state import StreamsGroupState
    from ottla.broker.groups.topics import TopicView

_Response = StreamsGroupHeartbeatResponse


def partitions_by_endpoint(
    state: StreamsGroupState, configured: ConfiguredTopology, topics: TopicView, *, last: str
) -> list[_Response.EndpointToPartitions]:
    """An entry for each member that has an endpoint, that of the member `last` at the end."""
    subtopologies = configured.subtopologies or {}
    found = []
    for member_id in [*(one for one in state.members if one != last), last]:
        member = state.members[member_id]
        endpoint, tasks = member.user_endpoint, member.assigned.without_epochs()
        if endpoint is None:
            continue
        replicas = {
            one: tasks.standby.get(one, NO_PARTITIONS) | tasks.warmup.get(one, NO_PARTITIONS)
            for one in {*tasks.standby, *tasks.warmup}
        }
        found.append(
            _Response.EndpointToPartitions(
                user_endpoint=_Response.Endpoint(host=endpoint.host, port=endpoint.port),
                active_partitions=topic_partitions(tasks.active, subtopologies, topics),
                standby_partitions=topic_partitions(replicas, subtopologies, topics),
            )
        )
    return found
