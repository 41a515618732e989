"""The machine of a world: its disk, its clock and the broker on it; how a life of the broker ends, and the next begins.

A life ends by a stop in good order, by the death of the process or by a power cut: in the middle of a call to the disk,
between two of them, or while the broker stops. A start may end so, too. The machine knows no client; the world connects
them to each new broker.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kit.clock import ManualClock
from kit.nodes import DATA
from kit.simulated_files import CrashPoint, SimulatedFiles
from kit.simulator.directory_worlds import draw_directories
from kit.simulator.disk_troubles import DiskTroubles
from kit.simulator.model import Loss, Model, Violation
from kit.simulator.page_cache_worlds import SYNC
from kit.simulator.redo_worlds import RedoLimits
from kit.simulator.sites import site_of
from kit.simulator.spoilt_files import (
    LOST_ENDS,
    LOST_RECOVERY_POINTS,
    flip_a_bit,
    flip_a_bit_of_the_redo_log,
    lose_an_end,
    lose_recovery_points,
    was_cleaned,
)
from kit.simulator.themes import sites_ahead

from ottla.broker.metadata.rebuild import MetadataRebuild
from ottla.broker.node import Node
from ottla.storage.errors import StorageError
from ottla.storage.formats.layout import CLEAN_SHUTDOWN_FILE, SHARE_GROUP_STATE_TOPIC
from ottla.storage.tools.repair import Repair

if TYPE_CHECKING:
    from kit.simulator.outcome import Outcome
    from kit.simulator.themes import Theme

    from ottla.config.broker import BrokerConfig

CHANGES_TO_A_CRASH = 40
"""Calls that change the disk, counted from the moment when the end of a life is decided."""
STOPS_IN_STOPPING = 0.12
"""How often the end of a life falls into a stop in good order."""
STOPS_IN_GROUPS = 0.4
"""How many stops at a certain call are at one to `__consumer_offsets`, in worlds with streams groups."""
GROUP_SITES = ("groups: append", "groups: sync")
STOPS_IN_SHARE_STATE = 0.4
"""How many stops at a certain call are at one to `__share_group_state`, in worlds with share groups."""
TRANSACTION_SITES = ("transactions: append", "transactions: sync", "transactions: index", "groups: append", "log: sync")
REDO_LOGS = 0.9
"""How many lives have a redo log, in worlds without rights."""
FLIPS_OF_REDO_LOGS = 0.1
"""How often a bit of the redo log has flipped when the process has died."""
STARTS_WITHOUT_INODES = 0.2
"""How often a world with a bad disk has no inode left when a broker starts."""


class Machine:
    """See the module. `chance` is the world's; what happens to files while no broker runs is drawn from another."""

    def __init__(
        self,
        chance: random.Random,
        theme: Theme,
        outcome: Outcome,
        model: Model,
        *,
        volume_syncs: float,
        directories: float,
    ) -> None:
        seed = outcome.seed
        self._chance = chance
        self._theme = theme
        self._outcome = outcome
        self._model = model
        self._spoiling = random.Random(f"what happens to the files of {seed}")
        """Of its own: worlds in which nothing happens to them are what they were."""
        self._losing = random.Random(f"recovery points of {seed}")
        """Of its own, as `_spoiling`."""
        self.clock = ManualClock()
        self.files = SimulatedFiles()
        # Of its own, as `_spoiling`.
        self.files.has_volume_sync = random.Random(f"the volume of {seed}").random() < volume_syncs
        self._directories = draw_directories(seed, directories, self.files)
        self.redo_limits = RedoLimits.of(random.Random(f"the redo log of {seed}"))
        self.troubles = DiskTroubles(chance, theme, self.redo_limits)
        self.has_bad_disk = chance.random() < theme.bad_disk
        self._is_bent = False
        self._has_bent_redo_log = False
        """Whether what the next start replays is not all: then the logs themselves are not to lose anything, too."""
        self._needs_inodes = True
        """Whether the next start makes files: the first ones, or what a start without an inode could not open."""
        self.may_stop_inside = False
        """Whether this life may end in the middle of an operation."""
        self.has_transactions = False
        self.has_share_groups = False
        self.has_streams_groups = False
        self.open_without: bool | None = None
        """With an authorizer: whether everybody may use what no ACL is about; None without one."""
        self.make_node: Callable[[BrokerConfig, SimulatedFiles], Node] = self._plain_node
        self.node: Node

    def _plain_node(self, config: BrokerConfig, files: SimulatedFiles) -> Node:
        return Node(config, clock=self.clock, files=files)

    # -- the end of a life ------------------------------------------------------------------------------------------

    def arm(self) -> None:
        """Let the machine stop at some change of the disk soon, at the next one of a drawn site, or right now."""
        what = self._chance.random()
        if what < 0.35:
            self.stop_soon()
        elif what < 0.9:
            self._stop_at(self._chance.choice(self._theme.sites))

    @property
    def is_armed(self) -> bool:
        """Whether the machine will stop at a call."""
        return self.files.crash_when is not None

    def _stop_at(self, wanted: str) -> None:
        if self.has_transactions and self._chance.random() < 0.4:
            wanted = self._chance.choice(TRANSACTION_SITES)
        if self.has_streams_groups and self._chance.random() < STOPS_IN_GROUPS:
            wanted = self._chance.choice(GROUP_SITES)
        if self.has_share_groups and self._chance.random() < STOPS_IN_SHARE_STATE:
            call_wanted = self._chance.choice(("pwritev", "fdatasync", "open"))
            self.files.crash_when = lambda call, path: call == call_wanted and SHARE_GROUP_STATE_TOPIC in str(path)
            return
        self.files.crash_when = lambda call, path: site_of(call, path) == wanted

    def stop_soon(self, most_changes: int = CHANGES_TO_A_CRASH) -> None:
        """Let the machine stop within so many changes of the disk."""
        files, last_change = self.files, self.files.changes + self._chance.randint(1, most_changes)
        files.crash_when = lambda call, path: files.changes >= last_change

    def lose(self, loss: Loss, take_answers: Callable[[], None]) -> Loss:
        """End the life of this broker; `files` is what the next one finds. Return how it ended after all.

        `take_answers` is called before a stop in good order.
        """
        self._outcome.losses[loss.value] += 1
        power, site = loss is Loss.POWER, "between calls"
        if self.files.has_crashed:
            site = site_of(*self.files.crashed_at)
        elif loss is Loss.STOP or self._chance.random() < STOPS_IN_STOPPING:
            if loss is not Loss.STOP:
                self.stop_soon()
            if self._stop(take_answers):
                # The machine may still lose its power right after a stop in good order: that changes nothing.
                power = not self.has_bad_disk and (power or self._chance.random() < 0.5)
                loss, site = Loss.STOP, ""
            else:
                site = "stopping, " + site_of(*self.files.crashed_at)
        if site:
            self._outcome.sites[site] += 1
        self._model.was_unclean = loss is not Loss.STOP
        self.bury()
        if power:
            self.clock.reboot()
        self.files = self.files.crash(self._chance) if power else self.files.successor()
        return loss

    def _stop(self, take_answers: Callable[[], None]) -> bool:
        """Stop in good order; whether it came to an end."""
        self.files.heal()
        self.files.has_descriptor = lambda: True
        take_answers()
        try:
            self.node.stop()
        except CrashPoint:
            return False
        except OSError:
            if not self.has_bad_disk:
                raise
        return True

    def bury(self) -> None:
        """End what the dead broker had under way, before the garbage collector does it at some later time."""
        self.files.has_crashed = True
        with suppress(CrashPoint, AttributeError):  # AttributeError: there was no broker yet
            self.node.cleaner.stop()

    def spoil(self, loss: Loss) -> tuple[str, int] | None:
        """Now and then something happens to the files before the next start. Return the partition that has lost an end,
        None where none has.
        """
        self._is_bent = False
        if loss is Loss.KILL and self._spoiling.random() < FLIPS_OF_REDO_LOGS:
            self._has_bent_redo_log = flip_a_bit_of_the_redo_log(self.files, self._spoiling)
            self._outcome.losses["flipped bit of a redo log"] += self._has_bent_redo_log
        elif loss is not Loss.POWER and self._spoiling.random() < self._theme.flips:
            self._is_bent = flip_a_bit(self.files, self._model, self._spoiling)
            self._outcome.losses["flipped bit"] += self._is_bent
        elif (
            loss is Loss.POWER
            and (self._model.acks_all == SYNC or not was_cleaned(self.files))
            and self._losing.random() < LOST_RECOVERY_POINTS
        ):
            has_lost = lose_recovery_points(self.files, self._losing)
            self._outcome.losses["lost recovery points"] += has_lost
            self._needs_inodes = self._needs_inodes or has_lost  # logs that are checked again get new indexes
        elif (
            loss is Loss.STOP and self.files.exists(DATA / CLEAN_SHUTDOWN_FILE) and self._spoiling.random() < LOST_ENDS
        ):
            self._outcome.losses["lost end"] += 1
            return lose_an_end(self.files, self._model, self._spoiling)
        return None

    # -- the start of the next one ----------------------------------------------------------------------------------

    def start(self, loss: Loss | None) -> Loss | None:
        """Start a broker, which may stop again while it recovers. Return how the last of its lives has ended; None for
        the first broker of the world.
        """
        while self._chance.random() < self._theme.stops_in_starts:
            if self._chance.random() < 0.5:
                self.stop_soon()
            else:
                self._stop_at(self._chance.choice(sites_ahead(self.files, self._theme)))
            try:
                self._make_node()
            except CrashPoint:
                self._outcome.losses["stop in a start"] += 1
                self._outcome.sites["recovery, " + site_of(*self.files.crashed_at)] += 1
                self.bury()
                if self._chance.random() < 0.7 and not self._has_bent_redo_log:
                    self.files, loss = self.files.crash(self._chance), Loss.POWER
                    self.clock.reboot()
                else:
                    self.files = self.files.successor()
            else:
                self.files.crash_when = None
                break
        else:
            self._make_node()
        self._needs_inodes = False
        self._has_bent_redo_log = False
        return loss

    def _make_node(self) -> None:
        self.troubles.forget()
        is_spoilt = self._needs_inodes or self._is_bent
        if self.has_bad_disk and not is_spoilt and self._spoiling.random() < STARTS_WITHOUT_INODES:
            self.troubles.lose_inodes(self.files)
            self._outcome.losses["start without an inode"] += 1
        self.files.now_ms = self.clock.wall_ms()
        has_redo_log = self.open_without is not None or self._spoiling.random() < REDO_LOGS
        config = self._theme.config(
            acks_all=self._model.acks_all,
            has_redo_log=has_redo_log,
            open_without=self.open_without,
            directories=self._directories,
        )
        self.node = self.make_node(config, self.files)
        try:
            self.node.start()
        except StorageError:
            if not self._is_bent:
                raise
            self._is_bent = False
            self.files = self.files.successor()
            mender = MetadataRebuild(self.files, DATA, self.clock.wall_ms(), ())
            self._model.was_repaired = True
            for _ in Repair(self.files, DATA, self.clock.wall_ms(), None, mender).run():
                pass
            self._make_node()
        if not self.troubles.is_over and self._is_short_of_a_partition():
            self.bury()  # what is there needs a file that cannot be made: with room it is checked again
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
                topic = self._model.topics.get(name)
                known = topic.partitions[index] if topic is not None and index < len(topic.partitions) else None
                if known is not None and (known.promised or known.promised_end) and name not in self._model.deleting:
                    raise Violation(f"{name}-{index} holds records and is not opened by a start without an inode")
        return is_short
