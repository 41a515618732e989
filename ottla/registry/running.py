"""A registry from its start to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ottla.address import host_and_port
from ottla.addressed import is_loopback
from ottla.registry.log import TIMEOUT_S, LogSettings, SchemaLog
from ottla.registry.registry import Registry
from ottla.registry.routes import Routes, refusal
from ottla.web_server import WebServer

MAX_CONNECTIONS = 256
"""Each producer and consumer of a program may keep one."""
IDLE_S = 60.0
"""For a request, and for a connection that waits for one: pools of clients keep them."""


@asynccontextmanager
async def running_registry(
    settings: LogSettings, host: str, port: int, *, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[str]:
    """Serve at an address (port 0: a free one), and give the URL. No broker has to answer yet: requests wait.

    Raises OSError if the address is not available.
    """
    log = SchemaLog(settings, timeout_s=timeout_s)
    names = (host,) if host == "localhost" or is_loopback(host) else None
    routes = Routes(Registry(log), names)
    server = WebServer(
        routes.answer, name="registry", refuse=refusal, max_connections=MAX_CONNECTIONS, request_timeout_s=IDLE_S
    )
    bound = await server.start(host, port)
    log.start()
    try:
        yield f"http://{host_and_port(host, bound)}"
    finally:
        await server.stop()
        await log.close()
