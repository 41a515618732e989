"""DeleteAcls (key 31), versions 0-3: remove access control entries that filters match.

All filters see the entries as they were before the request. The answer is sent when the removal is synced and in effect
for all requests; it has the matches of each filter. Without an authorizer the answer is Kafka's: SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.metadata.acl_plans import AclResult
from ottla.broker.metadata.acls import AclFilter
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER),)
CHUNKS = ()


def handle(request: DeleteAclsRequest, context: Context) -> Pending[DeleteAclsResponse]:
    """Answer once the change is on disk. Raises KafkaError SECURITY_DISABLED."""
    if context.services.authorizer is None:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED, "no authorizer is configured (authorizer.class.name): there are no ACLs"
        )
    pending: Pending[DeleteAclsResponse] = Pending()
    filters = [
        AclFilter(
            one.resource_type_filter,
            one.resource_name_filter,
            one.pattern_type_filter,
            one.principal_filter,
            one.host_filter,
            one.operation,
            one.permission_type,
        )
        for one in request.filters
    ]

    def done(results: Sequence[AclResult]) -> None:
        pending.complete(DeleteAclsResponse(filter_results=[_result(one) for one in results]))

    context.services.catalog.settings.delete_acls(filters, done)
    return pending


def _result(result: AclResult) -> DeleteAclsResponse.DeleteAclsFilterResult:
    return DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=result.error_code,
        error_message=result.error_message,
        matching_acls=[
            DeleteAclsResponse.DeleteAclsMatchingAcl(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in result.deleted
        ],
    )
