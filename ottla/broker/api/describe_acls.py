"""DescribeAcls (key 29), versions 0-3: the access control entries that a filter matches, by resource.

Without an authorizer the answer is Kafka's: SECURITY_DISABLED. A filter with the number 0 (UNKNOWN) gets
INVALID_REQUEST, where Kafka closes the connection; one with a number of a later Kafka matches nothing, as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.metadata.acls import Acl, AclFilter, find_acls
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),)
CHUNKS = ()


def handle(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    """Answer at once. Raises KafkaError SECURITY_DISABLED, INVALID_REQUEST."""
    if context.services.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "there is no authorizer, so that there are no ACLs")
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    found: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in find_acls(context.services.catalog.image.acls.values(), wanted):
        found.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResponse.DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    DescribeAclsResponse.AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in acls
                ],
            )
            for (resource_type, name, pattern_type), acls in found.items()
        ]
    )
