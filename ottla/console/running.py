"""A console from its start to its end."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ottla.address import host_and_port
from ottla.console.clients import Clients, ClientSettings
from ottla.console.guard import Guard
from ottla.console.routes import Routes
from ottla.web_server import WebServer

TOKEN_BYTES = 24


@asynccontextmanager
async def running_console(
    settings: ClientSettings, host: str, port: int, *, is_read_only: bool = False
) -> AsyncIterator[str]:
    """Serve the page at an address (port 0: a free one), and give its URL with the token. No broker has to answer yet.

    Raises OSError if the address is not available.
    """
    token = secrets.token_urlsafe(TOKEN_BYTES)
    clients = Clients(settings)
    server = WebServer(Routes(clients, Guard(token, (host,)), is_read_only=is_read_only).answer)
    bound = await server.start(host, port)
    try:
        yield f"http://{host_and_port(host, bound)}/#token={token}"
    finally:
        await server.stop()
        await clients.close()
