"""Fetches of many partitions that wait: what wakes them together is read in steps, between which others are served."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import MOST_STEPS, partition_of, start_node

from ottla.broker.fetch.delayed_fetch import PARTITIONS_PER_STEP
from ottla.broker.fetch.fetch_read import FetchRead
from ottla.broker.node import Node
from ottla.protocol.api.fetch import FetchResponse

VERSION = 12
COUNT = 2 * PARTITIONS_PER_STEP + 1


@pytest.fixture
def read_together(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The partitions of each step that reads some again."""
    steps: list[list[int]] = []
    look_again = FetchRead.look_again

    def noted(self: FetchRead, indexes: Iterable[int]) -> bool:
        steps.append(list(indexes))
        return look_again(self, steps[-1])

    monkeypatch.setattr(FetchRead, "look_again", noted)
    return steps


def waiting(min_bytes: int = 1) -> tuple[Node, Exchange]:
    """A client whose Fetch has read all partitions once."""
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", COUNT)
    client = Exchange(node)
    client.send(fetch_request("t", 0, partitions=COUNT, max_wait_ms=60_000, min_bytes=min_bytes), VERSION)
    for _ in range(MOST_STEPS):
        node.run_due()
        client.end_turn()
    assert not client.transport.written
    return node, client


def wake(node: Node, indexes: Iterable[int]) -> None:
    for index in indexes:
        partition_of(node, "t", index).wake_watchers()


def test_of_many_that_change_together_a_step_reads_some_and_the_next_turns_the_rest(
    read_together: list[list[int]],
) -> None:
    node, client = waiting()
    wake(node, range(COUNT))
    for number in range(1, 4):
        client.end_turn()
        assert len(read_together) == number
    client.end_turn()
    assert [len(step) for step in read_together] == [PARTITIONS_PER_STEP, PARTITIONS_PER_STEP, 1]
    assert sorted(index for step in read_together for index in step) == list(range(COUNT))


def test_as_many_as_a_step_reads_are_read_together(read_together: list[list[int]]) -> None:
    node, client = waiting()
    wake(node, range(PARTITIONS_PER_STEP))
    client.end_turn()
    client.end_turn()
    assert read_together == [list(range(PARTITIONS_PER_STEP))]


def test_those_that_change_all_the_time_keep_no_other_from_being_read(read_together: list[list[int]]) -> None:
    node, client = waiting()
    wake(node, range(COUNT))
    for _ in range(3):
        client.end_turn()
        wake(node, range(PARTITIONS_PER_STEP))
    assert COUNT - 1 in read_together[2]


def test_records_of_the_last_that_changed_are_answered() -> None:
    node, client = waiting()
    wake(node, range(COUNT - 1))
    Exchange(node, beside=client).ask(produce_request("t", batch(), partition=COUNT - 1), 9)
    for _ in range(MOST_STEPS):
        node.run_due()
        node.settle()
    answer = client.reply()
    assert isinstance(answer, FetchResponse)
    assert [data.partition_index for data in answer.responses[0].partitions if data.records] == [COUNT - 1]
