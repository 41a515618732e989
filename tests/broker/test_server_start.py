"""While a server opens its logs: probes are answered, and a signal ends a recovery that the next start does again."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from kit.clock import ManualClock
from kit.exchange import batch
from kit.old_directories import tree

from ottla.broker import server as server_module
from ottla.broker.catalog.catalog import Catalog, NewTopic, TopicResult
from ottla.broker.net.listening import StartError
from ottla.broker.node import Node
from ottla.broker.runtime.listening_time import MOST_MS
from ottla.broker.server import Server
from ottla.broker.services import Services
from ottla.config.broker import BrokerConfig
from ottla.storage.directories.load_progress import LoadInterrupted
from ottla.storage.errors import StorageError
from ottla.storage.files.files import OsFiles


def config(directory: Path) -> BrokerConfig:
    return BrokerConfig.of(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "ottla.http.listener": "127.0.0.1:0",
            "log.dirs": str(directory),
            "ottla.acks.all": "page-cache",
        }
    )


@contextmanager
def held_opening() -> Iterator[threading.Event]:
    """Opening the catalog waits for the event: how a start looks in the middle of a recovery."""
    go_on = threading.Event()
    opening = Catalog.open

    def held(self: Catalog, bound_ports: Mapping[str, int]) -> None:
        assert go_on.wait(60)
        opening(self, bound_ports)

    with mock.patch.object(Catalog, "open", held):
        try:
            yield go_on
        finally:
            go_on.set()


async def probe(server: Server, path: str) -> tuple[int, bytes]:
    while server.http_address is None:
        await asyncio.sleep(0)
    reader, writer = await asyncio.open_connection(*server.http_address)
    writer.write(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def crashed_broker(directory: Path) -> None:
    """A log of ten records in a directory that nobody stopped cleanly."""
    node = Node(config(directory))
    node.start()
    reported: list[TopicResult] = []
    node.services.catalog.create_topics([NewTopic("orders", 1)], reported.extend)
    node.settle()
    partition = node.services.catalog.partition("orders", 0)
    assert partition is not None
    for _ in range(10):
        partition.log.append_batches([memoryview(bytearray(batch()))], node.services.clock.wall_ms())
    node.services.log_manager.close(clean=False)


async def test_probes_are_answered_while_logs_are_opened(tmp_path: Path) -> None:
    server = Server(config(tmp_path))
    with held_opening() as go_on:
        starting = asyncio.ensure_future(server.start())
        assert (await probe(server, "/livez"))[0] == 200
        status, body = await probe(server, "/readyz")
        assert status == 503
        reported = json.loads(body)
        assert reported["status"] == "starting"
        assert "logs are open" in reported["progress"]
        assert (await probe(server, "/metrics"))[0] == 503
        assert (await probe(server, "/log/roll"))[0] == 404
        assert not server.addresses
        go_on.set()
        await starting
    assert (await probe(server, "/readyz"))[0] == 200
    assert (await probe(server, "/metrics"))[0] == 200
    assert (await probe(server, "/log/roll"))[0] == 405
    await server.stop()


async def test_a_recovery_can_be_ended_and_is_done_by_the_next_start(tmp_path: Path) -> None:
    crashed_broker(tmp_path)
    server = Server(config(tmp_path))
    with held_opening() as go_on:
        starting = asyncio.ensure_future(server.start())
        await probe(server, "/livez")
        server.interrupt_start()
        go_on.set()
        with pytest.raises(LoadInterrupted):
            await starting
    server = Server(config(tmp_path))
    await server.start()
    log = server.node.services.log_manager.get("orders", 0)
    assert log is not None
    assert log.log_end_offset == 10
    assert not server.node.services.log_manager.was_clean
    await server.stop()


async def test_a_start_after_a_clean_stop_is_not_ended_halfway(tmp_path: Path) -> None:
    server = Server(config(tmp_path))
    await server.start()
    await server.stop()
    server = Server(config(tmp_path))
    with held_opening() as go_on:
        starting = asyncio.ensure_future(server.start())
        await probe(server, "/livez")
        server.interrupt_start()
        go_on.set()
        await starting
    assert server.node.services.log_manager.was_clean
    await server.stop()


async def test_the_time_before_clients_are_heard_and_after_counts_against_no_member(tmp_path: Path) -> None:
    clock = ManualClock()
    server = Server(config(tmp_path), clock=clock)
    counted_ms: list[float] = []

    def summary(_: object, services: Services, started_ms: int) -> None:
        counted_ms.append(services.listening.now_ms())
        clock.advance(60_000)

    with mock.patch.object(server_module, "log_start_summary", summary):
        await server.start()
    listening = server.node.services.listening
    counted_ms.append(listening.now_ms())
    assert counted_ms[1] == counted_ms[0]
    await server.stop()
    clock.advance(60_000)
    assert listening.now_ms() == counted_ms[1]


async def test_a_loop_that_is_stopped_counts_for_a_second(tmp_path: Path) -> None:
    clock = ManualClock()
    server = Server(config(tmp_path), clock=clock)
    await server.start()
    before_ms = server.node.services.listening.now_ms()
    clock.advance(60_000)
    assert server.node.services.listening.now_ms() == before_ms + MOST_MS
    await server.stop()


async def test_a_start_that_is_cancelled_gives_the_directories_back(tmp_path: Path) -> None:
    crashed_broker(tmp_path)
    await stopped(config(tmp_path))
    server = Server(config(tmp_path))
    with held_opening() as go_on:
        starting = asyncio.ensure_future(server.start())
        assert (await probe(server, "/livez"))[0] == 200
        starting.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await stopped(config(tmp_path))


async def stopped(settings: BrokerConfig) -> None:
    """A whole life; StorageError when somebody else has the directories."""
    server = Server(settings)
    await server.start()
    await server.stop()


async def test_a_second_broker_fails_at_the_lock_before_any_port(tmp_path: Path) -> None:
    """On the same directory and the same ports: that one runs already is what its owner has to know."""
    first = Server(config(tmp_path / "data"))
    await first.start()
    try:
        assert first.http_address is not None
        keys = {
            "listeners": f"PLAINTEXT://{first.bootstrap}",
            "ottla.http.listener": f"127.0.0.1:{first.http_address[1]}",
            "log.dirs": str(tmp_path / "data"),
        }
        with pytest.raises(StorageError, match="data is in use by another broker"):
            await Server(BrokerConfig.of(keys)).start()
        with pytest.raises(StartError, match="listeners="):
            await Server(BrokerConfig.of(keys | {"log.dirs": str(tmp_path / "other")})).start()
    finally:
        await first.stop()


@pytest.mark.parametrize("taken", ["listeners", "ottla.http.listener"])
async def test_a_start_that_gets_no_port_gives_the_lock_back_and_makes_nothing(tmp_path: Path, taken: str) -> None:
    crashed_broker(tmp_path / "data")
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        keys = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "ottla.http.listener": "",
            "log.dirs": f"{tmp_path / 'data'},{tmp_path / 'new'}",
            taken: f"PLAINTEXT://{address}" if taken == "listeners" else address,
        }
        before = tree(tmp_path)
        with pytest.raises(StartError, match=taken):
            await Server(BrokerConfig.of(keys)).start()
        assert tree(tmp_path) == before
    OsFiles().lock(tmp_path / "data" / ".lock").release()
