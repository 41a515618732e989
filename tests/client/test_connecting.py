"""Opening a connection: what fails before there is one is said in one line."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.connecting import connect
from ottla.client.errors import ConnectionLost
from ottla.client.options import ClientOptions

OPTIONS = ClientOptions()


async def test_a_port_where_nobody_listens_is_a_lost_connection():
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionLost, match=str(port)):
        await connect("127.0.0.1", port, OPTIONS)


async def test_why_there_is_no_connection_is_said_once_in_the_systems_words(monkeypatch):
    with pytest.raises(ConnectionLost, match=r"cannot connect to 127\.0\.0\.1:1: Connection refused$"):
        await connect("127.0.0.1", 1, OPTIONS)

    async def refused_everywhere(*_, **__):  # what asyncio makes of a name with two addresses
        raise OSError(
            "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), "
            "[Errno 111] Connect call failed ('127.0.0.1', 1)"
        )

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", refused_everywhere)
    with pytest.raises(ConnectionLost, match=r"cannot connect to localhost:1: Connection refused$"):
        await connect("localhost", 1, OPTIONS)
