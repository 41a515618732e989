"""Simulated producers with transactional ids: they begin, write, commit offsets, end, die, and go on as zombies.

One request at a time, as clients do it; one that was not answered before the broker died is sent again. A producer that
dies leaves its transaction to the next one of its transactional id, and may wake up later: then it is a *zombie*, of
which nothing may be accepted any more.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kit.simulator.model import Stored, Violation
from kit.simulator.producers import Values
from kit.simulator.transactional_requests import (
    add_offsets_request,
    add_partitions_request,
    batch_of,
    codes_of,
    commit_offsets_request,
    end_request,
    find_request,
    init_request,
    produce_request,
)
from kit.simulator.transactional_writers import TransactionalWriter
from kit.simulator.transactions import PartitionPlace, TransactionModel, Transactions

from ottla.broker.transactions.shard import END_WAIT_MS
from ottla.protocol.api.end_txn import EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdResponse
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.records.record import Record

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Line

MOST_PARTITIONS: Final = 3
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""The same request may succeed later."""
DYING: Final = 0.04

Step = Callable[["Line"], None]


class TransactionalProducer(TransactionalWriter):
    """One life of a client with a transactional id."""

    def __init__(
        self,
        known: Transactions,
        values: Values,
        chance: random.Random,
        clock: ManualClock,
        transactional_id: str,
        *,
        is_new: bool,
    ) -> None:
        super().__init__(known, values, chance, clock, transactional_id, is_new=is_new)
        self.is_over = False
        """Whether it died, or was fenced."""
        self.is_fenced = False
        """Whether it has learnt that it may not write any more."""
        self.dies_waiting = False
        """Whether it may die while a request of its is under way: the next one may come before that is done."""
        self._inits_seen = 0
        self._transaction: TransactionModel | None = None
        self._unsettled: dict[PartitionPlace, list[Record]] = {}
        """Batches that are not acknowledged."""
        self._missing: set[PartitionPlace] = set()
        """Partitions that an older client has to add first."""
        self._must_abort = False
        self._needs_epoch = False
        """Whether sequences are unknown: batches that were not acknowledged may be stored."""
        self._waits = False
        self._life = 0
        self._step: Step = self._find
        """What is to be done, or done again."""
        self._is_doubtful = False
        """Whether the request of this step may have been done already: its answer was lost, or an error that passes."""
        self._clock_jumped = False

    # -- around it ------------------------------------------------------------------------------------------------

    def reconnect(self) -> None:
        """The broker has restarted: an answer of before never comes, and what fenced this one may be gone."""
        self._life += 1
        self.is_fenced = False
        self._is_doubtful |= self._waits
        self._waits = False

    def clock_jumped(self) -> None:
        """The wall clock of the broker is wrong: its transaction may end early."""
        self._clock_jumped = True

    def act(self, line: Line, *, may_die: bool = True) -> None:
        """Do the next step, if none is under way."""
        if self._waits and self.dies_waiting and self._chance.random() < DYING:
            self.is_over = True
        if self._waits or self.is_over:
            return
        if may_die and self._producer[0] >= 0 and self._chance.random() < DYING:
            self.is_over = True
            return
        self._step(line)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _ask(self, line: Line, request: Request, version: int, then: Callable[[Response], None]) -> None:
        life = self._life
        self._waits = True

        def answered(response: Response) -> None:
            if life == self._life and not self.is_over:
                self._waits = False
                then(response)

        line.send(request, version, answered)

    def _next(self, step: Step) -> None:
        self._step, self._is_doubtful = step, False

    def _find(self, line: Line) -> None:
        def answered(response: Response) -> None:
            if set(codes_of(response).values()) == {ErrorCode.NONE}:
                self._next(self._init)

        self._ask(line, find_request(self.transactional_id), 4, answered)

    def _init(self, line: Line) -> None:
        """A new epoch; for a client that goes on after an error, too (KIP-360)."""
        known = self._known.inits_sent
        known[self.transactional_id] = self._inits_seen = known.get(self.transactional_id, 0) + 1
        goes_on = self._needs_epoch and not self._is_doubtful

        def answered(response: Response) -> None:
            assert isinstance(response, InitProducerIdResponse)
            if response.error_code == ErrorCode.NONE:
                self._known.note_epoch(self.transactional_id, response.producer_id, response.producer_epoch)
                self._goes_on(response.producer_id, response.producer_epoch)
                self._needs_epoch = False
                self._known.begun_anew(self.transactional_id)
                self._next(self._begin)
            elif response.error_code in FENCED:
                self._fenced("InitProducerId")
            elif response.error_code in AGAIN:
                self._is_doubtful = True
            else:
                raise Violation(f"{self.transactional_id}: InitProducerId {ErrorCode.of(response.error_code).name}")

        expected = self._producer if goes_on else (-1, -1)
        self._ask(line, init_request(self.transactional_id, self._timeout_ms, expected), 4, answered)

    def _goes_on(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self._producer:
            self._producer = producer_id, epoch
            self._sequences.clear()

    def _begin(self, line: Line) -> None:
        places = self._places(MOST_PARTITIONS)
        if not places:
            return
        self._transaction = transaction = self._new_transaction()
        self._must_abort = self._clock_jumped = False
        self._unsettled = {place: self._records(transaction, place) for place in places}
        self._missing = set() if self.is_new else set(places)
        self._next(self._produce if self.is_new else self._add)
        self._step(line)

    def _add(self, line: Line) -> None:
        def answered(response: Response) -> None:
            codes = codes_of(response)
            if set(codes.values()) == {ErrorCode.NONE}:
                assert self._transaction is not None
                self._known.begun_next(self._transaction)
                self._missing.clear()
                self._next(self._produce)
            else:
                self._refused("AddPartitionsToTxn", codes.values())

        wanted = [(name, index) for name, _, index in sorted(self._missing)]
        self._ask(line, add_partitions_request(self.transactional_id, self._producer, wanted), 3, answered)

    def _produce(self, line: Line) -> None:
        topics = self._known.model.topics
        if any(name not in topics or topics[name].id != topic_id for name, topic_id, _ in self._unsettled):
            self._must_abort = True  # what was meant for a topic that is gone is not for another one of its name
            self._next(self._end)
            self._step(line)
            return
        sent = dict(self._unsettled)
        batches = {
            (name, index): batch_of(records, self._producer, self._sequences.get((name, topic_id, index), 0))
            for (name, topic_id, index), records in sent.items()
        }

        def answered(response: Response) -> None:
            assert isinstance(response, ProduceResponse)
            codes = codes_of(response)
            for topic in response.responses:
                for answer in topic.partition_responses:
                    if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                        self._stored(topic.name, answer)
            if self._unsettled:
                wrong = [code for code in codes.values() if code != ErrorCode.NONE]
                self._refused("Produce", wrong)
            else:
                self._next(self._go_on)

        self._ask(line, produce_request(self.transactional_id, batches), 12 if self.is_new else 11, answered)

    def _stored(self, name: str, answer: ProduceResponse.PartitionProduceResponse) -> None:
        transaction, index, base_offset = self._transaction, answer.index, answer.base_offset
        assert transaction is not None
        self._known.begun_next(transaction)
        for place in [one for one in self._unsettled if (one[0], one[2]) == (name, index)]:
            records = self._unsettled.pop(place)
            self._sequences[place] = self._sequences.get(place, 0) + len(records)
            topic = self._known.model.topics.get(name)
            if topic is None or topic.id != place[1] or base_offset < 0:
                continue
            partition = topic.partitions[index]
            for number, record in enumerate(records):
                offset = base_offset + number
                partition.note(offset, Stored(record.key, record.value), survives_power=topic.syncs)
                stamp_ms = topic.stored_timestamp(record.timestamp, answer.log_append_time_ms)
                partition.note_timestamp(offset, stamp_ms)
                transaction.records.setdefault(place, {})[offset] = record.value or b""

    def _go_on(self, line: Line) -> None:
        """Write more, commit offsets, or end."""
        transaction, what = self._transaction, self._chance.random()
        assert transaction is not None
        if what < 0.3 and (places := self._places(MOST_PARTITIONS)):
            self._unsettled = {place: self._records(transaction, place) for place in places}
            self._missing = set() if self.is_new else set(places)
            self._next(self._produce if self.is_new else self._add)
        elif what < 0.55 and not transaction.offsets:
            self._consume()
        else:
            self._must_abort = what > 0.85
            self._next(self._end)
        self._step(line)

    def _consume(self) -> None:
        """Offsets of a partition that it has read, in the name of its group."""
        transaction, places = self._transaction, self._places(1)
        assert transaction is not None
        if not places:
            return
        name, _, index = places[0]
        place = self._group, name, index
        transaction.offsets[place] = found = self._known.next_offset(place)
        self._known.by_offset[place, found[0]] = transaction
        self._next(self._commit_offsets if self.is_new else self._add_offsets)

    def _add_offsets(self, line: Line) -> None:
        def answered(response: Response) -> None:
            (code,) = codes_of(response).values()
            if code == ErrorCode.NONE:
                self._next(self._commit_offsets)
            else:
                self._refused("AddOffsetsToTxn", [code])

        self._ask(line, add_offsets_request(self.transactional_id, self._producer, self._group), 3, answered)

    def _commit_offsets(self, line: Line) -> None:
        transaction = self._transaction
        assert transaction is not None
        offsets = {(topic, index): offset for (_, topic, index), (offset, _) in transaction.offsets.items()}

        def answered(response: Response) -> None:
            codes = codes_of(response)
            if set(codes.values()) == {ErrorCode.NONE}:
                self._known.offsets_pending(transaction)
                self._next(self._go_on)
            else:
                self._refused("TxnOffsetCommit", codes.values())

        request = commit_offsets_request(self.transactional_id, self._producer, self._group, offsets)
        self._ask(line, request, 5 if self.is_new else 3, answered)

    def _end(self, line: Line) -> None:
        transaction, is_commit = self._transaction, not self._must_abort
        assert transaction is not None
        if is_commit:
            self._known.commit_asked(transaction)
        asked_ms = self._clock.monotonic_ms()

        def answered(response: Response) -> None:
            assert isinstance(response, EndTxnResponse)
            code = response.error_code
            if code == ErrorCode.NONE:
                is_late = self._clock.monotonic_ms() - asked_ms >= END_WAIT_MS
                self._ended(transaction, response, is_commit=is_commit, is_late=is_late)
            elif code in FENCED:
                self._fenced("EndTxn")
            elif code in AGAIN:
                self._is_doubtful = True
            else:
                self._end_refused(ErrorCode.of(code))

        request = end_request(self.transactional_id, self._producer, commit=is_commit)
        self._ask(line, request, 5 if self.is_new else 3, answered)

    def _ended(self, transaction: TransactionModel, answer: EndTxnResponse, *, is_commit: bool, is_late: bool) -> None:
        if is_commit:
            self._known.committed(transaction, "its commit is acknowledged")
        else:
            transaction.note_aborted("its abort is acknowledged")
        (self._known.over_late if is_late else self._known.over)(transaction)
        before = self._producer
        if self.is_new:
            self._former = before
            if answer.producer_id == before[0] and answer.producer_epoch != before[1] + 1:
                raise Violation(f"{transaction}: its end answers epoch {answer.producer_epoch}")
            self._known.note_epoch(self.transactional_id, answer.producer_id, answer.producer_epoch)
            self._goes_on(answer.producer_id, answer.producer_epoch)
        self._needs_epoch = bool(self._unsettled) and not self.is_new
        self._transaction = None
        self._next(self._init if self._needs_epoch else self._begin)

    # -- refusals -----------------------------------------------------------------------------------------------------

    def _refused(self, what: str, codes: object) -> None:
        wrong = {ErrorCode.of(code) for code in codes if code != ErrorCode.NONE}  # type: ignore[attr-defined]
        if wrong & FENCED:
            self._fenced(what)
        elif wrong - AGAIN:
            self._must_abort = True
            self._next(self._end)

    def _end_refused(self, code: ErrorCode) -> None:
        """Of an abort of which the coordinator knows nothing: nothing was ever added. Of KIP-890 it may also be the end
        of a transaction that was open for too long.
        """
        transaction = self._transaction
        assert transaction is not None
        if code == ErrorCode.INVALID_TXN_STATE and self.is_new and not self._must_abort:
            self._fenced("EndTxn")
            return
        if code != ErrorCode.INVALID_TXN_STATE or transaction.records or transaction.offsets or not self._must_abort:
            raise Violation(f"{transaction}: EndTxn {code.name}")
        transaction.note_aborted("nothing of it was ever accepted")
        self._transaction = None
        self._needs_epoch = True
        self._next(self._init)

    def _fenced(self, what: str) -> None:
        """A newer producer of the transactional id has come, or the transaction was open for too long."""
        transaction = self._transaction
        is_replaced = self._known.inits_sent[self.transactional_id] != self._inits_seen
        may_seem_open = self._known.may_seem_open(self.transactional_id, self._producer)
        if not is_replaced and not self._clock_jumped and not may_seem_open:
            open_ms = 0.0 if transaction is None else self._clock.monotonic_ms() - transaction.begun_ms
            if open_ms < self._timeout_ms:
                raise Violation(
                    f"{transaction or self.transactional_id}: {what} is fenced after {open_ms:.0f} ms,"
                    f" without another producer and before its timeout of {self._timeout_ms} ms"
                )
        if transaction is not None and not (transaction.may_commit and self._is_doubtful):
            transaction.note_aborted(f"{what} says that it is fenced")
        self.is_over = self.is_fenced = True
