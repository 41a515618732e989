"""Run one piece of work with an Admin, as most commands do; every failure is one line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ottla.cli.client_properties import options_of
from ottla.cli.failures import client_errors
from ottla.cli.topics_meant import topics_meant
from ottla.cli.waiting import Waiting

if TYPE_CHECKING:
    from ottla.client import Admin

_T = TypeVar("_T")

TIMEOUT_MS = 30_000


def with_admin(
    servers: str, client_id: str, work: Callable[[Admin], Awaitable[_T]], *, timeout_ms: int = TIMEOUT_MS
) -> _T:
    """Return the result of `work` with an Admin. Each of its calls may take `timeout_ms`. Raises Failure; Ctrl-C ends
    the program with status 130.
    """
    from ottla.client import Admin
    from ottla.client.options import AdminOptions

    options = options_of(AdminOptions, servers, {"client_id": client_id, "default_api_timeout_ms": timeout_ms})

    async def run() -> _T:
        async with Admin(servers, **options) as admin, topics_meant(admin):
            return await work(admin)

    try:
        with client_errors(), Waiting(f"an answer of {servers}"):
            return asyncio.run(run())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
