"""From frame to answer: what closes a connection, what is refused, and that the fast path answers like the slow one."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.handlers import dispatcher_with
from kit.nodes import start_node

from ottla.broker.api import HANDLERS
from ottla.broker.api.api_versions import LONGEST_SHOWN
from ottla.broker.fast.produce_run import ProduceRun
from ottla.broker.node import Node
from ottla.broker.requests.gate import advertised_apis
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import Request, encode


@pytest.fixture
def node() -> Node:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", 3)
    return node


def test_every_declared_api_has_a_handler_and_is_advertised() -> None:
    assert {api.key for api in advertised_apis()} == set(REGISTRY) == set(HANDLERS)


def test_what_has_no_handler_is_not_advertised() -> None:
    assert [api.key for api in advertised_apis({ApiKey.FETCH: HANDLERS[ApiKey.FETCH]})] == [ApiKey.FETCH]


def test_produce_is_advertised_from_version_0(node: Node) -> None:
    answer = Exchange(node).ask(ApiVersionsRequest(), 0)
    assert isinstance(answer, ApiVersionsResponse)
    assert [(api.min_version, api.max_version) for api in answer.api_keys if api.api_key == 0] == [(0, 13)]


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("ours", 1, ErrorCode.NONE),
        ("ours", -1, ErrorCode.INVALID_REQUEST),
        ("other", -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
        ("", -1, ErrorCode.INVALID_REQUEST),
        ("ours", 7, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("other", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("ours", -5, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_a_client_that_expects_another_cluster_or_node_is_sent_back_to_its_bootstrap_servers(
    node: Node, cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    """What Apache Kafka 4.4 answers to the same requests (KIP-1242)."""
    client = Exchange(node)
    answer = client.ask(
        ApiVersionsRequest(
            client_software_name="a",
            client_software_version="1",
            cluster_id=node.services.catalog.cluster_id if cluster_id == "ours" else cluster_id,
            node_id=node_id,
        ),
        5,
    )
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == code
    assert bool(answer.api_keys) == (code is ErrorCode.NONE)
    again = client.ask(ApiVersionsRequest(), 0)  # the connection stays
    assert isinstance(again, ApiVersionsResponse)
    assert again.error_code == 0


def test_what_a_client_calls_itself_is_remembered_for_log_lines_and_bounded(node: Node) -> None:
    client = Exchange(node)
    client.ask(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2" * 999), 3)
    assert client.connection.peer.software == "librdkafka " + "2" * LONGEST_SHOWN
    refused = client.ask(ApiVersionsRequest(client_software_name="a\nb", client_software_version="1"), 3)
    assert isinstance(refused, ApiVersionsResponse)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert client.connection.peer.software.startswith("librdkafka ")


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", None),
        (b"\0\x03", "header"),
        (struct.pack(">hhih", 3, 9, 1, 500), "client_id"),
        (struct.pack(">hhih", 999, 0, 1, -1), "API key 999"),
        (struct.pack(">hhih", 3, 99, 1, -1) + b"\0", "versions 0 to 13"),
        (struct.pack(">hhih", 0, 14, 1, -1) + b"\0" * 20, "versions 0 to 13"),
        (struct.pack(">hhih", 3, 9, 1, -1) + b"\0\xff\xff\xff\xff\x0f", "malformed Metadata v9"),
    ],
)
def test_what_cannot_be_read_closes_the_connection_in_one_line(
    node: Node, frame: bytes, reason: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    client = Exchange(node)
    client.send_frame(frame)
    node.settle()
    assert client.transport.closed
    closing = [record.getMessage() for record in caplog.records if record.name == "ottla.connection"]
    assert len(closing) == 1
    assert reason is None or reason in closing[0]


def test_api_versions_above_the_newest_gets_the_list_and_may_ask_again(node: Node) -> None:
    client = Exchange(node)
    client.send_frame(struct.pack(">hhih", 18, 77, 5, -1) + b"\0anything")
    node.settle()
    correlation_id, code, count = struct.unpack_from(">ihi", client.transport.written, 4)
    assert (correlation_id, code, count) == (5, ErrorCode.UNSUPPORTED_VERSION, len(REGISTRY))
    client.transport.written.clear()
    assert isinstance(client.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)


def test_versions_that_nobody_knows_are_counted_under_the_version_of_their_answer(node: Node) -> None:
    client = Exchange(node)
    for version in (-1, 77, 78, 79, 32_767):
        client.send_frame(struct.pack(">hhih", 18, version, 5, -1) + b"\0")
    node.settle()
    counts = {key: count for key, count in node.services.metrics.request_counts.items() if key[0] == "ApiVersions"}
    assert counts == {("ApiVersions", 0, ErrorCode.UNSUPPORTED_VERSION): 5}, "clients would name the metrics' labels"


def test_a_bug_is_logged_and_the_client_gets_an_error(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    def buggy(request: object, context: object) -> None:
        raise ZeroDivisionError("oops")

    node.dispatcher = dispatcher_with(node, ApiKey.FETCH, buggy)
    client = Exchange(node)
    answer = client.ask(fetch_request("t", 0), 12)
    assert isinstance(answer, FetchResponse)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "oops" in caplog.text
    assert isinstance(client.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)


def requests() -> Iterator[tuple[Request, int]]:
    """One request of each API and version that names something."""
    for api in REGISTRY.values():
        for version in range(api.min_version, api.max_version + 1):
            if api.key == ApiKey.PRODUCE:
                yield produce_request("t" if version < 13 else "", batch()), version
            elif api.key == ApiKey.FETCH:
                yield fetch_request("t" if version < 13 else "", 0), version


def test_a_refusal_can_be_encoded_at_every_version() -> None:
    for request, version in requests():
        answer = REGISTRY[request.message_key].refused(request, version, ErrorCode.INVALID_REQUEST, "no")
        assert answer is not None
        encode(answer, version)


def test_a_refusal_from_a_handler_is_the_apis_own_response(node: Node) -> None:
    def refusing(request: object, context: object) -> None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)

    node.dispatcher = dispatcher_with(node, ApiKey.METADATA, refusing)
    answer = Exchange(node).ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 9)
    assert answer.topics[0].error_code == ErrorCode.BROKER_NOT_AVAILABLE  # type: ignore[attr-defined]


def test_the_words_of_a_refusal_do_not_begin_with_the_name_of_its_code(node: Node) -> None:
    """Clients put the name of the code before them, as a server's own message."""

    def refusing(request: object, context: object) -> None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "that cannot be")

    node.dispatcher = dispatcher_with(node, ApiKey.DESCRIBE_CLUSTER, refusing)
    answer = Exchange(node).ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 2)
    assert isinstance(answer, DescribeClusterResponse)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, "that cannot be")


def produce_of(node: Node, version: int, records: bytes, partition: int = 0, acks: int = -1) -> ProduceRequest:
    request = produce_request("t", records, partition=partition, acks=acks)
    if version >= 13:
        request.topic_data[0].name = ""
        request.topic_data[0].topic_id = node.services.catalog.topics["t"].id
    return request


def raw_answer(client: Exchange, request: Request, version: int) -> bytes:
    client.send(request, version)
    client.node.settle()
    written = bytes(client.transport.written)
    client.transport.written.clear()
    return written


@pytest.mark.parametrize("version", range(3, 14))
def test_the_fast_path_of_produce_answers_byte_for_byte_like_the_slow_one(version: int) -> None:
    sizes = [1, 100, 127, 128, 4000, 20_000, 3_000_000]
    answers: list[list[bytes]] = []
    for knows_templates in (True, False):
        node, _, _ = start_node(ottla_acks_all="page-cache", message_max_bytes=4_000_000)
        make_topic(node, "t", 3)
        client = Exchange(node)
        given: list[bytes] = []
        for number, size in enumerate(sizes * 2):
            if not knows_templates:
                client.connection.peer.hot_path = None
            request = produce_of(node, version, batch(3, value=bytes(size // 3)), number % 3)
            answer = raw_answer(client, request, version)
            correlation_id = struct.unpack_from(">i", answer, 4)[0]
            assert correlation_id == number + 1
            given.append(answer[:8] + answer[24:] if version >= 13 else answer)  # the topic id differs
        answers.append([a.replace(node.services.catalog.topics["t"].id.bytes, b"id") for a in given])
    assert len(answers[0]) == len(answers[1])
    if version < 13:
        assert answers[0] == answers[1]
    else:
        assert [len(a) for a in answers[0]] == [len(a) for a in answers[1]]


def test_the_second_request_of_a_template_takes_the_fast_path(node: Node) -> None:
    client = Exchange(node)
    started = []
    for _ in range(3):
        client.send(produce_of(node, 9, batch(value=b"x" * 50)), 9)
        started += list(client.connection.queue.in_flight)
        node.settle()
    assert [isinstance(request, ProduceRun) for request in started] == [False, True, True]


def test_the_fast_path_refuses_like_the_slow_one(node: Node) -> None:
    client = Exchange(node)
    broken = bytearray(batch(2))
    broken[-1] ^= 1
    first = client.ask(produce_of(node, 9, bytes(broken)), 9)
    assert client.connection.peer.hot_path is not None
    second = client.ask(produce_of(node, 9, bytes(broken)), 9)
    assert isinstance(second, ProduceResponse)
    assert first == second
    assert second.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE


def test_a_template_ends_with_its_topic(node: Node) -> None:
    client = Exchange(node)
    for _ in range(2):
        client.ask(produce_of(node, 9, batch()), 9)
    node.services.catalog.delete_topics(["t"], lambda _: None)
    node.settle()
    gone = client.ask(produce_request("t", batch()), 9)
    assert isinstance(gone, ProduceResponse)
    assert gone.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    make_topic(node, "t")
    there = client.ask(produce_request("t", batch()), 9)
    assert isinstance(there, ProduceResponse)
    assert there.responses[0].partition_responses[0].base_offset == 0


@pytest.mark.parametrize("cut", [1, 2, 3, 50])
def test_a_frame_that_only_looks_like_a_template_is_malformed_as_always(node: Node, cut: int) -> None:
    client = Exchange(node)
    client.ask(produce_of(node, 9, batch(value=b"x" * 200)), 9)
    assert client.connection.peer.hot_path is not None
    request = produce_of(node, 9, batch(value=b"x" * 200))
    frame = encode_request_header(0, 9, 77, "test") + encode(request, 9)
    client.send_frame(frame[:-cut])
    node.settle()
    assert client.transport.closed


def test_fetch_and_other_apis_do_not_meet_the_templates(node: Node) -> None:
    client = Exchange(node)
    client.ask(produce_of(node, 9, batch()), 9)
    answer = client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 12)
    assert isinstance(answer, FetchResponse)
