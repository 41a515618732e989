"""The HTTP port: pages, refusals, and bounds, over real sockets on a free port."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from html.parser import HTMLParser
from http import HTTPStatus

import pytest
from kit.nodes import start_node

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.http.front import front_page
from ottla.broker.http.operations import operations_of
from ottla.broker.http.pages import pages_of, starting_pages
from ottla.broker.http.server import BYTES_PER_WRITE, MAX_HEAD_BYTES, BadRequest, HttpServer, Page, parse_head, plain
from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition


def broken() -> Page:
    raise RuntimeError("a bug")


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    pages = {"/page": lambda: plain(HTTPStatus.OK, "here"), "/broken": broken}
    running = HttpServer("127.0.0.1", 0, pages)
    await running.start()
    yield running
    await running.stop()


async def send(server: HttpServer, *pieces: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send the pieces one by one; status, headers and body of the last answer before the connection ends."""
    reader, writer = await asyncio.open_connection(*server.address)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    writer.write_eof()
    data = await reader.read()
    writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(status.split()[1]), headers, body


def get(path: str, *headers: str, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    return "\r\n".join([f"{method} {path} {version}", "Host: x", *headers, "", ""]).encode()


async def test_a_page_is_served_with_its_length(server: HttpServer) -> None:
    status, headers, body = await send(server, get("/page"))
    assert (status, body) == (200, b"200 OK: here\n")
    assert headers["content-length"] == str(len(body))


async def test_a_long_page_is_sent_whole() -> None:
    long = Page(HTTPStatus.OK, "text/plain", bytes(range(251)) * (5 * BYTES_PER_WRITE // 502))
    running = HttpServer("127.0.0.1", 0, {"/long": lambda: long})
    await running.start()
    try:
        status, headers, body = await send(running, get("/long", "Connection: close"))
    finally:
        await running.stop()
    assert (status, headers["content-length"]) == (200, str(len(long.body)))
    assert body == long.body


async def test_a_request_may_come_byte_by_byte(server: HttpServer) -> None:
    status, _, _ = await send(server, *(bytes([byte]) for byte in get("/page?query=1")))
    assert status == 200


async def test_a_connection_serves_one_request_after_the_other(server: HttpServer) -> None:
    reader, writer = await asyncio.open_connection(*server.address)
    for _ in range(3):
        writer.write(get("/page"))
        assert await reader.readuntil(b"here\n")
    writer.write(get("/page", "Connection: close"))
    assert b"Connection: close" in await reader.read()
    writer.close()


async def test_http_1_0_closes_after_the_answer(server: HttpServer) -> None:
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(get("/page", version="HTTP/1.0"))
    assert (await reader.read()).endswith(b"here\n")
    writer.close()


async def test_head_has_the_length_and_no_body(server: HttpServer) -> None:
    status, headers, body = await send(server, get("/page", method="HEAD"))
    assert (status, headers["content-length"], body) == (200, "13", b"")


async def test_an_unknown_path_is_404_and_names_what_there_is(server: HttpServer) -> None:
    status, _, body = await send(server, get("/nothing"))
    assert status == 404
    assert b"/page" in body


async def test_another_method_is_405(server: HttpServer) -> None:
    status, headers, _ = await send(server, get("/page", method="DELETE"))
    assert (status, headers["allow"]) == (405, "GET, HEAD")


async def test_a_page_with_a_bug_is_500_and_the_server_goes_on(server: HttpServer) -> None:
    assert (await send(server, get("/broken")))[0] == 500
    assert (await send(server, get("/page")))[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x14\x00\x12\x00\x04\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /page HTTP/2.0\r\n\r\n",
        b"GET page HTTP/1.1\r\n\r\n",
        b"GET /page HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /page HTTP/1.1\r\n folded: x\r\n\r\n",
        b"GET /page HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"GET /page HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /p\xffge HTTP/1.1\r\n\r\n",
        b"GET /page HTTP/1.1\r\nHost: x",
    ],
)
async def test_what_is_not_a_request_of_ours_is_400(server: HttpServer, data: bytes) -> None:
    assert (await send(server, data))[0] == 400


async def test_a_head_over_the_limit_is_431(server: HttpServer) -> None:
    room = MAX_HEAD_BYTES - len(get("/page", "X: "))
    assert (await send(server, get("/page", "X: " + "x" * room)))[0] == 200
    assert (await send(server, get("/page", "X: " + "x" * (room + 1))))[0] == 431
    assert (await send(server, b"x" * (MAX_HEAD_BYTES + 1)))[0] == 431


async def test_a_head_that_does_not_come_in_time_ends_the_connection() -> None:
    running = HttpServer("127.0.0.1", 0, {}, head_timeout_s=0.01)
    await running.start()
    reader, writer = await asyncio.open_connection(*running.address)
    writer.write(b"GET /pa")
    assert await reader.read() == b""
    writer.close()
    await running.stop()


async def test_who_does_not_take_the_answer_is_cut_off_and_leaves_nothing_behind() -> None:
    """What is left of it would be kept, with its descriptor, for as long as the other end likes."""
    page = Page(HTTPStatus.OK, "text/plain", b"x" * 16_000_000)
    server = HttpServer("127.0.0.1", 0, {"/page": lambda: page}, write_timeout_s=0.05)
    await server.start()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, server.address)
        await asyncio.get_running_loop().sock_sendall(client, get("/page"))
        while not server.connection_count:
            await asyncio.sleep(0)
        while server.connection_count:
            await asyncio.sleep(0)
        received = 0
        with suppress(ConnectionResetError):
            while data := await asyncio.get_running_loop().sock_recv(client, 1 << 20):
                received += len(data)
    await server.stop()
    assert received < len(page.body)


async def test_a_length_that_comes_twice_is_no_length(server: HttpServer) -> None:
    """Else what one proxy takes for a body would be the next request."""
    status, _, _ = await send(server, get("/page", "Content-Length: 5", "Content-Length: 0"))
    assert status == 400


def addressed(host: str) -> bytes:
    return f"GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


async def test_a_page_under_another_name_is_not_given_what_is_for_this_machine(server: HttpServer) -> None:
    status, _, body = await send(server, addressed("evil.example:9644"))
    assert status == 421
    assert b"'evil.example:9644' is not this broker" in body
    assert (await send(server, addressed(f"localhost:{server.address[1]}")))[0] == 200
    assert (await send(server, b"GET /page HTTP/1.0\r\n\r\n"))[0] == 200


async def test_the_name_that_the_listener_is_set_to_is_one_of_its_own() -> None:
    pages = {"/page": lambda: plain(HTTPStatus.OK, "here")}
    running = HttpServer("127.0.0.1", 0, pages, names=("Broker.example",))
    await running.start()
    try:
        assert (await send(running, addressed("broker.example:9644")))[0] == 200
        assert (await send(running, addressed("evil.example")))[0] == 421
    finally:
        await running.stop()


async def test_a_port_for_other_machines_is_reached_by_any_name() -> None:
    """As a container's published port is: its names are not known in there."""
    pages = {"/page": lambda: plain(HTTPStatus.OK, "here")}
    running = HttpServer("0.0.0.0", 0, pages, {"/do": lambda asked: plain(HTTPStatus.OK, "done")})
    await running.start()
    try:
        assert (await send(running, addressed("docker.example:9644")))[0] == 200
        operation = b"POST /do HTTP/1.1\r\nHost: docker.example\r\nX-Ottla: 1\r\n\r\n"
        assert (await send(running, operation))[0] == 421
        assert (await send(running, operation.replace(b"docker.example", b"127.0.0.1:9644")))[0] == 200
    finally:
        await running.stop()


async def test_a_host_that_comes_twice_is_400(server: HttpServer) -> None:
    assert (await send(server, get("/page", "Host: evil.example")))[0] == 400


async def test_stopping_closes_open_connections() -> None:
    running = HttpServer("127.0.0.1", 0, {})
    await running.start()
    reader, writer = await asyncio.open_connection(*running.address)
    writer.write(get("/"))
    await reader.readuntil(b"\r\n\r\n")
    await running.stop()
    assert (await reader.read()).endswith(b"\n")
    writer.close()


def test_a_head_is_parsed_to_method_path_and_persistence() -> None:
    assert parse_head(get("/a?b=c")) == ("GET", "/a", True, "b=c", False, "x", False)
    assert parse_head(get("/a", "connection: Close")) == ("GET", "/a", False, "", False, "x", False)
    stays = get("/a", "Connection: keep-alive", "x-ottla: 1", version="HTTP/1.0")
    assert parse_head(stays) == ("GET", "/a", True, "", False, "x", True)
    with pytest.raises(BadRequest):
        parse_head(b"\r\n\r\n")


# --- pages


ADDRESSES = {"PLAINTEXT": ("::", 9092)}


def page(node: Node, path: str, *, accepts: bool = True) -> Page:
    answer = pages_of(node.services, node.cleaner, ADDRESSES, lambda: accepts)[path]()
    if isinstance(answer, Page):
        return answer
    while not answer.done:
        node.run_due()
    assert answer.response is not None
    return answer.response


def test_the_broker_is_alive_and_ready_with_its_directories() -> None:
    node, _, _ = start_node()
    node.services.catalog.create_topics([NewTopic("t")], lambda _: None)
    node.settle()
    assert page(node, "/livez").status is HTTPStatus.OK
    ready = page(node, "/readyz")
    assert ready.status is HTTPStatus.OK
    body = json.loads(ready.body)
    assert body["status"] == "ready"
    assert body["topics"] == 1
    assert body["log_directories"] == [{"path": "/data", "state": "online", "error": None}]


class Links(HTMLParser):
    """The elements of a page, and where its links go."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links.append(dict(attrs)["href"] or "")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_front_page_links_every_page_and_names_every_operation() -> None:
    node, _, _ = start_node()
    front = page(node, "/")
    assert (front.status, front.content_type) == (HTTPStatus.OK, "text/html; charset=utf-8")
    text = front.body.decode()
    read = Links(text)
    assert read.open == []
    assert {"/", *read.links} == pages_of(node.services, node.cleaner, {}, lambda: True).keys()
    for path in operations_of(node.services, node.cleaner):
        command = path.removeprefix("/log/").replace("cleaning", "clean")  # what became of it: the same command asks
        assert f"<code>ottla log {command}" in text
    for part in (
        "<strong>ready</strong>",
        "[::]:9092",
        f"cluster {node.services.catalog.cluster_id}",
        "/data (online)",
    ):
        assert part in text
    assert "not accepting requests" in page(node, "/", accepts=False).body.decode()


def test_the_front_page_is_small_whatever_the_broker_holds() -> None:
    node, _, _ = start_node()
    small = len(page(node, "/").body)
    node.services.catalog.create_topics([NewTopic("t" * 249, partitions=100)], lambda _: None)
    node.settle()
    assert len(page(node, "/").body) < small + 20 < 4000


def test_the_front_page_escapes_what_does_not_come_from_it() -> None:
    front = front_page("starting: <1 & 2>", {"<b>": "<script>"}, [("<i>", '"', "&")]).body.decode()
    for raw in ("<b>", "<script>", "<i>", "1 & 2"):
        assert raw not in front
    assert "starting: &lt;1 &amp; 2&gt;" in front


async def test_the_front_page_may_load_and_run_nothing() -> None:
    running = HttpServer("127.0.0.1", 0, starting_pages(lambda: "3 of 9 logs"))
    await running.start()
    status, headers, body = await send(running, get("/"))
    await running.stop()
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert b"starting: 3 of 9 logs" in body


def test_the_broker_is_not_ready_while_it_does_not_accept_requests() -> None:
    node, _, _ = start_node()
    assert page(node, "/readyz", accepts=False).status is HTTPStatus.SERVICE_UNAVAILABLE


def test_the_broker_is_not_ready_when_no_directory_takes_writes() -> None:
    node, _, _ = start_node()
    (directory,) = node.services.log_manager.directories
    directory.mark_offline(OSError(5, "the disk is gone"))
    answer = page(node, "/readyz")
    assert answer.status is HTTPStatus.SERVICE_UNAVAILABLE
    (reported,) = json.loads(answer.body)["log_directories"]
    assert reported["state"] == "offline"
    assert "the disk is gone" in reported["error"]


def test_a_scrape_of_many_partitions_comes_in_steps_and_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.broker.telemetry import exposition

    node, _, _ = start_node()
    node.services.catalog.create_topics([NewTopic("orders", partitions=40)], lambda outcomes: None)
    node.settle()
    whole = exposition.Exposition(node.services, node.cleaner).render()
    monkeypatch.setattr(exposition, "SAMPLES_PER_PIECE", 15)
    pieces = list(exposition.Exposition(node.services, node.cleaner).pieces())
    assert len(pieces) > 20
    assert max(sum(line[:1] != b"#" for line in piece.splitlines()) for piece in pieces) <= 40

    def names(text: bytes) -> list[bytes]:
        return [line.rpartition(b" ")[0] for line in text.splitlines()]

    assert names(b"".join(pieces)) == names(whole)


def test_a_step_of_a_scrape_adds_up_one_counter_of_all_topics() -> None:
    from ottla.broker.telemetry.exposition import Exposition

    node, _, _ = start_node()
    totals = [
        sum(line.startswith(b"kafka_server_brokertopicmetrics_") and b"{" not in line for line in piece.splitlines())
        for piece in Exposition(node.services, node.cleaner).pieces()
    ]
    assert max(totals) == 1
    assert sum(totals) > 5


def test_a_scrape_without_damage_goes_through_all_partitions_for_the_gauges_only() -> None:
    from ottla.broker.telemetry import exposition

    node, _, _ = start_node()
    walks: list[None] = []

    class Counting(exposition.NodeCollector):
        def partitions(self) -> Iterator[tuple[list[str], Partition]]:
            walks.append(None)
            return super().partitions()

    list(Counting(node.services, node.cleaner).collect())
    assert len(walks) == len(exposition.LOG_GAUGES)


def test_a_topic_that_goes_during_a_scrape_is_in_no_later_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is made when its piece is: no step goes through all partitions."""
    from ottla.broker.telemetry import exposition

    node, _, _ = start_node()
    node.services.catalog.create_topics([NewTopic("orders", partitions=40)], lambda outcomes: None)
    node.settle()
    monkeypatch.setattr(exposition, "SAMPLES_PER_PIECE", 15)
    pieces = exposition.Exposition(node.services, node.cleaner).pieces()
    first = next(piece for piece in pieces if b'kafka_log_log_size{partition="0",topic="orders"}' in piece)
    node.services.catalog.delete_topics(["orders"], lambda outcomes: None)
    node.settle()
    assert first.count(b"kafka_log_log_size{") <= 15
    assert b'topic="orders"' not in b"".join(pieces)


def test_metrics_are_prometheus_text() -> None:
    node, _, _ = start_node()
    answer = page(node, "/metrics")
    assert answer.content_type.startswith("text/plain")
    assert b"kafka_server_brokertopicmetrics_messagesin_total 0.0" in answer.body
