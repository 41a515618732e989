"""A member's two tasks, its heartbeats and its rounds: neither goes on without the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping


async def run_side_by_side(works: Mapping[str, Coroutine[None, None, None]]) -> None:
    """Run `works`, by their tasks' names, until the first ends, and end the others.

    Raises what one of them raised, the first of the mapping first; RuntimeError for one that somebody else cancelled.
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
            raise RuntimeError(f"{task.get_name()} was cancelled by somebody else")
