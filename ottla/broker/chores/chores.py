"""Background work, in small visible steps: each chore has a name, an interval and metrics.

A chore's step is a plain function of no arguments that does one bounded piece of work. It returns whether work is left;
then the next step comes in the following turn of the loop instead of after the interval, so that requests run in
between. Work that waits for the disk is done by the broker's workers, and its chore plans the next step when it is
done.

Nothing here knows an event loop: the broker's timers drive all of it, and so does a manual clock.

    chore                  interval                                          what a step does
    retention              log.retention.check.interval.ms                   old segments of some logs (`retaining.py`)
    segment unlink         1 s                                               `.deleted` files of some logs, in a worker
    directory unlink       1 s                                               `-delete` directories
    recovery points        log.flush.offset.checkpoint.interval.ms, at most  recovery-point-offset-checkpoint
                           RECOVERY_POINT_MOST_MS; index files that have grown much
    log start offsets      log.flush.start.offset.checkpoint.interval.ms     log-start-offset-checkpoint
    high watermarks        replica.high.watermark.checkpoint.interval.ms     replication-offset-checkpoint
    full directories       ottla.disk.full.probe.interval.ms                 tries full directories again
    room                   1 s                                               how much is free (storage/files/reserve.py)
    index files            1 s                                               index entries that are not in files yet
    producer snapshots     1 s                                               one that a roll has taken, in a worker
    metadata snapshot      1 s                                               a snapshot if one is due
    log cleaner            log.cleaner.backoff.ms                            see log_cleaner.py
    producer expiry        producer.id.expiration.check.interval.ms          some idle producers
    group expiry           offsets.retention.check.interval.ms               old offsets and empty groups of some groups
    token expiry           delegation.token.expiry.check.interval.ms         expired delegation tokens
    clock                  1 s                                               see clock_watch.py
    certificates           ottla.tls.reload.interval.ms                      files of key stores that have changed
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.broker.chores import log_cleaner
from ottla.broker.chores.clock_watch import ClockWatch
from ottla.broker.chores.retaining import retain, retain_log
from ottla.broker.chores.sweep import LOGS_PER_STEP, Sweep
from ottla.broker.runtime.workers import pause_for
from ottla.protocol.errors import KafkaError
from ottla.storage.log.retention import unlink_files

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.broker.chores.log_cleaner import LogCleaner
    from ottla.broker.groups.coordinator import GroupCoordinator
    from ottla.broker.runtime.metrics import ChoreCounters
    from ottla.broker.runtime.on_demand import OnDemand
    from ottla.broker.runtime.timers import Timer
    from ottla.broker.security.tls.listeners import TlsListeners
    from ottla.broker.security.tokens.delegation_tokens import DelegationTokens
    from ottla.broker.services import Services
    from ottla.storage.log.log import Log
    from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

INDEXES_PER_STEP = 10
"""The logs whose index files one step writes, where there is something to write: 0.2 ms each, more on a busy disk."""
PRODUCERS_PER_STEP = 2_000
"""The producers that one step checks: forgetting all of them takes two to four milliseconds."""
FILES_PER_STEP = 100
"""The files of deleted segments that a worker unlinks at a time. Closing those of a segment, 3 to 5, takes 25 us."""
RECOVERY_POINT_MOST_MS = 5_000
"""The longest interval of recovery points, whatever the configuration: they limit what a start has to read."""
HOUSEKEEPING_INTERVAL_MS = 1_000

Step = Callable[[], bool]


class Chore:
    """One chore: a step every `interval_ms`, sooner while a step leaves work over."""

    def __init__(self, services: Services, name: str, interval_ms: int, step: Step) -> None:
        self.name = name
        self.interval_ms = interval_ms
        self._services = services
        self._step = step
        self._counters: ChoreCounters = services.metrics.chore(name)
        self._timer: Timer | None = None
        self._is_waiting = self._is_stopped = False

    def start(self) -> None:
        """Plan the first step."""
        self._plan(self.interval_ms)

    def set_interval(self, interval_ms: int) -> None:
        """Step at this interval from now on; a step that is planned later is brought forward."""
        self.interval_ms = max(1, interval_ms)
        if self._timer is not None and self._timer.deadline_ms > self._services.clock.monotonic_ms() + self.interval_ms:
            self._timer.cancel()
            self._plan(self.interval_ms)

    def stop(self) -> None:
        """Plan no more steps."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def run(self) -> None:
        """Do one step now and plan the next. A bug in a step is loud and does not end the chore."""
        self._timer = None
        if self._is_waiting:
            self._plan(self.interval_ms)
            return
        has_more = False
        try:
            started_ns = time.perf_counter_ns()
            has_more = self._guard(self._step)
            self._counters.step((time.perf_counter_ns() - started_ns) // 1_000, self._services.clock.wall_ms())
        finally:  # also if there is no memory to log an error
            self._plan(0 if has_more else self.interval_ms)

    def plan_again(self) -> None:
        """Plan the next step, if none is planned: there was no memory for that, perhaps. Raises MemoryError."""
        timer = self._timer
        if not self._is_stopped and (timer is None or timer.callback is None):
            self._plan(self.interval_ms)

    def count_bytes(self, size_bytes: int) -> None:
        """Count bytes that the chore has freed or written."""
        self._counters.bytes += size_bytes

    def _guard(self, work: Callable[[], bool | None]) -> bool:
        """Run some of the chore's work. Whatever it raises is logged here; this chore and all others continue."""
        try:
            return bool(work())
        except (OSError, KafkaError) as error:
            self._counters.failures += 1
            logger.error("the chore %s failed: %s", self.name, error)
        except Exception:  # a bug, logged with its traceback: the chore runs again, and all others continue
            self._counters.failures += 1
            logger.exception("bug: the chore %s failed", self.name)
        return False

    def hold(self) -> None:
        """Do no steps until `go_on`."""
        self._is_waiting = True

    def go_on(self) -> None:
        """End `hold`: step again immediately."""
        self._is_waiting = False
        if self._timer is not None:
            self._timer.cancel()
            self._plan(0)

    def in_worker(self, work: Callable[[], object], done: Callable[[], None] | None = None) -> bool:
        """Run `work` off the broker's thread, then `done` on it; no step runs until then. Return False, like a step."""
        self._is_waiting = True
        spent_us = 0

        def timed() -> object:
            nonlocal spent_us
            started_ns = time.perf_counter_ns()
            try:
                return work()
            finally:
                spent_us = (time.perf_counter_ns() - started_ns) // 1_000

        def finished(_: object, error: BaseException | None) -> None:
            self._is_waiting = False
            self._counters.worker_us += spent_us
            if error is not None:
                self._counters.failures += 1
                logger.error("the chore %s failed: %s", self.name, error)
            elif done is not None:
                self._guard(done)

        try:
            self._services.workers.run(timed, finished)
        except BaseException:
            self._is_waiting = False  # no memory to begin it: a later step does
            raise
        return False

    def _plan(self, delay_ms: int) -> None:
        self._timer = self._services.timers.at(self._services.clock.monotonic_ms() + delay_ms, self.run)


class Chores:
    """All background work of one broker. `start` plans the first steps, `stop` cancels what is planned."""

    def __init__(
        self,
        services: Services,
        groups: OnDemand[GroupCoordinator],
        tokens: OnDemand[DelegationTokens],
        cleaner: LogCleaner,
        tls: TlsListeners | None = None,
    ) -> None:
        self._tls = tls
        self._services = services
        self._groups = groups
        self._tokens = tokens
        self._cleaner = cleaner
        self.chores: dict[str, Chore] = {}
        self._pause = pause_for(services.workers)
        self._expiry = self._expire_all()
        self._unlinking = Sweep(lambda: list(services.log_manager.logs.values()), lambda log: None)

    def start(self) -> None:
        """Plan every chore's first step."""
        config = self._services.config
        self._add("retention", config.log_retention_check_interval_ms, self._sweep(self._apply_retention))
        self._add("segment unlink", HOUSEKEEPING_INTERVAL_MS, self._unlink_segments)
        self._add("directory unlink", HOUSEKEEPING_INTERVAL_MS, self._unlink_directories)
        recovery_ms = min(config.log_flush_offset_checkpoint_interval_ms, RECOVERY_POINT_MOST_MS)
        self._add("recovery points", recovery_ms, self._write_recovery_points)
        self._add(
            "log start offsets", config.log_flush_start_offset_checkpoint_interval_ms, self._write_log_start_offsets
        )
        self._add("high watermarks", config.replica_high_watermark_checkpoint_interval_ms, self._write_high_watermarks)
        self._add("full directories", config.ottla_disk_full_probe_interval_ms, self._probe)
        self._add("room", HOUSEKEEPING_INTERVAL_MS, self._look_at_room)
        self._add("index files", HOUSEKEEPING_INTERVAL_MS, self._sweep(self._flush_indexes, INDEXES_PER_STEP))
        self._add("producer snapshots", HOUSEKEEPING_INTERVAL_MS, self._sweep(self._write_producer_snapshot))
        self._add("metadata snapshot", HOUSEKEEPING_INTERVAL_MS, self._snapshot)
        self._add(log_cleaner.CHORE, config.log_cleaner_backoff_ms, self._cleaner.step)
        self._add("producer expiry", config.producer_id_expiration_check_interval_ms, self._expire_producers)

        self._add("group expiry", config.offsets_retention_check_interval_ms, self._expire_groups)
        if config.delegation_token_secret_key:
            interval_ms = config.delegation_token_expiry_check_interval_ms
            self._add("token expiry", interval_ms, lambda: self._tokens.get().remove_expired())
        self._clock_watch = ClockWatch(self._services)
        self._add("clock", HOUSEKEEPING_INTERVAL_MS, self._watch_clock)
        if self._tls is not None and self._tls.by_name:
            self._add("certificates", config.ottla_tls_reload_interval_ms, self._tls.look_at_files)
        self._services.memory_reserve.after_shortage.append(self._plan_again)

    def _plan_again(self) -> None:
        for chore in self.chores.values():
            chore.plan_again()

    def _watch_clock(self) -> bool:
        write = self._clock_watch.step()
        return write is not None and self.chores["clock"].in_worker(write)

    def _expire_groups(self) -> bool:
        groups = self._groups.if_made
        return groups is not None and groups.expire_some()

    def configuration_changed(self) -> None:
        """Apply the interval that may change while the broker runs; the others need a restart, as in Kafka."""
        cleaner = self.chores.get(log_cleaner.CHORE)
        if cleaner is not None:
            cleaner.set_interval(self._services.config.log_cleaner_backoff_ms)

    def stop(self) -> None:
        """Cancel every planned step."""
        for chore in self.chores.values():
            chore.stop()
        self._cleaner.stop()
        self.chores.clear()

    def _add(self, name: str, interval_ms: int, step: Step) -> None:
        chore = self.chores[name] = Chore(self._services, name, max(1, interval_ms), step)
        chore.start()

    def _sweep(self, visit: Callable[[Log], object], per_step: int | None = None) -> Step:
        return Sweep(lambda: list(self._services.log_manager.logs.values()), visit, per_step).step

    # --- steps ---------------------------------------------------------------------------------------------------

    def _apply_retention(self, log: Log) -> bool:
        partition = self._services.catalog.partition(log.topic, log.partition)
        if partition is None or partition.log is not log:
            return False
        chore = self.chores["retention"]
        is_held = is_through = False

        def through(deleted: Sequence[Segment]) -> None:
            nonlocal is_through
            is_through = True
            chore.count_bytes(sum(segment.size_bytes for segment in deleted))
            if is_held:
                chore.go_on()

        retain(self._services, partition, "retention", through)
        if is_through:
            return False
        chore.hold()
        is_held = True
        return True

    def _unlink_segments(self) -> bool:
        """Take some files of deleted segments that are due, and let a worker unlink them: a large file takes long."""
        chore = self.chores["segment unlink"]
        paths: list[Path] = []
        now_ms = self._services.clock.monotonic_ms()

        def take(log: Log) -> bool:
            paths.extend(log.retention.take_due_files(now_ms, FILES_PER_STEP - len(paths)))
            if len(paths) < FILES_PER_STEP:
                return False
            self._unlinking.visit_again(log)  # it may have more
            return True

        self._unlinking.visit = take
        has_more = self._unlinking.step() or len(paths) >= FILES_PER_STEP
        if not paths:
            return has_more
        files, checkpoints = self._services.files, self._services.log_manager.checkpoints

        def work() -> None:
            # First the log start offsets: without them and the files, a start would report the freed records as lost.
            checkpoints.write_log_start_offsets()
            unlink_files(files, paths)

        return chore.in_worker(work, chore.go_on if has_more else None)

    def _unlink_directories(self) -> bool:
        manager, now_ms = self._services.log_manager, self._services.clock.monotonic_ms()
        due_ms = manager.next_unlink_ms()
        if due_ms is None or due_ms > now_ms:
            return False
        return self.chores["directory unlink"].in_worker(lambda: manager.unlink_due(now_ms))

    def _write_recovery_points(self) -> bool:
        manager = self._services.log_manager

        def work() -> None:
            manager.checkpoints.sync_indexes()
            manager.checkpoints.write_recovery_points()

        return self.chores["recovery points"].in_worker(work)

    def _write_log_start_offsets(self) -> bool:
        return self.chores["log start offsets"].in_worker(
            self._services.log_manager.checkpoints.write_log_start_offsets
        )

    def _write_high_watermarks(self) -> bool:
        return self.chores["high watermarks"].in_worker(self._services.log_manager.checkpoints.write_high_watermarks)

    def _probe(self) -> bool:
        manager = self._services.log_manager
        if not any(not one.is_online and not one.is_offline for one in manager.directories):
            self._make_missing()  # no disk has failed: the process may have lacked descriptors
            return False
        return self.chores["full directories"].in_worker(manager.probe_full, self._make_missing)

    def _look_at_room(self) -> bool:
        has_come_back = False

        def look() -> None:
            nonlocal has_come_back
            has_come_back = self._services.log_manager.look_at_room()

        def checked() -> None:
            if has_come_back:
                self._make_missing()

        return self.chores["room"].in_worker(look, checked)

    def _make_missing(self) -> None:
        if any(directory.is_online for directory in self._services.log_manager.directories):
            self._services.catalog.make_missing()

    def _snapshot(self) -> bool:
        catalog = self._services.catalog
        snapshot = catalog.begin_snapshot(self._pause)
        if snapshot is None:
            return False
        chore, services = self.chores["metadata snapshot"], self._services

        def written() -> None:
            catalog.end_snapshot(snapshot)
            retain_log(services, catalog.metadata_log, "a snapshot", lambda _: None)

        return chore.in_worker(lambda: catalog.write_snapshot(snapshot), written)

    def _flush_indexes(self, log: Log) -> None:
        log.flush_indexes()

    def _write_producer_snapshot(self, log: Log) -> bool:
        write = log.begin_snapshot(self._pause)
        if write is None:
            return False
        chore = self.chores["producer snapshots"]
        is_held = is_through = False

        def written() -> None:
            nonlocal is_through
            is_through = True
            log.end_snapshot(write)
            if is_held:
                chore.go_on()

        chore.in_worker(write.run, written)
        if is_through:
            return False
        is_held = True
        return True

    def _expire_producers(self) -> bool:
        """Check some producers of one log, or of several logs that have few."""
        looked = 0
        for weight in self._expiry:
            looked += weight
            if looked >= PRODUCERS_PER_STEP:
                return True
        self._expiry = self._expire_all()
        return False

    def _expire_all(self) -> Iterator[int]:
        for log in list(self._services.log_manager.logs.values()):
            if log.error is None:
                trust = self._services.clock_trust
                yield from log.producers.expire(trust.deletion_ms(), trust.stamped_ms)
            yield PRODUCERS_PER_STEP // LOGS_PER_STEP
