"""Templates have the client id in them, which may be long: they are learnt up to a length."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import start_node
from kit.transport import feed

from ottla.broker.fast.fetch_templates import MAX_TEMPLATES, MOST_FRAME_BYTES
from ottla.broker.fast.hot_path import HotPath
from ottla.broker.fast.produce_templates import MOST_KEY_BYTES
from ottla.broker.node import Node
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import Request, encode

PRODUCE_VERSION, FETCH_VERSION = 9, 12
LONGEST_ID = "x" * 32_000


def start(partitions: int = 1) -> tuple[Node, Exchange]:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", partitions)
    return node, Exchange(node)


def frame_of(request: Request, version: int, client_id: str) -> bytes:
    body = encode_request_header(request.message_key, version, 1, client_id) + encode(request, version)
    return struct.pack(">i", len(body)) + body


def send(client: Exchange, request: Request, version: int, client_id: str) -> int:
    """How long the request was, without its length."""
    frame = frame_of(request, version, client_id)
    feed(client.connection, frame)
    client.node.settle()
    client.transport.written.clear()
    return len(frame) - 4


def hot_path_of(client: Exchange) -> HotPath | None:
    hot_path = client.connection.peer.hot_path
    assert hot_path is None or isinstance(hot_path, HotPath)
    return hot_path


@pytest.mark.parametrize("more_bytes", [0, 1])
def test_a_fetch_is_learnt_up_to_a_length(more_bytes: int) -> None:
    _, client = start()
    request = fetch_request("t", 0)
    others = len(encode_request_header(1, FETCH_VERSION, 1, "")) + len(encode(request, FETCH_VERSION))
    sent = send(client, request, FETCH_VERSION, "x" * (MOST_FRAME_BYTES - others + more_bytes))
    assert sent == MOST_FRAME_BYTES + more_bytes
    hot_path = hot_path_of(client)
    assert hot_path is not None
    assert hot_path.fetch is not None
    learnt = hot_path.fetch.frame_bytes == 4 + sent
    assert learnt == (not more_bytes)


@pytest.mark.parametrize("more_bytes", [0, 1])
def test_a_produce_is_learnt_up_to_a_length_without_its_records(more_bytes: int) -> None:
    _, client = start()
    records = batch()
    request = produce_request("t", records)
    header = len(encode_request_header(0, PRODUCE_VERSION, 1, "")) - 8  # without API key, version, correlation id
    others = header + len(encode(request, PRODUCE_VERSION)) - len(records) - 3 - len(b"n")  # tags, and the length
    client_id = "x" * (MOST_KEY_BYTES - others + more_bytes)
    for _ in range(2):
        send(client, request, PRODUCE_VERSION, client_id)
    hot_path = hot_path_of(client)
    assert hot_path is not None
    produce = hot_path.produce
    assert produce is not None
    frame = frame_of(request, PRODUCE_VERSION, client_id)
    by_template = produce.start(memoryview(frame), 0, len(frame), 1, None)
    assert (by_template is not None) == (not more_bytes)


def test_a_client_with_many_partitions_and_a_long_id_leaves_little_in_templates() -> None:
    node, client = start(MAX_TEMPLATES)
    other, records = Exchange(node, beside=client), batch()
    for index in range(MAX_TEMPLATES):  # partitions that are used take memory as well
        other.ask(produce_request("t", records, partition=index), PRODUCE_VERSION)
    tracemalloc.start()
    try:
        for index in range(MAX_TEMPLATES):
            send(client, produce_request("t", records, partition=index), PRODUCE_VERSION, LONGEST_ID)
        for index in range(MAX_TEMPLATES):
            request = fetch_request("t", 0)
            request.topics[0].partitions[0].partition = index
            send(client, request, FETCH_VERSION, LONGEST_ID)
        assert tracemalloc.get_traced_memory()[0] < MAX_TEMPLATES * 2 * MOST_FRAME_BYTES
    finally:
        tracemalloc.stop()
