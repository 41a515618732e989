"""AlterClientQuotas (key 49), versions 0-1: set and remove quotas of users, clients and addresses.

Each entity succeeds or fails independently; the answer is sent when the changes are synced and in effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.metadata.change_requests import QuotaRequest, QuotaResult
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = (Need(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),)
CHUNKS = (Chunks(("entries",), ("entries",)),)


def handle(request: AlterClientQuotasRequest, context: Context) -> Pending[AlterClientQuotasResponse]:
    """Answer once the changes are on disk."""
    pending: Pending[AlterClientQuotasResponse] = Pending()
    asked = [
        QuotaRequest(
            entity=[(part.entity_type, part.entity_name) for part in entry.entity],
            changes=[(change.key, None if change.remove else change.value) for change in entry.ops],
        )
        for entry in request.entries
    ]

    def done(results: Sequence[QuotaResult]) -> None:
        entries = [
            AlterClientQuotasResponse.EntryData(
                error_code=result.error_code,
                error_message=result.error_message,
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in one.entity
                ],
            )
            for one, result in zip(asked, results, strict=True)
        ]
        pending.complete(AlterClientQuotasResponse(entries=entries))

    context.services.catalog.settings.alter_quotas(asked, done, validate_only=request.validate_only)
    return pending
