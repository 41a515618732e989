"""What an operator may ask a running broker to do over HTTP: by POST, from this machine only.

    POST /log/roll?partition=orders-0      begin a new segment; nothing happens when the active one is empty
    POST /log/retain[?topic=orders]        delete now what retention would delete at its next check

Both do what the broker does by itself sooner or later, so nothing can be asked here that the configuration does not
allow anyway. Still they change things, so `server.py` refuses them (403) unless the peer's address is a loopback one,
whatever `ottla.http.listener` is bound to, and refuses requests that a web page has made (they carry `Origin`). A proxy
on this machine makes its clients look like this machine: it must not pass `/log/` on.

Answers are JSON. What is asked wrongly is 400, an unknown topic or partition 404, a log that takes no writes 503, each
with `error` in a line for people. Runs on the broker's thread, as the retention chore does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from ottla.broker.http.server import Operations, Page
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.layout import DirectoryKind, parse_partition_directory

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.broker.partition import Partition

logger = logging.getLogger(__name__)


def operations_of(node: Node) -> Operations:
    """The operations of one node."""
    return {"/log/roll": partial(roll, node), "/log/retain": partial(retain, node)}


def roll(node: Node, asked: Mapping[str, str]) -> Page:
    """Begin a new segment of the partition `asked["partition"]`."""
    found = parse_partition_directory(asked.get("partition", ""))
    if found is None or found.kind is not DirectoryKind.PARTITION or asked.keys() != {"partition"}:
        return _refusal(HTTPStatus.BAD_REQUEST, "ask for ?partition=TOPIC-N, such as orders-0")
    topic, index = found.topic_partition
    try:
        partition = node.find_partition(
            node.catalog.topics.get(topic), index, missing=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        partition.settle()
        base_offset = partition.log.segments[-1].base_offset
        partition.log.roll(node.clock.wall_ms())
    except KafkaError as error:
        return _kafka_refusal(f"{topic}-{index}", error)
    active = partition.log.segments[-1].base_offset
    if active != base_offset:
        logger.info("%s-%d: rolled by an operator, a new segment begins at offset %d", topic, index, active)
    return _answer({"partition": f"{topic}-{index}", "is_rolled": active != base_offset, "base_offset": active})


def retain(node: Node, asked: Mapping[str, str]) -> Page:
    """Apply retention to the topic `asked["topic"]`, or to all."""
    if asked.keys() - {"topic"}:
        return _refusal(HTTPStatus.BAD_REQUEST, "ask for ?topic=NAME, or for nothing")
    topics = node.catalog.topics
    name = asked.get("topic")
    if name is not None and name not in topics:
        return _refusal(HTTPStatus.NOT_FOUND, f"there is no topic {name}")
    chosen = [topics[name]] if name is not None else list(topics.values())
    told = []
    for topic in chosen:
        told += [_retain(node, one) for one in topic.partitions if one is not None and one.log.error is None]
    return _answer({"partitions": told})


def _retain(node: Node, partition: Partition) -> dict[str, object]:
    partition.settle()
    deleted = partition.log.apply_retention(node.clock.wall_ms())
    log_start_offset = partition.log.log_start_offset
    if deleted:
        logger.info(
            "%s-%d: retention, asked for by an operator, deleted %d segments, the log starts at %d",
            partition.topic,
            partition.index,
            len(deleted),
            log_start_offset,
        )
        partition.wake_watchers()
    return {
        "partition": f"{partition.topic}-{partition.index}",
        "deleted_segments": [segment.base_offset for segment in deleted],
        "deleted_bytes": sum(segment.size_bytes for segment in deleted),
        "log_start_offset": log_start_offset,
    }


def _kafka_refusal(name: str, error: KafkaError) -> Page:
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return _refusal(HTTPStatus.NOT_FOUND, f"there is no partition {name}")
    return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{name}: {error.message}")


def _refusal(status: HTTPStatus, words: str) -> Page:
    return Page(status, "application/json", (json.dumps({"error": words}) + "\n").encode())


def _answer(body: object) -> Page:
    return Page(HTTPStatus.OK, "application/json", (json.dumps(body, indent=2) + "\n").encode())
