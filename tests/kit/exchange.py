"""Requests to a whole node as frames, the way connections bring them: through the dispatcher, turn by turn."""

from __future__ import annotations

import struct
from typing import TypeVar

from kit.nodes import MOST_STEPS
from kit.transport import FakeTransport, feed

from ottla.broker.catalog.catalog import NewTopic, TopicResult
from ottla.broker.fast.fetch_templates import FetchTemplates
from ottla.broker.fast.hot_path import HotPath
from ottla.broker.fast.partitions_template import PartitionsTemplate
from ottla.broker.net.connections import Connections
from ottla.broker.node import Node
from ottla.protocol.api import REGISTRY
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.message import Request, Response, decode, encode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

STAMP_MS = 1_700_000_000_000
R = TypeVar("R", bound=Response)


def fetch_templates(client: Exchange) -> FetchTemplates | PartitionsTemplate | None:
    """The templates of Fetch that the broker has learnt from a client."""
    hot_path = client.connection.peer.hot_path
    return hot_path.fetch if isinstance(hot_path, HotPath) else None


class Exchange:
    """One client's connection to a node without sockets. `send` leaves the turn open, `end_turn` ends it.

    `beside` is another client of the node, with whom it shares buffers and limits as clients in life do.
    """

    def __init__(self, node: Node, beside: Exchange | None = None) -> None:
        self.node = node
        self.connections: Connections = (
            Connections(node.services, node.dispatcher) if beside is None else beside.connections
        )
        self.connection = self.connections.protocol("PLAINTEXT")
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)
        self._correlation_id = 0
        self.asked: dict[int, tuple[int, int]] = {}

    def send(self, request: Request, version: int) -> int:
        """Let the request's frame arrive; its correlation id."""
        feed(self.connection, self.frame(request, version))
        return self._correlation_id

    def frame(self, request: Request, version: int) -> bytes:
        """The bytes of the request with their length, to be fed to the connection."""
        self._correlation_id += 1
        key = request.message_key
        self.asked[self._correlation_id] = (key, version)
        body = encode_request_header(key, version, self._correlation_id, "test") + encode(request, version)
        return struct.pack(">i", len(body)) + body

    def send_frame(self, body: bytes) -> None:
        feed(self.connection, struct.pack(">i", len(body)) + body)

    def end_turn(self) -> None:
        self.node.services.turn.end()

    def replies(self) -> list[tuple[int, Response]]:
        """What has been answered since the last call, as (correlation id, response)."""
        answers = []
        written = bytes(self.transport.written)
        self.transport.written.clear()
        while written:
            length = struct.unpack_from(">i", written)[0]
            body, written = written[4 : 4 + length], written[4 + length :]
            key, version = self.asked[struct.unpack_from(">i", body)[0]]
            correlation_id, position = decode_response_header(key, version, body)
            answers.append((correlation_id, decode(REGISTRY[key].response, body, version, position)))
        return answers

    def reply(self) -> Response:
        """The one answer that has come."""
        answers = self.replies()
        assert len(answers) == 1, answers
        return answers[0][1]

    def ask(self, request: Request, version: int) -> Response:
        """Send, let all turns and syncs run, and give the answer."""
        self.send(request, version)
        self.node.settle()
        for _ in range(MOST_STEPS):
            if self.transport.written:
                break
            self.node.run_due()  # a long answer is made in steps
            self.node.settle()
        return self.reply()


def make_topic(node: Node, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic; keys with underscores for dots."""
    results: list[TopicResult] = []
    pairs = [(key.replace("_", "."), value) for key, value in configs.items()]
    node.services.catalog.create_topics([NewTopic(name, partitions, configs=pairs)], results.extend)
    node.settle()
    assert [result.error_code for result in results] == [0], results


def batch(count: int = 1, *, value: bytes = b"v", **options: object) -> bytes:
    """A record batch of `count` records."""
    records = [Record(index, STAMP_MS + index, b"k", value, ()) for index in range(count)]
    return bytes(encode_batch(records, **options))  # type: ignore[arg-type]  # options of encode_batch


def produce_request(
    topic: str, records: bytes | None, *, acks: int = -1, partition: int = 0, timeout_ms: int = 30_000, **more: object
) -> ProduceRequest:
    """One batch for one partition."""
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    topic_data = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic_data], **more)  # type: ignore[arg-type]  # fields by name


def fetch_request(
    topic: str, offset: int, *, partitions: int = 1, max_wait_ms: int = 0, min_bytes: int = 1, **more: object
) -> FetchRequest:
    """The same offset of the first partitions of a topic, without a session unless `session_epoch` says so."""
    wanted = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    values: dict[str, object] = {"session_epoch": -1, **more}
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=wanted)],
        **values,  # type: ignore[arg-type]  # fields by name
    )
