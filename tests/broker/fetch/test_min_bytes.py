"""Fetch requests with `min_bytes`: what is there counts, up to the limits, and not what a read of whole batches gave.

A consumer with fetch.min.bytes of a megabyte and the default max.partition.fetch.bytes, which is as much, waited for
`max_wait_ms` with each request, although there were many megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

import pytest
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import partition_of, start_node

from ottla.broker.node import Node
from ottla.protocol.api.fetch import FetchRequest, FetchResponse

VERSION = 12
BATCH = batch(value=b"x" * 300)
LIMIT = 3 * len(BATCH) - 1
"""A read of two batches ends well below it, and a third one would be beyond it."""
WAIT_MS = 500


@pytest.fixture(params=["templates", "slow path"])
def path(request: pytest.FixtureRequest) -> object:
    with ExitStack() as patches:
        if request.param == "slow path":
            patches.enter_context(patch("ottla.broker.requests.dispatch.learn", lambda *_: None))
        yield request.param


def node_with(batches: int, **config: object) -> Node:
    node, _, _ = start_node(ottla_acks_all="page-cache", **config)
    make_topic(node, "t", 2)
    produce(node, batches)
    return node


def produce(node: Node, batches: int, partition: int = 0) -> None:
    client = Exchange(node)
    for _ in range(batches):
        client.ask(produce_request("t", BATCH, partition=partition), 9)


def produce_together(node: Node, batches: int) -> None:
    """In one append."""
    other = Exchange(node)
    frames = b"".join(other.frame(produce_request("t", BATCH), 9) for _ in range(batches))
    other.connection.get_buffer(-1)[: len(frames)] = frames
    other.connection.buffer_updated(len(frames))
    node.settle()


def plain(offset: int, *, min_bytes: int = LIMIT, limit: int = LIMIT, **more: object) -> FetchRequest:
    request = fetch_request("t", offset, max_wait_ms=WAIT_MS, min_bytes=min_bytes, **more)
    request.topics[0].partitions[0].partition_max_bytes = limit
    return request


def several(offset: int, *, min_bytes: int = LIMIT, limit: int = LIMIT) -> FetchRequest:
    """Of two partitions; of the second there is nothing yet."""
    request = fetch_request("t", offset, partitions=2, max_wait_ms=WAIT_MS, min_bytes=min_bytes)
    first, second = request.topics[0].partitions
    first.partition_max_bytes = limit
    second.fetch_offset = 0
    return request


Asking = Callable[..., FetchRequest]
each_kind = pytest.mark.parametrize("ask", [plain, several])


def records_in(answer: object) -> int:
    """Batches of the first partition."""
    assert isinstance(answer, FetchResponse)
    records = answer.responses[0].partitions[0].records
    assert records is not None
    assert len(records) % len(BATCH) == 0
    return len(records) // len(BATCH)


@each_kind
@pytest.mark.usefixtures("path")
def test_a_read_that_ends_with_a_whole_batch_below_the_limit_is_answered(ask: Asking) -> None:
    node = node_with(10)
    client = Exchange(node)
    for offset in (0, 2, 4, 4):
        assert records_in(client.ask(ask(offset), VERSION)) == 2


@each_kind
@pytest.mark.usefixtures("path")
def test_what_is_less_than_min_bytes_waits(ask: Asking) -> None:
    node = node_with(10)
    client = Exchange(node)
    client.ask(ask(0), VERSION)
    client.ask(ask(2), VERSION)
    client.send(ask(8), VERSION)  # two batches are left
    node.settle()
    assert not client.transport.written
    produce(node, 1)
    assert records_in(client.reply()) == 2


@each_kind
@pytest.mark.usefixtures("path")
def test_a_partition_counts_up_to_its_own_limit(ask: Asking) -> None:
    node = node_with(10)
    client = Exchange(node)
    for _ in range(2):
        client.send(ask(0, min_bytes=LIMIT + 1), VERSION)
        node.settle()
        assert not client.transport.written  # Kafka waits, too
        node.services.clock.advance(WAIT_MS)  # type: ignore[attr-defined]  # a ManualClock
        node.run_due()
        node.settle()
        assert records_in(client.reply()) == 2


@each_kind
@pytest.mark.usefixtures("path")
def test_one_that_has_waited_is_answered_when_there_is_more_than_its_read_may_give(ask: Asking, path: str) -> None:
    node = node_with(2)
    client = Exchange(node)
    client.ask(ask(0, min_bytes=1), VERSION)
    client.ask(ask(0, min_bytes=1), VERSION)
    for number in range(3):
        offset = 2 + 4 * number
        client.send(ask(offset), VERSION)
        node.settle()
        assert not client.transport.written
        produce_together(node, 4)
        assert records_in(client.reply()) == 2, number


@pytest.mark.usefixtures("path")
def test_several_that_have_waited_for_the_same_are_answered() -> None:
    node = node_with(2)
    clients = [Exchange(node) for _ in range(3)]
    for client in clients:
        client.ask(plain(0, min_bytes=1), VERSION)
        client.send(plain(2), VERSION)
    node.settle()
    assert not any(client.transport.written for client in clients)
    produce_together(node, 4)
    assert [records_in(client.reply()) for client in clients] == [2, 2, 2]


@each_kind
@pytest.mark.usefixtures("path")
def test_where_a_segment_ends_nothing_waits(ask: Asking) -> None:
    node = node_with(10, log_segment_bytes=3 * len(BATCH) + 100)
    assert len(partition_of(node, "t").log.segments) > 3
    client = Exchange(node)
    for _ in range(3):
        assert records_in(client.ask(ask(0, min_bytes=5 * len(BATCH), limit=5 * len(BATCH)), VERSION)) == 3


@pytest.mark.parametrize("answer_memory_bytes", [1 << 28, 1 << 20])
@pytest.mark.usefixtures("path")
def test_one_that_was_read_often_while_it_waited_gets_all_that_it_has_waited_for(answer_memory_bytes: int) -> None:
    """Each read replaces the former one: only the newest is in memory."""
    node = node_with(0, ottla_connections_max_unsent_bytes=answer_memory_bytes)
    client = Exchange(node)
    batches = 100
    client.send(fetch_request("t", 0, max_wait_ms=10_000, min_bytes=batches * len(BATCH)), VERSION)
    node.settle()
    produce(node, batches - 1)
    assert not client.transport.written
    produce(node, 1)
    assert records_in(client.reply()) == batches


def test_what_was_read_for_an_answer_and_dropped_is_not_reported_as_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.requests.dispatch.learn", lambda *_: None)
    node = node_with(0)
    client = Exchange(node)
    copied: list[int] = []
    monkeypatch.setattr(type(node.services.answer_memory), "note_copied", lambda _, count: copied.append(count))
    client.send(fetch_request("t", 0, max_wait_ms=10_000, min_bytes=10 * len(BATCH)), VERSION)
    node.settle()
    produce(node, 10)
    assert records_in(client.reply()) == 10
    assert copied == [10 * len(BATCH)]
