"""What is left of partitions for a consumer that reads only what is committed: records, or nothing that it gets.

The end of a transaction takes an offset, and so do aborted records. A group whose committed offset is before such
offsets has a lag, and has read everything: common with transactional producers, such as those of Kafka Streams. Only a
look into the log shows which it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from ottla.client import Consumer, TopicPartition

OpenReader: TypeAlias = "Callable[[], AbstractAsyncContextManager[Consumer]]"
"""Opens a consumer without a group, with isolation.level=read_committed."""
MOST_PARTITIONS: Final = 100
MOST_SECONDS: Final = 3.0
_POLL_MS: Final = 200


async def without_records(
    open_reader: OpenReader, unread: Mapping[TopicPartition, tuple[int, int]]
) -> frozenset[TopicPartition]:
    """Those of the partitions that have no committed record between two offsets, `[low, high)`.

    Partitions are left out if this user may not read them, if there are more than MOST_PARTITIONS, or if the look takes
    longer than MOST_SECONDS: the diagnosis continues without.
    """
    from ottla.client import KafkaError

    left = dict(sorted(unread.items())[:MOST_PARTITIONS])
    empty: set[TopicPartition] = set()
    if not left:
        return frozenset()
    try:
        async with asyncio.timeout(MOST_SECONDS), open_reader() as consumer:
            consumer.assign(left)
            for one, (low, _) in left.items():
                consumer.seek(one, low)
            while left:
                got = await consumer.getmany(timeout_ms=_POLL_MS, max_records=len(left))
                for one, records in got.items():
                    if one in left and any(record.offset < left[one][1] for record in records):
                        del left[one]
                        consumer.pause(one)
                for one, (_, high) in list(left.items()):
                    if await consumer.has_reached(one, high):
                        empty.add(one)
                        del left[one]
                        consumer.pause(one)
    except (KafkaError, TimeoutError):
        pass
    return frozenset(empty)
