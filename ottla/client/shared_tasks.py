"""Waiting for a task that is shared by several callers: a look-up, or a connection attempt.

A caller that stops waiting does not end the task for the rest. If the task is cancelled because the client is closed,
its callers get ClientClosed: CancelledError would mean that they themselves were cancelled.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from ottla.client.errors import ClientClosed

T = TypeVar("T")


async def outcome_of(shared: asyncio.Task[T]) -> T:
    """Return the result of `shared`, or raise its exception; ClientClosed if it was cancelled, and not the caller."""
    try:
        return await asyncio.shield(shared)
    except asyncio.CancelledError:
        own = asyncio.current_task()
        if shared.cancelled() and (own is None or not own.cancelling()):
            raise ClientClosed("the client was closed") from None
        raise
