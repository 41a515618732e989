"""CreateAcls (key 30), versions 0-3: add access control entries.

Each entry succeeds or fails independently; the answer is sent when they are synced and in effect for all requests. An
entry that exists already is no error. Without an authorizer the answer is Kafka's: SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.metadata.acl_plans import AclResult
from ottla.broker.metadata.acls import Acl
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER),)
CHUNKS = (Chunks(("creations",), ("results",)),)


def handle(request: CreateAclsRequest, context: Context) -> Pending[CreateAclsResponse]:
    """Answer once the entries are on disk. Raises KafkaError SECURITY_DISABLED."""
    if context.services.authorizer is None:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED, "no authorizer is configured (authorizer.class.name): there are no ACLs"
        )
    pending: Pending[CreateAclsResponse] = Pending()
    acls = [
        Acl(
            one.resource_type,
            one.resource_name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for one in request.creations
    ]

    def done(results: Sequence[AclResult]) -> None:
        pending.complete(
            CreateAclsResponse(
                results=[
                    CreateAclsResponse.AclCreationResult(error_code=one.error_code, error_message=one.error_message)
                    for one in results
                ]
            )
        )

    context.services.catalog.settings.create_acls(acls, done)
    return pending
