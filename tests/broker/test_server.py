"""The server on a real loop and real sockets: listeners, addresses, refusals to start, draining."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kit.exchange import batch, fetch_request, produce_request

from ottla.broker import server as server_module
from ottla.broker.loop_timers import LoopTimers
from ottla.broker.net.connection import READS_ALONE
from ottla.broker.net.listening import StartError, bind
from ottla.broker.process import new_event_loop
from ottla.broker.runtime.descriptors import raise_file_limit
from ottla.broker.server import Server
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Listener
from ottla.hand_over import Posts
from ottla.protocol.api import REGISTRY
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.message import Request, Response, decode, encode
from ottla.protocol.records import checksum
from ottla.storage.directories.log_closing import CloseProgress
from ottla.storage.errors import StorageError
from ottla.storage.log.log import Log

pytestmark = pytest.mark.both_loops


def config(directory: Path, **keys: object) -> BrokerConfig:
    values: dict[str, object] = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "ottla.http.listener": "",
    }
    return BrokerConfig.of(values | {key.replace("_", "."): value for key, value in keys.items()})


@asynccontextmanager
async def running(directory: Path, **keys: object) -> AsyncIterator[Server]:
    server = Server(config(directory, **keys))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Client:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, address: tuple[str, int]) -> Client:
        return cls(*await asyncio.open_connection(*address))

    def send(self, request: Request, version: int) -> None:
        body = encode_request_header(request.message_key, version, 1, "test") + encode(request, version)
        self.writer.write(struct.pack(">i", len(body)) + body)

    async def reply(self, key: int, version: int) -> Response:
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        body = await self.reader.readexactly(length)
        _, position = decode_response_header(key, version, body)
        return decode(REGISTRY[key].response, body, version, position)

    async def ask(self, request: Request, version: int) -> Response:
        self.send(request, version)
        return await self.reply(request.message_key, version)


def metadata(*topics: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics])


async def test_the_metadata_log_has_the_ports_at_which_the_broker_listens(tmp_path: Path) -> None:
    names = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
    }
    server = Server(BrokerConfig.of({"log.dirs": str(tmp_path), "ottla.http.listener": "", **names}))
    await server.start()
    try:
        (broker,) = server.node.services.catalog.image.brokers.values()
        assert {one.name: (one.host, one.port) for one in broker.end_points} == server.addresses
        assert 0 not in [port for _, port in server.addresses.values()]
    finally:
        await server.stop()


async def test_what_was_produced_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        client = await Client.to(server.addresses["PLAINTEXT"])
        await client.ask(metadata("t"), 9)
        for expected in (0, 3):
            answer = await client.ask(produce_request("t", batch(3)), 9)
            assert isinstance(answer, ProduceResponse)
            assert answer.responses[0].partition_responses[0].base_offset == expected
    async with running(tmp_path) as server:
        client = await Client.to(server.addresses["PLAINTEXT"])
        fetched = await client.ask(fetch_request("t", 3), 12)
        assert fetched.responses[0].partitions[0].high_watermark == 6  # type: ignore[attr-defined]
        assert server.node.services.log_manager.was_clean


async def test_an_abandoned_server_is_as_a_killed_one(tmp_path: Path) -> None:
    server = Server(config(tmp_path))
    await server.start()
    client = await Client.to(server.addresses["PLAINTEXT"])
    await client.ask(metadata("t"), 9)
    await client.ask(produce_request("t", batch(3)), 9)
    client.send(fetch_request("t", 3, max_wait_ms=60_000), 12)
    await server.abandon()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.reply(1, 12)
    async with running(tmp_path) as server:
        client = await Client.to(server.addresses["PLAINTEXT"])
        fetched = await client.ask(fetch_request("t", 0), 12)
        assert fetched.responses[0].partitions[0].high_watermark == 3  # type: ignore[attr-defined]
        assert not server.node.services.log_manager.was_clean


async def test_without_an_eventfd_threads_bring_back_what_they_did_by_the_loop_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "eventfd")
    async with running(tmp_path, auto_create_topics_enable="true") as server:
        client = await Client.to(server.addresses["PLAINTEXT"])
        assert isinstance(await client.ask(metadata("t"), 9), MetadataResponse)
        for offset in range(2):
            reply = await client.ask(produce_request("t", batch()), 9)
            assert isinstance(reply, ProduceResponse)
            assert reply.responses[0].partition_responses[0].base_offset == offset


async def test_a_stopped_server_leaves_nothing_that_its_loop_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posts = Posts()
    monkeypatch.setattr(server_module, "Posts", lambda: posts)
    async with running(tmp_path):
        ran = asyncio.Event()
        posts.put(ran.set)
        await ran.wait()
    late: list[int] = []
    posts.put(lambda: late.append(1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert late == []


async def test_a_large_batch_comes_back_as_it_went(tmp_path: Path) -> None:
    async with running(tmp_path, message_max_bytes=8_000_000) as server:
        client = await Client.to(server.addresses["PLAINTEXT"])
        await client.ask(metadata("t"), 9)
        records = batch(5, value=bytes(range(256)) * 4000)
        for _ in range(3):
            await client.ask(produce_request("t", records), 9)
        request = fetch_request("t", 0)
        request.topics[0].partitions[0].partition_max_bytes = 1 << 30
        fetched = await client.ask(request, 12)
        got = bytes(fetched.responses[0].partitions[0].records)  # type: ignore[attr-defined]
        assert [got[n * len(records) + 16 : (n + 1) * len(records)] for n in range(3)] == [records[16:]] * 3


async def test_a_long_poll_is_woken_and_ends_by_its_time_on_a_real_loop(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        poller = await Client.to(server.addresses["PLAINTEXT"])
        producer = await Client.to(server.addresses["PLAINTEXT"])
        await producer.ask(metadata("t"), 9)
        await poller.ask(fetch_request("t", 0, max_wait_ms=10), 12)
        poller.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await producer.ask(produce_request("t", batch()), 9)
        fetched = await poller.reply(1, 12)
        assert len(fetched.responses[0].partitions[0].records) > 0  # type: ignore[attr-defined]


async def test_the_answer_behind_a_sync_leaves_without_a_further_turn_of_the_loop(tmp_path: Path) -> None:
    async with running(tmp_path, ottla_acks_all="sync") as server:
        producer = await Client.to(server.addresses["PLAINTEXT"])
        await producer.ask(metadata("t"), 9)
        for _ in range(READS_ALONE + 3):  # from then on it is taken for alone, and ends its turns itself
            await producer.ask(produce_request("t", batch()), 9)
        turn, asked = server.node.services.turn, []
        on_work = turn.on_work
        assert on_work is not None

        def ask_loop() -> None:
            asked.append(None)
            on_work()

        turn.on_work = ask_loop
        for _ in range(20):
            await producer.ask(produce_request("t", batch()), 9)
        assert len(asked) < 20  # a timer may have done something, too


async def test_each_client_gets_the_address_of_its_listener(tmp_path: Path) -> None:
    listeners = "IN://127.0.0.1:0,OUT://127.0.0.1:0"
    keys = {
        "listeners": listeners,
        "listener_security_protocol_map": "IN:PLAINTEXT,OUT:PLAINTEXT",
        "advertised_listeners": "OUT://kafka.example:19092",
    }
    async with running(tmp_path, **keys) as server:
        reported = {}
        for name, address in server.addresses.items():
            answer = await (await Client.to(address)).ask(metadata(), 9)
            assert isinstance(answer, MetadataResponse)
            reported[name] = (answer.brokers[0].host, answer.brokers[0].port)
        assert reported == {"IN": server.addresses["IN"], "OUT": ("kafka.example", 19092)}


async def test_a_listener_on_all_addresses_has_one_port_for_both_families(tmp_path: Path) -> None:
    async with running(tmp_path, listeners="PLAINTEXT://:0") as server:
        _, port = server.addresses["PLAINTEXT"]
        answer = await (await Client.to(("127.0.0.1", port))).ask(metadata(), 9)
        assert isinstance(answer, MetadataResponse)
        assert (answer.brokers[0].host, answer.brokers[0].port) == ("127.0.0.1", port)


async def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"PLAINTEXT://127.0.0.1:{port}: another process uses this port"):
            await Server(config(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}")).start()
    async with running(tmp_path):  # nothing was left locked
        pass


async def test_a_port_that_is_taken_after_it_was_bound_leaves_no_socket_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[socket.socket] = []
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]

        def bind_before_the_other_listens(listener: Listener, settings: BrokerConfig) -> socket.socket:
            bound.append(bind(listener, settings))
            if listener.name == "B":
                other.listen()
            return bound[-1]

        monkeypatch.setattr(server_module, "bind", bind_before_the_other_listens)
        keys = {
            "listeners": f"A://127.0.0.1:0,B://127.0.0.1:{port},C://127.0.0.1:0",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
            "inter.broker.listener.name": "A",
        }
        with pytest.raises(StartError, match=rf"B://127.0.0.1:{port}: another process uses this port"):
            await Server(config(tmp_path, **keys)).start()
    await asyncio.sleep(0)  # uvloop closes the first one, which it had, in the next turn
    assert [one.fileno() for one in bound] == [-1, -1, -1]


async def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.raises(StorageError):
            await Server(config(tmp_path)).start()


async def test_stopping_answers_a_produce_under_way_and_ends_long_polls(tmp_path: Path) -> None:
    server = Server(config(tmp_path))
    await server.start()
    producer = await Client.to(server.addresses["PLAINTEXT"])
    poller = await Client.to(server.addresses["PLAINTEXT"])
    await producer.ask(metadata("t"), 9)
    poller.send(fetch_request("t", 0, max_wait_ms=600_000), 12)
    producer.send(produce_request("t", batch()), 9)
    connections = server.connections
    assert connections is not None
    while not all(connection.is_waiting for connection in connections):
        await asyncio.sleep(0)
    await server.stop()
    answer = await producer.reply(0, 9)
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].base_offset == 0
    assert await poller.reader.read() == b""


@pytest.mark.parametrize(("most", "expected"), [(1 << 30, 1 << 20), (12_000, 10_240), (100, 256)])
def test_the_limit_of_open_files_is_raised_as_far_as_the_system_lets_it(
    most: int, expected: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """macOS says that there is no hard limit, and refuses a soft one above its kernel's."""
    logging.getLogger("ottla").propagate = True
    limits = [256, resource.RLIM_INFINITY]

    def set_limit(which: int, new: tuple[int, int]) -> None:
        if new[0] > most:
            raise ValueError("current limit exceeds maximum limit")
        limits[:] = new

    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    raise_file_limit()
    assert limits[0] == expected
    assert ("stays at 256" in caplog.text) == (expected == 256)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


async def test_a_default_http_port_that_another_broker_has_is_a_line_and_no_http(
    tmp_path: Path, taken_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("ottla").propagate = True
    by_default = BrokerConfig.load(overrides={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)})
    assert by_default.ottla_http_listener == ("127.0.0.1", 9644)
    by_default.ottla_http_listener = ("127.0.0.1", taken_port)  # nobody has set it: so would it be at 9644
    server = Server(by_default)
    await server.start()
    assert server.http_address is None
    client = await Client.to(server.addresses["PLAINTEXT"])
    assert isinstance(await client.ask(metadata("t"), 9), MetadataResponse)
    await server.stop()
    (line,) = [record.getMessage() for record in caplog.records if "no HTTP" in record.getMessage()]
    assert line.startswith(
        f"no HTTP (health, metrics): ottla.http.listener=127.0.0.1:{taken_port}: another process uses this port"
    )


async def test_an_http_port_that_is_set_and_taken_refuses_the_start(tmp_path: Path, taken_port: int) -> None:
    with pytest.raises(StartError, match=f"ottla.http.listener=127.0.0.1:{taken_port}: another process uses this port"):
        async with running(tmp_path, ottla_http_listener=f"127.0.0.1:{taken_port}"):
            pass


async def test_an_http_port_that_nobody_has_asked_is_closed_by_a_stop(tmp_path: Path) -> None:
    for _ in range(2):
        async with running(tmp_path, ottla_http_listener="127.0.0.1:0") as server:
            address = server.http_address
            assert address is not None
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)


async def test_the_http_port_is_open_on_every_address_when_no_host_is_named(tmp_path: Path) -> None:
    async with running(tmp_path, ottla_http_listener=":0") as server:
        assert server.http_address is not None
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.http_address[1])
            writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/html")
            writer.close()


async def test_the_summary_is_for_people(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logging.getLogger("ottla").propagate = True
    async with running(tmp_path, ottla_http_listener="127.0.0.1:0") as server:
        assert server.http_address is not None
    text = caplog.text
    for part in ("Ottla ", f"log directory {tmp_path}: online", "0 topics, 0 partitions", "listener PLAINTEXT at"):
        assert part in text
    assert ("crcmod" in text) == (checksum.slow_because is not None)


def test_timers_run_on_the_loop_in_time_and_not_before(tmp_path: Path) -> None:
    from ottla.broker.node import Node

    loop = new_event_loop()
    node = Node(config(tmp_path))
    timers = LoopTimers(node.services, loop)
    ran: list[str] = []
    start_ms = node.services.clock.monotonic_ms()
    node.services.timers.at(start_ms + 30, lambda: ran.append("late"))
    node.services.timers.at(start_ms + 30, loop.stop)
    node.services.timers.at(start_ms + 5, lambda: ran.append("early"))
    node.services.timers.at(start_ms + 1, lambda: ran.append("never")).cancel()
    loop.run_forever()
    assert ran == ["early", "late"]
    assert node.services.clock.monotonic_ms() >= start_ms + 30
    timers.stop()
    loop.close()


def test_timers_run_when_the_clock_was_moved(tmp_path: Path) -> None:
    from ottla.broker.node import Node
    from ottla.testing.movable_clock import MovableClock

    loop, clock = new_event_loop(), MovableClock()
    node = Node(config(tmp_path), clock=clock)
    timers = LoopTimers(node.services, loop)
    ran: list[str] = []
    node.services.timers.at(clock.monotonic_ms() + 3_600_000, lambda: ran.append("in an hour"))
    node.services.timers.at(clock.monotonic_ms() + 3_600_010, loop.stop)
    timers.run()
    assert not ran
    clock.advance(3_600_000)
    timers.run()
    assert ran == ["in an hour"]
    loop.run_forever()  # the later one was planned anew
    timers.stop()
    loop.close()


def test_a_timer_that_fails_is_reported_to_the_loop_and_does_not_stop_the_others(tmp_path: Path) -> None:
    from ottla.broker.node import Node

    loop = new_event_loop()
    reported: list[object] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    node = Node(config(tmp_path))
    timers = LoopTimers(node.services, loop)
    bug = ZeroDivisionError("a bug")

    def fail() -> None:
        loop.call_later(30, loop.stop)  # the end of the test where nothing runs any more
        raise bug

    ran: list[str] = []
    start_ms = node.services.clock.monotonic_ms()
    node.services.timers.at(start_ms, fail)
    node.services.timers.at(start_ms, lambda: ran.append("behind it"))
    node.services.timers.at(start_ms + 10, lambda: ran.append("later"))
    node.services.timers.at(start_ms + 10, loop.stop)
    loop.run_forever()
    assert ran == ["behind it", "later"]
    assert reported == [bug]
    timers.stop()
    loop.close()


@pytest.mark.parametrize("is_forced", [False, True])
async def test_a_stop_does_not_wait_for_a_disk_that_hangs(
    is_forced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither beyond its time, nor after a second signal."""
    monkeypatch.setattr(server_module, "HANGING_DISK_S", 0.1)
    answers, hangs = threading.Event(), threading.Event()

    def hang(log: Log) -> None:
        hangs.set()
        answers.wait(60)
        log.abandon()

    monkeypatch.setattr(Log, "close", hang)
    keys = {} if is_forced else {"ottla_shutdown_close_timeout_ms": 0}
    server = Server(config(tmp_path, **keys))
    await server.start()
    client = await Client.to(server.addresses["PLAINTEXT"])
    await client.ask(metadata("t"), 9)
    if not is_forced:  # else there is nothing that could hang
        monkeypatch.setattr(CloseProgress, "is_over", False)
    force = asyncio.Event()
    stopping = asyncio.create_task(server.stop(force=force))
    client.writer.close()
    while not hangs.is_set():
        await asyncio.sleep(0.01)
    if is_forced:
        force.set()
    await stopping
    assert "the disk does not answer: 0 of 2 logs are synced and closed; the stop does not wait for it" in caplog.text
    answers.set()


async def test_the_logs_are_closed_without_a_thread_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with running(tmp_path):
        monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.undo()
    async with running(tmp_path) as server:
        assert server.node.services.log_manager.was_clean
