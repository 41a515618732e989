"""Clients that send one request after the other while all others are silent, so often that the broker takes each for
the only one that sends; and clients that send several requests in one read.

The first are answered within the read where nothing has to wait (`ottla/broker/net/connection.py`), from the templates
that their requests have been learnt into; the second are runs of one template.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kit.simulator.followers import Follower, Where
from kit.simulator.model import Model
from kit.simulator.producers import IdempotentProducer, PlainProducer, Values

from ottla.broker.net.connection import READS_ALONE

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Line
    from kit.simulator.transactional_clients import TransactionalClients

NAMES: Final = ("lone producer", "lone idempotent producer", "lone reader")
"""Of the lines."""
PRODUCER, ONCE, READER = range(len(NAMES))
MOST_READS: Final = READS_ALONE + 10
MOST_IN_A_READ: Final = 6
BURSTS: Final = 5
"""How often one comes, beside the weights of other operations."""

Step = Callable[[], None]


class LoneClients:
    """See the module. `lines` are given anew for each life of the broker.

    `settle` lets the broker finish what it has under way, `end_turn` only what it can without the disk.
    """

    def __init__(
        self,
        model: Model,
        values: Values,
        chance: random.Random,
        clock: ManualClock,
        transactional: TransactionalClients | None,
    ) -> None:
        self._model = model
        self._values = values
        self._chance = chance
        self._clock = clock
        self._transactional = transactional
        self._plain = PlainProducer(model, values, chance)
        self._once: IdempotentProducer | None = None
        self._follower = Follower(model, chance)
        self._kinds: list[Callable[[Where], None]] = [
            self._produce,
            self._produce_once,
            self._read,
            self._read_behind,
            self._send_many,
        ]
        self.lines: list[Line] = []
        self.settle: Step
        self.end_turn: Step

    def operations(self) -> list[tuple[float, Step]]:
        """What may happen, and how often."""
        return [(BURSTS, self._burst)]

    def reconnect(self) -> None:
        """The broker has restarted."""
        self._follower.reconnect()
        if self._once is not None:
            self._once.reconnect()

    def forget(self, place: tuple[str, int] | None) -> None:
        """A person has taken something of this partition away: its producer begins again."""
        if self._once is not None and self._once.place == place:
            self._once = None

    def _burst(self) -> None:
        names = sorted(self._model.topics.keys() - self._model.deleting)
        if not names:
            return
        topic = self._model.topics[self._chance.choice(names)]
        where = topic, self._chance.randrange(len(topic.partitions))
        kinds = [*self._kinds, *([] if self._transactional is None else [self._transact] * 4)]
        self._chance.choice(kinds)(where)

    def _one_by_one(self, line: Line, where: Where, send: Step) -> None:
        """Send again and again, and wait for each answer."""
        for _ in range(self._chance.randint(READS_ALONE + 1, MOST_READS)):
            if line.is_held or not self._is_there(where):
                return
            send()
            self._await(line)

    def _await(self, line: Line) -> None:
        """Until it is answered; the disk is asked only where it has to be."""
        line.take()
        if line.waiting:
            self.end_turn()
            line.take()
        if line.waiting:
            self.settle()

    def _produce(self, where: Where) -> None:
        line, acks = self.lines[PRODUCER], self._chance.choice((-1, -1, 1))
        self._one_by_one(line, where, lambda: self._plain.send_to(line, *where, acks, self._clock.wall_ms()))

    def _produce_once(self, where: Where) -> None:
        if self._once is None or self._once.is_over or self._chance.random() < 0.3:
            self._once = IdempotentProducer(self._model, self._values, *where, ONCE)
        once, line = self._once, self.lines[ONCE]
        topic, index = once.place
        self._one_by_one(line, (self._model.topics[topic], index), lambda: once.send(line, self._clock.wall_ms()))

    def _read(self, where: Where) -> None:
        line = self.lines[READER]
        self._one_by_one(line, where, lambda: self._follower.follow(line, *where))

    def _read_behind(self, where: Where) -> None:
        """The reader waits for more, and is woken behind each answer to the producer."""
        line, reader = self.lines[PRODUCER], self.lines[READER]

        def send() -> None:
            self._follower.follow(reader, *where)
            for _ in range(self._chance.choice((1, READS_ALONE + 2))):
                self._plain.send_to(line, *where, -1, self._clock.wall_ms())
                self._await(line)
            reader.take()

        for _ in range(self._chance.randint(1, 4)):
            if not line.is_held and not reader.is_held and self._is_there(where):
                send()

    def _send_many(self, where: Where) -> None:
        """Several requests in one read, of a client that others may interrupt."""
        line, acks = self.lines[PRODUCER], self._chance.choice((-1, -1, 1))
        for _ in range(self._chance.randint(2, 5)):
            if line.is_held or not self._is_there(where):
                return
            line.is_corked = True
            for _ in range(self._chance.randint(2, MOST_IN_A_READ)):
                self._plain.send_to(line, *where, acks, self._clock.wall_ms())
            line.is_corked = False
            line.deliver()
            self.end_turn()
            line.take()

    def _transact(self, where: Where) -> None:
        """Where the producer writes, it chooses itself."""
        assert self._transactional is not None
        line, act = self._transactional.lone(self._chance)
        for _ in range(self._chance.randint(READS_ALONE + 1, 2 * MOST_READS)):
            if line.is_held or not self._is_there(where):
                return
            act()
            self._await(line)

    def _is_there(self, where: Where) -> bool:
        topic, model = where[0], self._model
        return model.topics.get(topic.name) is topic and topic.name not in model.deleting
