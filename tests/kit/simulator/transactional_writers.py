"""A producer with a transactional id, as far as it writes: where to, and what, also when nobody wants that any more.

What a *zombie* sends, a producer whose transactional id has a newer one, is never done; nor is what the network has
kept for so long that its transaction has ended. `transactional_producers.py` has the life of a producer.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from kit.simulator.model import Violation
from kit.simulator.producers import Values
from kit.simulator.transactional_requests import (
    add_partitions_request,
    batch_of,
    codes_of,
    commit_offsets_request,
    end_request,
    produce_request,
)
from kit.simulator.transactions import PartitionPlace, TransactionModel, Transactions

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.records.record import Record

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Line

TIMEOUTS_MS: Final = (9_000, 90_000, 90_000, 90_000)
LONGEST_TIMEOUT_MS: Final = max(TIMEOUTS_MS)


class TransactionalWriter:
    """See the module. `is_new`: by KIP-890, where Produce adds partitions."""

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
        self.transactional_id = transactional_id
        self.is_new = is_new
        self._known = known
        self._values = values
        self._chance = chance
        self._clock = clock
        self._group = f"tx-{transactional_id}"
        self._timeout_ms = chance.choice(TIMEOUTS_MS)
        self._producer = (-1, -1)
        self._sequences: dict[PartitionPlace, int] = {}
        self.keeps_places = False
        """Whether it writes where it has written last, to one partition, so that its requests look alike."""
        self._kept: PartitionPlace | None = None
        self._former: tuple[int, int] | None = None
        """Its epoch before the last end: of KIP-890, nothing that was sent with it may be stored now."""

    @property
    def has_epoch(self) -> bool:
        """Whether it was given an epoch: all that came before it are fenced."""
        return self._producer[0] >= 0

    def act_as_zombie(self, line: Line) -> None:
        """Try to write with an epoch that is not the newest any more."""
        places = self._places(1)
        if not places or self._producer[0] < 0:
            return
        dead = self._new_transaction()
        dead.must_abort = dead.is_over = True
        what = self._chance.randrange(4)
        records = self._records(dead, places[0])
        name, _, index = places[0]
        version = 12 if self.is_new else 11
        if what == 0:
            dead.may_commit = True
            request: Request = end_request(self.transactional_id, self._producer, commit=True)
            version = 5 if self.is_new else 3
        elif what == 1:
            request, version = add_partitions_request(self.transactional_id, self._producer, [(name, index)]), 3
        elif what == 2 and self.is_new:
            request = commit_offsets_request(self.transactional_id, self._producer, self._group, {(name, index): 0})
            version = 5
        else:
            batch = batch_of(records, self._producer, self._sequences.get(places[0], 0))
            request = produce_request(self.transactional_id, {(name, index): batch})

        def answered(response: Response) -> None:
            if ErrorCode.NONE in codes_of(response).values():
                raise Violation(
                    f"a zombie of {self.transactional_id}, {self._producer}: {type(request).__name__} is done"
                )

        line.send(request, version, answered)

    def send_late(self, line: Line) -> None:
        """A batch of a transaction that has ended arrives now: the network had it."""
        places = self._places(1)
        if self._former is None or not places:
            return
        dead = self._new_transaction()
        dead.must_abort = dead.is_over = True
        name, _, index = places[0]
        batch = batch_of(self._records(dead, places[0]), self._former, 0)

        def answered(response: Response) -> None:
            if ErrorCode.NONE in codes_of(response).values():
                raise Violation(f"{self.transactional_id}: a batch of an epoch that has ended is stored")

        line.send(produce_request(self.transactional_id, {(name, index): batch}), 12, answered)

    def _new_transaction(self) -> TransactionModel:
        return self._known.begin(self.transactional_id, self._producer, self._timeout_ms, self._clock.monotonic_ms())

    def _places(self, most: int) -> list[PartitionPlace]:
        model, kept = self._known.model, self._kept
        names = sorted(model.topics.keys() - model.deleting)
        if not names:
            return []
        if self.keeps_places:
            if kept is None or kept[0] not in names or model.topics[kept[0]].id != kept[1]:
                topic = model.topics[self._chance.choice(names)]
                kept = self._kept = topic.name, topic.id, self._chance.randrange(len(topic.partitions))
            return [kept]
        places: set[PartitionPlace] = set()
        for _ in range(self._chance.randint(1, most)):
            topic = model.topics[self._chance.choice(names)]
            places.add((topic.name, topic.id, self._chance.randrange(len(topic.partitions))))
        return sorted(places)

    def _records(self, transaction: TransactionModel, place: PartitionPlace) -> list[Record]:
        name, _, index = place
        topic = self._known.model.topics[name]
        drawn = [one for one in self._values.records(topic, self._clock.wall_ms()) if one.value is not None]
        transaction.places.add(place)
        records = [one._replace(offset=number) for number, one in enumerate(drawn)]
        if not records:
            return self._records(transaction, place)
        for record in records:
            assert record.value is not None
            topic.partitions[index].sent.add(record.value)
            self._known.by_value[record.value] = transaction
        return records
