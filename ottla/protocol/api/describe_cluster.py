"""DescribeCluster (key 60), versions 0-2: the brokers, the controller and the cluster id (KIP-700).

Versions: 1 adds the type of endpoint, 1 brokers or 2 controllers (KIP-919) · 2 can list fenced brokers (KIP-1073).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bool, Int8, Int16, Int32, NullableString, String


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    """The options of the description."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = since("1+", default=1)
    include_fenced_brokers: Bool = since("2+", default=False)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    """The cluster.

    `cluster_authorized_operations` is a bit set, -2^31 if it was not requested.
    """

    class DescribeClusterBroker(Struct):
        """A broker and the address that belongs to the listener of the request."""

        broker_id: Int32
        host: String
        port: Int32
        rack: NullableString = None
        is_fenced: Bool = since("2+", default=False)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    endpoint_type: Int8 = since("1+", default=1)
    cluster_id: String
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -0x8000_0000


def refused(request: DescribeClusterRequest, version: int, code: ErrorCode, message: str) -> DescribeClusterResponse:
    """Refuse the request."""
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
