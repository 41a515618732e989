"""A member's two concurrent tasks, heartbeats and rounds: when one ends, the other one is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping


async def run_side_by_side(works: Mapping[str, Coroutine[None, None, None]]) -> None:
    """Run `works`, by the names of their tasks, until the first one ends, and cancel the rest.

    Raises the exception of one of them, in the order of the mapping; RuntimeError for one that was cancelled elsewhere.
    """
    tasks = [asyncio.create_task(work, name=name) for name, work in works.items()]
    done: set[asyncio.Task[None]] = set()
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()
        elif task in done:
            raise RuntimeError(f"{task.get_name()} was cancelled from outside")
