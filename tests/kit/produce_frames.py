"""Frames of Produce requests of many kinds, and what they were answered."""

from __future__ import annotations

import struct
from typing import Any

from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.nodes import start_node

from ottla.broker.node import Node
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import Request, decode, encode


def frame(request: Request, version: int, correlation_id: int) -> bytes:
    body = encode_request_header(request.message_key, version, correlation_id, "test") + encode(request, version)
    return struct.pack(">i", len(body)) + body


def damaged(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


def make_node(acks_all: str = "page-cache", **config: Any) -> Node:
    node, _, _ = start_node(ottla_acks_all=acks_all, **config)
    make_topic(node, "t", 2)
    return node


def frames_of(kinds: list[tuple[str, int]]) -> list[bytes]:
    frames = []
    for number, (kind, size) in enumerate(kinds):
        records = batch(2, value=b"v" * size)
        match kind:
            case "other":
                request: Request = ApiVersionsRequest()
                version = 0
            case "damaged":
                request, version = produce_request("t", damaged(records)), 9
            case "twice":  # two batches where one is allowed
                request, version = produce_request("t", records + records), 9
            case "acks 0":
                request, version = produce_request("t", records, acks=0), 9
            case "acks 1":
                request, version = produce_request("t", records, acks=1), 9
            case "old":
                request, version = produce_request("t", records), 7
            case "partition 1":
                request, version = produce_request("t", records, partition=1), 9
            case _:
                request, version = produce_request("t", records), 9
        frames.append(frame(request, version, 100 + number))
    return frames


KINDS = [
    "plain",
    "plain",
    "plain",
    "plain",
    "old",
    "old",
    "partition 1",
    "acks 1",
    "acks 0",
    "damaged",
    "twice",
    "other",
]
COUNTED = ("messages_in", "bytes_in", "bytes_rejected", "total_produce_requests", "failed_produce_requests")


def split(client: Exchange) -> list[bytes]:
    """What was answered, each with its length."""
    found, data = [], bytes(client.transport.written)
    while data:
        (length,) = struct.unpack_from(">i", data)
        found.append(data[: 4 + length])
        data = data[4 + length :]
    return found


def answers_of(client: Exchange) -> list[ProduceResponse.PartitionProduceResponse]:
    found = []
    for reply in split(client):
        response = decode(ProduceResponse, memoryview(reply), 9, 4 + 5)  # flexible: the header has tags
        found.append(response.responses[0].partition_responses[0])
    return found
