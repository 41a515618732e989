"""Several producers, zombies, timeouts and crashes on the steps of a transactional id, against a model.

The test is the broker around the machine: one log of everything in the order in which it was written, records of
transactional ids, data and markers. A sync makes all of it durable, and only then do clients learn their answers; a
crash keeps some of what came after, and the state is what replaying the rest makes of it.

The model is the log itself, read as its readers do: which data a marker ends, and who had asked for that. Data of a
producer that is fenced never gets in, no decision is changed, and what a client has learnt stays true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.examples import examples

from ottla.broker.transactions import machine
from ottla.broker.transactions.machine import NeedsProducerId, ProducerIdAndEpoch
from ottla.broker.transactions.state import MAX_EPOCH, Transaction, from_record, to_record
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.transaction import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    decode_transaction_record,
    encode_transaction_key,
    encode_transaction_value,
)

TIMEOUT_MS = 1_000
IDS = ("a", "b")
PLACES = (("t", 0), ("t", 1))
SLOTS = (("a", 2), ("a", 0), ("b", 2))
"""Transactional id and version of the clients that live at a time; the next one of a slot leaves no zombie."""
slots = st.integers(0, len(SLOTS) - 1)
rarely = st.integers(0, 4).map(lambda drawn: drawn == 4)
mostly = st.integers(0, 4).map(lambda drawn: drawn < 4)


class Record(NamedTuple):
    """What `__transaction_state` holds: the bytes of a record."""

    key: bytes
    value: bytes


class Data(NamedTuple):
    """A batch of a transaction in a partition."""

    where: tuple[str, int]
    producer: ProducerIdAndEpoch
    transaction: Opened


class Marker(NamedTuple):
    """The end of what a producer id has open in a partition."""

    where: tuple[str, int]
    producer: ProducerIdAndEpoch
    is_commit: bool


@dataclass(eq=False)
class Opened:
    """One transaction as its client knows it."""

    commit_asked: bool = False
    abort_asked: bool = False
    learnt: bool | None = None
    """Whether it was committed, once an answer has said so."""


@dataclass(eq=False)
class Client:
    """One life of a producer."""

    transactional_id: str
    version: int
    producer: ProducerIdAndEpoch | None = None
    opened: Opened = field(default_factory=Opened)
    is_fenced: bool = False
    """Whether it has learnt that it is."""
    former: ProducerIdAndEpoch | None = None
    """Of KIP-890: who it was before its last end."""


class Life(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Record | Data | Marker] = []
        self.durable = 0
        self.now_ms = 1
        self.next_producer_id = 0
        self.state: dict[str, Transaction] = {}
        self.last_epochs: dict[int, int] = {}
        """The newest epoch that a client has received, by producer id."""
        self.newest: dict[str, ProducerIdAndEpoch] = {}
        """The producer that a client has received last, by transactional id."""
        self.clients = [Client(transactional_id, version) for transactional_id, version in SLOTS]
        self.waiting: list[Callable[[], None]] = []
        """What clients learn when everything is on disk."""

    @initialize(epoch=st.sampled_from([None, MAX_EPOCH - 4, MAX_EPOCH - 2]))
    def used_for_long(self, epoch: int | None) -> None:
        """In some lives an epoch is nearly used up."""
        if epoch is not None:
            self.keep(Transaction("a", self.new_id(), epoch, TIMEOUT_MS))
            self.sync()

    # --- the broker around the machine -------------------------------------------------------------------------------

    def new_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def keep(self, new: Transaction) -> None:
        key, value = to_record(new, 2)
        self.log.append(Record(encode_transaction_key(key), encode_transaction_value(value, 1)))
        self.state[new.transactional_id] = new

    def with_id(self, step: Callable[[int | None], Transaction]) -> Transaction:
        try:
            return step(None)
        except NeedsProducerId:
            return step(self.new_id())

    def fence(self, known: Transaction) -> None:
        self.keep(
            self.with_id(
                lambda new_id: machine.fence(known, server_version=2, now_ms=self.now_ms, new_producer_id=new_id)
            )
        )

    # --- rules -------------------------------------------------------------------------------------------------------

    @rule(slot=slots, goes_on=st.booleans(), is_wanted=rarely, is_synced=mostly)
    def init(self, slot: int, goes_on: bool, is_wanted: bool, is_synced: bool) -> None:
        """InitProducerId, of a new client or of one that goes on after an error."""
        client = self.clients[slot]
        if client.producer is not None and not client.is_fenced and not is_wanted:
            return
        if not goes_on and client.producer is not None:
            client = self.clients[slot] = Client(client.transactional_id, client.version)
        known = self.state.get(client.transactional_id)
        expected = client.producer if goes_on else None
        try:
            if known is not None and known.status is TransactionStatus.ONGOING:
                machine.check_expected(known, expected)
                self.fence(known)
                return
            new = self.with_id(
                lambda new_id: machine.init_producer_id(
                    client.transactional_id,
                    known,
                    expected,
                    timeout_ms=TIMEOUT_MS,
                    now_ms=self.now_ms,
                    new_producer_id=new_id,
                )
            )
        except KafkaError as refusal:
            self.refused(client, refusal)
            return
        self.keep(new)
        producer = ProducerIdAndEpoch(new.producer_id, new.producer_epoch)

        def learnt() -> None:
            self.receives(client, producer, is_repeated=goes_on)
            client.opened = Opened()
            client.is_fenced = False

        self.waiting.append(learnt)
        if is_synced:
            self.sync()

    def receives(self, client: Client, producer: ProducerIdAndEpoch, *, is_repeated: bool) -> None:
        newest = self.last_epochs.get(producer.producer_id, -1)
        assert producer.epoch > newest or (is_repeated and producer.epoch == newest), "an epoch was given out twice"
        assert producer.epoch < MAX_EPOCH
        self.last_epochs[producer.producer_id] = producer.epoch
        self.newest[client.transactional_id] = client.producer = producer

    def check_newest(self, client: Client, verb: str) -> None:
        assert not client.is_fenced, f"a fenced producer {verb}"
        assert client.producer == self.newest[client.transactional_id], f"a zombie {verb}"

    @rule(slot=slots, where=st.sampled_from(PLACES))
    def late(self, slot: int, where: tuple[str, int]) -> None:
        """Of KIP-890: a batch that was sent before an end whose answer has come."""
        client = self.clients[slot]
        if client.former is not None:
            known = self.state.get(client.transactional_id)
            with pytest.raises(KafkaError):
                machine.add_partitions(known, client.former, [where], now_ms=self.now_ms)

    @rule(slot=slots, where=st.sampled_from(PLACES))
    def write(self, slot: int, where: tuple[str, int]) -> None:
        """A batch, which becomes part of the transaction."""
        client = self.clients[slot]
        if client.producer is None or client.opened.commit_asked or client.opened.abort_asked:
            return
        known = self.state.get(client.transactional_id)
        try:
            new = machine.add_partitions(known, client.producer, [where], now_ms=self.now_ms)
        except KafkaError as refusal:
            self.refused(client, refusal)
            return
        self.check_newest(client, "writes")
        if new is not known:
            self.keep(new)
        if client.producer.epoch >= self.epoch_in(where, client.producer.producer_id):
            self.log.append(Data(where, client.producer, client.opened))

    def epoch_in(self, where: tuple[str, int], producer_id: int) -> int:
        """The epoch of a producer in a partition, which takes no older one."""
        epochs = [
            one.producer.epoch
            for one in self.log
            if not isinstance(one, Record) and one.where == where and one.producer.producer_id == producer_id
        ]
        return max(epochs, default=-1)

    def refused(self, client: Client, refusal: KafkaError) -> None:
        if refusal.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            self.waiting.append(partial(setattr, client, "is_fenced", True))
        else:
            assert refusal.code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE)

    @rule(slot=slots, is_commit=st.booleans(), is_marked=mostly)
    def end(self, slot: int, is_commit: bool, is_marked: bool) -> None:
        """EndTxn; as often as the client likes."""
        client = self.clients[slot]
        self.ask_for_end(client, is_commit)
        if is_marked:
            self.markers_are_written(client.transactional_id)
            self.ask_for_end(client, is_commit)
            self.sync()

    def ask_for_end(self, client: Client, is_commit: bool) -> None:
        opened, producer = client.opened, client.producer
        if producer is None or (opened.abort_asked if is_commit else opened.commit_asked):
            return  # no client changes its mind
        known = self.state.get(client.transactional_id)
        opened.commit_asked |= is_commit
        opened.abort_asked |= not is_commit
        try:
            new = self.with_id(
                lambda new_id: machine.end(
                    known,
                    producer,
                    is_commit=is_commit,
                    client_version=client.version,
                    now_ms=self.now_ms,
                    new_producer_id=new_id,
                )
            )
        except KafkaError as refusal:
            self.refused(client, refusal)
            return
        if new is not known:
            self.check_newest(client, "ends a transaction")
            self.keep(new)
            return  # it asks again when the markers are there
        assert new.is_commit is is_commit
        goes_on = ProducerIdAndEpoch(new.producer_id, new.producer_epoch)

        def learnt() -> None:
            if client.opened is opened and client.producer == producer:
                opened.learnt = is_commit
                client.opened = Opened()
                if client.version >= machine.VERSION_WITH_EPOCH_BUMPS:
                    client.former = producer
                    self.receives(client, goes_on, is_repeated=True)
                    client.is_fenced = False  # another producer has fenced it, and has no epoch yet

        self.waiting.append(learnt)

    @rule(transactional_id=st.sampled_from(IDS))
    def markers_are_written(self, transactional_id: str) -> None:
        """Once the decision is durable."""
        known = self.state.get(transactional_id)
        if known is None or not known.is_prepared:
            return
        self.sync()
        producer = ProducerIdAndEpoch(known.producer_id, known.producer_epoch)
        for where in sorted(known.partitions):
            if producer.epoch >= self.epoch_in(where, producer.producer_id):
                self.log.append(Marker(where, producer, known.is_commit))
        completed = machine.complete(known, now_ms=self.now_ms)
        assert completed.is_idle
        assert completed.is_commit is known.is_commit
        self.keep(completed)

    @rule(transactional_id=st.sampled_from(IDS), is_wanted=rarely)
    def a_transaction_times_out(self, transactional_id: str, is_wanted: bool) -> None:
        if not is_wanted:
            return
        known = self.state.get(transactional_id)
        self.now_ms += TIMEOUT_MS
        if known is not None and known.status is TransactionStatus.ONGOING:
            self.fence(known)
            self.markers_are_written(transactional_id)
            late = ProducerIdAndEpoch(known.producer_id, known.producer_epoch)
            with pytest.raises(KafkaError):
                machine.add_partitions(self.state[transactional_id], late, PLACES, now_ms=self.now_ms)

    @rule()
    def sync(self) -> None:
        self.durable = len(self.log)
        waiting, self.waiting = self.waiting, []
        for learnt in waiting:
            learnt()

    @precondition(lambda self: len(self.log) > self.durable)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Some of what was not synced is gone, and nobody learns what was not answered."""
        del self.log[data.draw(st.integers(self.durable, len(self.log))) :]
        self.waiting.clear()
        self.state.clear()
        for record in self.log:
            if isinstance(record, Record):
                key, value = decode_transaction_record(record.key, record.value)
                assert isinstance(key, TransactionLogKey)
                assert isinstance(value, TransactionLogValue)
                self.state[key.transactional_id] = from_record(key, value)
        self.durable = len(self.log)

    # --- what must be true -------------------------------------------------------------------------------------------

    @invariant()
    def readers_see_what_clients_have_learnt(self) -> None:
        ends: dict[Opened, set[bool]] = {}
        pending: dict[tuple[tuple[str, int], int], list[Data]] = {}
        for one in self.log:
            if isinstance(one, Data):
                pending.setdefault((one.where, one.producer.producer_id), []).append(one)
            elif isinstance(one, Marker):
                for data in pending.pop((one.where, one.producer.producer_id), []):
                    ends.setdefault(data.transaction, set()).add(one.is_commit)
        for transaction, found in ends.items():
            assert len(found) == 1, "a part of a transaction is committed, and a part aborted"
            assert found == {False} or transaction.commit_asked, "nobody has asked for the commit"
            assert transaction.learnt is None or found == {transaction.learnt}
        parts = {(where, one.producer_id) for one in self.state.values() for where in one.partitions}
        assert pending.keys() <= parts, "what is open in a log is part of no transaction, and nobody would end it"

    @invariant()
    def an_idle_one_has_nothing_under_way(self) -> None:
        for one in self.state.values():
            assert not (one.is_idle and one.partitions)
            assert one.status is not TransactionStatus.ONGOING or one.start_ms > 0


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(100), stateful_step_count=30)


def test_a_producer_that_was_fenced_and_is_answered_its_abort_writes_until_the_other_has_an_epoch() -> None:
    """Of KIP-890: an answer to EndTxn brings the newest epoch, as one to InitProducerId does."""
    life = Life()
    life.init(slot=0, goes_on=False, is_wanted=False, is_synced=True)
    life.write(slot=0, where=PLACES[0])
    life.init(slot=1, goes_on=False, is_wanted=False, is_synced=True)  # answered CONCURRENT_TRANSACTIONS
    life.write(slot=0, where=PLACES[0])
    life.sync()
    assert life.clients[0].is_fenced
    life.end(slot=0, is_commit=False, is_marked=True)
    life.write(slot=0, where=PLACES[0])
    assert not life.clients[0].is_fenced
    life.readers_see_what_clients_have_learnt()
