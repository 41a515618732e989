"""A Fetch that waits and whose answer cannot be made: its client gets an error, as if it had not waited."""

from __future__ import annotations

import pytest
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import partition_of, start_node

from ottla.broker.fetch.fetch_read import FetchRead
from ottla.broker.node import Node
from ottla.broker.runtime.answer_memory import WAIT_MOST_MS
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.errors import ErrorCode

VERSION = 12
WAIT_MS = 500


def waiting(monkeypatch: pytest.MonkeyPatch) -> tuple[Node, Exchange]:
    monkeypatch.setattr("ottla.broker.requests.dispatch.learn", lambda *_: None)
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    client = Exchange(node)
    client.send(fetch_request("t", 0, max_wait_ms=WAIT_MS), VERSION)
    client.end_turn()
    return node, client


def end_wait(node: Node, client: Exchange, *, by_deadline: bool) -> None:
    if by_deadline:
        node.services.clock.advance(WAIT_MS)  # type: ignore[attr-defined]  # a ManualClock
        node.run_due()
    else:
        Exchange(node, beside=client).ask(produce_request("t", batch()), 9)
    node.settle()


@pytest.mark.parametrize(("place", "by_deadline"), [("look_again", False), ("response", False), ("response", True)])
def test_a_bug_is_answered_as_one(place: str, by_deadline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    node, client = waiting(monkeypatch)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(FetchRead, place, fail)
    end_wait(node, client, by_deadline=by_deadline)
    answer = client.reply()
    assert isinstance(answer, FetchResponse)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not partition_of(node, "t").is_watched


def test_a_bug_after_a_wait_for_memory_that_was_in_vain_is_answered_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    node, client = waiting(monkeypatch)
    memory = node.services.answer_memory
    monkeypatch.setattr(FetchRead, "is_ready", lambda _: False)
    held = memory.reserve(memory.max_bytes)
    assert held is not None
    end_wait(node, client, by_deadline=False)
    assert memory.waiting == 1

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(FetchRead, "response", fail)
    node.services.clock.advance(WAIT_MOST_MS)  # type: ignore[attr-defined]  # a ManualClock
    node.run_due()
    node.settle()
    answer = client.reply()
    assert isinstance(answer, FetchResponse)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(("place", "by_deadline"), [("look_again", False), ("response", False), ("response", True)])
def test_where_the_system_gives_no_memory_the_connection_ends(
    place: str, by_deadline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, client = waiting(monkeypatch)
    node.services.memory_reserve.take()

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(FetchRead, place, fail)
    end_wait(node, client, by_deadline=by_deadline)
    assert client.transport.closed
    assert not node.services.memory_reserve.is_held
    assert not partition_of(node, "t").is_watched
