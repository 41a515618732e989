"""Retention of one partition, a segment at a time: renamed on the broker's thread, its directory synced in a worker.

A crash may keep any of several renames that were not synced, and a gap in a log truncates what follows it. So each
rename is synced before the next. The syncs take time, but no request waits for them: requests run between two segments.
The callers are the chores, and an operator by HTTP; for each log only one of them at a time gets anything to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from ottla.broker.runtime.workers import pause_for

if TYPE_CHECKING:
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.services import Services
    from ottla.storage.log.log import Log
    from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)


def retain(services: Services, partition: Partition, who: str, done: Callable[[Sequence[Segment]], None]) -> None:
    """Delete expired segments. `done` gets them; if there are none, before this returns."""

    def deleted(segments: Sequence[Segment]) -> None:
        if segments:
            partition.wake_watchers()
        done(segments)

    partition.settle()
    retain_log(services, partition.log, who, deleted)


def retain_log(services: Services, log: Log, who: str, done: Callable[[Sequence[Segment]], None]) -> None:
    """As `retain`, for a log without watchers: that of the metadata."""
    clock = services.clock
    steps = log.retention.steps(
        clock.wall_ms(),
        pause_for(services.workers),
        deletion_ms=services.clock_trust.deletion_ms(),
        stamped_ms=services.clock_trust.stamped_ms,
        monotonic_ms=clock.monotonic_ms(),
    )
    _advance(services, log, who, steps, None, done)


def _advance(
    services: Services,
    log: Log,
    who: str,
    steps: Generator[Callable[[], None], None, list[Segment]],
    error: Exception | None,
    done: Callable[[Sequence[Segment]], None],
) -> None:
    """Let the retention continue after a sync, and start the next one."""
    try:
        work = next(steps) if error is None else steps.throw(error)
    except StopIteration as end:
        deleted: list[Segment] = end.value
        if deleted:
            logger.info("%s: %s deleted %d segments, the log starts at %d", log.name, who, len(deleted),
                        log.log_start_offset)  # fmt: skip
        done(deleted)
        return
    except Exception:  # a bug, logged with its traceback: the caller continues with other logs
        logger.exception("bug: the retention of %s ended", log.name)
        done([])
        return

    def guarded() -> Exception | None:
        try:
            work()
        except Exception as failure:  # passed to the generator, which knows what it means
            return failure
        return None

    def synced(failure: Exception | None, escaped: BaseException | None) -> None:
        if escaped is not None:
            failure = RuntimeError(f"a bug: {escaped!r}")
        # In a separate turn, even where workers answer immediately.
        now_ms = services.clock.monotonic_ms()
        services.timers.at(now_ms, lambda: _advance(services, log, who, steps, failure, done))

    services.workers.run(guarded, synced)
