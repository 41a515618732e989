"""Waiting for a task that others wait for as well: a look-up, a connection that is made.

One who gives up waiting does not end it for the others. When the client is closed and the task ended with it, those who
wait hear ClientClosed: CancelledError is for a task that was cancelled itself, and another would seem to be.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from ottla.client.errors import ClientClosed

T = TypeVar("T")


async def outcome_of(shared: asyncio.Task[T]) -> T:
    """Return what `shared` returns, or raise what it raises; ClientClosed if it was cancelled, and we were not."""
    try:
        return await asyncio.shield(shared)
    except asyncio.CancelledError:
        own = asyncio.current_task()
        if shared.cancelled() and (own is None or not own.cancelling()):
            raise ClientClosed("the client was closed") from None
        raise
