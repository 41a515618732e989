"""DescribeCluster (key 60), versions 0-2: the one broker, which is also the controller.

Endpoint type 1 (the default, and the only one before version 1) asks for brokers. Type 2 asks for controllers, which
Kafka's brokers refuse on their listeners with MISMATCHED_ENDPOINT_TYPE, any other type is UNSUPPORTED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.catalog.descriptions import CLUSTER_OPERATIONS, NOT_ASKED, describe_broker
from ottla.broker.declarations import Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context

BROKERS = 1
CONTROLLERS = 2

NEEDS = (
    Need(
        AclOperation.DESCRIBE,
        ResourceType.CLUSTER,
        when="the authorized operations of the cluster are requested",
        lacking="there are none",
    ),
)
CHUNKS = ()


def handle(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    """Answer immediately."""
    if request.endpoint_type != BROKERS:
        return _refuse(request.endpoint_type)
    services = context.services
    broker = describe_broker(services.config, services.catalog.node_id, context.connection)
    return DescribeClusterResponse(
        cluster_id=context.services.catalog.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
        ],
        cluster_authorized_operations=(
            _operations(context) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _operations(context: Context) -> int:
    if not context.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return context.operations(CLUSTER_OPERATIONS, ResourceType.CLUSTER)


def _refuse(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        error, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker's listener, not a controller's"
    else:
        error, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {endpoint_type}"
    return DescribeClusterResponse(
        error_code=error, error_message=message, endpoint_type=BROKERS, cluster_id="", brokers=[]
    )
