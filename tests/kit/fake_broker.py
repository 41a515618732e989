"""A broker of a hundred lines, in the test's own loop, that does what the script says: for what real brokers rarely do.

It keeps batches per partition and refuses sequences as Kafka does (an unknown producer may begin anywhere, a known one
must continue where it stopped, or repeat one of its last five batches), so that a test can inject faults and then look
whether records are there once, in order.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from ottla.protocol.api import REGISTRY
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import decode_request_header, response_header
from ottla.protocol.message import Request, Response, decode, encode
from ottla.protocol.records.batch import decode_batch, parse_header, set_offset_and_epoch

SILENCE = object()
"""Returned by a handler: the request is never answered."""
HANG_UP = object()
"""Returned by a handler: the connection is closed instead of an answer."""
Handler = Callable[[Request, int], "Response | object"]
REMEMBERED_BATCHES = 5
"""Of each producer and partition; a repeat of an older one is out of order."""


@dataclass
class Fault:
    """What happens to one batch: refused with `code`, or appended all the same; or the connection ends."""

    code: ErrorCode = ErrorCode.NONE
    is_appended: bool = False
    hangs_up: bool = False


@dataclass
class FakePartition:
    leader: int = 0
    epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(epoch, next sequence) by producer id."""
    faults: deque[Fault | None] = field(default_factory=deque)
    first_offsets: dict[tuple[int, int, int], int] = field(default_factory=dict)
    max_message_bytes: int = 2**31

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in decode_batch(batch)]

    def append(self, records: memoryview) -> tuple[ErrorCode, int]:
        header = parse_header(records)
        if len(records) > self.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if header.producer_id >= 0:
            name = (header.producer_id, header.producer_epoch, header.base_sequence)
            if name in self.first_offsets:
                return ErrorCode.NONE, self.first_offsets[name]
            epoch, expected = self.producers.get(header.producer_id, (header.producer_epoch, header.base_sequence))
            if header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.producer_epoch > epoch:
                expected = 0
            if header.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            remembered = [known for known in self.first_offsets if known[0] == header.producer_id]
            for forgotten in remembered[: 1 - REMEMBERED_BATCHES]:
                del self.first_offsets[forgotten]
            self.producers[header.producer_id] = (header.producer_epoch, header.last_sequence + 1)
            self.first_offsets[name] = self.end
        batch = bytearray(records)
        set_offset_and_epoch(batch, self.end, self.epoch)
        self.batches.append(bytes(batch))
        self.end += header.record_count
        return ErrorCode.NONE, self.end - header.record_count


class FakeCluster:
    """Brokers with one mind. `topics` is what metadata tells; `handlers` replace the answers of an API."""

    def __init__(self, brokers: int = 1) -> None:
        self.topics: dict[str, list[FakePartition]] = {}
        self.topic_ids: dict[str, UUID] = {}
        """Those that are not made of the topic's name; see `create_again`."""
        self.handlers: dict[type[Request], Handler] = {}
        self.requests: list[tuple[int, Request, int]] = []
        self.write_bytes = 0
        """Answers leave in pieces of so many bytes; 0: whole."""
        self.versions: dict[int, tuple[int, int]] = {
            key: (api.min_version, api.max_version) for key, api in REGISTRY.items()
        }
        self.features: dict[str, int] = {}
        """The finalized features that ApiVersions reports."""
        self.tls: ssl.SSLContext | None = None
        """With which its listeners speak TLS."""
        self.ports: list[int] = []
        self.next_producer_id = 1000
        self._count = brokers
        self._servers: list[asyncio.Server] = []
        self.writers: set[asyncio.StreamWriter] = set()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    def add_topic(self, name: str, *leaders: int) -> list[FakePartition]:
        self.topics[name] = [FakePartition(leader) for leader in leaders or (0,)]
        return self.topics[name]

    def create_again(self, name: str, *leaders: int) -> list[FakePartition]:
        """Delete a topic and make one of the same name: another id, empty partitions that know no producer."""
        self.topic_ids[name] = UUID(int=self.id_of(name).int + 1)
        return self.add_topic(name, *leaders)

    def id_of(self, name: str) -> UUID:
        return self.topic_ids.get(name) or UUID(bytes=name.encode().ljust(16, b"\1")[:16])

    def seen(self, kind: type[Request]) -> list[Request]:
        return [request for _, request, _ in self.requests if isinstance(request, kind)]

    async def __aenter__(self) -> FakeCluster:
        for node in range(self._count):
            server = await asyncio.start_server(partial(self._serve, node), "127.0.0.1", 0, ssl=self.tls)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        self.drop_connections()

    @property
    def is_read(self) -> bool:
        """Whether a client is connected, or was and what it sent is not read to the end."""
        return bool(self.writers)

    def drop_connections(self) -> None:
        for writer in self.writers:
            writer.transport.abort()

    async def _serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = bytearray(await reader.readexactly(size))
                answer = self._answer(node, frame)
                if answer is HANG_UP:
                    writer.transport.abort()
                    return
                if isinstance(answer, bytes):
                    await self._write(writer, answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def _write(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        step = self.write_bytes or len(answer)
        for start in range(0, len(answer), step):
            writer.write(answer[start : start + step])
            await writer.drain()
            if self.write_bytes:
                await asyncio.sleep(0)

    def _answer(self, node: int, frame: bytearray) -> object:
        header, position = decode_request_header(frame)
        lowest, highest = self.versions[header.api_key]
        kind = REGISTRY[header.api_key].request
        version = header.api_version
        if kind is ApiVersionsRequest and not lowest <= version <= highest:
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
            return _frame(response_header(header.api_key, 0, header.correlation_id) + encode(refusal, 0))
        assert lowest <= version <= highest, f"{kind.__name__} {version} was not offered"
        request = decode(kind, frame, version, position)
        self.requests.append((node, request, version))
        handler = self.handlers.get(kind)
        answer = handler(request, version) if handler else self._default(node, request)
        if not isinstance(answer, Response):
            return answer
        return _frame(response_header(header.api_key, version, header.correlation_id) + encode(answer, version))

    def _default(self, node: int, request: Request) -> object:
        if isinstance(request, ApiVersionsRequest):
            reported = [
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=lowest, max_version=highest)
                for key, (lowest, highest) in self.versions.items()
            ]
            finalized = [
                ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=0)
                for name, level in self.features.items()
            ]
            return ApiVersionsResponse(api_keys=reported, finalized_features=finalized)
        if isinstance(request, MetadataRequest):
            return self.metadata(request)
        if isinstance(request, InitProducerIdRequest):
            self.next_producer_id += 1
            return InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)
        if isinstance(request, ProduceRequest):
            return self._produce(node, request)
        if isinstance(request, FetchRequest):
            return self._fetch(node, request)
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request)
        raise AssertionError(f"the test has no answer for {request}")

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics)
        if request.topics is not None:
            names = [topic.name or self._find("", topic.topic_id)[0] for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port)
                for node, port in enumerate(self.ports)
            ],
            cluster_id="fake",
            controller_id=0,
            topics=[self._describe(name) for name in names],
        )

    def _describe(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        known = self.topics.get(name)
        return MetadataResponse.MetadataResponseTopic(
            error_code=ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            name=name,
            topic_id=self.id_of(name),
            partitions=[
                MetadataResponse.MetadataResponsePartition(
                    partition_index=index,
                    leader_id=partition.leader,
                    leader_epoch=partition.epoch,
                    replica_nodes=[partition.leader],
                    isr_nodes=[partition.leader],
                )
                for index, partition in enumerate(known or ())
            ],
        )

    def _find(self, name: str, topic_id: UUID) -> tuple[str, list[FakePartition]]:
        for known, partitions in self.topics.items():
            if known == name or self.id_of(known) == topic_id:
                return known, partitions
        return name, []

    def _produce(self, node: int, request: ProduceRequest) -> object:
        reported = defaultdict(list)
        hangs_up = False
        for topic in request.topic_data:
            _, partitions = self._find(topic.name, topic.topic_id)
            for data in topic.partition_data:
                code, offset = ErrorCode.NONE, -1
                if data.index >= len(partitions):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic.name else ErrorCode.UNKNOWN_TOPIC_ID
                    answer = ProduceResponse.PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                    reported[topic.name, topic.topic_id].append(answer)
                    continue
                partition = partitions[data.index]
                fault = partition.faults.popleft() if partition.faults else None
                if partition.leader != node:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif fault is None or fault.is_appended:
                    code, offset = partition.append(memoryview(data.records or b""))
                if fault is not None:
                    code, hangs_up = fault.code or code, hangs_up or fault.hangs_up
                answer = ProduceResponse.PartitionProduceResponse(
                    index=data.index, error_code=code, base_offset=-1 if code else offset
                )
                reported[topic.name, topic.topic_id].append(answer)
        if hangs_up:
            return HANG_UP
        if request.acks == 0:
            return SILENCE
        return ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=answers)
                for (name, topic_id), answers in reported.items()
            ]
        )

    def _fetch(self, node: int, request: FetchRequest) -> object:
        responses = []
        for topic in request.topics:
            _, partitions = self._find(topic.topic, topic.topic_id)
            data = []
            for asked in topic.partitions:
                if asked.partition >= len(partitions):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic.topic else ErrorCode.UNKNOWN_TOPIC_ID
                    data.append(
                        FetchResponse.PartitionData(
                            partition_index=asked.partition, error_code=code, high_watermark=-1, records=b""
                        )
                    )
                    continue
                partition = partitions[asked.partition]
                code, records = ErrorCode.NONE, b""
                if partition.leader != node:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif asked.fetch_offset > partition.end:
                    code = ErrorCode.OFFSET_OUT_OF_RANGE
                else:
                    wanted = (b for b in partition.batches if parse_header(b).next_offset > asked.fetch_offset)
                    records = next(wanted, b"")
                data.append(
                    FetchResponse.PartitionData(
                        partition_index=asked.partition, error_code=code, high_watermark=partition.end, records=records
                    )
                )
            responses.append(
                FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=data)
            )
        if not any(p.records or p.error_code for response in responses for p in response.partitions):
            return SILENCE  # parked for as long as the test lasts
        return FetchResponse(responses=responses)

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsResponse.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsResponse.ListOffsetsPartitionResponse(
                            partition_index=asked.partition_index,
                            offset=0 if asked.timestamp == -2 else self.topics[topic.name][asked.partition_index].end,
                        )
                        for asked in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def _frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content
