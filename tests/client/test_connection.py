"""One connection: frames in every split, answers matched to requests, and an end that everyone hears of."""

from __future__ import annotations

import asyncio
import struct

import pytest
from kit.fake_broker import HANG_UP, SILENCE, FakeCluster

from ottla.client.connecting import connect
from ottla.client.connection import Connection
from ottla.client.errors import ClientTimeout, ConnectionLost, UnsupportedByBroker
from ottla.client.options import ClientOptions, parse_servers
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.api.produce import ProduceRequest

OPTIONS = ClientOptions()


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


def ask(connection, *names, timeout_ms=None):
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])
    return connection.send(request, MetadataResponse, 12, timeout_ms)


@pytest.mark.parametrize("write_bytes", [1, 2, 3, 5, 7, 64, 0])
async def test_answers_in_pieces_of_any_size_are_put_together(cluster, write_bytes):
    cluster.write_bytes = write_bytes
    cluster.add_topic("here", 0, 0, 0)
    connection = await connect("127.0.0.1", cluster.ports[0], OPTIONS)
    answers = await asyncio.gather(*[ask(connection, "here", str(number)) for number in range(10)])
    assert [answer.topics[1].name for answer in answers] == [str(number) for number in range(10)]
    assert len(answers[0].topics[0].partitions) == 3
    connection.close()


@pytest.mark.parametrize("size", [65_500, 65_536, 70_000, 1_048_576, 3_500_000])
async def test_large_answers_between_small_ones_are_whole(cluster, size):
    def answer(request, version):
        answer = cluster.metadata(request)
        if request.topics[0].name == "large":
            answer.topics[0].partitions = [
                MetadataResponse.MetadataResponsePartition(
                    partition_index=0, leader_id=0, replica_nodes=list(range(size // 4)), isr_nodes=[]
                )
            ]
        return answer

    cluster.handlers[MetadataRequest] = answer
    connection = await connect("127.0.0.1", cluster.ports[0], OPTIONS)
    answers = await asyncio.gather(*[ask(connection, name) for name in ("a", "large", "b", "large", "c")])
    assert [answer.topics[0].name for answer in answers] == ["a", "large", "b", "large", "c"]
    assert answers[3].topics[0].partitions[0].replica_nodes == list(range(size // 4))
    connection.close()


async def test_the_end_of_the_connection_ends_every_request(cluster):
    cluster.handlers[MetadataRequest] = lambda request, version: SILENCE
    connection = await connect("127.0.0.1", cluster.ports[0], OPTIONS)
    waiting = [ask(connection, "a") for _ in range(3)]
    assert connection.in_flight == 3
    await asyncio.sleep(0)
    cluster.handlers[MetadataRequest] = lambda request, version: HANG_UP
    waiting.append(ask(connection, "b"))
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(outcome, ConnectionLost)
    assert not connection.is_open
    with pytest.raises(ConnectionLost):
        ask(connection, "c")


class Losing:
    """A transport that is lost, as asyncio's is after a failed write, until it calls `connection_lost`."""

    def __init__(self, transport):
        self.transport = transport
        self.is_lost = False

    def is_closing(self):
        return self.is_lost or self.transport.is_closing()

    def writelines(self, buffers):
        if self.is_lost:
            raise TypeError("'NoneType' object is not callable")  # asyncio's, in Python 3.12 and 3.13
        self.transport.writelines(buffers)

    def __getattr__(self, name):
        return getattr(self.transport, name)


async def test_a_request_to_a_transport_that_is_lost_ends_with_the_connection(cluster, monkeypatch):
    found = []

    def made(connection, transport):
        found.append(Losing(transport))
        was_made(connection, found[0])

    was_made = Connection.connection_made
    monkeypatch.setattr(Connection, "connection_made", made)
    connection = await connect("127.0.0.1", cluster.ports[0], OPTIONS)
    found[0].is_lost = True
    waiting = ask(connection, "a")
    found[0].transport.abort()
    with pytest.raises(ConnectionLost):
        await waiting


async def test_an_answer_that_does_not_come_in_time_ends_the_connection(cluster):
    cluster.handlers[MetadataRequest] = lambda request, version: SILENCE
    connection = await connect("127.0.0.1", cluster.ports[0], OPTIONS)
    patient = ask(connection, "a")
    with pytest.raises(ClientTimeout, match="Metadata"):
        await ask(connection, "b", timeout_ms=1)
    with pytest.raises(ConnectionLost):
        await patient


async def test_an_answer_that_nobody_waits_for_any_more_is_dropped(cluster):
    connection = await connect("127.0.0.1", cluster.ports[0], OPTIONS)
    given_up = ask(connection, "a")
    given_up.cancel()
    assert (await ask(connection, "b")).topics[0].name == "b"
    assert connection.in_flight == 0
    connection.close()


async def test_a_broker_that_knows_only_old_api_versions_is_asked_again(cluster):
    cluster.versions[18] = (0, 2)
    connection = await connect("127.0.0.1", cluster.ports[0], OPTIONS)
    assert connection.versions == cluster.versions
    connection.close()


async def test_versions_are_the_highest_in_common(cluster):
    cluster.versions[3] = (1, 5)
    cluster.versions[0] = (0, 2)
    connection = await connect("127.0.0.1", cluster.ports[0], OPTIONS)
    assert connection.version_for(MetadataRequest) == 5
    assert connection.version_for(MetadataRequest, at_most=3) == 3
    with pytest.raises(UnsupportedByBroker, match="0-2"):
        connection.version_for(ProduceRequest)
    connection.close()


def raw(connection_bytes):
    """A server that answers the first request with these bytes."""

    async def serve(reader, writer):
        await reader.read(10)
        writer.write(connection_bytes)
        await writer.drain()
        await reader.read()
        writer.close()

    return asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 2) + b"ab",
        struct.pack(">ii", 4, 77),
        struct.pack(">iih", 6, 0, 0),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["negative", "huge", "short", "stranger", "cut", "http"],
)
async def test_nonsense_ends_the_connection_with_its_reason(sent):
    async with await raw(sent) as server:
        with pytest.raises(ConnectionLost, match="makes no sense"):
            await connect("127.0.0.1", server.sockets[0].getsockname()[1], OPTIONS)


async def test_a_server_that_says_nothing_is_given_up():
    async with await raw(b"") as server:
        options = ClientOptions(socket_connection_setup_timeout_ms=1)
        with pytest.raises(ClientTimeout):
            await connect("127.0.0.1", server.sockets[0].getsockname()[1], options)


async def test_api_versions_names_the_software(cluster):
    connection = await connect("127.0.0.1", cluster.ports[0], OPTIONS)
    asked = cluster.seen(ApiVersionsRequest)[0]
    assert asked.client_software_name == "ottla"
    assert (await connection.send(ApiVersionsRequest(), ApiVersionsResponse, 0)).error_code == 0
    connection.close()


def test_servers_are_parsed_in_every_form():
    assert parse_servers("a:1, b ,[::1]:3,[::2]") == [("a", 1), ("b", 9092), ("::1", 3), ("::2", 9092)]
    assert parse_servers(["c:4"]) == [("c", 4)]
    for wrong in ("", ",", "a:", "a:x", "a:70000", ":1", "a:0"):
        with pytest.raises(ValueError, match="bootstrap_servers"):
            parse_servers(wrong)


def test_options_below_zero_are_refused():
    with pytest.raises(ValueError, match="request_timeout_ms"):
        ClientOptions(request_timeout_ms=-1)
