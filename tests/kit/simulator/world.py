"""A seed's world: one broker core on a simulated disk, its clients, and the machine that stops at the worst moment.

Everything that happens is drawn from one `random.Random(seed)`: which client does what, when a turn ends, when the
disk finishes a sync, how much time passes, at which call to the disk the machine stops, and what of the unsynced
pages it keeps. The same seed is the same world, so a failing one can be replayed.
"""

from __future__ import annotations

import errno
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from kit.clock import ManualClock
from kit.nodes import DATA
from kit.simulated_files import CrashPoint, Failure, SimulatedFiles
from kit.simulator.admin import Administrator
from kit.simulator.auditor import Auditor
from kit.simulator.clients import Line
from kit.simulator.members import SESSION_TIMEOUT_MS, Committer, Member
from kit.simulator.model import Loss, Model, Violation
from kit.simulator.producers import IdempotentProducer, PlainProducer, Values
from kit.simulator.readers import Reader
from kit.simulator.sites import SITES, site_of

from ottla.broker.connections import Connections
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig

MOST_TOPICS = 4
PRODUCERS = 2
LINES = 4
UNTOLD_LINE = 4
"""The line of acks=0 and of other plain batches: a broker that refuses one may only close the connection."""
OPERATIONS_TO_A_CRASH = 60
"""How long a life may go on until the machine stops where it was told to."""
CHANGES_TO_A_CRASH = 40
"""Calls that change the disk, counted from the moment when the end of a life is decided."""
STOPS_IN_RECOVERY = 0.25
"""How often a machine that starts stops again before it is done."""
SETTINGS: dict[str, object] = {
    "log.dirs": str(DATA),
    "num.recovery.threads.per.data.dir": 1,
    "log.segment.bytes": 2048,
    "log.index.interval.bytes": 512,
    "connections.max.idle.ms": 1_000_000_000_000,
    "auto.create.topics.enable": False,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.backoff.ms": 1000,
    "offsets.topic.segment.bytes": 1024,
    "group.max.session.timeout.ms": SESSION_TIMEOUT_MS,
    "metadata.log.max.record.bytes.between.snapshots": 2000,
}

CONFIG = BrokerConfig.of(SETTINGS)
"""Read once: no client changes the broker's own keys, and reading them takes longer than starting a broker does."""


@dataclass
class Outcome:
    """What a world has shown."""

    seed: int
    violation: str | None = None
    operations: int = 0
    losses: Counter[str] = field(default_factory=Counter)
    sites: Counter[str] = field(default_factory=Counter)


class _Bugs(logging.Handler):
    """Collects what the broker itself calls a bug."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "bug" in record.msg:
            said = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                if isinstance(record.exc_info[1], Violation):
                    raise record.exc_info[1]
                said += f": {record.exc_info[1]!r}"
            self.found.append(said)


def _without_crashes(problem: sys.UnraisableHookArgs) -> None:
    """What a dead machine's generators would still do when they are collected is no finding."""
    if not isinstance(problem.exc_value, CrashPoint):
        sys.__unraisablehook__(problem)


class World:
    """See the module. `run` is the whole life of a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.outcome = Outcome(seed)
        self.clock = ManualClock()
        self.files = SimulatedFiles()
        self.model = Model()
        self._values = Values(self.chance)
        self._plain = PlainProducer(self.model, self._values, self.chance)
        self._idempotent: list[IdempotentProducer] = []
        self._admin = Administrator(self.model, self.chance)
        self._reader = Reader(self.model, self.chance)
        self._committers = [Committer(self.model, group, self.chance) for group in ("g0", "g1")]
        self._members = [Member(self.model, group) for group in ("m0", "m1")]
        self._bugs = _Bugs()
        self._failure: Failure | None = None
        self._has_bad_disk = self.chance.random() < 0.15
        self.node: Node
        self._lines: list[Line] = []
        self._operations: list[tuple[float, Callable[[], None]]] = [
            (26, self._produce),
            (14, self._produce_once),
            (6, self._commit),
            (3, self._fetch_offset),
            (4, self._member),
            (5, self._read),
            (3, self._create_topic),
            (1, self._delete_topic),
            (1, self._grow_topic),
            (2, self._alter_topic),
            (2, self._delete_records),
            (12, self._end_turn),
            (12, self._sync),
            (6, self._pass_time),
            (1, self._disk_trouble),
        ]
        self._weights = [weight for weight, _ in self._operations]

    # -- a whole life -----------------------------------------------------------------------------------------------

    def run(self, *, operations: int = 200, crashes: int = 3, is_quiet: bool = True) -> Outcome:
        """Live through `crashes` losses and at least `operations` operations; `outcome.violation` says what broke."""
        root = logging.getLogger("ottla")
        before, propagates = root.level, root.propagate
        hook, sys.unraisablehook = sys.unraisablehook, _without_crashes
        root.addHandler(self._bugs)
        if is_quiet:
            root.setLevel(logging.ERROR)
            root.propagate = False
        try:
            self._start(None)
            for number in range(crashes + 1):
                last = number == crashes
                loss = Loss.STOP if last else self.chance.choice((Loss.POWER, Loss.POWER, Loss.KILL, Loss.STOP))
                self._live(operations // (crashes + 1) + 1, may_stop_inside=loss is not Loss.STOP)
                self._lose(loss)
                self._start(loss)
        except Violation as violation:
            self.outcome.violation = str(violation)
        except Exception as error:  # whatever escapes the broker is a finding of its own
            self.outcome.violation = f"{type(error).__name__} escaped: {error}"
        finally:
            sys.unraisablehook = hook
            root.removeHandler(self._bugs)
            root.setLevel(before)
            root.propagate = propagates
        return self.outcome

    def _live(self, operations: int, *, may_stop_inside: bool) -> None:
        """Operate; with `may_stop_inside` the end mostly falls into the middle of an operation."""
        for number in range(operations + OPERATIONS_TO_A_CRASH if may_stop_inside else operations):
            if number == operations:
                self._arm()
                if self.files.crash_when is None:
                    return
            operation = self.chance.choices(self._operations, self._weights)[0][1]
            self.outcome.operations += 1
            try:
                operation()
            except CrashPoint:
                return
            self._take_answers()
            self._complain()

    def _arm(self) -> None:
        """Let the machine stop at some change of the disk soon, at the next one of a drawn site, or right now."""
        what = self.chance.random()
        if what < 0.4:
            self._stop_soon()
        elif what < 0.9:
            wanted = self.chance.choice(SITES)
            self.files.crash_when = lambda call, path: site_of(call, path) == wanted

    def _stop_soon(self) -> None:
        files, last_change = self.files, self.files.changes + self.chance.randint(1, CHANGES_TO_A_CRASH)
        files.crash_when = lambda call, path: files.changes >= last_change

    def _lose(self, loss: Loss) -> None:
        """The life of this broker ends; `self.files` is what the next one finds."""
        if loss is Loss.STOP:
            self.files.heal()
            self._take_answers()
            try:
                self.node.stop()
            except OSError:
                if not self._has_bad_disk:
                    raise
            self._complain()
        elif self.files.has_crashed:
            self.outcome.sites[site_of(*self.files.history[-1])] += 1
        else:
            self.outcome.sites["between calls"] += 1
        self.outcome.losses[loss.value] += 1
        self.model.was_unclean = loss is not Loss.STOP
        # A machine may also lose its power right after the broker stopped in good order: that changes nothing.
        power = loss is Loss.POWER or (loss is Loss.STOP and not self._has_bad_disk and self.chance.random() < 0.5)
        self._bury()
        self.files = self.files.crash(self.chance) if power else self.files.successor()

    def _bury(self) -> None:
        """End what the dead broker had under way, before the garbage collector does it at some later time."""
        self.files.has_crashed = True
        with suppress(CrashPoint):
            self.node.cleaner.stop()

    def _start(self, loss: Loss | None) -> None:
        """Start a broker, which may stop again while it recovers; then hold it against the model."""
        while loss is not None and self.chance.random() < STOPS_IN_RECOVERY:
            self._stop_soon()
            try:
                self._make_node()
            except CrashPoint:
                self.outcome.sites["recovery, " + site_of(*self.files.history[-1])] += 1
                self._bury()
                if self.chance.random() < 0.7:
                    self.files, loss = self.files.crash(self.chance), Loss.POWER
                else:
                    self.files = self.files.successor()
            else:
                self.files.crash_when = None
                self._meet(loss)
                return
        self._make_node()
        self._meet(loss)

    def _make_node(self) -> None:
        self._failure = None
        self.files.now_ms = self.clock.wall_ms()
        self.node = Node(CONFIG, clock=self.clock, files=self.files)
        self.node.start()

    def _meet(self, loss: Loss | None) -> None:
        """Connect all clients anew, and audit what the start has made of the disk."""
        self._connections = Connections(self.node, self.node.dispatcher)
        self._lines = [Line(self.node, self._connections) for _ in range(LINES + 1)]
        for client in (*self._idempotent, *self._members, self._reader):
            client.reconnect()
        if loss is not None:
            self.node.settle()
            Auditor(self.node, self.model, self._lines[0]).audit(loss)
        self._complain()

    # -- operations -------------------------------------------------------------------------------------------------

    def _line(self, number: int) -> Line:
        return self._lines[number % LINES]

    def _produce(self) -> None:
        self._plain.send(self._lines[UNTOLD_LINE], self.clock.wall_ms())

    def _produce_once(self) -> None:
        self._idempotent = [producer for producer in self._idempotent if not producer.is_over]
        if len(self._idempotent) < PRODUCERS:
            names = sorted(self.model.topics.keys() - self.model.deleting)
            if not names:
                return
            topic = self.model.topics[self.chance.choice(names)]
            index = self.chance.randrange(len(topic.partitions))
            self._idempotent.append(IdempotentProducer(self.model, self._values, topic, index))
        number = self.chance.randrange(len(self._idempotent))
        self._idempotent[number].send(self._line(1 + number), self.clock.wall_ms())

    def _commit(self) -> None:
        self.chance.choice(self._committers).commit(self._line(3))

    def _fetch_offset(self) -> None:
        self.chance.choice(self._committers).fetch(self._line(3))

    def _member(self) -> None:
        self.chance.choice(self._members).act(self._line(2), self.chance)

    def _read(self) -> None:
        self._reader.read(self._line(3))

    def _create_topic(self) -> None:
        if len(self.model.topics) + len(self.model.creating) < MOST_TOPICS:
            self._admin.create_topic(self._line(0))

    def _delete_topic(self) -> None:
        self._admin.delete_topic(self._line(0))

    def _grow_topic(self) -> None:
        self._admin.grow_topic(self._line(0))

    def _alter_topic(self) -> None:
        self._admin.alter_topic(self._line(0))

    def _delete_records(self) -> None:
        self._admin.delete_records(self._line(0))

    def _end_turn(self) -> None:
        self.node.turn.end()

    def _sync(self) -> None:
        """The disk finishes a sync, or all."""
        self.node.turn.end()
        if self.chance.random() < 0.5:
            self.node.syncer.run_one()  # type: ignore[attr-defined]  # a node without `post` has the queued one
        else:
            self.node.settle()

    def _pass_time(self) -> None:
        """Mostly little; sometimes so much that checkpoints, retention, the cleaner and unlinking are due."""
        self.clock.advance(self.chance.choice((10, 10, 1_000, 6_000, 61_000, 301_000)))
        self.files.now_ms = self.clock.wall_ms()
        self.node.run_due()

    def _disk_trouble(self) -> None:
        """In some worlds: the disk is full for a while, or a sync fails, after which only a restart helps."""
        if not self._has_bad_disk:
            return
        if self._failure is not None:
            self.files.heal(self._failure)
            self._failure = None
        elif self.chance.random() < 0.7:
            room = self.chance.choice((None, self.chance.randrange(1, 3000)))
            self._failure = self.files.fail("pwritev", "*.log", errno.ENOSPC, times=None, after_bytes=room)
        else:
            self._failure = self.files.fail("fdatasync", "*.log", errno.EIO)

    # -- after each operation ---------------------------------------------------------------------------------------

    def _take_answers(self) -> None:
        for number, line in enumerate(self._lines):
            line.take()
            if not line.is_closed:
                continue
            if number != UNTOLD_LINE:
                raise Violation("the broker closed a connection that did nothing wrong")
            self._lines[number] = Line(self.node, self._connections)

    def _complain(self) -> None:
        if self._bugs.found:
            raise Violation(self._bugs.found[0])
