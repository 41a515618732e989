"""The clock of an event loop, put forward: a time limit is over when the test says so, however busy the machine is.

A limit short enough to be waited for is one that a machine with other work may miss where it should be kept.
"""

from __future__ import annotations

import asyncio


def put_forward(seconds: float) -> None:
    """Let so much time pass at once in the running loop (asyncio's); what is due then runs in its next turns."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]  # all of asyncio asks the loop for the time
