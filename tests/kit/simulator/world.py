"""A seed's world: one broker core on a simulated disk, its clients, and the machine that stops at the worst moment.

Everything that happens is drawn from one `random.Random(seed)`: which client does what, when a turn ends, when the
disk finishes a sync, how much time passes, at which call to the disk the machine stops, and what of the unsynced
pages it keeps. The ids that the broker draws come from the seed, too (`kit.known_ids`). The same seed is the same
world, so a failing one can be replayed.

Here is what a world has, and its life as a whole. Its machine is `machine.py`, what happens beside the requests is
`happenings.py`; the clients that all worlds have are `usual_clients.py`, and those of some worlds have their own files.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import accumulate
from unittest import mock

from kit.known_ids import known_ids
from kit.simulated_files import CrashPoint
from kit.simulator import (
    directory_worlds,
    epoch_clients,
    page_cache_worlds,
    quota_worlds,
    settings_changes,
    share_letters,
    share_worlds,
    shortages,
    streams_worlds,
    time_worlds,
    turn_worlds,
)
from kit.simulator.auditor import Auditor
from kit.simulator.clients import Line
from kit.simulator.epoch_clients import EpochClient
from kit.simulator.happenings import Happenings
from kit.simulator.lone_clients import NAMES as LONE_LINES
from kit.simulator.lone_clients import LoneClients
from kit.simulator.machine import Machine
from kit.simulator.model import Loss, Model, Violation
from kit.simulator.outcome import LoggedBugs, Outcome
from kit.simulator.page_cache_worlds import SYNC, draw_promise, kinds_under
from kit.simulator.producers import Values
from kit.simulator.quota_meter import QuotaMeter
from kit.simulator.quota_worlds import QuotaWorld
from kit.simulator.rights_clients import USERS, RightsClients
from kit.simulator.rot import read_rot
from kit.simulator.settings_changes import SettingsChanges
from kit.simulator.share_worlds import ShareWorld
from kit.simulator.shortages import Shortages
from kit.simulator.streams_worlds import StreamsWorld
from kit.simulator.themes import draw_theme, theme_named
from kit.simulator.time_worlds import TimeWorld, timed_kinds
from kit.simulator.transactional_clients import NAMES as TRANSACTIONAL_LINES
from kit.simulator.transactional_clients import READER as COMMITTED_READER
from kit.simulator.transactional_clients import ZOMBIES, TransactionalClients
from kit.simulator.turn_worlds import TurnWorld
from kit.simulator.usual_clients import ADMIN_LINE, READER_LINE, UNTOLD_LINE, WRITERS, UsualClients

from ottla.broker.net.connections import Connections
from ottla.broker.runtime import queued_syncer, sync_round

LINES_UNDER_QUOTAS = {1: "idempotent 1", 2: "idempotent 2", READER_LINE: "reader", UNTOLD_LINE: "producer"}
UNDER_QUOTAS = [
    *LINES_UNDER_QUOTAS.values(),
    *TRANSACTIONAL_LINES[:ZOMBIES],
    TRANSACTIONAL_LINES[COMMITTED_READER],
    *LONE_LINES,
]
"""The clients that have a quota in worlds with some: not those that look after the others."""
CRASHES = 3
"""Deaths of the process and power cuts while the broker serves or stops; those while it starts come on top."""
OPERATIONS = 200
OPERATIONS_TO_A_CRASH = 30
"""How long a life may continue until the machine stops at the planned place."""
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
VOLUME_SYNCS = 0.5
"""How many worlds have a file system that can be synced as a whole."""


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
        shared_ids: float = quota_worlds.SHARED,
        turns: float = turn_worlds.WORLDS,
        settings: float = settings_changes.WORLDS,
        directories: float = directory_worlds.WORLDS,
        times: float = time_worlds.WORLDS,
        epochs: float = epoch_clients.WORLDS,
        descriptors: float = shortages.WORLDS,
        shares: float = share_worlds.WORLDS,
        letters: float = share_letters.WORLDS,
        streams: float = streams_worlds.WORLDS,
    ) -> None:
        self.chance = random.Random(seed)
        self.theme = draw_theme(self.chance) if theme is None else theme_named(theme)
        self.outcome = Outcome(seed)
        self._promise = draw_promise(seed, page_cache)
        self.model = Model(self._promise)
        self.machine = Machine(
            self.chance, self.theme, self.outcome, self.model, volume_syncs=volume_syncs, directories=directories
        )
        clock = self.machine.clock
        self._values = Values(self.chance)
        kinds = kinds_under(self._promise, self.theme.kinds)
        has_times = random.Random(f"whether time matters to {seed}").random() < times
        if has_times:
            kinds = timed_kinds(kinds)
        self._usual = UsualClients(self.model, self._values, self.chance, clock, kinds)
        self._happenings = Happenings(self.machine, self.chance)
        self._bugs = LoggedBugs()
        self._operations: list[Callable[[], None]] = []
        weights: list[float] = []
        for name, weight, operation in (*self._usual.operations(), *self._happenings.operations()):
            self._add([(weight * self.theme.more.get(name, 1), operation)], weights)
        self._transactional: TransactionalClients | None = None
        if self.theme.has_transactions and transactions:
            transactions = 1
        # Of its own, as all that follow: worlds without them are what they were.
        if random.Random(f"the transactions of {seed}").random() < transactions:
            self._transactional = TransactionalClients(self.model, self._values, self.chance, clock)
            self._happenings.transactional = self._transactional
            self.machine.has_transactions = True
            more = self.theme.more.get("transactions", 1)
            operations = [*self._transactional.operations(), (WAITS, self._happenings.wait_out)]
            self._add([(weight * more, operation) for weight, operation in operations], weights)
        self._lone: LoneClients | None = None
        self._quotas: QuotaWorld | None = None
        if random.Random(f"the quotas of {seed}").random() < quotas:
            self._quotas = QuotaWorld(seed, UNDER_QUOTAS, clock, shared_ids)
            self.model.may_wait = True
            self._add(self._quotas.operations(), weights)
        if self._quotas is not None or self._promise != SYNC:
            self._lone = LoneClients(self.model, self._values, self.chance, clock, self._transactional)
            self._add(self._lone.operations(), weights)
        self._turns: TurnWorld | None = None
        if random.Random(f"whether {seed} takes turns").random() < turns:
            self._turns = TurnWorld(seed, self.model, self._values, clock, self._usual.administrator)
            self._happenings.takes_turns = True
            self.machine.make_node = self._turns.make_node
            self._add(self._turns.operations(), weights)
            if self._transactional is not None:
                self._transactional.die_waiting()
        self._settings: SettingsChanges | None = None
        if random.Random(f"whether settings of {seed} change").random() < settings:
            self._settings = SettingsChanges(seed, self.model)
            self._add(self._settings.operations(), weights)
        self._times: TimeWorld | None = None
        if has_times:
            self._times = TimeWorld(
                seed,
                self.model,
                self._values,
                loses_writes=self.machine.has_bad_disk,
                has_transactions=self._transactional is not None,
            )
            self._add(self._times.operations(), weights)
        self._epochs: EpochClient | None = None
        if random.Random(f"whether {seed} knows leader epochs").random() < epochs:
            self._epochs = EpochClient(seed, self.model)
            self._add(self._epochs.operations(), weights)
        self._shortages: Shortages | None = None
        if random.Random(f"whether {seed} lacks descriptors").random() < descriptors:
            self._shortages = Shortages(seed, self.machine, self.model, self._values)
            self._happenings.shortages = self._shortages
            self._add(self._shortages.operations(), weights)
        self._secured: RightsClients | None = None
        self._operation_count = OPERATIONS
        self._shares: ShareWorld | None = None
        if random.Random(f"whether {seed} has share groups").random() < shares:
            known = None if self._transactional is None else self._transactional.known
            self._shares = ShareWorld(
                seed,
                self.model,
                clock,
                self.machine,
                known,
                loses_states=self.machine.has_bad_disk or self._shortages is not None,
                letters=letters,
            )
            self.machine.has_share_groups = True
            self._add(self._shares.operations(), weights)
            self._operation_count = share_worlds.OPERATIONS
        self._streams: StreamsWorld | None = None
        if random.Random(f"whether {seed} has streams groups").random() < streams:
            self._streams = StreamsWorld(seed, self.model, clock, self.machine, self._usual.administrator)
            self.machine.has_streams_groups = True
            self._add(self._streams.operations(), weights)
            self._operation_count = streams_worlds.OPERATIONS
        of_rights = random.Random(f"the rights of {seed}")
        if of_rights.random() < acls:
            self.machine.open_without = open_without = of_rights.random() < OPEN_WITHOUT_ACLS
            self._secured = RightsClients(self.model, self._values, self.chance, clock, open_without=open_without)
            without = sum(weights)
            self._add(self._secured.operations(), weights)
            # What the others do is done as often as elsewhere: transactions would hardly ever come to an end.
            self._operation_count = round(self._operation_count * sum(weights) / without)
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
                mock.patch.object(queued_syncer, "SHARED_FROM", 2),
                self.machine.redo_limits.kept(),
                nullcontext() if self._quotas is None else self._quotas.kept(),
                nullcontext() if self._turns is None else self._turns.limits.kept(),
                nullcontext() if self._shares is None else self._shares.kept(),
            ):
                self._meet(self.machine.start(None))
                for loss in losses:
                    self._live(self._operation_count // len(losses) + 1, may_stop_inside=loss is not Loss.STOP)
                    ended = self.machine.lose(loss, self._take_answers)
                    self._complain()
                    self._spoil(ended)
                    self._meet(self.machine.start(ended))
                if self._shares is not None:
                    self._shares.end()
                    self._complain()
                if self._streams is not None:
                    self._streams.end()
                    self._complain()
        except Violation as violation:
            self.outcome.violation = str(violation)
        except Exception as error:  # whatever escapes the broker is a finding of its own
            self.outcome.violation = f"{type(error).__name__} escaped: {error}"
        finally:
            self.machine.bury()
            root.removeHandler(self._bugs)
            root.setLevel(before)
            root.propagate = propagates
        return self.outcome

    def _live(self, operations: int, *, may_stop_inside: bool) -> None:
        """Operate; with `may_stop_inside` the end mostly falls into the middle of an operation."""
        self.machine.may_stop_inside = may_stop_inside
        for number in range(operations + OPERATIONS_TO_A_CRASH if may_stop_inside else operations):
            if number == operations:
                self.machine.arm()
                if not self.machine.is_armed:
                    return
            operation = self.chance.choices(self._operations, cum_weights=self._weights)[0]
            self.outcome.operations += 1
            try:
                operation()
                self._take_answers()
            except CrashPoint:
                return
            self._complain()

    def _spoil(self, loss: Loss) -> None:
        """What happens to files before the next start, and who has to know."""
        lost = self.machine.spoil(loss)
        if lost is None:
            return
        self._usual.forget(lost)
        if self._lone is not None:
            self._lone.forget(lost)
        if self._transactional is not None:
            self._transactional.known.spoilt.add((self.model.topics[lost[0]].id, lost[1]))

    # -- after a start ----------------------------------------------------------------------------------------------

    def _meet(self, loss: Loss | None) -> None:
        """Connect all clients again, and audit what the start has made of the disk."""
        node = self.machine.node
        started_ms = node.services.clock.monotonic_ms()  # groups that some clients need load in steps, which take time
        self._connections = Connections(node.services, node.dispatcher)
        if self._quotas is not None:
            self._quotas.reconnect()
        self._usual.lines = [self._line(number) for number in range(self._usual.line_count)]
        admin_line = self._usual.lines[ADMIN_LINE]
        if loss is Loss.POWER and self._promise != SYNC:
            self._note_power_cut()
        self._usual.reconnect()
        transactions = None
        if self._transactional is not None:
            self._transactional.lines = [self._transactional_line(number) for number in range(len(TRANSACTIONAL_LINES))]
            self._transactional.reconnect()
            transactions = self._transactional.known
        if self._secured is not None:
            self._secured.lines = [
                Line(node, self._connections, self._secured.user(number)) for number in range(len(USERS))
            ]
            self._secured.admin_line = admin_line
            self._secured.settle = self._settle
            self._secured.reconnect()
        user = None if self._secured is None else self._secured.super_user()
        if self._lone is not None:
            self._lone.lines = [Line(node, self._connections, user, self._meter(name)) for name in LONE_LINES]
            self._lone.settle, self._lone.end_turn = self._settle, self._happenings.end_turn
            self._lone.reconnect()
        if self._turns is not None:
            self._turns.line = Line(node, self._connections, user)
            self._turns.admin_line = admin_line
            self._turns.load()
        if self._times is not None:
            self._times.look_ups.line = Line(node, self._connections, user)
            self._times.look_ups.reconnect()
        if self._epochs is not None:
            self._epochs.line = Line(node, self._connections, user)
            self._epochs.settle, self._epochs.end_turn = self._settle, self._happenings.end_turn
            self._epochs.reconnect()
        if self._shortages is not None:
            self._shortages.line = Line(node, self._connections, user)
            self._shortages.reconnect()
        if self._shares is not None:
            self._shares.new_line = partial(Line, node, self._connections, user)
            self._shares.settle, self._shares.end_turn = self._settle, self._happenings.end_turn
            self._shares.reconnect()
            if loss is Loss.POWER:
                self._shares.note_power_cut(syncs=self._promise == SYNC)
        if self._streams is not None:
            self._streams.new_line = partial(Line, node, self._connections, user)
            self._streams.settle, self._streams.end_turn = self._settle, self._happenings.end_turn
            self._streams.reconnect(started_ms)
            if loss is Loss.POWER and self._promise != SYNC:
                self._streams.note_power_cut()
        if self._settings is not None:
            self._settings.line, self._settings.node = admin_line, node
            self._settings.settle = self._settle
        if self._quotas is not None:
            self._quotas.admin_line = admin_line
            if loss is None:
                self._quotas.administrator.change_all(admin_line)
        if loss is not None:
            node.settle()
            read_rot(node, random.Random(f"{self.outcome.seed} {self.outcome.operations}"))
            administrators = [one.quotas for one in (self._secured,) if one is not None]
            administrators += [one.administrator for one in (self._quotas,) if one is not None]
            of_look_ups = random.Random(f"look-ups of {self.outcome.seed} after {self.outcome.operations}")
            auditor = Auditor(
                node, self.model, admin_line, transactions, self._secured, administrators, chance=of_look_ups
            )
            with nullcontext() if self._turns is None else self._turns.limits.lifted():
                auditor.audit(loss, self._happenings.true_ms)
                if self._shares is not None:
                    self._shares.audit()
                if self._streams is not None:
                    self._streams.audit()
        self._complain()

    def _note_power_cut(self) -> None:
        self.model.note_power_cut()
        self._usual.note_power_cut()
        if self._transactional is not None:
            self._transactional.note_power_cut()

    def _line(self, number: int) -> Line:
        """A connection of one of the clients that all worlds have."""
        secured, user = self._secured, None
        if secured is not None:
            if number == ADMIN_LINE:
                user = secured.super_user()
            else:
                user = secured.writer() if number in WRITERS else secured.reader()
        return Line(self.machine.node, self._connections, user, self._meter(LINES_UNDER_QUOTAS.get(number)))

    def _meter(self, name: str | None) -> QuotaMeter | None:
        return None if self._quotas is None or name not in UNDER_QUOTAS else self._quotas.meter(name)

    def _transactional_line(self, number: int) -> Line:
        secured, user = self._secured, None
        if secured is not None:
            user = secured.reader() if number >= COMMITTED_READER else secured.writer()
        return Line(self.machine.node, self._connections, user, self._meter(TRANSACTIONAL_LINES[number]))

    # -- after each operation ---------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self.machine.node.settle()
        self._take_answers()

    def _take_answers(self) -> None:
        lines = self._usual.lines
        for number, line in enumerate(lines):
            line.deliver()
            if line.written:
                line.take()
            if not line.is_closed:
                continue
            if number != UNTOLD_LINE:
                raise Violation("the broker closed a connection that did nothing wrong")
            lines[number] = self._line(number)
        others = [*([] if self._transactional is None else self._transactional.lines)]
        others += [] if self._secured is None else self._secured.lines
        others += [] if self._lone is None else self._lone.lines
        others += [] if self._turns is None else [self._turns.line]
        others += [] if self._times is None else [self._times.look_ups.line]
        others += [] if self._epochs is None else [self._epochs.line]
        others += [] if self._shortages is None else [self._shortages.line]
        for line in others:
            line.deliver()
            if line.written:
                line.take()
            if line.is_closed:
                raise Violation("the broker closed a connection that did nothing wrong")
        if self._shares is not None:
            self._shares.take_answers()
        if self._streams is not None:
            self._streams.take_answers()
        if self._quotas is not None:
            for line in (*lines, *others):
                line.look()

    def _complain(self) -> None:
        if self._bugs.found:
            raise Violation(self._bugs.found[0])
