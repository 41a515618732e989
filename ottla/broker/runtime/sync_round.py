"""One sync round: tickets of several logs of one directory, and the three ways to sync them.

- One file after the other (`run`): a round of one or two files, or on the broker's thread.
- The files shared among a few threads (`run_shared`): where the volume cannot be synced as a whole.
- One sync of the whole volume (`sync_volume`, then `finish_volume`): for `VOLUME_FROM` files and steps or more
  (docs/decisions/one-sync-for-many-logs.md). A sync that takes long is overtaken: another thread runs the round in one
  of the other ways. `claim` decides which of the two threads ends the round; it succeeds once.

A round of small appends uses the redo log and no tickets (`redo_round.py`). A round of tickets may be its checkpoint:
then it makes the redo log void at the end, if all tickets have succeeded.

In all three ways, a ticket's other steps (names, indexes, leader epochs) follow when its files are on the disk. After a
sync of the volume, which includes names and indexes, most of them have nothing left to do. A ticket counts as failed
until its last step has succeeded: however a round ends, nothing counts as synced that may not be.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import deque
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from ottla.broker.runtime.threads import post_surely
from ottla.storage.files.files import NotOpened, PartialWrite

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.runtime.processor_wait import ProcessorWait
    from ottla.broker.runtime.sync_callbacks import SyncCallback
    from ottla.storage.directories.redo_log import RedoLog
    from ottla.storage.files.files import File, Volume
    from ottla.storage.log.log import Log
    from ottla.storage.log.sync import SyncTicket

LOG = logging.getLogger("ottla.disk")

VOLUME_FROM: Final = 3
"""From so many syncs on, the volume is synced instead. Two files by `fdatasync` take as long as one `syncfs`."""
SHARED_FROM: Final = 3
"""From so many files on, several threads share them."""
NOT_ENDED: Final = OSError("the sync did not end")
"""The result of a ticket that has no other result yet."""


class SyncRound:
    """Tickets of several logs of one directory. `run` and the other ways may be called in any thread.

    Attributes:
        results: for each of `waits` None when it is on the disk, NotOpened when it could not begin, else an error.
        error: the first error that ended the round; None when there was none.
        timings: microseconds of the syncs, each with its number of logs.
        volume: the file system to sync as a whole; None: sync the files.
        volume_error: the result of its sync.
        handed_over_ms: when a thread got the round (monotonic); only with a volume.
        redo_log: the redo log whose checkpoint this round is; else None.
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
        """Whether the caller ends the round: True for the first caller, in any thread."""
        return self._claim.acquire(blocking=False)

    def is_on(self, volume: Volume) -> bool:
        """Whether one sync of `volume` is worth it, and sufficient: a partition's directory may be on another disk."""
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
        """Make the redo log void, if all of its contents are on disk in the logs' own files."""
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
        """Sync every log; stop at the first that fails, because the directory goes offline with it. A sync that could
        not begin does not stop the others: most need no new descriptor. A second call does nothing.
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
        """As `run`, but several threads share the files. `ask_for_help` gets a function for other threads to call, and
        the number of threads that would have something to do. This thread works, too, and does not wait for a thread
        that has not begun.
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
        """Note that the sync of the volume begins in this thread. `wait` counts the thread's waits for a processor."""
        if wait is not None:
            self._mark = wait.mark()
            self._wait = wait
        self._began_ms = now_ms

    def without_processor_ms(self, now_ms: float) -> float:
        """How long the thread has had no processor since it got the round: the time until it began, and its waits
        since then.
        """
        began_ms = self._began_ms
        if began_ms is None:
            return now_ms - self.handed_over_ms
        since_ms = 0 if self._wait is None else self._wait.since_ms(self._mark)
        return began_ms - self.handed_over_ms + since_ms

    def sync_volume(self) -> OSError | None:
        """Sync the volume and return the error. The round stays: the thread with the claim calls `finish_volume`."""
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
        """Finish the round after `sync_volume`, in the thread with the claim. If it failed, every ticket has failed."""
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
        """The files of the round whose `fdatasync` fails, too, for the log line after a failed sync of the volume. A
        success means nothing: the kernel may have dropped what it could not write.
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
    """The rank of a result: the highest one counts."""
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
    """Syncs that several threads share: each takes the next one. After a failure no further one begins."""

    def __init__(self, syncs: list[Callable[[], None]]) -> None:
        self._syncs = syncs
        self._left = deque(range(len(syncs)))
        self._has_failed = False
        self._ended: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.results: list[OSError | None] = [NOT_ENDED] * len(syncs)

    def work(self) -> None:
        """Take syncs until none is left. May be called in any thread, also when all have ended."""
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
        """Wait until every sync has ended."""
        for _ in self._syncs:
            self._ended.get()


def _nothing() -> None:
    """An entry in the queue of a share: only their number matters."""
