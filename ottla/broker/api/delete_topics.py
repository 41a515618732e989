"""DeleteTopics (key 20), versions 0-6: delete topics by name, from version 6 on also by id.

The answer says that the deletion survives a crash; the files are renamed by then and unlinked after
`file.delete.delay.ms`. A topic that is named twice is INVALID_REQUEST each time, and so is an entry with both a name
and an id, or with neither. `delete.topic.enable=false` is TOPIC_DELETION_DISABLED, before version 3 INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.declarations import Chunks, Need
from ottla.broker.metadata.change_requests import TopicResult
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context

FIRST_VERSION_WITH_IDS = 6
FIRST_VERSION_WITH_DELETION_DISABLED = 3
ZERO_ID = UUID(int=0)

NEEDS = (
    Need(AclOperation.DELETE, ResourceType.TOPIC, unless=(AclOperation.DELETE, ResourceType.CLUSTER)),
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        when="the answer has the name of a topic",
        unless=(AclOperation.DELETE, ResourceType.CLUSTER),
    ),
)
CHUNKS = (
    Chunks(("topics",), ("responses",)),
    Chunks(("topic_names",), ("responses",)),
)


def handle(request: DeleteTopicsRequest, context: Context) -> Pending[DeleteTopicsResponse]:
    """Answer once the removal is synced."""
    targets: list[str | UUID] = []
    unclear: list[TopicResult] = []
    if context.api_version >= FIRST_VERSION_WITH_IDS:
        for topic in request.topics:
            if (topic.name is None) == (topic.topic_id == ZERO_ID):
                message = "a topic is deleted either by name or by id"
                unclear.append(TopicResult(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, message))
            else:
                targets.append(topic.topic_id if topic.name is None else topic.name)
    else:
        targets.extend(request.topic_names)
    pending: Pending[DeleteTopicsResponse] = Pending()

    def done(results: Sequence[TopicResult]) -> None:
        responses = [_result(result, context.api_version) for result in (*unclear, *results)]
        pending.complete(DeleteTopicsResponse(responses=responses))

    context.services.catalog.delete_topics(targets, done, charge=context.charge)
    return pending


def _result(result: TopicResult, version: int) -> DeleteTopicsResponse.DeletableTopicResult:
    error = result.error_code
    if error is ErrorCode.TOPIC_DELETION_DISABLED and version < FIRST_VERSION_WITH_DELETION_DISABLED:
        error = ErrorCode.INVALID_REQUEST
    return DeleteTopicsResponse.DeletableTopicResult(
        name=result.name, topic_id=result.id, error_code=error, error_message=result.error_message
    )
