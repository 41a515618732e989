"""AlterUserScramCredentials, version 0: set and remove SCRAM credentials of users (KIP-554).

Each user succeeds or fails for itself; the answer comes when the changes are synced. `metadata/scram_plans.py` has the
rules. Sessions that have begun go on, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.metadata.scram_plans import Deletion, ScramPlan, Upsertion, plan_scram
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    refused,
)
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.context import Context
    from ottla.broker.metadata.image import MetadataImage
    from ottla.protocol.stored.metadata import MetadataRecord

NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER),)
CHUNKS = ()


def handle(request: AlterUserScramCredentialsRequest, context: Context) -> Pending[AlterUserScramCredentialsResponse]:
    """Answer once the changes are on disk."""
    if not context.may(AclOperation.ALTER, ResourceType.CLUSTER):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    pending: Pending[AlterUserScramCredentialsResponse] = Pending()
    deletions = [Deletion(one.name, one.mechanism) for one in request.deletions]
    upsertions = [
        Upsertion(one.name, one.mechanism, one.iterations, one.salt, one.salted_password) for one in request.upsertions
    ]
    planned = ScramPlan([], [])

    def plan(image: MetadataImage) -> Sequence[MetadataRecord]:
        nonlocal planned
        planned = plan_scram(image, deletions, upsertions)
        return planned.records

    def done(error: KafkaError | None) -> None:
        if error is not None:
            pending.complete(refused(request, context.api_version, error.code, error.message))
            return
        results = [
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=result.user, error_code=result.error_code, error_message=result.error_message
            )
            for result in planned.results
        ]
        pending.complete(AlterUserScramCredentialsResponse(results=results))

    context.services.catalog.change(plan, done)
    return pending
