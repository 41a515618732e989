"""A member's two tasks, its heartbeats and its rounds: neither goes on without the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping


async def run_side_by_side(works: Mapping[str, Coroutine[None, None, None]]) -> None:
    """Run `works`, by their tasks' names, until the first ends, and end the others.

    Raises what one of them raised, the first of the mapping first.
    """
    tasks = [asyncio.create_task(work, name=name) for name, work in works.items()]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()
