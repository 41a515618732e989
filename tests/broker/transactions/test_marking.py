"""The markers of one transaction in many partitions: some in each turn, and the end is answered after all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kit.clock import ManualClock
from kit.transaction_life import TIMEOUT_MS, TransactionLife
from kit.wide_transactions import MANY, WideProducer, ends, finish, has_open, run_turn

from ottla.broker.transactions.marking import MARKERS_PER_TURN, TURN_MS, Marking
from ottla.broker.transactions.state import TopicPartition, Transaction
from ottla.protocol.api.end_txn import EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.transaction import TransactionStatus

Done = Callable[[BaseException | None], None]
each_version = pytest.mark.parametrize("version", [0, 2])


class Partitions:
    """What a marking writes to, and the turns that it asks for."""

    def __init__(self, count: int, *, ms_per_marker: int = 0) -> None:
        self.clock = ManualClock()
        self.ms_per_marker = ms_per_marker
        self.refusing: set[int] = set()
        self.written: list[int] = []
        self.turns: list[Callable[[], None]] = []
        self.said: list[str] = []
        ended = Transaction(
            "tx", 7, 0, 60_000, TransactionStatus.PREPARE_COMMIT, frozenset(("t", index) for index in range(count))
        )
        self.marking = Marking(
            ended,
            0,
            self.write,
            self.clock,
            self.turns.append,
            visible=lambda _: self.said.append("visible"),
            delayed=lambda _: self.said.append("delayed"),
        )

    def write(self, where: TopicPartition, ended: Transaction, coordinator_epoch: int, done: Done) -> None:
        self.written.append(where[1])
        self.clock.advance(self.ms_per_marker)
        done(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) if where[1] in self.refusing else None)

    def run_turn(self) -> int:
        """How many markers a turn has written."""
        before = len(self.written)
        self.turns.pop()()
        return len(self.written) - before


def test_many_markers_are_written_some_in_each_turn() -> None:
    partitions = Partitions(2 * MARKERS_PER_TURN + 5)
    partitions.marking.write_missing()
    assert len(partitions.written) == MARKERS_PER_TURN
    assert partitions.run_turn() == MARKERS_PER_TURN
    assert partitions.said == []
    assert partitions.run_turn() == 5
    assert partitions.said == ["visible"]
    assert partitions.turns == []
    assert partitions.written == [*range(2 * MARKERS_PER_TURN + 5)]


def test_markers_that_take_long_are_fewer_in_each_turn() -> None:
    partitions = Partitions(2 * TURN_MS, ms_per_marker=1)
    partitions.marking.write_missing()
    assert len(partitions.written) == TURN_MS
    assert partitions.run_turn() == TURN_MS
    assert partitions.said == ["visible"]


def test_as_many_as_one_turn_writes_need_no_other() -> None:
    partitions = Partitions(MARKERS_PER_TURN)
    partitions.marking.write_missing()
    assert partitions.said == ["visible"]
    assert partitions.turns == []


def test_those_that_a_partition_does_not_take_are_tried_again_when_all_turns_are_over() -> None:
    partitions = Partitions(MARKERS_PER_TURN + 1)
    partitions.refusing = {3, MARKERS_PER_TURN}
    partitions.marking.write_missing()
    partitions.marking.write_missing()  # a deadline of before: it is under way
    assert partitions.said == []
    partitions.run_turn()
    assert partitions.said == ["delayed"]
    partitions.refusing.clear()
    partitions.marking.write_missing()
    assert partitions.written[-2:] == [3, MARKERS_PER_TURN]
    assert partitions.said == ["delayed", "visible"]


def test_one_that_is_stopped_writes_no_further_marker() -> None:
    """The shard is loaded again and writes all of them: the producer may have begun its next transaction by then."""
    partitions = Partitions(2 * MARKERS_PER_TURN)
    partitions.marking.write_missing()
    partitions.marking.stop()
    assert partitions.run_turn() == 0
    assert "visible" not in partitions.said


@each_version
@pytest.mark.parametrize("acks_all", ["page-cache", "sync"])
def test_the_end_is_answered_when_it_is_visible_in_all_partitions(acks_all: str, version: int) -> None:
    life = TransactionLife(ottla_acks_all=acks_all)
    producer = WideProducer(life, version)
    producer.add_all()
    producer.write_all()
    finish(life)
    end = life.begin(producer.end_request(), 5 if version >= 2 else 4)
    life.node.settle()
    assert (sum(ends(life)), end.done) == (MANY + MARKERS_PER_TURN, False)
    assert life.state() == "PrepareCommit"
    again = life.begin(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=TIMEOUT_MS), 5)
    life.node.settle()
    assert isinstance(again.error, KafkaError)
    assert again.error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    run_turn(life)
    assert not end.done
    finish(life)
    assert isinstance(end.response, EndTxnResponse)
    assert end.response.error_code == ErrorCode.NONE
    assert sum(ends(life)) == 2 * MANY
    assert not has_open(life)
    assert life.state() == "CompleteCommit"


@each_version
@pytest.mark.parametrize("seed", range(3))
def test_a_start_writes_the_markers_of_the_turns_that_a_power_cut_prevented(seed: int, version: int) -> None:
    life = TransactionLife()
    producer = WideProducer(life, version)
    producer.add_all()
    producer.write_all()
    finish(life)
    life.begin(producer.end_request(), 5 if version >= 2 else 4)
    life.node.settle()
    assert sum(ends(life)) == MANY + MARKERS_PER_TURN
    life = life.crashed(seed)
    finish(life)
    assert not has_open(life)
    assert life.state() == "CompleteCommit"
