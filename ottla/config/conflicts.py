"""Warnings about settings that are allowed but contradict each other: for a start, and for `ottla config`.

Values with which no broker could start are ConfigErrors (`broker.py`). Remarks about a single value are in its
declaration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""As in Kafka's controller: more in one request would be one huge batch, and a long time without answers."""
_GROUPS = "consumer groups cannot be used"
_TOPICS = "a topic that is created without a number of partitions is refused"


class ComparedKeys(Protocol):
    """The keys of a `BrokerConfig` that are compared here."""

    message_max_bytes: int
    socket_request_max_bytes: int
    log_segment_bytes: int
    offsets_topic_num_partitions: int
    num_partitions: int
    ottla_max_partitions: int
    max_connections: int
    authorizer_class_name: str
    super_users: str
    allow_everyone_if_no_acl_found: bool
    values: dict[str, object]


def conflicts(config: ComparedKeys) -> Iterator[str]:
    """One line for each setting that cannot work, with the reason."""
    message_bytes = config.message_max_bytes
    if message_bytes > config.socket_request_max_bytes:
        yield (
            f"message.max.bytes={message_bytes}: no such batch can arrive, "
            f"socket.request.max.bytes is {config.socket_request_max_bytes}"
        )
    if "message.max.bytes" in config.values and message_bytes > config.log_segment_bytes:
        segment_bytes = config.log_segment_bytes
        yield f"message.max.bytes={message_bytes}: a batch above log.segment.bytes={segment_bytes} is refused"
    for key, count, outcome in (
        ("offsets.topic.num.partitions", config.offsets_topic_num_partitions, _GROUPS),
        ("num.partitions", config.num_partitions, _TOPICS),
    ):
        if count > config.ottla_max_partitions:
            yield f"{key}={count}: {outcome}, ottla.max.partitions is {config.ottla_max_partitions}"
        elif count > MAX_PARTITIONS_PER_REQUEST:
            yield f"{key}={count}: {outcome}, one request creates {MAX_PARTITIONS_PER_REQUEST} partitions at most"
    if config.max_connections == 0:
        yield "max.connections=0: no client can connect"
    if config.authorizer_class_name:
        if not config.super_users and not config.allow_everyone_if_no_acl_found:
            yield "super.users is empty: where there are no ACLs yet, no client may create the first one"
    elif config.super_users:
        yield "super.users: no effect without authorizer.class.name; every client may do everything"
