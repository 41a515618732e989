"""One round of syncs: tickets of several logs of one directory, and the three ways to bring them to the disk.

- One file after the other (`run`): a round of one or two files, and the broker's own thread.
- The files shared out among a few threads (`run_shared`): where the volume cannot be synced as a whole.
- One sync of the whole volume (`sync_volume`, then `finish_volume`): `VOLUME_FROM` files and steps, and more
  (docs/decisions/one-sync-for-many-logs.md). One that takes long is overtaken: another thread runs the round by one of
  the other ways. `claim` decides between the two who ends the round; it succeeds once.

A round of small appends takes no tickets, but the redo log (`redo_round.py`). A round of tickets may be its checkpoint:
then it makes the redo log void in the end, if all tickets have succeeded.

Whatever the way, a ticket's other steps (names, indexes, leader epochs) follow when its files are on the disk; after a
sync of the volume, which has brought names and indexes along, most have nothing left to do. A ticket
counts as failed until its last step has succeeded: whatever ends a round, nothing is taken for synced that may not be.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from ottla.broker.runtime.threads import post_surely
from ottla.storage.files.files import NotOpened, PartialWrite

if TYPE_CHECKING:
    from ottla.broker.runtime.processor_wait import ProcessorWait
    from ottla.storage.directories.redo_log import RedoLog
    from ottla.storage.files.files import File, Volume
    from ottla.storage.log.log import Log
    from ottla.storage.log.sync import SyncTicket

LOG = logging.getLogger("ottla.disk")

SyncCallback = Callable[[BaseException | None], None]

VOLUME_FROM: Final = 3
"""Syncs from which on one of the volume is used instead. Two files by `fdatasync` take as long as one `syncfs`."""
SHARED_FROM: Final = 3
"""Files from which on several threads share them."""
NOT_ENDED: Final = OSError("the sync did not end")
"""The result of a ticket that nothing has been said about."""


class SyncRound:
    """Tickets of several logs of one directory. `run` and the other ways may be called in any thread.

    Attributes:
        results: for each of `waits` None when it is on the disk, NotOpened when it could not begin, else an error.
        error: the first error that ended the round; None when there was none.
        timings: microseconds of the syncs, each with the number of logs that it was for.
        volume: what is to be synced as a whole; None: the files are.
        volume_error: what its sync ended with.
        handed_over_ms: when it was handed over (monotonic), of a round with a volume.
        redo_log: what the round is a checkpoint of; else None.
        has_voided: whether a checkpoint has made the redo log void.
        way: how it was run: "files", "threads" or "volume".
    """

    __slots__ = (
        "_began_ms",
        "_claim",
        "_mark",
        "_volume_ns",
        "_wait",
        "error",
        "files",
        "handed_over_ms",
        "has_begun",
        "has_voided",
        "redo_log",
        "results",
        "timings",
        "volume",
        "volume_error",
        "waits",
        "way",
    )

    def __init__(self, waits: list[tuple[Log, SyncTicket, list[SyncCallback]]]) -> None:
        self.waits = waits
        self.results: list[OSError | None] = [NOT_ENDED] * len(waits)
        self.error: OSError | None = NOT_ENDED
        self.timings: list[tuple[int, int]] = []
        self.files = [file for _, ticket, _ in waits for file in ticket.files]
        self.volume: Volume | None = None
        self.volume_error: OSError | None = NOT_ENDED
        self.handed_over_ms = 0.0
        self.redo_log: RedoLog | None = None
        self.has_voided = False
        self.way = "files"
        self.has_begun = False
        self._claim = threading.Lock()
        self._volume_ns = 0
        self._began_ms: float | None = None
        self._wait: ProcessorWait | None = None
        self._mark = b""

    def claim(self) -> bool:
        """Whether the caller ends the round: True for the first one, whichever thread it is in."""
        return self._claim.acquire(blocking=False)

    def is_on(self, volume: Volume) -> bool:
        """Whether one sync of `volume` is worth it, and enough: a partition's directory may be on another disk."""
        syncs = len(self.files)
        if syncs < VOLUME_FROM:
            for _, ticket, _ in self.waits:
                syncs += len(ticket.steps)
            if syncs < VOLUME_FROM:
                return False
        for _, ticket, _ in self.waits:
            if not ticket.files:
                return False
        device = volume.device
        for file in self.files:  # noqa: SIM110  (a generator takes twice as long)
            if file.device != device:
                return False
        return True

    # -- the redo log

    def _end_checkpoint(self) -> None:
        """Make the redo log void, if all that was in it is on disk in the logs' own files."""
        redo_log = self.redo_log
        if redo_log is None or self.error is not None or any(self.results):
            return
        result = _result_of(redo_log.void)
        if result is None:
            self.has_voided = True
        elif not isinstance(result, (NotOpened, PartialWrite)):
            self.error = result

    # -- file by file

    def run(self) -> None:
        """Sync every log; stop at the first that fails, because the directory goes offline with it. One that could not
        begin stops nobody: most need no descriptor that they do not have. A second call does nothing.
        """
        if self.has_begun:
            return
        self.has_begun = True
        for index, (_, ticket, _) in enumerate(self.waits):
            started_ns = time.perf_counter_ns()
            result = self.results[index] = _result_of(ticket.run)
            self.timings.append(((time.perf_counter_ns() - started_ns) // 1000, 1))
            if result is not None and not isinstance(result, NotOpened):
                self.error = result
                return
        self.error = None
        self._end_checkpoint()

    def run_shared(self, ask_for_help: Callable[[Callable[[], None], int], None]) -> None:
        """As `run`, but the files are synced by all threads that call the function that `ask_for_help` is given, with
        the number of threads that would have something to do. This thread works, too, and waits for none that has not
        begun.
        """
        if self.has_begun:
            return
        self.has_begun = True
        self.way = "threads"
        started_ns = time.perf_counter_ns()
        syncs = [(index, ticket, file) for index, (_, ticket, _) in enumerate(self.waits) for file in ticket.files]
        share = _Share([_sync_of(ticket, file) for _, ticket, file in syncs])
        ask_for_help(share.work, len(self.files) - 1)
        share.work()
        share.wait()
        results: list[OSError | None] = [None] * len(self.waits)
        for (index, _, _), result in zip(syncs, share.results, strict=True):
            results[index] = max(results[index], result, key=_severity)
        self._finish(results, started_ns)

    # -- the volume

    def note_begin(self, now_ms: float, wait: ProcessorWait | None) -> None:
        """Note that the sync of the volume begins in this thread, whose waits for a processor `wait` counts."""
        if wait is not None:
            self._mark = wait.mark()
            self._wait = wait
        self._began_ms = now_ms

    def without_processor_ms(self, now_ms: float) -> float:
        """For how long the thread has had no processor since the round was handed over: until it began, and what is
        counted since then.
        """
        began_ms = self._began_ms
        if began_ms is None:
            return now_ms - self.handed_over_ms
        since_ms = 0 if self._wait is None else self._wait.since_ms(self._mark)
        return began_ms - self.handed_over_ms + since_ms

    def sync_volume(self) -> OSError | None:
        """Sync the volume; the error. The round is as it was: who has the claim calls `finish_volume`."""
        volume = self.volume
        assert volume is not None
        started_ns = time.perf_counter_ns()
        writes = [file.writes for file in self.files]
        self.volume_error = _result_of(volume.sync)
        if self.volume_error is None:
            for file, count in zip(self.files, writes, strict=True):
                file.note_synced(count)
        self._volume_ns = time.perf_counter_ns() - started_ns
        return self.volume_error

    def finish_volume(self) -> None:
        """Do what follows `sync_volume`, by who has the claim. If it failed, every ticket has failed."""
        self.has_begun = True
        self.way = "volume"
        error = self.volume_error
        if error is None:
            self._finish([None] * len(self.waits), time.perf_counter_ns() - self._volume_ns, is_covered=True)
            return
        self.error = error
        self.results = [error] * len(self.waits)
        self.timings.append((self._volume_ns // 1000, 1))

    def name_files(self) -> list[str]:
        """The files of the round whose `fdatasync` fails, too, for the log after a failed sync of the volume. One that
        succeeds means nothing: the kernel may have dropped what it could not write.
        """
        names = []
        for file in self.files:
            try:
                file.fdatasync()
            except OSError as error:
                if error.errno != errno.EBADF:  # closed meanwhile
                    names.append(str(file.path))
        return names

    def _finish(self, results: list[OSError | None], started_ns: int, *, is_covered: bool = False) -> None:
        """Do the other steps of each ticket whose files have the result None; stop at the first that fails."""
        error = max(results, key=_severity) if any(results) else None
        if isinstance(error, NotOpened):
            error = None
        for index, (_, ticket, _) in enumerate(self.waits):
            result = results[index]
            if result is None and ticket.steps:
                if error is not None:
                    continue  # the directory goes offline: nothing more is written there
                result = _result_of(partial(ticket.finish, is_covered=is_covered))
                if result is not None and not isinstance(result, NotOpened):
                    error = result
            self.results[index] = result
        self.timings.append(((time.perf_counter_ns() - started_ns) // 1000, len(self.waits)))
        self.error = error
        self._end_checkpoint()


def _sync_of(ticket: SyncTicket, file: File) -> Callable[[], None]:
    return lambda: ticket.sync_file(file)


def _severity(result: OSError | None) -> int:
    """Which of several results counts."""
    if result is None:
        return 0
    if isinstance(result, NotOpened):
        return 1
    return 2 if result is NOT_ENDED else 3


def _result_of(step: Callable[[], None]) -> OSError | None:
    try:
        step()
    except OSError as error:
        return error
    except Exception as error:  # a bug (a closed file, say), but the waiting requests must get it
        LOG.exception("bug: a sync failed")
        return OSError(f"a bug: {error}")
    return None


class _Share:
    """Syncs that several threads do, each the next one that is left; after a failure no further one begins."""

    def __init__(self, syncs: list[Callable[[], None]]) -> None:
        self._syncs = syncs
        self._left = deque(range(len(syncs)))
        self._has_failed = False
        self._ended: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.results: list[OSError | None] = [NOT_ENDED] * len(syncs)

    def work(self) -> None:
        """Do what is left until nothing is. May be called in any thread, also when all has ended."""
        while True:
            try:
                index = self._left.popleft()
            except IndexError:
                return
            try:
                if not self._has_failed:
                    result = self.results[index] = _result_of(self._syncs[index])
                    if result is not None and not isinstance(result, NotOpened):
                        self._has_failed = True
            finally:
                post_surely(self._ended.put, _nothing)

    def wait(self) -> None:
        """Wait until each has ended that any thread has begun."""
        for _ in self._syncs:
            self._ended.get()


def _nothing() -> None:
    """What is counted in the queue of a share."""
