"""`max_records` of a poll: what no poll could obey is refused, in all four consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla import client
from ottla.testing import EmbeddedBroker

WRONG: list[tuple[Any, type[Exception], str]] = [
    (-1, ValueError, "max_records must be at least 1, or None for max_poll_records, not -1"),
    (0, ValueError, "max_records must be at least 1, or None for max_poll_records, not 0"),
    (1.5, TypeError, "max_records must be an integer or None, not 1.5"),
    (True, TypeError, "max_records must be an integer or None, not True"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.send("orders", b"tea", b"coffee")
        yield broker


@pytest.mark.parametrize(("wrong", "kind", "words"), WRONG)
def test_the_blocking_consumers_refuse_it(
    broker: EmbeddedBroker, wrong: Any, kind: type[Exception], words: str
) -> None:
    with ottla.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign_topics("orders")
        with pytest.raises(kind, match=words):
            consumer.getmany(timeout_ms=60_000, max_records=wrong)
        (records,) = consumer.getmany(timeout_ms=60_000, max_records=1).values()  # nothing was taken
        assert records[0].value == b"tea"
    with ottla.ShareConsumer(broker.bootstrap_servers, group_id="g") as shares, pytest.raises(kind, match=words):
        shares.getmany(timeout_ms=60_000, max_records=wrong)


@pytest.mark.parametrize(("wrong", "kind", "words"), WRONG)
def test_the_asyncio_consumers_refuse_it(broker: EmbeddedBroker, wrong: Any, kind: type[Exception], words: str) -> None:
    async def check() -> None:
        async with client.Consumer(broker.bootstrap_servers) as consumer:
            with pytest.raises(kind, match=words):
                await consumer.getmany(timeout_ms=60_000, max_records=wrong)
        async with client.ShareConsumer(broker.bootstrap_servers, group_id="g") as shares:
            with pytest.raises(kind, match=words):
                await shares.getmany(timeout_ms=60_000, max_records=wrong)

    asyncio.run(check())
