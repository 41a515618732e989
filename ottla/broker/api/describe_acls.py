"""DescribeAcls (key 29), versions 0-3: the access control entries that a filter matches, by resource.

Without an authorizer the answer is Kafka's: SECURITY_DISABLED. A filter with the number 0 (UNKNOWN) gets
INVALID_REQUEST, where Kafka closes the connection; a filter with a number of a later Kafka matches nothing, as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.metadata.acls import Acl, AclFilter, check_filter
from ottla.broker.runtime.steps import Pace
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.runtime.steps import Steps

NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),)
CHUNKS = ()

Description = DescribeAclsResponse.AclDescription
Resource = DescribeAclsResponse.DescribeAclsResource


def handle(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse | Pending[DescribeAclsResponse]:
    """Answer immediately if there are few ACLs. Raises KafkaError SECURITY_DISABLED, INVALID_REQUEST."""
    if context.services.authorizer is None:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED, "no authorizer is configured (authorizer.class.name): there are no ACLs"
        )
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    check_filter(wanted)
    return context.in_steps(_describe(wanted, list(context.services.catalog.image.acls.values())))


def _describe(wanted: AclFilter, acls: list[Acl]) -> Steps[DescribeAclsResponse]:
    """Describe the ACLs at the time of the request. One that two clients created at the same time is listed once."""
    resources: dict[tuple[int, str, int], dict[Acl, Description]] = {}
    pace = Pace()
    for acl in acls:
        if wanted.matches(acl):
            resource = resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), {})
            resource[acl] = Description(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
            )
        if pace.is_up():
            yield
    described = yield from pace.made(_resource, resources.items())
    return DescribeAclsResponse(resources=described)


def _resource(found: tuple[tuple[int, str, int], dict[Acl, Description]]) -> Resource:
    (resource_type, name, pattern_type), acls = found
    return Resource(
        resource_type=resource_type, resource_name=name, pattern_type=pattern_type, acls=list(acls.values())
    )
