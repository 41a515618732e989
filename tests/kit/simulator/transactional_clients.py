"""The transactional clients of one world: producers, their zombies, readers of committed records, and who waits.

Only some worlds have them (`World`); what others do does not depend on them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kit.nodes import pass_time
from kit.simulator.clients import settle
from kit.simulator.committed_readers import READ_COMMITTED, CommittedReader
from kit.simulator.members import ask_for_offsets
from kit.simulator.model import Model, Violation
from kit.simulator.producers import Values
from kit.simulator.readers import FETCH_VERSION, fetch_request
from kit.simulator.transactional_producers import TransactionalProducer
from kit.simulator.transactional_writers import LONGEST_TIMEOUT_MS
from kit.simulator.transactions import Transactions

from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Line

    from ottla.broker.node import Node

ABORT_INTERVAL_MS: Final = 1_000
IDS: Final = ("tx0", "tx1", "tx2")
MOST_ZOMBIES: Final = 3
NEW_CLIENTS: Final = 0.6
"""How many of them know KIP-890."""
NAMES: Final = (*IDS, "zombies", "committed reader", "observer")
"""Of the lines: one for each transactional id, one for zombies, one for readers, one that is under no quota."""
ZOMBIES, READER, OBSERVER = range(len(IDS), len(NAMES))
SECOND_MS: Final = 1_000
SETTLING_MS: Final = 10_000
"""After a disk was full, or a log was opened again: until chores have looked, and markers were tried again."""

Operation = tuple[float, Callable[[], None]]


class TransactionalClients:
    """See the module. `lines` are given anew for each life of the broker."""

    def __init__(self, model: Model, values: Values, chance: random.Random, clock: ManualClock) -> None:
        self.known = Transactions(model)
        self._model = model
        self._values = values
        self._chance = chance
        self._clock = clock
        self._die_waiting = False
        self._producers = [self._new_producer(number) for number in range(len(IDS))]
        self._former: list[tuple[int, TransactionalProducer]] = []
        self._reader = CommittedReader(self.known, chance)
        self.lines: list[Line] = []

    def operations(self) -> list[Operation]:
        """What may happen, and how often; `wait_out` is the world's to call."""
        return [(50, self._produce), (3, self._wake_zombie), (8, self._read), (3, self._fetch_offsets)]

    def die_waiting(self) -> None:
        """Let producers die also while the broker has a request of theirs under way."""
        self._die_waiting = True
        for producer in self._producers:
            producer.dies_waiting = True

    def reconnect(self) -> None:
        """The broker has restarted."""
        for producer in (*self._producers, *(one for _, one in self._former)):
            producer.reconnect()

    def note_power_cut(self) -> None:
        """As in `page_cache_worlds.py`: their programs begin again, and what their coordinator knew may be lost."""
        self.known.note_power_cut()
        self._former.clear()
        self._producers = [self._new_producer(number) for number in range(len(IDS))]

    def clock_jumped(self) -> None:
        """The wall clock is wrong: transactions may end early or late."""
        for producer in self._producers:
            producer.clock_jumped()

    def _new_producer(self, number: int) -> TransactionalProducer:
        is_new = self._chance.random() < NEW_CLIENTS
        made = TransactionalProducer(self.known, self._values, self._chance, self._clock, IDS[number], is_new=is_new)
        made.dies_waiting = self._die_waiting
        return made

    def _produce(self) -> None:
        number = self._chance.randrange(len(IDS))
        self._living(number).act(self.lines[number])

    def _living(self, number: int) -> TransactionalProducer:
        """The producer of a transactional id; a new one where that is over."""
        producer = self._producers[number]
        if producer.is_over:
            self._former.append((number, producer))
            del self._former[:-MOST_ZOMBIES]
            producer = self._producers[number] = self._new_producer(number)
        return producer

    def lone(self, chance: random.Random) -> tuple[Line, Callable[[], None]]:
        """One of them that sends alone for a while, to the same partitions, with its line; and what lets it go on."""
        number = chance.randrange(len(IDS))
        line = self.lines[number]
        keep = chance.random() < 0.8

        def act() -> None:
            producer = self._living(number)
            producer.keeps_places = keep
            producer.act(line, may_die=False)
            producer.keeps_places = False

        return line, act

    def _wake_zombie(self) -> None:
        zombies = [one for number, one in self._former if one.is_fenced or self._producers[number].has_epoch]
        if zombies:
            self._chance.choice(zombies).act_as_zombie(self.lines[ZOMBIES])
        else:
            self._chance.choice(self._producers).send_late(self.lines[ZOMBIES])

    def _read(self) -> None:
        self._reader.read(self.lines[READER])

    def _fetch_offsets(self) -> None:
        places = [place for place in sorted(self._model.commits) if place[0].startswith("tx-")]
        places = [place for place in places if place[1] not in self._model.deleting]
        if places:
            place = self._chance.choice(places)
            on_stable = self.known.stable_offset_check(place) if self._chance.random() < 0.5 else None
            ask_for_offsets(self.lines[READER], self._model, place[0], [place], on_stable=on_stable)

    # -- nobody is held up for long -----------------------------------------------------------------------------------

    def wait_out(self, node: Node, turns: int) -> None:
        """Let all clients be silent for as long as a transaction may be open: then none is. `turns`: of a second.

        Raises Violation. Not where the disk is in trouble.
        """
        for line in self.lines:
            line.take()
        pass_time(node, self._clock, turns, step_ms=1)  # what was sent may still have to begin
        pass_time(node, self._clock, LONGEST_TIMEOUT_MS, step_ms=LONGEST_TIMEOUT_MS // 5)
        for _ in range((ABORT_INTERVAL_MS + SETTLING_MS) // SECOND_MS):
            pass_time(node, self._clock, SECOND_MS)
            pass_time(node, self._clock, turns, step_ms=1)
        for line in self.lines:
            line.take()
        wanted = {
            (topic.name, index): topic.partitions[index].start
            for topic in sorted(self._model.topics.values(), key=lambda one: one.name)
            if topic.name not in self._model.deleting
            for index in range(len(topic.partitions))
        }
        if not wanted:
            return
        got: list[Response] = []
        self.lines[OBSERVER].send(fetch_request(wanted, isolation_level=READ_COMMITTED), FETCH_VERSION, got.append)
        settle(node, self.lines[OBSERVER])
        assert isinstance(got[0], FetchResponse)
        for topic in got[0].responses:
            for answer in topic.partitions:
                stable, where = answer.last_stable_offset, (self._model.topics[topic.topic], answer.partition_index)
                if (
                    answer.error_code == ErrorCode.NONE
                    and stable < answer.high_watermark
                    and not self.known.may_be_forgotten(*where, stable)
                ):
                    raise Violation(
                        f"{topic.topic}-{answer.partition_index}: readers of committed records are held up at"
                        f" {stable}, below {answer.high_watermark}, beyond every timeout"
                    )
