"""Data that several APIs return: the broker's address, a partition's leader and replicas, authorized operations.

Pure look-ups for API handlers (which never import each other).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.address import plain_host
from ottla.protocol.acls import ResourceType, operation_bits
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic
    from ottla.broker.peer import Peer
    from ottla.config.broker import BrokerConfig

NOT_ASKED = -(1 << 31)
"""The authorized operations where the client has not requested them (KIP-430)."""
NO_LEADER = -1


TOPIC_OPERATIONS = operation_bits(ResourceType.TOPIC)
GROUP_OPERATIONS = operation_bits(ResourceType.GROUP)
CLUSTER_OPERATIONS = operation_bits(ResourceType.CLUSTER)
"""Without an authorizer every client may do every operation of the resource."""


class BrokerDescription(NamedTuple):
    """The one broker, with the address that this client should use."""

    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionDescription(NamedTuple):
    """A partition as Metadata and DescribeTopicPartitions return it."""

    partition_index: int
    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]


def describe_broker(config: BrokerConfig, node_id: int, peer: Peer) -> BrokerDescription:
    """This broker for this client: the advertised address of its listener, else the address that it connected to."""
    advertised = config.advertised(peer.endpoint.listener)
    host, port = peer.endpoint.local_address[0], peer.endpoint.local_address[1]
    if advertised is not None:
        host, port = advertised.host, advertised.port or port
    return BrokerDescription(node_id, plain_host(host), port, config.broker_rack or None)


def describe_partition(topic: Topic, index: int, node_id: int) -> PartitionDescription:
    """One partition of a topic; without its directory it has no leader, and its only replica is offline."""
    partition = topic.partitions[index]
    if partition is None:
        error = ErrorCode.LEADER_NOT_AVAILABLE
        return PartitionDescription(index, error, NO_LEADER, NO_LEADER, [node_id], [node_id], [node_id])
    epoch = partition.leader_epoch
    return PartitionDescription(index, ErrorCode.NONE, node_id, epoch, [node_id], [node_id], [])
