"""DescribeClientQuotas (key 48), versions 0-1: the quotas that were set for users, clients and addresses.

`metadata/quota_plans.py` defines what a filter matches. An invalid filter is refused as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.metadata.quota_plans import quota_filter
from ottla.broker.runtime.steps import Pace
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.broker.context import Context
    from ottla.broker.metadata.image import QuotaEntity
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.runtime.steps import Steps

NEEDS = (Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),)
CHUNKS = ()


Response = DescribeClientQuotasResponse


def handle(
    request: DescribeClientQuotasRequest, context: Context
) -> DescribeClientQuotasResponse | Pending[DescribeClientQuotasResponse]:
    """Answer immediately if there are few quotas."""
    components = [(one.entity_type, one.match_type, one.match) for one in request.components]
    try:
        matches = quota_filter(components, is_strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return context.in_steps(_describe(list(context.services.catalog.image.quotas.items()), matches))


def _describe(
    quotas: list[tuple[QuotaEntity, Mapping[str, float]]], matches: Callable[[QuotaEntity], bool]
) -> Steps[DescribeClientQuotasResponse]:
    entries: list[Response.EntryData] = []
    pace = Pace()
    for quota in quotas:
        if pace.is_up():
            yield
        if matches(quota[0]):
            entries.append(_entry(quota))
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def _entry(found: tuple[QuotaEntity, Mapping[str, float]]) -> Response.EntryData:
    entity, values = found
    return Response.EntryData(
        entity=[Response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[Response.ValueData(key=key, value=value) for key, value in values.items()],
    )
