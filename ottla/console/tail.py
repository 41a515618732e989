"""The live tail: the records that are written from now on, as lines of JSON, until the page closes the connection.

A page cannot show, and nobody can read, all that a busy topic receives: a tail that falls behind skips ahead and says
how many records it left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from ottla.client import Consumer, KafkaError, TopicPartition
from ottla.console.clients import Clients, TooManyTails, is_final, line_of
from ottla.console.queries import choice, optional_integer, refuse
from ottla.console.reading import ISOLATION, MOST_SEARCH_TEXT, partitions_of
from ottla.console.shown_records import Search, shown_record
from ottla.web_server import BadRequest

MOST_BEHIND = 2_000
"""Offsets of a partition; a tail that is further behind skips all but the last `_KEPT`."""
_KEPT = 100
_PAUSE_S = 0.2
"""Between two lines: several a second are as good as more."""
_ALIVE_MS = 5_000
"""A line is sent at least this often, so that a peer that is gone is noticed, and so is a topic that is."""


async def tail(clients: Clients, topic: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Check the request and return the lines: `{"records": […], "skipped": 0}`. The last one is
    `{"error": "…", "final": true}`: if it is final, the same request will be refused again.

    Raises BadRequest, KafkaError.
    """
    partition = optional_integer(query, "partition", 2**31 - 1)
    isolation_level = choice(query, "isolation", ISOLATION)
    text = query.get("search", "")
    if len(text) > MOST_SEARCH_TEXT:
        raise refuse(f"a search has {MOST_SEARCH_TEXT} characters at most")

    async def look() -> list[TopicPartition]:
        return await partitions_of(await clients.admin(), topic, partition)

    return _lines(clients, await look(), look, isolation_level, Search(text))


async def _lines(
    clients: Clients,
    partitions: list[TopicPartition],
    look: Callable[[], Awaitable[list[TopicPartition]]],
    isolation_level: str,
    search: Search,
) -> AsyncIterator[bytes]:
    try:
        async with clients.tailing(isolation_level) as consumer:
            consumer.assign(partitions)
            for one, end in (await consumer.end_offsets(partitions)).items():
                consumer.seek(one, end)
            yield _line({"records": [], "skipped": 0})
            while True:
                got = await consumer.getmany(timeout_ms=_ALIVE_MS)
                if not got:
                    await _require(look)
                records = [shown_record(record) for some in got.values() for record in some if search.matches(record)]
                yield _line({"records": records, "skipped": _skip_ahead(consumer)})
                await asyncio.sleep(_PAUSE_S)
    except KafkaError as error:
        yield _line({"error": line_of(error), "final": is_final(error)})
    except BadRequest as error:
        yield _line({"error": str(error), "final": True})
    except TooManyTails as error:
        yield _line({"error": str(error), "final": False})


async def _require(look: Callable[[], Awaitable[object]]) -> None:
    """Raise a final error of `look`: to a consumer, a topic that was deleted is one in which nothing is written."""
    try:
        await look()
    except KafkaError as error:
        if is_final(error):
            raise


def _skip_ahead(consumer: Consumer) -> int:
    """Skip records of partitions that are far behind, and return how many."""
    skipped = 0
    for one in consumer.assignment():
        behind = consumer.lag(one)
        if behind > MOST_BEHIND:
            consumer.seek(one, consumer.high_watermark(one) - _KEPT)
            skipped += behind - _KEPT
    return skipped


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
