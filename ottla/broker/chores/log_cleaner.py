"""The cleaner: chooses the dirtiest of the compacted logs, has it cleaned piece by piece, and begins again.

`step` is the chore `log cleaner`, every `log.cleaner.backoff.ms`. A worker checks how dirty each compacted log is, and
the dirtiest one that is due is cleaned (`ottla.storage.cleaner.cleaner`). Pieces of its work run in a worker, one at a
time. Changes of file names or of the log itself happen between them on the broker's thread, in timers, so that requests
run in between. Two things limit it: `log.cleaner.io.max.bytes.per.second`, by a wait between pieces, and
`pause_for(workers)`, which rests within a piece. After a cleaning it searches again immediately.

A log that cannot be cleaned is logged once, counted, and left alone until a restart or until a user requests it (`ask`,
used by `ottla log clean`). A requested log is cleaned whatever its dirty ratio. If nothing is dirty, it is cleaned once
from its start, which removes what an earlier cleaning had to keep: tombstones whose retention has passed by now.

All calls are made on the broker's thread. Kafka's LogCleaner and LogCleanerManager. There is one cleaner, whatever the
value of `log.cleaner.threads`, because several would only compete with each other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final

from ottla.broker.chores.asked_cleanings import DONE, FAILED, RUNNING, WAITING, AskedCleaning, AskedCleanings
from ottla.broker.chores.synced_decisions import SyncedDecisions
from ottla.broker.runtime.metrics import CleanerFigures
from ottla.broker.runtime.workers import pause_for
from ottla.plain import Plain, field
from ottla.storage.cleaner.cleanable import Assessment, LogToAssess, assess
from ottla.storage.files.disk_errors import level_of
from ottla.storage.files.files import NotOpened
from ottla.storage.formats.layout import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.runtime.metrics import ChoreCounters
    from ottla.broker.services import Services
    from ottla.storage.cleaner.cleaner import LogCleaning, Work
    from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

CHORE: Final = "log cleaner"
NO_ROOM_RETRY_MS: Final = 60_000
"""The wait for a log that could not be cleaned because the disk was full, or no descriptor was free."""
NO_DESCRIPTOR_WAIT_MS: Final = 1_000
"""The wait before a sync within a swap is tried again, if it could not begin: nothing can continue without it."""
MOST_WAIT_MS: Final = 86_400_000
"""The longest wait between two pieces, whatever the rate."""


class _Candidate(Plain):
    log: Log
    state: LogToAssess
    is_asked: bool
    is_first_round: bool
    found: Assessment | None = None
    error: str = ""

    def assess(self, now_ms: int) -> None:
        """Compute how dirty it is. In a worker."""
        try:
            self.found = assess(self.state, now_ms)
            if self.is_asked and not self.found.cleanable_bytes and self.is_first_round:
                self.state = self.state._replace(clean_offset=None)
                self.found = assess(self.state, now_ms)
        except NotOpened:
            pass  # no descriptor was free: the next check may find one
        except (OSError, ValueError) as error:  # ValueError: CorruptBatch, or an index that was closed
            self.error = str(error)

    @property
    def is_as_found(self) -> bool:
        """Whether all of its segments still exist: files of deleted segments are closed some time later."""
        return not any(segment.is_deleted for segment in self.state.segments)


class _Running(Plain):
    log: Log
    cleaning: LogCleaning
    found: Assessment
    steps: Generator[Work, int, None]
    started_s: float = field(factory=time.perf_counter)


class LogCleaner:
    """See the module.

    Attributes:
        figures: for metrics.
        uncleanable: the reasons why logs cannot be cleaned.
        asked: the results of requested cleanings, until the next request or the end of the partition.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._counters: ChoreCounters = services.metrics.chore(CHORE)
        self.figures = CleanerFigures()
        self.uncleanable: dict[Log, str] = {}
        self.asked = AskedCleanings()
        self._not_before_ms: dict[Log, int] = {}
        self._decisions = SyncedDecisions(services.syncer, lambda: self._plan(0, self._look_now))
        self._running: _Running | None = None
        self._is_looking = False
        self._is_stopped = False
        self._pause: Callable[[], None] = pause_for(services.workers)

    # -- interface

    def step(self) -> bool:
        """Search for a log to clean, unless one is being cleaned. The chore's step."""
        self._forget_closed()
        if self._running is None and not self._is_looking and not self._is_stopped:
            candidates = self._candidates()
            if candidates:
                self._look(candidates)
        return False

    def ask(self, topic: str) -> dict[TopicPartition, AskedCleaning]:
        """Clean the partitions of a compacted topic soon. Return the state of each, which is updated meanwhile."""
        asked = {}
        for index, partition in enumerate(self._services.catalog.topics[topic].partitions):
            if partition is not None:
                one = TopicPartition(topic, index)
                self.uncleanable.pop(partition.log, None)
                self._not_before_ms.pop(partition.log, None)
                self._decisions.offsets.pop(partition.log, None)
                asked[one] = self.asked.ask(one)
        self._plan(0, self._look_now)
        return asked

    @property
    def is_busy(self) -> bool:
        """Whether a log is being cleaned or searched for."""
        return self._running is not None or self._is_looking

    def is_cleaning(self, log: Log) -> bool:
        """Whether this log is being cleaned."""
        return self._running is not None and self._running.log is log

    def stop(self) -> None:
        """Clean no more. A running cleaning is dropped, or finished if it has begun to swap segments."""
        self._is_stopped = True
        if self._running is not None:
            self._running.steps.close()
            self._running = None

    # -- choosing

    def _candidates(self) -> list[_Candidate]:
        """Compacted logs that may be cleaned; those whose sealed segments are not on disk yet are synced first."""
        services, now_ms = self._services, self._services.clock.monotonic_ms()
        is_enabled = services.config.log_cleaner_enable
        self.asked.refuse_impossible(services.log_manager.logs)
        found = []
        for topic in services.catalog.topics.values():
            if "compact" not in topic.config.cleanup_policy:
                continue
            for index, partition in enumerate(topic.partitions):
                if partition is None:
                    continue
                log, request = partition.log, self.asked.get(TopicPartition(topic.name, index))
                is_asked = request is not None and request.is_waiting
                if not log.takes_writes or log in self.uncleanable or not (is_asked or is_enabled):
                    continue
                if not is_asked and self._not_before_ms.get(log, now_ms) > now_ms:
                    continue
                if len(log.segment_list) == 1 and not is_asked:
                    continue
                is_behind = log.recovery_point < log.segment_list.active.base_offset
                if is_behind and self._awaits_files(log) and is_asked:
                    continue
                clean_offset = services.log_manager.checkpoints.clean_offset_of(topic.name, index)
                stable_offset = self._decisions.stable_offset(log, partition.last_stable_offset, is_asked=is_asked)
                if stable_offset is None:
                    continue
                state = LogToAssess.of(log, stable_offset, clean_offset)
                found.append(_Candidate(log, state, is_asked, request is None or not request.rounds))
        return found

    def _awaits_files(self, log: Log) -> bool:
        """Request a sync of the log's own files, then search again. Return whether the sync is still running.

        Where an acknowledgement does not wait for the disk, nothing else may ever request it; where the redo log has
        the appended batches, it is requested within some seconds anyway.
        """
        recovery_point, waiting = log.recovery_point, [log]

        def synced(error: BaseException | None) -> None:
            waiting.clear()
            if log.recovery_point > recovery_point:
                self._plan(0, self._look_now)

        self._services.syncer.request_files(log, synced)
        return bool(waiting)

    def _look(self, candidates: list[_Candidate]) -> None:
        self._is_looking = True
        now_ms = self._services.clock.wall_ms()
        deletion_ms = self._services.clock_trust.deletion_ms()

        def work() -> None:
            import ottla.storage.cleaner.cleaner  # noqa: F401  # here, where no request waits: `_begin` needs it

            for candidate in candidates:
                candidate.assess(deletion_ms)  # min.compaction.lag.ms keeps records that are young

        def done(_: object, error: BaseException | None) -> None:
            self._is_looking = False
            if error is not None:
                self._bug("looking at logs", error)
            elif not self._is_stopped:
                self._choose(candidates, now_ms)

        self._count_step()
        self._services.workers.run(work, done)

    def _choose(self, candidates: list[_Candidate], now_ms: int) -> None:
        figures = self.figures
        figures.last_look_wall_ms = now_ms
        assessed = [(one, one.found) for one in candidates if one.found is not None]
        figures.max_dirty_ratio = max((found.dirty_ratio for _, found in assessed), default=0.0)
        figures.max_overdue_ms = max((found.overdue_ms for _, found in assessed), default=0)
        for one in candidates:
            if one.error and one.log.error is None and one.is_as_found:
                self._give_up(one.log, one.error)
        for one, found in assessed:
            if one.is_asked and self._begin_asked(one, found):
                return
        due = [
            (found.dirty_ratio, found, one)
            for one, found in assessed
            if not one.is_asked and found.is_due(one.state.config.min_cleanable_dirty_ratio)
        ]
        if due:
            _, found, one = max(due, key=lambda each: each[0])
            self._begin(one, found)

    def _begin_asked(self, one: _Candidate, found: Assessment) -> bool:
        """Begin with a log that was requested; False when nothing is left to do for it."""
        request = self.asked.of(one.log)
        if request is None:
            return False
        if found.cleanable_bytes:
            self._begin(one, found)
            return True
        request.state = DONE
        if not request.rounds:
            request.message = "no sealed segment is synced, stable and older than min.compaction.lag.ms"
        return False

    # -- cleaning

    def _begin(self, one: _Candidate, found: Assessment) -> None:
        from ottla.storage.cleaner.cleaner import LogCleaning

        log, services = one.log, self._services
        if log.error is not None or not one.is_as_found:
            self._plan(0, self._look_now)
            return
        request = self.asked.of(log)
        if one.is_asked and request is not None:
            request.state = RUNNING
        cleaning = LogCleaning(
            log,
            one.state,
            found,
            dedupe_buffer_bytes=services.config.log_cleaner_dedupe_buffer_size,
            load_factor=services.config.log_cleaner_io_buffer_load_factor,
            now_ms=services.clock_trust.estimate_ms(),
            deletion_ms=services.clock_trust.deletion_ms(),
            monotonic_ms=services.clock.monotonic_ms(),
            cover=lambda offset: services.log_manager.checkpoints.cover(log.topic, log.partition, offset),
            checkpoint=lambda offset: services.log_manager.checkpoints.write_clean_offset(log, offset),
            pause=self._pause,
        )
        self._running = _Running(log, cleaning, found, cleaning.run())
        self._advance(None, None)

    def _advance(self, done_bytes: int | None, error: Exception | None) -> None:
        """Let the cleaning continue after a piece of work, and start the next piece."""
        from ottla.storage.cleaner.cleaner import CleaningAborted, Uncleanable

        running = self._running
        if running is None:
            return
        self._count_step()
        started_ns = time.perf_counter_ns()
        try:
            if error is not None:
                work = running.steps.throw(error)
            elif done_bytes is None:
                work = next(running.steps)
            else:
                work = running.steps.send(done_bytes)
        except StopIteration:
            self._finished(running)
        except CleaningAborted as reason:
            logger.info("%s: cleaning was given up: %s", running.log.name, reason)
            self._ended(running, FAILED, str(reason), looks_again=False)
        except Uncleanable as reason:
            self._give_up(running.log, str(reason))
            self._ended(running, FAILED, str(reason))
        except OSError as reason:
            logger.log(level_of(reason, logging.WARNING), "%s: its cleaning is postponed: %s", running.log.name, reason)
            self._not_before_ms[running.log] = self._services.clock.monotonic_ms() + NO_ROOM_RETRY_MS
            self._ended(running, FAILED, str(reason))
        except Exception as bug:  # one log stays unchanged, and is reported; the broker and the other logs continue
            self._bug(running.log.name, bug)
            self.uncleanable[running.log] = f"a bug: {bug}"
            self._ended(running, FAILED, f"a bug: {bug}")
        else:
            self._have_done(running, work)
        finally:
            self._counters.spend((time.perf_counter_ns() - started_ns) // 1_000)

    def _have_done(self, running: _Running, work: Work) -> None:
        def guarded() -> tuple[int, Exception | None]:
            try:
                return work(), None
            except Exception as error:  # passed to the generator, which knows what it means
                return 0, error

        def done(outcome: tuple[int, Exception | None] | None, escaped: BaseException | None) -> None:
            if self._running is running:
                size_bytes, error = outcome or (0, RuntimeError(f"a bug: {escaped!r}"))
                wait_ms = NO_DESCRIPTOR_WAIT_MS if isinstance(error, NotOpened) else self._wait_ms(size_bytes)
                self._plan(wait_ms, lambda: self._advance(size_bytes, error))

        self._services.workers.run(guarded, done)

    def _wait_ms(self, size_bytes: int) -> int:
        """The time that `log.cleaner.io.max.bytes.per.second` requires for a piece of this size."""
        rate = self._services.config.log_cleaner_io_max_bytes_per_second
        return int(min(size_bytes * 1000 / rate, MOST_WAIT_MS)) if rate > 0 else 0

    def _finished(self, running: _Running) -> None:
        cleaning, figures = running.cleaning, self.figures
        elapsed_s = time.perf_counter() - running.started_s
        removed = cleaning.records_read - cleaning.records_kept
        figures.cleanings += 1
        figures.bytes_read += cleaning.bytes_read
        figures.bytes_written += cleaning.bytes_written
        self._counters.bytes += cleaning.bytes_written
        figures.bytes_freed += cleaning.bytes_before - cleaning.bytes_after
        figures.records_removed += removed
        figures.last_recopy_ratio = cleaning.bytes_written / cleaning.bytes_read if cleaning.bytes_read else 0.0
        figures.last_map_utilization = cleaning.map_utilization
        figures.last_cleaning_s = elapsed_s
        logger.info(
            "%s: cleaned offsets %d to %d in %.1f s: %d of %d records removed, segments of %d bytes are %d bytes now",
            running.log.name,
            running.found.first_dirty_offset,
            cleaning.end_offset,
            elapsed_s,
            removed,
            cleaning.records_read,
            cleaning.bytes_before,
            cleaning.bytes_after,
        )
        self._ended(running, WAITING)

    def _ended(self, running: _Running, state: str, message: str = "", *, looks_again: bool = True) -> None:
        """Note the result, and search for the next log. A log that was requested is checked once more."""
        self._running = None
        request = self.asked.of(running.log)
        if request is not None:
            request.note_round(running.cleaning, state, message)
        if state == FAILED:
            self.figures.failed += 1
        if looks_again:
            self._plan(0, self._look_now)

    def _give_up(self, log: Log, reason: str) -> None:
        self.uncleanable[log] = reason
        self._counters.failures += 1
        logger.error("%s cannot be compacted and keeps every record: %s", log.name, reason)
        request = self.asked.of(log)
        if request is not None:
            request.fail(reason)

    # -- the rest

    def _look_now(self) -> None:
        self.step()

    def _plan(self, delay_ms: int, callback: Callable[[], None]) -> None:
        if not self._is_stopped:
            self._services.timers.at(self._services.clock.monotonic_ms() + delay_ms, callback)

    def _forget_closed(self) -> None:
        manager = self._services.log_manager
        for log in [one for one in self.uncleanable if manager.get(one.topic, one.partition) is not one]:
            del self.uncleanable[log]
        for log in [one for one in self._not_before_ms if manager.get(one.topic, one.partition) is not one]:
            del self._not_before_ms[log]
        for log in [one for one in self._decisions.offsets if manager.get(one.topic, one.partition) is not one]:
            del self._decisions.offsets[log]
        self.asked.keep(manager.logs)

    def _count_step(self) -> None:
        self._counters.steps += 1
        self._counters.last_wall_ms = self._services.clock.wall_ms()

    def _bug(self, where: str, error: BaseException) -> None:
        self._counters.failures += 1
        logger.error("bug: the cleaner failed: %s", where, exc_info=error)
