"""A fake cluster in a loop of its own thread, for tests whose thread waits in a blocking client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kit.fake_broker import FakeCluster

LIMIT_S = 60


@contextmanager
def threaded(cluster: FakeCluster) -> Iterator[FakeCluster]:
    """Let it run until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(cluster.__aenter__(), loop).result(LIMIT_S)
        yield cluster
        asyncio.run_coroutine_threadsafe(cluster.__aexit__(), loop).result(LIMIT_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT_S)
        loop.close()
