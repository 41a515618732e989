"""Fetch, versions 0-18: read record batches, with sessions and long polls.

Record bytes go from the segment to the socket unchanged. `Log.read` returns a view (of a map, where the transport can
send one without the broker reading it), or reports that the bytes may be cold; then a worker thread reads them. Batches
are whole: the first may begin before the requested offset, and is returned even if it is larger than every limit
(KIP-74); max_bytes and partition_max_bytes limit what follows (`fetch_read.py`). With too few bytes (`min_bytes`) the
request parks (`delayed_fetch.py`). A request that looks like an earlier one may be answered without this handler
(`broker/fast`).

Versions: 7 adds sessions (`fetch_sessions.py`), 9 leader epochs (FENCED_ and UNKNOWN_LEADER_EPOCH), 12 the diverging
epoch, 13 topic ids (UNKNOWN_TOPIC_ID; a session, or a request that waits, that has found the topic once gets
UNKNOWN_TOPIC_OR_PARTITION when it is deleted, INCONSISTENT_TOPIC_ID when another has its name). Empty partitions carry
zero bytes, not null: librdkafka refuses null from version 12 on. Below version 10 a client cannot read zstd, so a topic
with `compression.type=zstd` is refused.

Below version 4 a worker converts what was read to messages of format v1 or v0 (`fetch_conversion.py`). Below version 3
there is no `max_bytes`, and every partition returns at least one message. Old messages in a segment are sent to newer
clients unchanged. Below version 6 a failing disk is NOT_LEADER_OR_FOLLOWER, as in Kafka.

Differences from Apache Kafka: OFFSET_OUT_OF_RANGE comes with the log start offset and the high watermark, which Kafka
leaves at -1. Versions 0-2 return only whole messages, the first one whatever its size; Kafka 3 truncated it, and the
client had to ask for more. A batch that was on the disk at the start is checked by a worker before it is sent
(`storage/segment/soundness.py`), and a damaged one is CORRUPT_MESSAGE; Kafka sends it as it is. A replica gets
NOT_LEADER_OR_FOLLOWER, as in Kafka a replica that the partition does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.fetch.delayed_fetch import answer_or_park
from ottla.broker.fetch.fetch_read import FetchRead
from ottla.broker.fetch.fetch_rights import reading_rights
from ottla.broker.fetch.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchTarget
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.fetch.fetch_sessions import FetchSession, PartitionKey, TopicKey
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.fetch import FetchRequest, FetchResponse

NEEDS = (
    Need(
        AclOperation.READ,
        ResourceType.TOPIC,
        when="a consumer fetches",
        lacking="the partitions of the topic are refused",
    ),
    Need(
        AclOperation.CLUSTER_ACTION,
        ResourceType.CLUSTER,
        when="a replica fetches",
        lacking="all partitions are refused, with TOPIC_AUTHORIZATION_FAILED",
    ),
)
CHUNKS = ()


def handle(request: FetchRequest, context: Context) -> FetchResponse | Pending[FetchResponse]:
    """Read what is visible; park if that is too little."""
    session, targets = _targets(request, context)
    on_throttled: Callable[[], None] | None = None
    if context.quota is not None and session is not None:
        on_throttled = partial(context.services.fetch_sessions.close, session.id)
    authorizer = context.services.authorizer
    if authorizer is not None:
        _ask_for_all(request, targets, context)
    may_read = reading_rights(request, context.has, authorizer)
    read = FetchRead(request, context, context.services, session, targets, on_throttled, may_read)
    return answer_or_park(read, context.services, request.max_wait_ms)


def _ask_for_all(request: FetchRequest, targets: list[FetchTarget], context: Context) -> None:
    """Ask for the rights to all topics now: a template is learnt before the later steps of the read would ask."""
    may_read = reading_rights(request, context.may, context.services.authorizer)
    assert may_read is not None
    for key in dict.fromkeys(target.topic for target in targets):
        topic = context.services.catalog.find_topic(key)
        name = key if isinstance(key, str) else None if topic is None else topic.name
        if name is not None:
            may_read(name)


def _targets(request: FetchRequest, context: Context) -> tuple[FetchSession | None, list[FetchTarget]]:
    """The session (None without one), and what to read, in order. Raises KafkaError for an invalid session."""
    version = context.api_version
    sessions = context.services.fetch_sessions
    uses_topic_ids = version >= 13
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id:
            sessions.close(request.session_id)
        wanted = list(_wanted(request, uses_topic_ids))
        session = None
        if request.session_epoch == INITIAL_EPOCH and version >= 7:
            session = sessions.open(wanted, uses_topic_ids=uses_topic_ids)
        if session is None:
            return None, [FetchTarget(topic, asked) for topic, asked in wanted]
        return session, list(session.targets.values())
    session = sessions.resume(request.session_id, request.session_epoch, uses_topic_ids=uses_topic_ids)
    sessions.update(session, _wanted(request, uses_topic_ids), _forgotten(request, uses_topic_ids))
    return (session, list(session.targets.values())) if session.targets else (None, [])


def _wanted(request: FetchRequest, uses_topic_ids: bool) -> Iterable[tuple[TopicKey, FetchRequest.FetchPartition]]:
    for topic in request.topics:
        key = topic.topic_id if uses_topic_ids else topic.topic
        for asked in topic.partitions:
            yield key, asked


def _forgotten(request: FetchRequest, uses_topic_ids: bool) -> Iterable[PartitionKey]:
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if uses_topic_ids else topic.topic
        for index in topic.partitions:
            yield key, index
