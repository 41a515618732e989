"""10,000 open transactions end, also after a restart; beside thousands, each step costs what it costs with a few."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from kit.nodes import partition_of
from kit.transaction_life import TIMEOUT_MS, TransactionalProducer, TransactionLife

from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

MOST, MANY, FEW = 10_000, 2_500, 100
AT_ONCE = 1_000
SLACK = 1.3
"""By so much a step may cost more: logarithms, and tables that grow."""


def opened(count: int, partitions: int) -> tuple[TransactionLife, list[TransactionalProducer]]:
    """A broker with this many open transactions, each in one of so many partitions; many are opened at once."""
    life = TransactionLife(ottla_acks_all="page-cache")
    producers = [TransactionalProducer(life, f"id-{number}") for number in range(count)]
    for first in range(0, count, AT_ONCE):
        some = producers[first : first + AT_ONCE]
        answers = [
            life.begin(
                InitProducerIdRequest(transactional_id=each.transactional_id, transaction_timeout_ms=TIMEOUT_MS), 5
            )
            for each in some
        ]
        life.node.settle()
        for producer, answer in zip(some, answers, strict=True):
            assert isinstance(answer.response, InitProducerIdResponse)
            producer.producer_id, producer.epoch = answer.response.producer_id, answer.response.producer_epoch
        written = [
            life.begin(each.produce_request(index=number % partitions), each.produce_version)
            for number, each in enumerate(some)
        ]
        life.node.settle()
        assert all(each.done and each.error is None for each in written)
    assert life.node.services.transactions.get().open_count == count
    return life, producers


def steps_of(call: Callable[[], object]) -> int:
    """How many lines of Python run: what takes longer for many runs more of them."""
    steps = 0

    def line(frame: object, event: str, argument: object) -> object:
        nonlocal steps
        steps += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(line)  # type: ignore[arg-type]  # it takes any frame
    try:
        call()
    finally:
        sys.settrace(before)
    return steps


def one_more(life: TransactionLife, name: str) -> int:
    """The steps of a whole transaction beside those that are open."""

    def run() -> None:
        producer = TransactionalProducer(life, name)
        producer.init()
        producer.produce(b"v")
        producer.produce(b"w", 2)
        producer.end()

    return steps_of(run)


def all_ended(life: TransactionLife, partitions: int) -> None:
    """No transaction is open, for the coordinator and for readers."""
    assert life.node.services.transactions.get().open_count == 0
    for index in range(partitions):
        partition = partition_of(life.node, "t", index)
        assert partition.last_stable_offset == partition.high_watermark


@pytest.mark.parametrize("partitions", [1, 3])
def test_beside_many_a_transaction_and_each_end_take_no_more_steps_than_beside_a_few(partitions: int) -> None:
    costs = []
    for count in (FEW, MANY):
        life, producers = opened(count, partitions)
        one_more(life, "warm")
        measured, rest = producers[: FEW // 2], producers[FEW // 2 :]

        def end(some: list[TransactionalProducer] = measured) -> None:
            for producer in some:
                producer.end()

        costs.append((one_more(life, "more"), steps_of(end)))
        for first in range(0, len(rest), AT_ONCE):
            for number, producer in enumerate(rest[first : first + AT_ONCE]):
                life.begin(producer.end_request(commit=number % 2 == 0), 5)
            life.node.settle()
        all_ended(life, partitions)
    few, many = costs
    assert many[0] < SLACK * few[0]
    assert many[1] < SLACK * few[1]


def test_10_000_are_open_after_a_restart_and_none_is_after_their_timeout() -> None:
    life, producers = opened(MOST, 3)
    life = life.restarted()
    transactions = life.node.services.transactions.get()
    while transactions.loads_under_way:
        life.pass_ms(100)
    assert transactions.open_count == MOST
    for producer in (producers[0], producers[-1]):
        producer.life = life
        producer.end()
    life.pass_ms(TIMEOUT_MS + 31_000)
    all_ended(life, 3)
    assert [len(life.committed(index)) for index in range(3)] == [2, 0, 0]
