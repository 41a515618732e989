"""The composition root: everything one broker consists of, without sockets and without a loop.

`Server` puts it under an event loop; a simulation drives the same object with a manual clock, simulated files and a
queued syncer (decisions.md 18). All calls on one thread, the broker's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.catalog.catalog import Catalog
from ottla.broker.catalog.producer_ids import ProducerIds
from ottla.broker.chores.chores import Chores
from ottla.broker.chores.log_cleaner import LogCleaner
from ottla.broker.fetch.fetch_sessions import FetchSessions
from ottla.broker.partitions.partition import Partition, PartitionServices
from ottla.broker.requests.dispatch import RequestDispatcher, advertised_apis
from ottla.broker.requests.profiles import profile_named
from ottla.broker.runtime.answer_memory import AnswerMemory
from ottla.broker.runtime.descriptors import descriptor_limit, shares_of
from ottla.broker.runtime.disk import QueuedSyncer, ThreadedSyncer
from ottla.broker.runtime.memory_reserve import MemoryReserve
from ottla.broker.runtime.metrics import Metrics
from ottla.broker.runtime.timers import Timers
from ottla.broker.runtime.turn import Turn
from ottla.broker.runtime.workers import InlineWorkers, OneAtATime, ThreadedWorkers
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.directories.manager import LogManager
from ottla.storage.files.clock import SystemClock
from ottla.storage.files.clock_trust import ClockLimits, ClockTrust
from ottla.storage.files.disk_errors import level_of
from ottla.storage.formats.layout import OFFSETS_TOPIC

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic
    from ottla.broker.groups.coordinator import GroupCoordinator
    from ottla.broker.runtime.disk import GroupSyncer
    from ottla.broker.runtime.workers import Post, Workers
    from ottla.config.broker import BrokerConfig
    from ottla.storage.files.clock import Clock
    from ottla.storage.files.files import Files
    from ottla.storage.log.log import Log

LOG = logging.getLogger("ottla.node")


class Node:
    """One broker.

    With `post` (a loop's way to run something on the broker's thread) syncs and cold reads run in threads; without it
    syncs queue up in `syncer.rounds` until a simulation runs them, and cold reads happen on the spot.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        post: Post | None = None,
    ) -> None:
        self.config = config
        self.clock: Clock = SystemClock() if clock is None else clock
        self.files: Files = _os_files(config) if files is None else files
        self.clock_trust = ClockTrust(
            self.clock, lambda: ClockLimits(config.ottla_clock_jump_max_ms, config.ottla_clock_trust_after_ms)
        )
        self.metrics = Metrics()
        self.timers = Timers()
        self.turn = Turn(self.clock.wall_ms)
        self.syncer: GroupSyncer
        self.workers: Workers
        if post is None:
            self.syncer = QueuedSyncer(self.turn, self.metrics, self.clock, self.timers)
            self.workers = InlineWorkers()
        else:
            self.syncer = ThreadedSyncer(self.turn, self.metrics, self.clock, self.timers, post)
            self.workers = ThreadedWorkers(post)
        self.conversions = OneAtATime(self.workers)
        """Between message formats: old clients' Produce and Fetch."""
        self.answer_memory = AnswerMemory(
            config.ottla_connections_max_unsent_bytes, self.turn, self.timers, self.clock.monotonic_ms
        )
        self.memory_reserve = MemoryReserve(self.timers, self.clock.monotonic_ms)
        self.log_manager = LogManager(config, self.files, self.clock, self.clock_trust.estimate_ms)
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, self.clock)
        self.profile = profile_named(config.ottla_profile)
        self.advertised_apis = advertised_apis(profile=self.profile)
        services = PartitionServices(self.clock, self.timers, self.turn, self.syncer, self.metrics)

        def make_partition(topic: str, index: int, log: Log) -> Partition:
            return Partition(topic, index, log, services)

        self.catalog = Catalog(
            config=config,
            files=self.files,
            clock=self.clock,
            log_manager=self.log_manager,
            syncer=self.syncer,
            workers=self.workers,
            make_partition=make_partition,
            metrics=self.metrics,
            later=None if post is None else self._run_later,
        )
        self.producer_ids = ProducerIds(self.catalog.allocate_producer_ids)
        self.cleaner = LogCleaner(self)
        self.chores = Chores(self)
        self.catalog.settings.on_broker_changed = self.chores.configuration_changed
        self.dispatcher = RequestDispatcher(self)
        self._is_claimed = False
        self.bound_listeners: dict[str, tuple[str, int]] = {}
        """The address that each listener is bound to, by its name, once it is."""

    def start(self) -> None:
        """`open` and `begin` in one. Blocks."""
        self.open()
        self.begin()

    def claim(self) -> None:
        """Lock the log directories before anything else is taken, such as ports: a second broker on them shall be told
        of the lock. `open` or `release` comes next. Raises StorageError, one line for people.
        """
        self.log_manager.claim_directories()
        self._is_claimed = True

    def release(self) -> None:
        """Give back what `claim` took; does nothing after `open`."""
        self._is_claimed = False
        self.log_manager.release()

    def open(self) -> None:
        """Open directories, catalog and logs, and recover what needs it. Blocks, and may run in another thread than the
        broker's as long as nobody else looks at the node; only `log_manager.loading` may be asked, and told to stop.

        Raises what these raise, each with one line for people: StorageError, MetadataError, OSError (NoThread among
        them); LoadInterrupted.
        """
        if not self._is_claimed:
            self.claim()
        try:
            # First of all: a start that is refused for want of a thread leaves the directories as they were.
            self.syncer.begin([Path(path).absolute() for path in self.config.log_dirs])
            self.workers.begin()
            self._is_claimed = False
            self.log_manager.open_directories(self.config.ottla_cluster_id or None, self.catalog.look)
        except BaseException:
            self.syncer.close()
            self.workers.close()
            self.release()
            raise
        try:
            self.clock_trust.begin(self.log_manager.known_time)
            self.catalog.open()
            # Not before: a start that is refused writes nothing.
            self.log_manager.write_known_time(self.clock_trust.known(), only_missing=True)
        except BaseException:
            self.syncer.close()
            self.workers.close()
            self.log_manager.close(clean=False)
            raise

    def begin(self) -> None:
        """Load the groups and plan the chores, on the broker's thread."""
        if OFFSETS_TOPIC in self.catalog.topics:
            self.groups.open()
        self.chores.start()

    def stop(self) -> None:
        """`quiesce` and `close_logs` in one. Blocks."""
        self.quiesce()
        self.close_logs()

    def quiesce(self) -> None:
        """Append what is gathered, and end everything that works on logs. Blocks."""
        self.chores.stop()
        if self.has_groups:
            self.groups.close()
        self.turn.end()
        self.syncer.close()
        self.workers.close()
        self.catalog.close()
        self.log_manager.write_known_time(self.clock_trust.known())

    def close_logs(self) -> None:
        """Sync, checkpoint and close everything after `quiesce`; the directories are marked clean. Blocks, at most
        about `ottla.shutdown.close.timeout.ms`, and may run in another thread: only `log_manager.closing` may be asked,
        and told to stop.
        """
        timeout_ms = self.config.ottla_shutdown_close_timeout_ms
        self.log_manager.close(clean=True, broker_epoch=self.catalog.node_epoch, timeout_ms=timeout_ms)

    @cached_property
    def groups(self) -> GroupCoordinator:
        """The group coordinator, made when first asked for: its code is a fifth of what a start would import."""
        from ottla.broker.groups.coordinator import GroupCoordinator

        groups = GroupCoordinator(self)
        self.catalog.on_topics_changed = groups.on_topics_changed
        return groups

    @property
    def has_groups(self) -> bool:
        """Whether anybody has asked for `groups` yet, or there were groups at the start."""
        return "groups" in self.__dict__

    def find_partition(self, topic: Topic | None, index: int, *, missing: ErrorCode) -> Partition:
        """A partition of `topic`.

        Raises KafkaError: `missing` when there is no such topic, UNKNOWN_TOPIC_OR_PARTITION when it has no such
        partition, KAFKA_STORAGE_ERROR when its log could not be opened.
        """
        if topic is None:
            raise KafkaError(missing)
        if not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = topic.partitions[index]
        if partition is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic.name}-{index} is offline; the log says why")
        return partition

    def note_read_error(self, partition: Partition, error: OSError) -> None:
        """The disk failed a read: say so. The directory stays as it is, because reads go on where they can."""
        LOG.log(level_of(error), "%s-%d: reading failed: %s", partition.topic, partition.index, error)

    def _run_later(self, step: Callable[[], None]) -> None:
        """Run `step` when others have had their turn."""
        self.timers.at(self.clock.monotonic_ms(), step)

    def run_due(self) -> None:
        """Run what is due by the clock, then end the turn: what a simulation calls after it moved the clock."""
        self.timers.run_due(self.clock.monotonic_ms())
        self.turn.end()

    def settle(self, *, most_rounds: int = 1000) -> None:
        """End turns and run queued syncs until nothing is left to do: for simulations and tests (no `post`)."""
        run_syncs: Callable[[], None] | None = getattr(self.syncer, "run_all", None)
        for _ in range(most_rounds):
            if not self.turn.has_work and not getattr(self.syncer, "rounds", None):
                return
            self.turn.end()
            if run_syncs is not None:
                run_syncs()
        raise RuntimeError(f"not settled after {most_rounds} turns")


def _os_files(config: BrokerConfig) -> Files:
    from ottla.storage.files.files import OsFiles

    most = max(1, shares_of(config, descriptor_limit()).logs // 2)
    return OsFiles(max_descriptors=most, max_maps=most)
