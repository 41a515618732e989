"""The clients that all worlds have: producers, a reader, members of groups and those that commit offsets, and an
administrator of topics. Each has a connection of its own, or shares one with others of its kind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kit.simulator.admin import Administrator
from kit.simulator.consumers import ConsumerMember
from kit.simulator.members import Committer, Member
from kit.simulator.producers import IdempotentProducer, PlainProducer, Values
from kit.simulator.readers import Reader

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Line
    from kit.simulator.model import Model

MOST_TOPICS: Final = 4
ADMIN_LINE: Final = 0
PRODUCER_LINES: Final = (1, 2)
"""One for each idempotent producer: what it has in flight must arrive in order."""
READER_LINE: Final = 3
UNTOLD_LINE: Final = 4
"""Of acks=0 and of other plain batches: a broker that refuses one may only close the connection."""
FIRST_MEMBER_LINE: Final = 5
"""One for each member: behind a parked JoinGroup nothing starts."""
WRITERS: Final = (*PRODUCER_LINES, UNTOLD_LINE)

Operation = tuple[str, float, Callable[[], None]]


class UsualClients:
    """See the module. `lines` are given anew for each life of the broker, `line_count` of them."""

    def __init__(
        self,
        model: Model,
        values: Values,
        chance: random.Random,
        clock: ManualClock,
        kinds: Sequence[Mapping[str, str]],
    ) -> None:
        self._model = model
        self._values = values
        self._chance = chance
        self._clock = clock
        self._plain = PlainProducer(model, values, chance)
        self._idempotent: list[IdempotentProducer] = []
        self.administrator = Administrator(model, chance, kinds)
        self._reader = Reader(model, chance)
        self._committers = [Committer(model, group, chance) for group in ("g0", "g1")]
        self._members: list[Member | ConsumerMember] = [Member(model, group) for group in ("m0", "m1", "m1")]
        of_group: list[ConsumerMember] = []
        self._members += [ConsumerMember("c0", of_group, chance) for _ in range(2)]
        self.lines: list[Line] = []

    @property
    def line_count(self) -> int:
        """How many connections they need."""
        return FIRST_MEMBER_LINE + len(self._members)

    def operations(self) -> list[Operation]:
        """What may happen, with the name by which themes call it, and how often."""
        return [
            ("produce", 26, self._produce),
            ("produce once", 14, self._produce_once),
            ("produce to many", 3, self._produce_to_many),
            ("commit", 6, self._commit),
            ("fetch offset", 3, self._fetch_offset),
            ("delete offset", 1, self._delete_offset),
            ("member", 11, self._member),
            ("read", 5, self._read),
            ("create topic", 3, self._create_topic),
            ("delete topic", 1, lambda: self.administrator.delete_topic(self.lines[ADMIN_LINE])),
            ("grow topic", 1, lambda: self.administrator.grow_topic(self.lines[ADMIN_LINE])),
            ("alter topic", 2, lambda: self.administrator.alter_topic(self.lines[ADMIN_LINE])),
            ("delete records", 2, lambda: self.administrator.delete_records(self.lines[ADMIN_LINE])),
        ]

    def reconnect(self) -> None:
        """The broker has restarted."""
        for client in (*self._idempotent, *self._members, self._reader):
            client.reconnect()

    def note_power_cut(self) -> None:
        """As in `page_cache_worlds.py`: what the coordinator knew of groups may be lost."""
        for member in self._members:
            if isinstance(member, ConsumerMember):
                member.note_power_cut()

    def forget(self, place: tuple[str, int] | None) -> None:
        """A producer whose acknowledged batches are gone from this partition has to begin again."""
        self._idempotent = [one for one in self._idempotent if one.place != place]

    def _produce(self) -> None:
        self._plain.send(self.lines[UNTOLD_LINE], self._clock.wall_ms())

    def _produce_to_many(self) -> None:
        """A batch to most partitions, or to some: all of them wait for the same round of syncs."""
        share = self._chance.choice((0.9, 0.9, 0.5, 0.3))
        for _, topic in sorted(self._model.topics.items()):
            for index in range(len(topic.partitions)):
                if self._chance.random() < share:
                    acks = self._chance.choice((-1, -1, -1, -1, 1, 0))
                    self._plain.send_to(self.lines[UNTOLD_LINE], topic, index, acks, self._clock.wall_ms())

    def _produce_once(self) -> None:
        self._idempotent = [producer for producer in self._idempotent if not producer.is_over]
        if len(self._idempotent) < len(PRODUCER_LINES):
            names = sorted(self._model.topics.keys() - self._model.deleting)
            if not names:
                return
            topic = self._model.topics[self._chance.choice(names)]
            index = self._chance.randrange(len(topic.partitions))
            taken = {producer.line for producer in self._idempotent}
            line = next(line for line in PRODUCER_LINES if line not in taken)
            self._idempotent.append(IdempotentProducer(self._model, self._values, topic, index, line))
        producer = self._chance.choice(self._idempotent)
        producer.send(self.lines[producer.line], self._clock.wall_ms())

    def _commit(self) -> None:
        self._chance.choice(self._committers).commit(self.lines[READER_LINE])

    def _fetch_offset(self) -> None:
        self._chance.choice(self._committers).fetch(self.lines[READER_LINE])

    def _delete_offset(self) -> None:
        self._chance.choice(self._committers).delete(self.lines[READER_LINE])

    def _member(self) -> None:
        number = self._chance.randrange(len(self._members))
        self._members[number].act(self.lines[FIRST_MEMBER_LINE + number], self._chance)

    def _read(self) -> None:
        self._reader.read(self.lines[READER_LINE])

    def _create_topic(self) -> None:
        if len(self._model.topics) + len(self._model.creating) < MOST_TOPICS:
            self.administrator.create_topic(self.lines[ADMIN_LINE])
