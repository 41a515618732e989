"""Three processes move numbered records exactly once while they and the broker are killed at random.

A read_committed reader follows the output all the time and expects each partition's numbers in their order. Now and
then, and at the end, everything is stopped: all transactional ids are fenced, and then the group's offsets must be
exactly what the reader has seen, the last stable offset of each partition its high watermark, and no transaction open,
neither with the coordinator nor in a log. At the end all is moved, and `ottla log verify` finds nothing.

The broker starts with `sync` and `page-cache` by turns, with `sync` first where the seed is even. Each choice comes
from the seed; when exactly a kill falls does not.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.errors import KafkaError as PythonError
from kit.audit.deaths import Victim
from kit.audit.movers import HUNG, LIBRARIES, MAY_HANG, MoverProcess
from kit.audit.moving import INPUT, OUTPUT, PARTITIONS, Moved, input_value, number_at
from kit.audit.output_reader import OutputReader
from kit.audit.producers import QUICK_CONFLUENT
from kit.audit.transactions_seen import committed_offsets, what_is_open
from kit.broker import BrokerDidNotStart
from kit.command import run

SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.session.timeout.ms": "4000",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.segment.bytes": "30000",
}
ANSWER_S = 60.0
PATIENCE_S = 90.0
"""Nobody is held up for longer: much more than a session, a transaction's timeout and a start of everything."""
KILLS_BETWEEN_COMPARISONS = 25
TEND_S = 0.02
MOST_OF_A_WAIT_S = 0.4
MOST_OF_A_DOWN_TIME_S = 1.0
EVENTS = {
    "broker": 0.36,
    "broker, while it stops": 0.05,
    "broker, while it starts": 0.06,
    "mover": 0.36,
    "all at once": 0.04,
    "a clean stop": 0.03,
    "a mover is paused": 0.05,
    "a mover is started twice": 0.05,
}
"""What happens, and how often. The last three are no kills."""


@dataclass
class TransactionTally:
    """What a run came to."""

    kills: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    """What else was done to them."""
    ends: Counter[str] = field(default_factory=Counter)
    """What movers ended of by themselves."""
    starts: Counter[str] = field(default_factory=Counter)
    """Starts of the broker, by how it syncs."""
    records: int = 0
    transactions: int = 0
    """Those that committed records."""
    comparisons: int = 0
    longest_wait_s: float = 0.0
    """The longest time without a record more."""
    breaches: list[str] = field(default_factory=list)
    seconds: float = 0.0


class TransactionAudit:
    """See the module. `run` once."""

    def __init__(
        self, seed: int, home: Path, kills: int, records: int, group_protocol: str, deadline: float = float("inf")
    ) -> None:
        self.tally = TransactionTally()
        self.moved = Moved()
        self._chance = random.Random(seed)
        self._wanted, self._deadline = kills, deadline
        self._each = records // PARTITIONS
        """Records of each partition."""
        self.victim = Victim(home / "data", random.Random(self._chance.random()), SETTINGS)
        self.movers = [
            MoverProcess(library, f"mover-{number}", home, random.Random(self._chance.random()))
            for number, library in enumerate(LIBRARIES[group_protocol])
        ]
        self._reader: OutputReader | None = None
        self._is_sync = seed % 2 == 0
        self._next_comparison = KILLS_BETWEEN_COMPARISONS

    @property
    def output(self) -> str:
        """What the broker has said, in all of its lives."""
        return self.victim.process.output

    def run(self) -> TransactionTally:
        """The whole of it, until something is broken."""
        began = time.monotonic()
        try:
            self._live()
        except BrokerDidNotStart as error:
            self.moved.breach(f"a start failed: {str(error)[-500:]}")
        except (KafkaException, PythonError) as error:
            self.moved.breach(f"after {self.tally.kills.total()} kills: {error!r}")
        finally:
            for mover in self.movers:
                mover.kill()
                self.tally.ends += Counter({f"{mover.library}: {kind}": count for kind, count in mover.ends.items()})
                if mover.ends[HUNG] and mover.library not in MAY_HANG:
                    self.moved.breach(f"{mover.name} ({mover.library}) hung")
            self.victim.kill()
            if self._reader is not None:
                self._reader.end()
        self.tally.breaches, self.tally.records = self.moved.breaches, self.moved.total
        self.tally.transactions = len(self.moved.transactions)
        self.tally.seconds = time.monotonic() - began
        return self.tally

    def _live(self) -> None:
        self._start_broker()
        self._fill()
        self._reader = OutputReader(self.moved, self.victim.bootstrap)
        while self.tally.kills.total() < self._wanted and time.monotonic() < self._deadline:
            share = (self.tally.kills.total() + self._chance.random()) / (self._wanted + 1)
            self.work_until(lambda share=share: self.moved.total >= share * self._each * PARTITIONS)  # type: ignore[misc]
            self._tend_for(self._chance.random() * MOST_OF_A_WAIT_S)
            if self.moved.breaches:
                return
            self._event()
            if self.tally.kills.total() >= self._next_comparison:
                self._compare()
                self._next_comparison = self.tally.kills.total() + KILLS_BETWEEN_COMPARISONS
        self.work_until(lambda: self.moved.total >= self._each * PARTITIONS)
        self._compare()
        self._close()

    def _start_broker(self) -> None:
        self.victim.start(is_sync=self._is_sync)
        self.tally.starts["sync" if self._is_sync else "page-cache"] += 1
        self._is_sync = not self._is_sync

    def _fill(self) -> None:
        settings = {"bootstrap.servers": self.victim.bootstrap, **QUICK_CONFLUENT}
        topics = [NewTopic(name, PARTITIONS, 1) for name in (INPUT, OUTPUT)]
        admin = AdminClient(settings)
        for created in admin.create_topics(topics).values():
            created.result(ANSWER_S)
        producer = confluent_kafka.Producer({**settings, "enable.idempotence": True, "linger.ms": 20})
        for offset in range(self._each):
            for partition in range(PARTITIONS):
                producer.produce(INPUT, input_value(number_at(partition, offset)), partition=partition)
            if offset % 1000 == 0:
                producer.flush(ANSWER_S)
        if producer.flush(ANSWER_S):
            self.moved.breach("the input was not acknowledged")

    # -- between the events

    def _tend(self) -> None:
        for mover in self.movers:
            mover.tend(self.victim.bootstrap)
        time.sleep(TEND_S)

    def _tend_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._tend()

    def work_until(self, is_enough: Callable[[], bool]) -> None:
        """Let the movers work. That they come to a stop is a breach."""
        seen, since = self.moved.total, time.monotonic()
        while not is_enough() and not self.moved.breaches:
            self._tend()
            if self.moved.total > seen:
                self.tally.longest_wait_s = max(self.tally.longest_wait_s, time.monotonic() - since)
                seen, since = self.moved.total, time.monotonic()
            elif time.monotonic() > since + PATIENCE_S:
                found = what_is_open(self.victim.bootstrap)
                self.moved.breach(f"nothing was moved for {PATIENCE_S:.0f} s, after {seen} records; {'; '.join(found)}")

    # -- events

    def _event(self) -> None:
        kind = self._chance.choices(list(EVENTS), list(EVENTS.values()))[0]
        mover = self._chance.choice(self.movers)
        if kind == "mover":
            self.tally.kills["movers"] += mover.kill()
        elif kind == "a mover is paused":
            self.tally.events[kind] += mover.pause()
        elif kind == "a mover is started twice":
            self.tally.events[kind] += mover.overtake(self.victim.bootstrap)
        else:
            self._end_broker(kind)
            time.sleep(self._chance.random() ** 2 * MOST_OF_A_DOWN_TIME_S)
            self._start_broker()

    def _end_broker(self, kind: str) -> None:
        if kind == "a clean stop":
            self.tally.events[kind] += 1
            if status := self.victim.stop():
                self.moved.breach(f"the broker stopped with status {status}")
            return
        if kind == "all at once":
            self._kill_movers()
        if kind == "broker, while it stops":
            self.victim.kill_while_stopping()
        else:
            self.victim.kill()
        self.tally.kills["broker, while it stops" if kind == "broker, while it stops" else "broker"] += 1
        if kind == "broker, while it starts":
            if not self.victim.kill_while_starting(is_sync=self._is_sync):
                raise BrokerDidNotStart(self.output[-2000:])
            self.tally.kills[kind] += 1

    def _kill_movers(self) -> None:
        for mover in self.movers:
            self.tally.kills["movers"] += mover.kill()

    # -- what is there

    def _compare(self) -> None:
        """Stop everybody, and compare records with offsets."""
        when = f"after {self.tally.kills.total()} kills"
        self._kill_movers()
        for mover in self.movers:
            self._fence(mover.name)
        assert self._reader is not None
        if not self._reader.reach_end(ANSWER_S):
            self.moved.breach(f"{when}: a read_committed reader does not come to the last stable offset")
        self.moved.compare(committed_offsets(self.victim.bootstrap), when)
        for found in what_is_open(self.victim.bootstrap):
            self.moved.breach(f"{when}: {found}")
        self.tally.comparisons += 1

    def _fence(self, transactional_id: str) -> None:
        """End what the id has open: as a producer that begins with it."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.victim.bootstrap, "transactional.id": transactional_id, **QUICK_CONFLUENT}
        )
        producer.init_transactions(ANSWER_S)

    def _close(self) -> None:
        """A clean stop, and a sound directory."""
        if status := self.victim.stop():
            self.moved.breach(f"the broker stopped with status {status}")
        said = run("log", "verify", self.victim.directory)
        if said.status:
            self.moved.breach(f"`ottla log verify`: {said.out[-1000:]} {said.err[-500:]}")
