"""CreatePartitions (key 37), versions 0-3: add partitions to topics, each independently; the answer is sent when the
new partitions accept requests, but in time (`catalog/answer_in_time.py`).

`count` is the new total: a value that is not larger than before is INVALID_PARTITIONS. Assignments, if given, are one
per new partition and may name only this broker. `validate_only` runs every check and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.catalog.answer_in_time import AnswerInTime
from ottla.broker.declarations import Chunks, Need
from ottla.broker.metadata.change_requests import NewPartitions, TopicResult
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = (Need(AclOperation.ALTER, ResourceType.TOPIC, named=("topics", "name"), answered="results"),)
CHUNKS = (Chunks(("topics",), ("results",)),)


def handle(request: CreatePartitionsRequest, context: Context) -> Pending[CreatePartitionsResponse]:
    """Answer once the new partitions accept requests, or in time."""
    pending: Pending[CreatePartitionsResponse] = Pending()
    asked = [
        NewPartitions(
            name=topic.name,
            count=topic.count,
            assignments=None
            if topic.assignments is None
            else [assignment.broker_ids for assignment in topic.assignments],
        )
        for topic in request.topics
    ]

    def answer(results: Sequence[TopicResult]) -> None:
        unique = {result.name: result for result in results}
        answers = [
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=result.name or "", error_code=result.error_code, error_message=result.error_message
            )
            for result in unique.values()
        ]
        pending.complete(CreatePartitionsResponse(results=answers))

    services = context.services
    timed = AnswerInTime(
        services.timers, services.clock, began_ms=context.now_ms, timeout_ms=request.timeout_ms, answer=answer
    )
    pending.on_cancel(timed.cancel)
    services.catalog.create_partitions(
        asked, timed.finished, validate_only=request.validate_only, charge=context.charge, recorded=timed.recorded
    )
    return pending
