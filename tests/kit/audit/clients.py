"""All clients of one audited directory: who produces where, who reads what in which group, and who administers.

They are made once and live through all deaths of the broker. `pause` and `resume` stop and continue what they begin;
what is under way continues: producers send again what was not answered.
"""

from __future__ import annotations

import random
import threading
import time

from confluent_kafka.admin import AdminClient, NewTopic
from kit.audit.administrator import Administrator
from kit.audit.ledger import Ledger, PartitionLedger, Place, TopicLedger
from kit.audit.loops import LoopThread
from kit.audit.members import AioKafkaMember, ConfluentMember, KafkaPythonMember, Member
from kit.audit.producers import (
    QUICK_CONFLUENT,
    AioKafkaProducing,
    ConfluentProducing,
    KafkaPythonProducing,
    Producing,
)

ANSWER_S = 30.0
QUIET_S = 0.12
DRAIN_S = 0.25
SETTLE_S = 60.0
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "kept": (3, {}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "expiring": (1, {"retention.bytes": "200000"}),
    "trimmed": (2, {}),
    "shortened": (1, {}),
}
_KEPT: list[Place] = [("kept", index) for index in range(3)]
SHORTENED: Place = ("shortened", 0)
"""The audit takes away its end. Nobody writes there who could not begin again: no idempotent producer."""
_SHORT: list[Place] = [("expiring", 0), ("trimmed", 0), ("trimmed", 1)]
_PLAIN = [*_SHORT, SHORTENED]


class Clients:
    """See the module."""

    def __init__(self, ledger: Ledger, bootstrap: str, chance: random.Random) -> None:
        self.ledger = ledger
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK_CONFLUENT})
        self.asyncio = LoopThread()
        self.going = threading.Event()
        self._bootstrap = bootstrap
        self._create_topics()
        self.administrator = Administrator(ledger, self.going, bootstrap, random.Random(chance.random()))
        self.producers: list[Producing] = [*self._producers(chance)]
        self.members: list[Member] = self._members()

    @property
    def groups(self) -> list[str]:
        """Names of the groups."""
        return sorted({member.group for member in self.members})

    def resume(self) -> None:
        """Everybody continues."""
        self.administrator.audited()
        self.going.set()

    def pause(self) -> None:
        """Nobody begins anything new."""
        self.going.clear()

    def drain(self) -> None:
        """The broker is gone: wait until all that it had said was heard."""
        time.sleep(QUIET_S)
        for member in self.members:
            member.is_idle = False
        deadline = time.monotonic() + DRAIN_S
        while not all(member.is_idle for member in self.members) and time.monotonic() < deadline:
            time.sleep(0.005)
        for member in self.members:
            member.is_muted = not member.is_idle

    def settle(self) -> bool:
        """The broker is back: wait until everything under way was answered."""
        deadline = time.monotonic() + SETTLE_S
        while waiting := self._waiting():
            if time.monotonic() > deadline:
                self.ledger.breach(f"not everybody was answered: {waiting}")
                return False
            time.sleep(0.005)
        return True

    def _waiting(self) -> list[str]:
        """Who has not been answered."""
        names = [one.name for one in self.producers if not one.is_settled]
        return names if self.administrator.is_settled else [*names, "administrator"]

    def end(self) -> None:
        """Everybody leaves."""
        self.pause()
        everybody: list[Producing | Member | Administrator] = [*self.producers, *self.members, self.administrator]
        for one in everybody:
            one.end()
        self.asyncio.end()

    def _create_topics(self) -> None:
        wanted = [NewTopic(name, count, 1, config=settings) for name, (count, settings) in TOPICS.items()]
        for name, answer in self.admin.create_topics(wanted).items():
            answer.result(ANSWER_S)
            count, settings = TOPICS[name]
            partitions = [PartitionLedger() for _ in range(count)]
            self.ledger.topics[name] = TopicLedger(name, partitions, dict(settings), counts_asked=count)

    def _producers(self, chance: random.Random) -> list[Producing]:
        ledger, going, bootstrap = self.ledger, self.going, self._bootstrap

        def own() -> random.Random:
            return random.Random(chance.random())

        once = {"enable.idempotence": True}
        plain = {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1}
        return [
            ConfluentProducing(
                ledger, going, bootstrap, "confluent, idempotent", _KEPT, own(), {**once, "compression.type": "lz4"}
            ),
            ConfluentProducing(
                ledger, going, bootstrap, "confluent, idempotent, keys", [("compacted", 0)], own(), {**once, "keyed": 1}
            ),
            ConfluentProducing(
                ledger,
                going,
                bootstrap,
                "confluent, plain",
                [*_KEPT, *_SHORT, SHORTENED],
                own(),
                {**plain, "acks": "all"},
            ),
            ConfluentProducing(
                ledger,
                going,
                bootstrap,
                "confluent, acks=1",
                [*_KEPT[:1], *_SHORT, SHORTENED],
                own(),
                {**plain, "acks": "1"},
            ),
            KafkaPythonProducing(
                ledger, going, bootstrap, "kafka-python, idempotent", _KEPT, own(), {"enable_idempotence": True}
            ),
            AioKafkaProducing(
                ledger,
                going,
                bootstrap,
                "aiokafka, idempotent",
                _KEPT + _SHORT,
                own(),
                {"enable_idempotence": True},
                loop=self.asyncio.loop,
            ),
        ]

    def _members(self) -> list[Member]:
        ledger, going, bootstrap = self.ledger, self.going, self._bootstrap
        classic = {"session.timeout.ms": 10_000}
        return [
            ConfluentMember(ledger, going, bootstrap, "classic", ["kept", "trimmed"], classic),
            ConfluentMember(ledger, going, bootstrap, "classic", ["kept", "trimmed"], classic),
            ConfluentMember(ledger, going, bootstrap, "kip-848", ["kept", "expiring"], {"group.protocol": "consumer"}),
            KafkaPythonMember(ledger, going, bootstrap, "kafka-python", ["kept", "compacted"]),
            AioKafkaMember(ledger, going, bootstrap, "aiokafka", ["kept", "expiring"], loop=self.asyncio.loop),
        ]
