"""A seed's world: one broker core on a simulated disk, its clients, and the machine that stops at the worst moment.

Everything that happens is drawn from one `random.Random(seed)`: which client does what, when a turn ends, when the
disk finishes a sync, how much time passes, at which call to the disk the machine stops, and what of the unsynced
pages it keeps. The ids that the broker draws come from the seed, too (`kit.known_ids`). The same seed is the same
world, so a failing one can be replayed.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from unittest import mock

from kit.clock import ManualClock
from kit.known_ids import known_ids
from kit.nodes import DATA
from kit.simulated_files import CrashPoint, SimulatedFiles
from kit.simulator import directory_worlds, page_cache_worlds, quota_worlds, settings_changes, turn_worlds
from kit.simulator.admin import Administrator
from kit.simulator.auditor import Auditor
from kit.simulator.clients import Line
from kit.simulator.consumers import ConsumerMember
from kit.simulator.directory_worlds import draw_directories
from kit.simulator.disk_troubles import DiskTroubles
from kit.simulator.lone_clients import NAMES as LONE_LINES
from kit.simulator.lone_clients import LoneClients
from kit.simulator.members import Committer, Member
from kit.simulator.model import Loss, Model, Violation
from kit.simulator.page_cache_worlds import SYNC, draw_promise, kinds_under
from kit.simulator.producers import IdempotentProducer, PlainProducer, Values
from kit.simulator.quota_meter import QuotaMeter
from kit.simulator.quota_worlds import QuotaWorld
from kit.simulator.readers import Reader
from kit.simulator.redo_worlds import RedoLimits
from kit.simulator.rights_clients import USERS, RightsClients
from kit.simulator.rot import read_rot
from kit.simulator.settings_changes import SettingsChanges
from kit.simulator.sites import site_of
from kit.simulator.spoilt_files import LOST_ENDS, flip_a_bit, flip_a_bit_of_the_redo_log, lose_an_end
from kit.simulator.themes import draw_theme, sites_ahead, theme_named
from kit.simulator.transactional_clients import NAMES as TRANSACTIONAL_LINES
from kit.simulator.transactional_clients import READER as COMMITTED_READER
from kit.simulator.transactional_clients import ZOMBIES, TransactionalClients
from kit.simulator.turn_worlds import TurnWorld

from ottla.broker.metadata.rebuild import MetadataRebuild
from ottla.broker.net.connections import Connections
from ottla.broker.node import Node
from ottla.broker.runtime import disk, sync_round
from ottla.broker.runtime.disk import QueuedSyncer
from ottla.storage.errors import StorageError
from ottla.storage.formats.layout import CLEAN_SHUTDOWN_FILE
from ottla.storage.tools.repair import Repair

MOST_TOPICS = 4
PRODUCER_LINES = (1, 2)
"""One for each idempotent producer: what it has in flight must arrive in order."""
ADMIN_LINE = 0
READER_LINE = 3
UNTOLD_LINE = 4
FIRST_MEMBER_LINE = 5
LINES_UNDER_QUOTAS = {1: "idempotent 1", 2: "idempotent 2", READER_LINE: "reader", UNTOLD_LINE: "producer"}
UNDER_QUOTAS = [
    *LINES_UNDER_QUOTAS.values(),
    *TRANSACTIONAL_LINES[:ZOMBIES],
    TRANSACTIONAL_LINES[COMMITTED_READER],
    *LONE_LINES,
]
"""The clients that have a quota in worlds with some: not those that look after the others."""
"""One for each member: behind a parked JoinGroup nothing starts."""
"""Of acks=0 and of other plain batches: a broker that refuses one may only close the connection."""
CRASHES = 3
"""Deaths of the process and power cuts while the broker serves or stops; those while it starts come on top."""
OPERATIONS = 200
OPERATIONS_TO_A_CRASH = 30
"""How long a life may continue until the machine stops at the planned place."""
CHANGES_TO_A_CRASH = 40
"""Calls that change the disk, counted from the moment when the end of a life is decided."""
CHANGES_AFTER_A_LOSS = 12
STOPS_IN_STOPPING = 0.12
"""How often the end of a life falls into a stop in good order."""
CLEAN_STOPS = 0.5
"""How many worlds have a life that ends in good order."""
TRANSACTIONS = 0.35
"""How many worlds have transactional clients."""
ACLS = 0.25
"""How many worlds have an authorizer, users, and an administrator of their rights."""
OPEN_WITHOUT_ACLS = 0.4
"""In how many of these everybody may use what no ACL is about."""
WAITS = 1
"""How often all are silent for as long as a transaction may be open, beside the weights of other operations."""
TRANSACTION_SITES = ("transactions: append", "transactions: sync", "transactions: index", "groups: append", "log: sync")
VOLUME_SYNCS = 0.5
"""How many worlds have a file system that can be synced as a whole."""
REDO_LOGS = 0.9
"""How many lives have a redo log, in worlds without rights."""
FLIPS_OF_REDO_LOGS = 0.1
"""How often a bit of the redo log has flipped when the process has died."""
STARTS_WITHOUT_INODES = 0.2
"""How often a world with a bad disk has no inode left when a broker starts."""
HOUR_MS = 3_600_000
JUMPS_MS = (30 * 24 * HOUR_MS, 3650 * 24 * HOUR_MS, -12 * HOUR_MS)
"""By how much the wall clock may be wrong; back not by `producer.id.expiration.ms` (docs/clock.md: what was stamped by
a wrong clock stays stamped so).
"""


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


class World:
    """See the module. `run` is the whole life of a seed."""

    def __init__(
        self,
        seed: int,
        *,
        theme: str | None = None,
        volume_syncs: float = VOLUME_SYNCS,
        transactions: float = TRANSACTIONS,
        acls: float = ACLS,
        page_cache: float = page_cache_worlds.WORLDS,
        quotas: float = quota_worlds.WORLDS,
        turns: float = turn_worlds.WORLDS,
        settings: float = settings_changes.WORLDS,
        directories: float = directory_worlds.WORLDS,
    ) -> None:
        self.chance = random.Random(seed)
        self.theme = draw_theme(self.chance) if theme is None else theme_named(theme)
        self.outcome = Outcome(seed)
        self._spoiling = random.Random(f"what happens to the files of {seed}")
        """Of its own: worlds in which nothing happens to them are what they were."""
        self._is_bent = False
        self._has_bent_redo_log = False
        """Whether what the next start replays is not all: then the logs themselves are not to lose anything, too."""
        self._redo_limits = RedoLimits.of(random.Random(f"the redo log of {seed}"))
        self._needs_inodes = True
        """Whether the next start makes files: the first ones, or what a start without an inode could not open."""
        self.clock = ManualClock()
        self.files = SimulatedFiles()
        # Of its own, as `_spoiling`.
        self.files.has_volume_sync = random.Random(f"the volume of {seed}").random() < volume_syncs
        self._promise = draw_promise(seed, page_cache)
        self._directories = draw_directories(seed, directories, self.files)
        self.model = Model(self._promise)
        self._values = Values(self.chance)
        self._plain = PlainProducer(self.model, self._values, self.chance)
        self._idempotent: list[IdempotentProducer] = []
        self._admin = Administrator(self.model, self.chance, kinds_under(self._promise, self.theme.kinds))
        self._reader = Reader(self.model, self.chance)
        self._committers = [Committer(self.model, group, self.chance) for group in ("g0", "g1")]
        self._members: list[Member | ConsumerMember] = [Member(self.model, group) for group in ("m0", "m1", "m1")]
        of_group: list[ConsumerMember] = []
        self._members += [ConsumerMember("c0", of_group, self.chance) for _ in range(2)]
        self._bugs = _Bugs()
        self._troubles = DiskTroubles(self.chance, self.theme, self._redo_limits)
        self._may_stop_inside = False
        self._jump_ms = 0
        """By how much the wall clock is wrong."""
        self._has_bad_disk = self.chance.random() < self.theme.bad_disk
        self.node: Node
        self._lines: list[Line] = []
        operations: list[tuple[str, float, Callable[[], None]]] = [
            ("produce", 26, self._produce),
            ("produce once", 14, self._produce_once),
            ("produce to many", 3, self._produce_to_many),
            ("commit", 6, self._commit),
            ("fetch offset", 3, self._fetch_offset),
            ("delete offset", 1, self._delete_offset),
            ("member", 11, self._member),
            ("read", 5, self._read),
            ("create topic", 3, self._create_topic),
            ("delete topic", 1, self._delete_topic),
            ("grow topic", 1, self._grow_topic),
            ("alter topic", 2, self._alter_topic),
            ("delete records", 2, self._delete_records),
            ("end turn", 12, self._end_turn),
            ("sync", 12, self._sync),
            ("pass time", 6, self._pass_time),
            ("background", 4, self._run_background),
            ("jump clock", 1, self._jump_clock),
            ("disk trouble", 1, self._disk_trouble),
            ("thread trouble", 1, self._thread_trouble),
        ]
        self._operations = [operation for _, _, operation in operations]
        weights = [weight * self.theme.more.get(name, 1) for name, weight, _ in operations]
        self._transactional: TransactionalClients | None = None
        if self.theme.has_transactions and transactions:
            transactions = 1
        # Of its own, as `_spoiling`.
        if random.Random(f"the transactions of {seed}").random() < transactions:
            self._transactional = TransactionalClients(self.model, self._values, self.chance, self.clock)
            for weight, operation in (*self._transactional.operations(), (WAITS, self._wait_out)):
                self._operations.append(operation)
                weights.append(weight * self.theme.more.get("transactions", 1))
        self._lone: LoneClients | None = None
        self._quotas: QuotaWorld | None = None
        # Of its own, as `_spoiling`.
        if random.Random(f"the quotas of {seed}").random() < quotas:
            self._quotas = QuotaWorld(seed, UNDER_QUOTAS, self.clock)
            self.model.may_wait = True
            self._add(self._quotas.operations(), weights)
        if self._quotas is not None or self._promise != SYNC:
            self._lone = LoneClients(self.model, self._values, self.chance, self.clock, self._transactional)
            self._add(self._lone.operations(), weights)
        self._turns: TurnWorld | None = None
        # Of its own, as `_spoiling`.
        if random.Random(f"whether {seed} takes turns").random() < turns:
            self._turns = TurnWorld(seed, self.model, self._values, self.clock, self._admin)
            self._add(self._turns.operations(), weights)
            if self._transactional is not None:
                self._transactional.die_waiting()
        self._settings: SettingsChanges | None = None
        # Of its own, as `_spoiling`.
        if random.Random(f"whether settings of {seed} change").random() < settings:
            self._settings = SettingsChanges(seed, self.model)
            self._add(self._settings.operations(), weights)
        self._secured: RightsClients | None = None
        self._open_without: bool | None = None
        self._operation_count = OPERATIONS
        # Of its own, as `_spoiling`.
        of_rights = random.Random(f"the rights of {seed}")
        if of_rights.random() < acls:
            self._open_without = open_without = of_rights.random() < OPEN_WITHOUT_ACLS
            self._secured = RightsClients(self.model, self._values, self.chance, self.clock, open_without=open_without)
            without = sum(weights)
            self._add(self._secured.operations(), weights)
            # What the others do is done as often as elsewhere: transactions would hardly ever come to an end.
            self._operation_count = round(OPERATIONS * sum(weights) / without)
        self._weights = list(accumulate(weights))

    def _add(self, operations: Sequence[tuple[float, Callable[[], None]]], weights: list[float]) -> None:
        for weight, operation in operations:
            self._operations.append(operation)
            weights.append(weight)

    # -- a whole life -----------------------------------------------------------------------------------------------

    def run(self, *, is_quiet: bool = True) -> Outcome:
        """Live through all losses and at least `OPERATIONS` operations; `outcome.violation` says what broke."""
        root = logging.getLogger("ottla")
        before, propagates = root.level, root.propagate
        root.addHandler(self._bugs)
        if is_quiet:
            root.setLevel(logging.ERROR)
            root.propagate = False
        losses = [self.chance.choice((Loss.POWER, Loss.POWER, Loss.KILL)) for _ in range(CRASHES)]
        if self.chance.random() < CLEAN_STOPS:
            losses.insert(self.chance.randint(0, CRASHES), Loss.STOP)
        try:
            with (
                known_ids(self.outcome.seed),
                mock.patch.object(sync_round, "VOLUME_FROM", 2),  # rounds of more files are too few
                mock.patch.object(disk, "SHARED_FROM", 2),
                self._redo_limits.kept(),
                nullcontext() if self._quotas is None else self._quotas.kept(),
                nullcontext() if self._turns is None else self._turns.limits.kept(),
            ):
                self._start(None)
                for loss in losses:
                    self._live(self._operation_count // len(losses) + 1, may_stop_inside=loss is not Loss.STOP)
                    ended = self._lose(loss)
                    self._spoil(ended)
                    self._start(ended)
        except Violation as violation:
            self.outcome.violation = str(violation)
        except Exception as error:  # whatever escapes the broker is a finding of its own
            self.outcome.violation = f"{type(error).__name__} escaped: {error}"
        finally:
            self._bury()
            root.removeHandler(self._bugs)
            root.setLevel(before)
            root.propagate = propagates
        return self.outcome

    def _live(self, operations: int, *, may_stop_inside: bool) -> None:
        """Operate; with `may_stop_inside` the end mostly falls into the middle of an operation."""
        self._may_stop_inside = may_stop_inside
        for number in range(operations + OPERATIONS_TO_A_CRASH if may_stop_inside else operations):
            if number == operations:
                self._arm()
                if self.files.crash_when is None:
                    return
            operation = self.chance.choices(self._operations, cum_weights=self._weights)[0]
            self.outcome.operations += 1
            try:
                operation()
                self._take_answers()
            except CrashPoint:
                return
            self._complain()

    def _arm(self) -> None:
        """Let the machine stop at some change of the disk soon, at the next one of a drawn site, or right now."""
        what = self.chance.random()
        if what < 0.35:
            self._stop_soon()
        elif what < 0.9:
            self._stop_at(self.chance.choice(self.theme.sites))

    def _stop_at(self, wanted: str) -> None:
        if self._transactional is not None and self.chance.random() < 0.4:
            wanted = self.chance.choice(TRANSACTION_SITES)
        self.files.crash_when = lambda call, path: site_of(call, path) == wanted

    def _stop_soon(self, most_changes: int = CHANGES_TO_A_CRASH) -> None:
        files, last_change = self.files, self.files.changes + self.chance.randint(1, most_changes)
        files.crash_when = lambda call, path: files.changes >= last_change

    def _lose(self, loss: Loss) -> Loss:
        """The life of this broker ends, `self.files` is what the next one finds; how it ended after all."""
        self.outcome.losses[loss.value] += 1
        power, site = loss is Loss.POWER, "between calls"
        if self.files.has_crashed:
            site = site_of(*self.files.crashed_at)
        elif loss is Loss.STOP or self.chance.random() < STOPS_IN_STOPPING:
            if loss is not Loss.STOP:
                self._stop_soon()
            if self._stop():
                # The machine may still lose its power right after a stop in good order: that changes nothing.
                power = not self._has_bad_disk and (power or self.chance.random() < 0.5)
                loss, site = Loss.STOP, ""
            else:
                site = "stopping, " + site_of(*self.files.crashed_at)
        if site:
            self.outcome.sites[site] += 1
        self.model.was_unclean = loss is not Loss.STOP
        self._bury()
        if power:
            self.clock.reboot()
        self.files = self.files.crash(self.chance) if power else self.files.successor()
        return loss

    def _spoil(self, loss: Loss) -> None:
        """Now and then something happens to the files before the next start."""
        self._is_bent = False
        if loss is Loss.KILL and self._spoiling.random() < FLIPS_OF_REDO_LOGS:
            self._has_bent_redo_log = flip_a_bit_of_the_redo_log(self.files, self._spoiling)
            self.outcome.losses["flipped bit of a redo log"] += self._has_bent_redo_log
        elif loss is not Loss.POWER and self._spoiling.random() < self.theme.flips:
            self._is_bent = flip_a_bit(self.files, self.model, self._spoiling)
            self.outcome.losses["flipped bit"] += self._is_bent
        elif (
            loss is Loss.STOP and self.files.exists(DATA / CLEAN_SHUTDOWN_FILE) and self._spoiling.random() < LOST_ENDS
        ):
            lost = lose_an_end(self.files, self.model, self._spoiling)
            self.outcome.losses["lost end"] += 1
            # A producer whose acknowledged batches are gone has to begin again.
            self._idempotent = [one for one in self._idempotent if one.place != lost]
            if self._lone is not None:
                self._lone.forget(lost)
            if lost is not None and self._transactional is not None:
                self._transactional.known.spoilt.add((self.model.topics[lost[0]].id, lost[1]))

    def _stop(self) -> bool:
        """Stop in good order; whether it came to an end."""
        self.files.heal()
        self._take_answers()
        try:
            self.node.stop()
        except CrashPoint:
            return False
        except OSError:
            if not self._has_bad_disk:
                raise
        self._complain()
        return True

    def _bury(self) -> None:
        """End what the dead broker had under way, before the garbage collector does it at some later time."""
        self.files.has_crashed = True
        with suppress(CrashPoint, AttributeError):  # AttributeError: there was no broker yet
            self.node.cleaner.stop()

    def _start(self, loss: Loss | None) -> None:
        """Start a broker, which may stop again while it recovers; then hold it against the model."""
        while self.chance.random() < self.theme.stops_in_starts:
            if self.chance.random() < 0.5:
                self._stop_soon()
            else:
                self._stop_at(self.chance.choice(sites_ahead(self.files, self.theme)))
            try:
                self._make_node()
            except CrashPoint:
                self.outcome.losses["stop in a start"] += 1
                self.outcome.sites["recovery, " + site_of(*self.files.crashed_at)] += 1
                self._bury()
                if self.chance.random() < 0.7 and not self._has_bent_redo_log:
                    self.files, loss = self.files.crash(self.chance), Loss.POWER
                    self.clock.reboot()
                else:
                    self.files = self.files.successor()
            else:
                self.files.crash_when = None
                self._meet(loss)
                return
        self._make_node()
        self._meet(loss)

    def _make_node(self) -> None:
        self._troubles.forget()
        is_spoilt = self._needs_inodes or self._is_bent
        if self._has_bad_disk and not is_spoilt and self._spoiling.random() < STARTS_WITHOUT_INODES:
            self._troubles.lose_inodes(self.files)
            self.outcome.losses["start without an inode"] += 1
        self.files.now_ms = self.clock.wall_ms()
        has_redo_log = self._secured is not None or self._spoiling.random() < REDO_LOGS
        config = self.theme.config(
            acks_all=self._promise,
            has_redo_log=has_redo_log,
            open_without=self._open_without,
            directories=self._directories,
        )
        if self._turns is None:
            self.node = Node(config, clock=self.clock, files=self.files)
        else:
            self.node = self._turns.make_node(config, self.files)
        try:
            self.node.start()
        except StorageError:
            if not self._is_bent:
                raise
            self._is_bent = False
            self.files = self.files.successor()
            mender = MetadataRebuild(self.files, DATA, self.clock.wall_ms(), ())
            self.model.was_repaired = True
            for _ in Repair(self.files, DATA, self.clock.wall_ms(), None, mender).run():
                pass
            self._make_node()
        if not self._troubles.is_over and self._is_short_of_a_partition():
            self._bury()  # what is there needs a file that cannot be made: with room it is checked again
            self.files = self.files.successor()
            self._needs_inodes = True
            self._make_node()

    def _is_short_of_a_partition(self) -> bool:
        """Whether a start without an inode has a partition that it cannot open. Raises Violation for one that holds
        something: only what never came to the disk has to be made again.
        """
        is_short = False
        for name, found in self.node.services.catalog.topics.items():
            for index, partition in enumerate(found.partitions):
                if partition is not None:
                    continue
                is_short = True
                topic = self.model.topics.get(name)
                known = topic.partitions[index] if topic is not None and index < len(topic.partitions) else None
                if known is not None and (known.promised or known.promised_end) and name not in self.model.deleting:
                    raise Violation(f"{name}-{index} holds records and is not opened by a start without an inode")
        return is_short

    def _meet(self, loss: Loss | None) -> None:
        """Connect all clients again, and audit what the start has made of the disk."""
        self._needs_inodes = False
        self._has_bent_redo_log = False
        self._connections = Connections(self.node.services, self.node.dispatcher)
        if self._quotas is not None:
            self._quotas.reconnect()
        self._lines = [self._line(number) for number in range(FIRST_MEMBER_LINE + len(self._members))]
        if loss is Loss.POWER and self._promise != SYNC:
            self._note_power_cut()
        for client in (*self._idempotent, *self._members, self._reader):
            client.reconnect()
        transactions = None
        if self._transactional is not None:
            self._transactional.lines = [self._transactional_line(number) for number in range(len(TRANSACTIONAL_LINES))]
            self._transactional.reconnect()
            transactions = self._transactional.known
        if self._secured is not None:
            self._secured.lines = [
                Line(self.node, self._connections, self._secured.user(number)) for number in range(len(USERS))
            ]
            self._secured.admin_line = self._lines[ADMIN_LINE]
            self._secured.settle = self._settle
            self._secured.reconnect()
        if self._lone is not None:
            user = None if self._secured is None else self._secured.super_user()
            self._lone.lines = [Line(self.node, self._connections, user, self._meter(name)) for name in LONE_LINES]
            self._lone.settle, self._lone.end_turn = self._settle, self._end_turn
            self._lone.reconnect()
        if self._turns is not None:
            user = None if self._secured is None else self._secured.super_user()
            self._turns.line = Line(self.node, self._connections, user)
            self._turns.admin_line = self._lines[ADMIN_LINE]
            self._turns.load()
        if self._settings is not None:
            self._settings.line, self._settings.node = self._lines[ADMIN_LINE], self.node
            self._settings.settle = self._settle
        if self._quotas is not None:
            self._quotas.admin_line = self._lines[ADMIN_LINE]
            if loss is None:
                self._quotas.administrator.change_all(self._lines[ADMIN_LINE])
        if loss is not None:
            self.node.settle()
            read_rot(self.node, random.Random(f"{self.outcome.seed} {self.outcome.operations}"))
            administrators = [one.quotas for one in (self._secured,) if one is not None]
            administrators += [one.administrator for one in (self._quotas,) if one is not None]
            auditor = Auditor(self.node, self.model, self._lines[0], transactions, self._secured, administrators)
            with nullcontext() if self._turns is None else self._turns.limits.lifted():
                auditor.audit(loss, self.clock.wall_ms() - self._jump_ms)
        self._complain()

    def _note_power_cut(self) -> None:
        self.model.note_power_cut()
        for member in self._members:
            if isinstance(member, ConsumerMember):
                member.note_power_cut()
        if self._transactional is not None:
            self._transactional.note_power_cut()

    def _line(self, number: int) -> Line:
        """A connection of one of the clients that all worlds have."""
        secured, user = self._secured, None
        if secured is not None:
            if number == ADMIN_LINE:
                user = secured.super_user()
            else:
                user = secured.writer() if number in (*PRODUCER_LINES, UNTOLD_LINE) else secured.reader()
        return Line(self.node, self._connections, user, self._meter(LINES_UNDER_QUOTAS.get(number)))

    def _meter(self, name: str | None) -> QuotaMeter | None:
        return None if self._quotas is None or name not in UNDER_QUOTAS else self._quotas.meter(name)

    def _transactional_line(self, number: int) -> Line:
        secured, user = self._secured, None
        if secured is not None:
            user = secured.reader() if number >= COMMITTED_READER else secured.writer()
        return Line(self.node, self._connections, user, self._meter(TRANSACTIONAL_LINES[number]))

    # -- operations -------------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        self._plain.send(self._lines[UNTOLD_LINE], self.clock.wall_ms())

    def _produce_to_many(self) -> None:
        """A batch to most partitions, or to some: all of them wait for the same round of syncs."""
        share = self.chance.choice((0.9, 0.9, 0.5, 0.3))
        for _, topic in sorted(self.model.topics.items()):
            for index in range(len(topic.partitions)):
                if self.chance.random() < share:
                    acks = self.chance.choice((-1, -1, -1, -1, 1, 0))
                    self._plain.send_to(self._lines[UNTOLD_LINE], topic, index, acks, self.clock.wall_ms())

    def _produce_once(self) -> None:
        self._idempotent = [producer for producer in self._idempotent if not producer.is_over]
        if len(self._idempotent) < len(PRODUCER_LINES):
            names = sorted(self.model.topics.keys() - self.model.deleting)
            if not names:
                return
            topic = self.model.topics[self.chance.choice(names)]
            index = self.chance.randrange(len(topic.partitions))
            taken = {producer.line for producer in self._idempotent}
            line = next(line for line in PRODUCER_LINES if line not in taken)
            self._idempotent.append(IdempotentProducer(self.model, self._values, topic, index, line))
        producer = self.chance.choice(self._idempotent)
        producer.send(self._lines[producer.line], self.clock.wall_ms())

    def _commit(self) -> None:
        self.chance.choice(self._committers).commit(self._lines[READER_LINE])

    def _fetch_offset(self) -> None:
        self.chance.choice(self._committers).fetch(self._lines[READER_LINE])

    def _delete_offset(self) -> None:
        self.chance.choice(self._committers).delete(self._lines[READER_LINE])

    def _member(self) -> None:
        number = self.chance.randrange(len(self._members))
        self._members[number].act(self._lines[FIRST_MEMBER_LINE + number], self.chance)

    def _read(self) -> None:
        self._reader.read(self._lines[READER_LINE])

    def _create_topic(self) -> None:
        if len(self.model.topics) + len(self.model.creating) < MOST_TOPICS:
            self._admin.create_topic(self._lines[ADMIN_LINE])

    def _delete_topic(self) -> None:
        self._admin.delete_topic(self._lines[ADMIN_LINE])

    def _grow_topic(self) -> None:
        self._admin.grow_topic(self._lines[ADMIN_LINE])

    def _alter_topic(self) -> None:
        self._admin.alter_topic(self._lines[ADMIN_LINE])

    def _delete_records(self) -> None:
        self._admin.delete_records(self._lines[ADMIN_LINE])

    def _end_turn(self) -> None:
        self.node.services.turn.end()

    def _sync(self) -> None:
        """The disk finishes a sync, or all."""
        self.node.services.turn.end()
        if self.chance.random() < 0.5:
            syncer = self.node.services.syncer
            assert isinstance(syncer, QueuedSyncer)
            if not syncer.late or self.chance.random() < 0.8 or not syncer.run_late():
                syncer.run_one()
        else:
            self.node.settle()

    def _pass_time(self) -> None:
        """Mostly little; sometimes so much that checkpoints, retention, the cleaner and unlinking are due."""
        self.clock.advance(self.chance.choice((10, 10, 1_000, 6_000, 61_000, 301_000)))
        self.files.now_ms = self.clock.wall_ms()
        self.node.run_due()

    def _jump_clock(self) -> None:
        """Somebody sets the wall clock wrong, and chores run by it; or it is right again. Restarts fall in between."""
        wall_ms = self.clock.wall_ms() - self._jump_ms
        self._jump_ms = 0 if self._jump_ms else self.chance.choice(JUMPS_MS)
        self.clock.set_wall(wall_ms + self._jump_ms)
        if self._transactional is not None:
            self._transactional.clock_jumped()
        self._pass_time()

    def _wait_out(self) -> None:
        if (
            self._troubles.failure is None
            and self._transactional is not None
            and not self._has_bad_disk
            and not self._jump_ms
        ):
            self.node.services.syncer.has_threads = True  # type: ignore[attr-defined]  # as in `_sync`
            turns = 0 if self._turns is None else turn_worlds.TURNS_OF_A_SECOND
            self._transactional.wait_out(self.node, turns)

    def _run_background(self) -> None:
        """Turns of the loop in which nobody asks anything: chores continue, step by step."""
        for _ in range(self.chance.randint(1, 10)):
            self.node.run_due()

    def _disk_trouble(self) -> None:
        """In some worlds: the disk is full for a while, or loses pages, after which only a restart helps."""
        if not self._has_bad_disk or not self._troubles.next(self.files):
            return
        if self._may_stop_inside and self.chance.random() < 0.5:
            self._stop_soon(CHANGES_AFTER_A_LOSS)  # before the pages are written again by what is appended to them

    def _thread_trouble(self) -> None:
        """The system gives no thread for syncs for a while, or gives them again."""
        self.node.services.syncer.has_threads = not self.node.services.syncer.has_threads  # type: ignore[attr-defined]  # as in `_sync`

    def _settle(self) -> None:
        self.node.settle()
        self._take_answers()

    # -- after each operation ---------------------------------------------------------------------------------------

    def _take_answers(self) -> None:
        for number, line in enumerate(self._lines):
            line.deliver()
            if line.written:
                line.take()
            if not line.is_closed:
                continue
            if number != UNTOLD_LINE:
                raise Violation("the broker closed a connection that did nothing wrong")
            self._lines[number] = self._line(number)
        others = [*([] if self._transactional is None else self._transactional.lines)]
        others += [] if self._secured is None else self._secured.lines
        others += [] if self._lone is None else self._lone.lines
        others += [] if self._turns is None else [self._turns.line]
        for line in others:
            line.deliver()
            if line.written:
                line.take()
            if line.is_closed:
                raise Violation("the broker closed a connection that did nothing wrong")
        if self._quotas is not None:
            for line in (*self._lines, *others):
                line.look()

    def _complain(self) -> None:
        if self._bugs.found:
            raise Violation(self._bugs.found[0])
