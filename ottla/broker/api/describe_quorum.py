"""DescribeQuorum (key 55), versions 0-2: the voters of the metadata log. This broker is the only one, and is up to
date.

As in Kafka, a request that names anything else than `__cluster_metadata-0` gets UNKNOWN_TOPIC_OR_PARTITION for all that
it names. From version 2 on the voter's addresses are returned: those of the controller listeners of the configuration,
to which no client needs to connect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.formats.layout import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from ottla.broker.context import Context

PartitionData = DescribeQuorumResponse.PartitionData
FIRST_VERSION_WITH_NODES = 2

NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),)
CHUNKS = ()


def handle(request: DescribeQuorumRequest, context: Context) -> DescribeQuorumResponse:
    """Answer immediately."""
    asked = [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in request.topics]
    is_quorum = asked == [(CLUSTER_METADATA_TOPIC, [0])]
    topics = [
        DescribeQuorumResponse.TopicData(
            topic_name=name, partitions=[_quorum(context) if is_quorum else _unknown(index) for index in indexes]
        )
        for name, indexes in asked
    ]
    with_nodes = is_quorum and context.api_version >= FIRST_VERSION_WITH_NODES
    return DescribeQuorumResponse(error_message="", topics=topics, nodes=_nodes(context) if with_nodes else [])


def _quorum(context: Context) -> DescribeQuorumResponse.PartitionData:
    catalog = context.services.catalog
    end_offset = catalog.metadata_end_offset
    voter = DescribeQuorumResponse.ReplicaState(
        replica_id=catalog.node_id,
        log_end_offset=end_offset,
        last_fetch_timestamp=context.now_ms,
        last_caught_up_timestamp=context.now_ms,
    )
    return PartitionData(
        partition_index=0,
        error_message="",
        leader_id=catalog.node_id,
        leader_epoch=catalog.metadata_log.leader_epoch,
        high_watermark=end_offset,
        current_voters=[voter],
        observers=[],
    )


def _unknown(index: int) -> DescribeQuorumResponse.PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def _nodes(context: Context) -> list[DescribeQuorumResponse.Node]:
    listeners = [
        DescribeQuorumResponse.Listener(name=one.name, host=one.host or "localhost", port=one.port)
        for one in context.services.config.controller_listeners
    ]
    return [DescribeQuorumResponse.Node(node_id=context.services.catalog.node_id, listeners=listeners)]
