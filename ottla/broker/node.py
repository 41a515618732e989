"""The composition root: all parts of one broker, without sockets and without a loop.

`Server` runs it on an event loop; a simulation drives the same object with a manual clock, simulated files and a queued
syncer. All calls on the broker's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.catalog.catalog import Catalog
from ottla.broker.catalog.producer_ids import ProducerIds
from ottla.broker.chores.chores import Chores
from ottla.broker.chores.log_cleaner import LogCleaner
from ottla.broker.context import ApiServices
from ottla.broker.coordinator_modules import GROUP_COORDINATOR, SHARE_COORDINATOR, TRANSACTION_COORDINATOR
from ottla.broker.fetch.fetch_sessions import FetchSessions
from ottla.broker.fetch.parked_fetches import ParkedFetches
from ottla.broker.metadata.registration import NO_PORTS
from ottla.broker.partitions.appending import PartitionServices
from ottla.broker.partitions.partition import Partition
from ottla.broker.profiles.profiles import profile_named
from ottla.broker.requests.dispatch import RequestDispatcher
from ottla.broker.requests.gate import Gate, advertised_apis
from ottla.broker.runtime.answer_memory import AnswerMemory
from ottla.broker.runtime.descriptors import descriptor_limit, shares_of
from ottla.broker.runtime.listening_time import ListeningTime
from ottla.broker.runtime.memory_reserve import MemoryReserve
from ottla.broker.runtime.metrics import Metrics
from ottla.broker.runtime.on_demand import OnDemand
from ottla.broker.runtime.sync_threads import ThreadedSyncer
from ottla.broker.runtime.timers import Timers
from ottla.broker.runtime.turn import Turn
from ottla.broker.runtime.validity import Validity
from ottla.broker.runtime.workers import InlineWorkers, OneAtATime, ThreadedWorkers
from ottla.broker.security.logins import Logins
from ottla.broker.security.quotas.quotas import Quotas
from ottla.broker.security.tls.listeners import TlsListeners
from ottla.storage.directories.manager import LogManager
from ottla.storage.files.clock import SystemClock
from ottla.storage.files.clock_trust import ClockLimits, ClockTrust
from ottla.storage.formats.layout import OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from ottla.broker.groups.coordinator import GroupCoordinator
    from ottla.broker.requests.authenticating import SaslDoor
    from ottla.broker.runtime.disk import GroupSyncer
    from ottla.broker.runtime.processor_wait import ProcessorWait
    from ottla.broker.runtime.workers import Post, Workers
    from ottla.broker.security.acls.standard_authorizer import StandardAuthorizer
    from ottla.broker.security.audit import Audit
    from ottla.broker.security.tokens.delegation_tokens import DelegationTokens
    from ottla.broker.share.coordinator import ShareCoordinator
    from ottla.broker.transactions.coordinator import TransactionCoordinator
    from ottla.config.broker import BrokerConfig
    from ottla.storage.files.clock import Clock
    from ottla.storage.files.files import Files
    from ottla.storage.log.log import Log


class Node:
    """One broker.

    With `post` (which runs a callable on the broker's thread) syncs and cold reads run in threads. Without it syncs
    queue up in `services.syncer.rounds` until a simulation runs them, and cold reads run immediately. `workers`, if
    given, replace both for cold reads and other work that may block, but not for syncs. `later(step)`, if given, runs a
    step when other requests have had their turn; else the timers do, and without `post` every step runs immediately.
    `count_waits`, if given, counts how long a sync thread waits for a processor. `make_gate` makes the gate of all
    requests (`ottla.testing` has one that injects faults).
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        post: Post | None = None,
        workers: Workers | None = None,
        later: Callable[[Callable[[], None]], None] | None = None,
        count_waits: Callable[[], ProcessorWait] | None = None,
        make_gate: Callable[[ApiServices], Gate] = Gate,
    ) -> None:
        clock = SystemClock() if clock is None else clock
        files = _os_files(config) if files is None else files
        clock_trust = ClockTrust(
            clock, lambda: ClockLimits(config.ottla_clock_jump_max_ms, config.ottla_clock_trust_after_ms)
        )
        metrics = Metrics()
        validity = Validity()
        timers = Timers()
        turn = Turn(clock.wall_ms)
        syncer: GroupSyncer
        if post is None:
            from ottla.broker.runtime.queued_syncer import QueuedSyncer

            syncer = QueuedSyncer(turn, metrics, clock, timers)
        else:
            runs_here = config.ottla_sync_main_thread_enable
            syncer = ThreadedSyncer(turn, metrics, clock, timers, post, count_waits, runs_here=runs_here)
        if workers is None:
            workers = InlineWorkers() if post is None else ThreadedWorkers(post)
        log_manager = LogManager(config, files, clock, clock_trust.estimate_ms)
        shared = PartitionServices(clock, timers, turn, syncer, metrics, validity)

        def make_partition(topic: str, index: int, log: Log) -> Partition:
            return Partition(topic, index, log, shared)

        catalog = Catalog(
            config=config,
            files=files,
            clock=clock,
            log_manager=log_manager,
            syncer=syncer,
            workers=workers,
            make_partition=make_partition,
            metrics=metrics,
            later=later if later is not None or post is None else self._run_later,
        )
        self._authorizer = _authorizer(config, catalog, validity)
        quotas = Quotas(config, validity, clock.monotonic_ms)
        catalog.settings.on_quotas = quotas.change
        audit = quotas.audit = _audit(config, clock, timers, workers, catalog)
        profile = profile_named(config.ottla_profile)
        answer_memory = AnswerMemory(config.ottla_connections_max_unsent_bytes, turn, timers, clock.monotonic_ms)
        self.services = ApiServices(
            config=config,
            clock=clock,
            clock_trust=clock_trust,
            files=files,
            timers=timers,
            listening=ListeningTime(clock.monotonic_ms),
            turn=turn,
            syncer=syncer,
            workers=workers,
            conversions=OneAtATime(workers),
            metrics=metrics,
            validity=validity,
            answer_memory=answer_memory,
            memory_reserve=MemoryReserve(timers, clock.monotonic_ms),
            log_manager=log_manager,
            catalog=catalog,
            producer_ids=ProducerIds(catalog.allocate_producer_ids),
            quotas=quotas,
            audit=audit,
            logins=Logins(config, metrics, audit),
            fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, clock),
            parked_fetches=ParkedFetches(turn, timers, clock.monotonic_ns, validity, answer_memory),
            # Without threads it is a simulation, whose course must not depend on what the process has imported before.
            groups=OnDemand(self._make_groups, () if post is None else GROUP_COORDINATOR),
            transactions=OnDemand(self._make_transactions, () if post is None else TRANSACTION_COORDINATOR),
            share_groups=OnDemand(self._make_share_groups, () if post is None else SHARE_COORDINATOR),
            tokens=OnDemand(self._make_tokens),
            authorizer=self._authorizer,
            profile=profile,
            advertised_apis=advertised_apis(profile=profile),
        )
        self.cleaner = LogCleaner(self.services)
        self.tls = TlsListeners(config)
        self.chores = Chores(self.services, self.services.groups, self.services.tokens, self.cleaner, self.tls)
        catalog.settings.on_broker_changed = self._on_broker_changed
        catalog.settings.check_listeners = self.tls.check
        self.dispatcher = RequestDispatcher(self.services, make_gate(self.services))
        self.doors = self._make_doors()
        """The guards in front of the dispatcher on the listeners with SASL, by name."""
        self._is_claimed = False

    def start(self) -> None:
        """`open` and `begin` in one. Blocks."""
        self.open()
        self.begin()

    def prepare(self) -> None:
        """Refuse a start whose certificate files or audit log cannot be used. Raises ConfigError, one line for the
        user. Blocks.
        """
        self.tls.open()
        if self.services.audit is not None:
            self.services.audit.open()

    def claim(self) -> None:
        """Lock the log directories before anything else, such as ports, so that a second broker on them reports the
        lock. `open` or `release` comes next. Raises StorageError, one line for the user.
        """
        self.services.log_manager.claim_directories()
        self._is_claimed = True

    def release(self) -> None:
        """Undo `claim`; does nothing after `open`."""
        self._is_claimed = False
        self.services.log_manager.release()

    def open(self, bound_ports: Mapping[str, int] = NO_PORTS) -> None:
        """Open directories, catalog and logs, and recover what needs it. Blocks, and may run in a thread other than the
        broker's if no other code uses the node meanwhile; only `log_manager.loading` may be read, and stopped.
        `bound_ports`: the ports of the listeners' sockets, by listener.

        Raises what these raise, each with one line for the user: StorageError, MetadataError, OSError (also NoThread),
        LoadInterrupted.
        """
        services = self.services
        if not self._is_claimed:
            self.claim()
        try:
            # First of all: a start that is refused because there is no thread leaves the directories unchanged.
            services.syncer.begin([Path(path).absolute() for path in services.config.log_dirs])
            services.workers.begin()
            self._is_claimed = False
            services.log_manager.open_directories(services.config.ottla_cluster_id or None, services.catalog.look)
            # Before the first log is written: these descriptors get the report of any later write error.
            services.syncer.take_directories(
                services.files,
                services.log_manager.directories,
                syncs_volumes=services.config.ottla_syncfs_enable,
            )
        except BaseException:
            services.syncer.close()
            services.workers.close()
            self.release()
            raise
        try:
            services.clock_trust.begin(services.log_manager.known_time)
            services.catalog.open(bound_ports)
            if self._authorizer is not None:
                self._authorizer.load(services.catalog.image.acls)
            # Not earlier: a refused start writes nothing.
            services.log_manager.write_known_time(services.clock_trust.known(), only_missing=True)
        except BaseException:
            services.syncer.close()
            services.workers.close()
            services.log_manager.close(clean=False)
            raise

    def begin(self) -> None:
        """Load the groups and transactions, read what logins need, plan the chores, on the broker's thread."""
        topics = self.services.catalog.topics
        if OFFSETS_TOPIC in topics:
            self.services.groups.get().open()
        if TRANSACTIONS_TOPIC in topics:
            self.services.transactions.get().open()
        if SHARE_GROUP_STATE_TOPIC in topics:
            self.services.share_groups.get().open()
        for door in self.doors.values():
            door.begin()
        self.chores.start()

    def stop(self) -> None:
        """`quiesce` and `close_logs` in one. Blocks."""
        self.quiesce()
        self.close_logs()

    def quiesce(self) -> None:
        """Append the gathered batches, and end everything that works on logs. Blocks."""
        services = self.services
        self.chores.stop()
        for coordinator in (services.groups.if_made, services.transactions.if_made, services.share_groups.if_made):
            if coordinator is not None:
                coordinator.close()
        if services.audit is not None:
            services.audit.close()
        services.turn.end()
        services.syncer.close()
        services.workers.close()
        services.catalog.close()
        services.log_manager.write_known_time(services.clock_trust.known())

    def close_logs(self) -> None:
        """Sync, checkpoint and close everything after `quiesce`; the directories are marked clean. Blocks, at most
        about `ottla.shutdown.close.timeout.ms`, and may run in another thread: only `log_manager.closing` may be read,
        and stopped.
        """
        services = self.services
        timeout_ms = services.config.ottla_shutdown_close_timeout_ms
        services.log_manager.close(
            clean=True,
            broker_epoch=services.catalog.node_epoch,
            timeout_ms=timeout_ms,
            leaves_deletion=services.catalog.leaves_deletion,
        )

    def abandon_logs(self) -> None:
        """Close everything after `quiesce` as it is, as the end of a killed process does: the next start recovers."""
        self.services.log_manager.close(clean=False)

    def _on_broker_changed(self) -> None:
        self.chores.configuration_changed()
        self.tls.on_configuration()

    def _make_groups(self) -> GroupCoordinator:
        from ottla.broker.groups.coordinator import GroupCoordinator

        groups = GroupCoordinator(self.services)
        self.services.catalog.topic_listeners.append(groups.on_topics_changed)
        return groups

    def _make_transactions(self) -> TransactionCoordinator:
        from ottla.broker.transactions.coordinator import TransactionCoordinator

        transactions = TransactionCoordinator(self.services, self.services.groups.get)
        self.services.catalog.topic_listeners.append(transactions.on_topics_changed)
        return transactions

    def _make_share_groups(self) -> ShareCoordinator:
        from ottla.broker.share.coordinator import ShareCoordinator

        share_groups = ShareCoordinator(self.services)
        self.services.catalog.topic_listeners.append(share_groups.on_topics_changed)
        return share_groups

    def _make_tokens(self) -> DelegationTokens:
        from ottla.broker.security.tokens.delegation_tokens import DelegationTokens

        services = self.services
        return DelegationTokens(services.config, services.catalog, services.clock, services.clock_trust.deletion_ms)

    def _make_doors(self) -> Mapping[str, SaslDoor]:
        config = self.services.config
        names = [listener.name for listener in config.listeners if listener.protocol.has_sasl]
        if not names:
            return {}
        from ottla.broker.requests.authenticating import SaslDoor
        from ottla.broker.security.sasl.listener import Means, sasl_listener

        services, dispatcher = self.services, self.dispatcher
        means = Means(services.catalog, services.workers, services.clock, services.tokens)
        return {name: SaslDoor(sasl_listener(config, name, means), services, dispatcher) for name in names}

    def _run_later(self, step: Callable[[], None]) -> None:
        """Run `step` when other requests have had their turn."""
        self.services.timers.at(self.services.clock.monotonic_ms(), step)

    def run_due(self) -> None:
        """Run what is due by the clock, then end the turn. A simulation calls this after it has moved the clock."""
        self.services.timers.run_due(self.services.clock.monotonic_ms())
        self.services.turn.end()

    def settle(self, *, most_rounds: int = 1000) -> None:
        """End turns and run queued syncs until nothing is left to do: for simulations and tests (no `post`)."""
        run_syncs: Callable[[], None] | None = getattr(self.services.syncer, "run_all", None)
        for _ in range(most_rounds):
            if not self.services.turn.has_work and not getattr(self.services.syncer, "rounds", None):
                return
            self.services.turn.end()
            if run_syncs is not None:
                run_syncs()
        raise RuntimeError(f"not settled after {most_rounds} turns")


def _authorizer(config: BrokerConfig, catalog: Catalog, validity: Validity) -> StandardAuthorizer | None:
    """The authorizer, without its ACLs yet; None if every client may do everything."""
    if not config.authorizer_class_name:
        return None
    from ottla.broker.security.acls.standard_authorizer import StandardAuthorizer

    authorizer = StandardAuthorizer.of_config(
        super_users=config.super_users,
        allow_without_acls=config.allow_everyone_if_no_acl_found,
        on_change=validity.change,
    )
    catalog.settings.on_acls_changed = authorizer.add_records
    return authorizer


def _audit(config: BrokerConfig, clock: Clock, timers: Timers, workers: Workers, catalog: Catalog) -> Audit | None:
    if not config.ottla_audit_log:
        return None
    from ottla.broker.security.audit import Audit
    from ottla.broker.security.audit_sinks import sink_of

    return Audit(config, clock, timers, workers, sink_of(config.ottla_audit_log, catalog))


def _os_files(config: BrokerConfig) -> Files:
    from ottla.storage.files.files import OsFiles

    most = max(1, shares_of(config, descriptor_limit()).logs // 2)
    return OsFiles(max_descriptors=most, max_maps=most)
