"""DeleteTopics (key 20), versions 0-6: delete topics by name, from version 6 on also by id.

The answer is sent when the deletion survives a crash; the files are renamed by then, unless that takes longer than half
of `timeout_ms` (`catalog/answer_in_time.py`), and unlinked after `file.delete.delay.ms`. Each mention of a topic that
is named twice is INVALID_REQUEST, and so is an entry with both a name and an id, or with neither.
`delete.topic.enable=false` is TOPIC_DELETION_DISABLED, before version 3 INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.catalog.answer_in_time import AnswerInTime
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
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

NEEDS = (
    Need(
        AclOperation.DELETE,
        ResourceType.TOPIC,
        unless=(AclOperation.DELETE, ResourceType.CLUSTER),
        lacking="the topic is refused",
    ),
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        when="the answer has the name of a topic, or says that there is none",
        unless=(AclOperation.DELETE, ResourceType.CLUSTER),
        lacking="the topic is refused; asked for by id, the answer has no name",
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
    refused: dict[str | UUID, TopicResult] = {}
    if context.services.authorizer is not None and context.services.config.delete_topic_enable:
        times = Counter(targets)
        refusals = ((target, _refusal(target, context)) for target in times if times[target] == 1)
        refused = {target: refusal for target, refusal in refusals if refusal is not None}

    def answer(results: Sequence[TopicResult]) -> None:
        responses = [_result(result, context.api_version) for result in (*unclear, *results, *refused.values())]
        pending.complete(DeleteTopicsResponse(responses=responses))

    permitted = [target for target in targets if target not in refused]
    services = context.services
    timed = AnswerInTime(
        services.timers, services.clock, began_ms=context.now_ms, timeout_ms=request.timeout_ms, answer=answer
    )
    pending.on_cancel(timed.cancel)
    services.catalog.delete_topics(permitted, timed.finished, charge=context.charge, recorded=timed.recorded)
    return pending


def _refusal(target: str | UUID, context: Context) -> TopicResult | None:
    """The answer to a client that may not delete the topic; asking by id must not reveal the name."""
    topic = context.services.catalog.find_topic(target)
    name = target if isinstance(target, str) else None if topic is None else topic.name
    if name is None or context.has(AclOperation.DELETE, ResourceType.CLUSTER):
        return None
    may_see = context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    may_delete = topic is None or context.may(AclOperation.DELETE, ResourceType.TOPIC, name)
    if topic is None and may_see and not context.has(AclOperation.DELETE, ResourceType.TOPIC, name):
        # Not passed on: the topic may exist by the time of the deletion.
        return TopicResult(name, error_code=UNKNOWN, error_message=UNKNOWN.message)
    if may_delete and (may_see or isinstance(target, UUID)):
        return None
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if isinstance(target, UUID):
        return TopicResult(name if may_see else None, target, error, error.message)
    return TopicResult(name, error_code=error, error_message=error.message)


def _result(result: TopicResult, version: int) -> DeleteTopicsResponse.DeletableTopicResult:
    error = result.error_code
    if error is ErrorCode.TOPIC_DELETION_DISABLED and version < FIRST_VERSION_WITH_DELETION_DISABLED:
        error = ErrorCode.INVALID_REQUEST
    return DeleteTopicsResponse.DeletableTopicResult(
        name=result.name, topic_id=result.id, error_code=error, error_message=result.error_message
    )
