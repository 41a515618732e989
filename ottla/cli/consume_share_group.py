"""`ottla consume --share-group`: reads a topic as a member of a share group, and accepts what it has printed.

A record is accepted after it was written, and not before. What was acquired but not written is released at the end, so
that other members get it at once.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ottla.cli.failures import reader_is_gone
from ottla.client import ConsumerRecord, ShareConsumer

POLL_MS = 1_000
_FIELDS = len(ConsumerRecord._fields)


def share_options(group_id: str, max_messages: int | None) -> dict[str, object]:
    """Return the options of the member. With `--max-messages` it acquires no more: others would have to wait for it."""
    chosen: dict[str, object] = {"group_id": group_id, "share_acknowledgement_mode": "explicit"}
    if max_messages is not None:
        chosen |= {"share_acquire_mode": "record_limit", "max_poll_records": min(max_messages, 500)}
    return chosen


async def read_share_group(
    servers: str,
    topic: str,
    options: dict[str, Any],
    max_messages: int | None,
    *,
    write: Callable[[Sequence[ConsumerRecord]], None],
    wait_for: Callable[[str], None],
) -> None:
    """Write records and accept them, up to `max_messages` (None: without end).

    `wait_for` is called with what the command waits for. SIGTERM ends it like Ctrl-C, so that the member leaves.
    """
    reading = asyncio.current_task()
    if reading is not None and sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reading.cancel)
    left = max_messages
    async with ShareConsumer(servers, **options) as consumer:
        consumer.subscribe([topic])
        while left is None or left > 0:
            has_place = bool(consumer.assignment())
            wait_for(f"records of {topic}" if has_place else f"a place in the share group {options['group_id']}")
            polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=left)
            for records in polled.values():
                write([ConsumerRecord._make(record[:_FIELDS]) for record in records])
                for record in records:
                    consumer.acknowledge(record)
                left = None if left is None else left - len(records)
            if not polled and reader_is_gone():
                raise BrokenPipeError
        await consumer.commit()
