"""A broker in a thread whose every answer a test decides: for clients that must survive what real brokers rarely do.

By default it behaves: it tells its versions, metadata, offsets, and serves the batches of `logs` by Fetch. A test
replaces an answer in `answers` (by ApiKey) with a function of (request, version) that returns a response, bytes to be
sent as the frame's content behind the correlation id, or None to close the connection. `requests` keeps what came.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.api_versions import ApiVersionsResponse
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import decode_request_header, response_header
from ottla.protocol.message import Request, Response, decode, encode
from ottla.protocol.records.batch import parse_header

Answer = Callable[[Request, int], "Response | bytes | None"]


@dataclass
class ScriptedLog:
    """The batches of one partition, and where its log starts and ends."""

    batches: Sequence[bytes] = ()
    start: int = 0
    end: int = 0


@dataclass
class ScriptedTopic:
    """A topic: its id and its logs by partition. `leader_port` moves the lead to another broker."""

    logs: dict[int, ScriptedLog]
    topic_id: UUID = field(default_factory=uuid4)
    leader_port: int | None = None


class ScriptedBroker:
    """Listens on a port of 127.0.0.1, a free one if none is named, until `stop()`; see `running`."""

    def __init__(self, port: int = 0) -> None:
        self.topics: dict[str, ScriptedTopic] = {}
        self.versions: dict[int, tuple[int, int]] = {
            key: (REGISTRY[key].min_version, REGISTRY[key].max_version)
            for key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.API_VERSIONS)
        }
        self.answers: dict[ApiKey, Answer] = {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.FETCH: self.fetch,
        }
        self.requests: list[tuple[ApiKey, int, Request]] = []
        self.answers_another_request_by = 0
        """Added to the correlation id of every answer."""
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._peers: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def bootstrap(self) -> str:
        """`host:port` as clients want it."""
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[ScriptedBroker]:
        """Serve while the block runs."""
        self._run(self._accept)
        try:
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        """Close the listener and every connection, and wait for the threads."""
        for each in (self._listener, *self._peers):
            with suppress(OSError):  # not connected any more
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def hang_up(self) -> None:
        """Close every connection, and go on accepting others."""
        for peer in self._peers:
            with suppress(OSError):  # not connected any more
                peer.shutdown(socket.SHUT_RDWR)

    def count(self, api_key: ApiKey) -> int:
        """How many requests of this API came."""
        return sum(key == api_key for key, _, _ in self.requests)

    def api_versions(self, request: Request, version: int) -> Response:
        """Tell `versions`."""
        items = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=least, max_version=most)
            for key, (least, most) in self.versions.items()
        ]
        return ApiVersionsResponse(api_keys=items)

    def metadata(self, request: Request, version: int) -> Response:
        """Tell the topics; every partition is led by this broker, or by the one at the topic's `leader_port`."""
        assert isinstance(request, MetadataRequest)
        names = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        ports = {1: self.port}
        described = []
        for name in names:
            topic = self.topics.get(name)
            if topic is None:
                code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                described.append(MetadataResponse.MetadataResponseTopic(error_code=code, name=name, partitions=[]))
                continue
            leader = 1
            if topic.leader_port is not None:
                leader, ports[2] = 2, topic.leader_port
            partitions = [
                MetadataResponse.MetadataResponsePartition(
                    partition_index=index, leader_id=leader, replica_nodes=[leader], isr_nodes=[leader]
                )
                for index in topic.logs
            ]
            topic_id = topic.topic_id if version >= 10 else UUID(int=0)
            described.append(
                MetadataResponse.MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)
            )
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port)
            for node, port in ports.items()
        ]
        return MetadataResponse(brokers=brokers, topics=described)

    def list_offsets(self, request: Request, version: int) -> Response:
        """Answer -2 and -1 from the logs, and any time with the offset of the same number, if the log has it."""
        assert isinstance(request, ListOffsetsRequest)
        topics = []
        for asked in request.topics:
            partitions = []
            for item in asked.partitions:
                log = self.topics[asked.name].logs[item.partition_index]
                offset = {-2: log.start, -1: log.end}.get(item.timestamp, max(item.timestamp, log.start))
                if offset > log.end or (offset == log.end and item.timestamp >= 0):
                    offset = -1
                partitions.append(
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=item.partition_index, timestamp=item.timestamp, offset=offset
                    )
                )
            topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=asked.name, partitions=partitions))
        return ListOffsetsResponse(topics=topics)

    def fetch(self, request: Request, version: int) -> Response:
        """Serve the batches from the one that holds the offset on, as many as fit and at least one."""
        assert isinstance(request, FetchRequest)
        asked = request.topics[0]
        item = asked.partitions[0]
        topic = self._named(asked)
        if topic is None:
            missing = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return fetch_response(asked, error=missing)
        log = topic.logs[item.partition]
        if not log.start <= item.fetch_offset <= log.end:
            return fetch_response(asked, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        records = b""
        for batch in log.batches:
            if parse_header(batch).next_offset <= item.fetch_offset:
                continue
            if records and len(records) + len(batch) > request.max_bytes:
                records += batch[: request.max_bytes - len(records)]  # cut, as brokers do
                break
            records += batch
        return fetch_response(asked, records=records, high_watermark=log.end)

    def _named(self, asked: FetchRequest.FetchTopic) -> ScriptedTopic | None:
        if asked.topic:
            return self.topics.get(asked.topic)
        return next((topic for topic in self.topics.values() if topic.topic_id == asked.topic_id), None)

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._peers.append(peer)
            self._run(self._serve, peer)

    def _serve(self, peer: socket.socket) -> None:
        stream = peer.makefile("rb")
        try:
            while size := stream.read(4):
                if not self._answer(peer, stream.read(struct.unpack(">i", size)[0])):
                    break
        except OSError:
            pass  # the client went away
        stream.close()
        peer.close()

    def _answer(self, peer: socket.socket, data: bytes) -> bool:
        header, body = decode_request_header(data)
        correlation_id = header.correlation_id + self.answers_another_request_by
        api_key = ApiKey(header.api_key)
        request = decode(REGISTRY[api_key].request, data, header.api_version, body)
        self.requests.append((api_key, header.api_version, request))
        answer = self.answers[api_key](request, header.api_version)
        if answer is None:
            return False
        if isinstance(answer, bytes):
            content = struct.pack(">i", correlation_id) + answer
        else:
            head = response_header(api_key, header.api_version, correlation_id)
            content = head + encode(answer, header.api_version)
        peer.sendall(struct.pack(">i", len(content)) + content)
        return True


def fetch_response(
    asked: FetchRequest.FetchTopic,
    *,
    records: bytes = b"",
    error: ErrorCode = ErrorCode.NONE,
    high_watermark: int = -1,
    aborted: list[FetchResponse.AbortedTransaction] | None = None,
) -> FetchResponse:
    """Answer a Fetch of one partition."""
    partition = FetchResponse.PartitionData(
        partition_index=asked.partitions[0].partition,
        error_code=int(error),
        high_watermark=high_watermark,
        aborted_transactions=aborted,
        records=records,
    )
    topic = FetchResponse.FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[partition])
    return FetchResponse(responses=[topic])
