"""DescribeClientQuotas (key 48), versions 0-1: the quotas that were set for users, clients and addresses.

`metadata/quota_plans.py` says what a filter matches. A filter that makes no sense is refused as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.metadata.quota_plans import find_quotas
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.protocol.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = (Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),)
CHUNKS = ()


def handle(request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    """Answer at once."""
    components = [(one.entity_type, one.match_type, one.match) for one in request.components]
    try:
        found = find_quotas(context.services.catalog.image, components, is_strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        error_message="",
        entries=[
            DescribeClientQuotasResponse.EntryData(
                entity=[
                    DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                values=[DescribeClientQuotasResponse.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found.items()
        ],
    )
