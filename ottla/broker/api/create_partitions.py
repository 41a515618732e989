"""CreatePartitions (key 37), versions 0-3: grow topics, each for itself; the answer says that the new partitions
accept requests.

`count` is the new total: not more than before is INVALID_PARTITIONS. Assignments, where given, are one per new
partition and may name this broker only. `validate_only` runs every check and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.metadata.wishes import NewPartitions, TopicOutcome
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context


def handle(request: CreatePartitionsRequest, context: Context) -> Pending[CreatePartitionsResponse]:
    """Answer once the new partitions accept requests."""
    pending: Pending[CreatePartitionsResponse] = Pending()
    wishes = [
        NewPartitions(
            name=topic.name,
            count=topic.count,
            assignments=None
            if topic.assignments is None
            else [assignment.broker_ids for assignment in topic.assignments],
        )
        for topic in request.topics
    ]

    def done(outcomes: Sequence[TopicOutcome]) -> None:
        unique = {outcome.name: outcome for outcome in outcomes}
        results = [
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=outcome.name or "", error_code=outcome.error_code, error_message=outcome.error_message
            )
            for outcome in unique.values()
        ]
        pending.complete(CreatePartitionsResponse(results=results))

    context.services.catalog.create_partitions(wishes, done, validate_only=request.validate_only)
    return pending
