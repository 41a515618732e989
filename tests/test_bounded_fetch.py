"""Fetches of documents from servers that answer, that never end, and that close: the time and the length hold."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from itertools import count
from urllib.error import HTTPError, URLError

import pytest

from ottla.bounded_fetch import fetch

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
MOST = 1 << 20


class Server:
    """Answers one request after another with the pieces of `answers`, and closes."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/jwks"
        self.answer: Iterator[bytes] = iter(())
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client:
                self.requests.append(client.recv(4096))
                try:
                    for piece in self.answer:
                        client.sendall(piece)
                except OSError:
                    pass  # the client has gone: that is what it should do

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(30)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def a_second_for_each_look() -> Callable[[], float]:
    """A clock by which a second passes whenever somebody asks."""
    seconds = count()
    return lambda: float(next(seconds))


def test_a_document_is_fetched(server: Server) -> None:
    server.answer = iter((HEAD + b"Content-Length: 5\r\n\r\nhe", b"llo"))
    assert fetch(server.url, 30, MOST) == b"hello"
    assert server.requests[0].startswith(b"GET /jwks HTTP/1.1\r\n")


def test_a_document_in_chunks_is_fetched(server: Server) -> None:
    server.answer = iter((HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\nhe\r\n", b"3\r\nllo\r\n0\r\n\r\n"))
    assert fetch(server.url, 30, MOST) == b"hello"


def test_a_redirection_is_followed(server: Server) -> None:
    moved = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /other\r\n\r\n"
    server.answer = iter((moved,))
    others = [HEAD + b"\r\nhello"]

    def answers() -> Iterator[bytes]:
        yield moved
        server.answer = iter(others)

    server.answer = answers()
    assert fetch(server.url, 30, MOST) == b"hello"
    assert server.requests[1].startswith(b"GET /other ")


def test_a_longer_document_is_read_up_to_the_limit_and_a_byte(server: Server) -> None:
    server.answer = iter((HEAD + b"\r\n" + bytes(100),))
    assert len(fetch(server.url, 30, 10)) == 11


@pytest.mark.parametrize("start", [HEAD + b"\r\n", HEAD + b"X: ", b""], ids=["body", "header", "status"])
def test_a_server_that_never_ends_is_left_when_the_time_is_over(server: Server, start: bytes) -> None:
    # By the clock of the test the time is over after a few reads, however fast they are: each brings 8 KiB at most.
    server.answer = (start if number == 0 else b"x" * 1_000 for number in count())
    with pytest.raises(OSError, match="no complete answer within 4 s"):
        fetch(server.url, 4, MOST, now_s=a_second_for_each_look())


def test_what_refuses_is_an_error(server: Server) -> None:
    server.answer = iter((b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",))
    with pytest.raises(HTTPError, match="404"):
        fetch(server.url, 30, MOST)


def test_nobody_there_is_an_error(server: Server) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(URLError):
            fetch(f"http://127.0.0.1:{unused.getsockname()[1]}/", 30, MOST)
