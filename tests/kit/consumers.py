"""What tests of consumers in groups share: a listener that remembers, readers in the background, waiting for a fact."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ottla.client import Consumer, ConsumerRecord, RebalanceListener, TopicPartition

LIMIT_S = 60.0
"""A fact that does not come about within this time fails the test; no test waits so long."""


class Heard(RebalanceListener):
    """Remembers the calls that it got, as ("assigned", [partition numbers]) and so on."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("assigned", sorted(one.partition for one in partitions)))

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("revoked", sorted(one.partition for one in partitions)))

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("lost", sorted(one.partition for one in partitions)))


async def until(fact: Callable[[], object]) -> None:
    """Wait for something that a loop of its own brings about."""
    async with asyncio.timeout(LIMIT_S):
        while not fact():
            await asyncio.sleep(0.001)


class Reading:
    """What a background reader got, and what a poll raised."""

    def __init__(self) -> None:
        self.records: list[ConsumerRecord[Any, Any]] = []
        self.failures: list[Exception] = []


@asynccontextmanager
async def reading(*consumers: Consumer[Any, Any]) -> AsyncIterator[Reading]:
    """Poll consumers in the background while the block runs; failures are kept and polling continues."""
    found = Reading()

    async def read(consumer: Consumer[Any, Any]) -> None:
        while True:
            try:
                polled = await consumer.getmany(timeout_ms=50)
            except Exception as failure:
                found.failures.append(failure)
                await asyncio.sleep(0.001)
                continue
            for records in polled.values():
                found.records += records

    tasks = [asyncio.create_task(read(consumer)) for consumer in consumers]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
