"""Fetch by topic id, where the topic is deleted, or deleted and rebuilt, after the id was found once."""

from __future__ import annotations

from uuid import UUID

import pytest
from kit.exchange import Exchange, fetch_request, make_topic
from kit.nodes import start_node

from ottla.broker.node import Node
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode

BY_ID = 17


@pytest.fixture
def node() -> Node:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", 2)
    return node


def by_id(node: Node, session_id: int = 0, session_epoch: int = 0, *, max_wait_ms: int = 0) -> FetchRequest:
    """A request for the last partition of "t", by the id that it has now."""
    request = fetch_request("", 0, session_epoch=session_epoch)
    request.session_id = session_id
    request.max_wait_ms = max_wait_ms
    request.topics[0].topic_id = node.services.catalog.topics["t"].id
    request.topics[0].partitions[0].partition = 1
    return request


def delete(node: Node) -> None:
    state = DeleteTopicsRequest.DeleteTopicState(name="t", topic_id=UUID(int=0))
    Exchange(node).ask(DeleteTopicsRequest(topics=[state], timeout_ms=1_000), 6)
    assert "t" not in node.services.catalog.topics


def answered(answer: object) -> FetchResponse:
    assert isinstance(answer, FetchResponse)
    return answer


def code(answer: object) -> int:
    (topic,) = answered(answer).responses
    (data,) = topic.partitions
    return data.error_code


def incremental(session_id: int, epoch: int) -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=[])


def test_a_session_knows_the_name_behind_the_id_of_a_topic_that_was_deleted(node: Node) -> None:
    client = Exchange(node)
    full, again = by_id(node), by_id(node, session_epoch=2)
    opened = answered(client.ask(full, BY_ID))
    again.session_id = opened.session_id
    delete(node)
    assert code(client.ask(incremental(opened.session_id, 1), BY_ID)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(client.ask(again, BY_ID)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(client.ask(full, BY_ID)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_session_of_a_topic_that_was_created_again_gets_an_error(node: Node) -> None:
    client = Exchange(node)
    full = by_id(node)
    opened = answered(client.ask(full, BY_ID))
    delete(node)
    make_topic(node, "t", 2)
    assert code(client.ask(incremental(opened.session_id, 1), BY_ID)) == ErrorCode.INCONSISTENT_TOPIC_ID
    assert code(client.ask(full, BY_ID)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_partition_that_the_new_topic_does_not_have_is_unknown(node: Node) -> None:
    client = Exchange(node)
    opened = answered(client.ask(by_id(node), BY_ID))
    delete(node)
    make_topic(node, "t", 1)
    assert code(client.ask(incremental(opened.session_id, 1), BY_ID)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_id_that_no_topic_has_yet_is_found_once_there_is_one(node: Node) -> None:
    client = Exchange(node)
    request = by_id(node)
    topic = node.services.catalog.topics_by_id.pop(request.topics[0].topic_id)
    opened = answered(client.ask(request, BY_ID))
    assert code(opened) == ErrorCode.UNKNOWN_TOPIC_ID
    node.services.catalog.topics_by_id[topic.id] = topic
    assert code(client.ask(incremental(opened.session_id, 1), BY_ID)) == ErrorCode.NONE


def test_a_parked_fetch_hears_that_its_topic_is_gone(node: Node) -> None:
    client = Exchange(node)
    client.send(by_id(node, session_epoch=-1, max_wait_ms=60_000), BY_ID)
    node.settle()
    assert client.replies() == []
    delete(node)
    node.settle()
    assert code(client.reply()) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
