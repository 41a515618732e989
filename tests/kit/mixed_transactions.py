"""A topic in which transactions of several producers lie between each other: committed, aborted, and one still open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ottla.client import Admin, Producer, TopicPartition


@dataclass
class Mixed:
    """What was written to partition 0, in the order of offsets."""

    topic: str
    committed: list[bytes] = field(default_factory=list)
    """The values that a reader with `read_committed` gets before the open transaction."""
    every: list[bytes] = field(default_factory=list)
    first_open: int = 0
    """The offset at which the open transaction begins: the last stable one."""
    writer: Producer | None = None
    """The producer of the open transaction."""

    @property
    def partition(self) -> TopicPartition:
        """The one that was written to."""
        return TopicPartition(self.topic, 0)


@asynccontextmanager
async def mixed_transactions(bootstrap: str, topic: str, rounds: int = 6, **configs: str) -> AsyncIterator[Mixed]:
    """Write `rounds` times two transactions that overlap, of which every third is aborted, plain records between them,
    and leave one open with records behind it.
    """
    mixed = Mixed(topic)
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1, configs=configs)
    async with (
        Producer(bootstrap) as plain,
        Producer(bootstrap, transactional_id=f"{topic}-0") as first,
        Producer(bootstrap, transactional_id=f"{topic}-1") as second,
    ):
        number = 0

        async def write(producer: Producer, is_committed: bool) -> int:
            nonlocal number
            number += 1
            value = b"%d" % number
            place = await producer.send_and_wait(topic, value, partition=0)
            mixed.every.append(value)
            if is_committed:
                mixed.committed.append(value)
            return place.offset

        for turn in range(rounds):
            commits = [(2 * turn + place) % 3 != 0 for place in range(2)]
            await first.begin_transaction()
            await write(first, commits[0])
            await second.begin_transaction()
            await write(second, commits[1])
            await write(plain, True)
            await write(first, commits[0])
            for producer, is_commit in zip((first, second), commits, strict=True):
                await (producer.commit_transaction() if is_commit else producer.abort_transaction())
        await second.begin_transaction()
        mixed.first_open = await write(second, False)
        await write(plain, False)  # committed, but behind the last stable offset
        mixed.writer = second
        yield mixed
