"""Opening many logs at the same time: the number of threads, and what happens to logs that cannot be opened.

After a clean stop one thread per log directory is fastest: almost nothing waits for the disk, and Python runs one
thread at a time. A recovery reads, computes checksums and syncs, during which other threads can run. So a directory
that was not stopped cleanly gets `num.recovery.threads.per.data.dir` threads. The largest recoveries come first: if one
began last, the start would wait for it alone. Called by `manager.py` only.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.errors import StorageError
from ottla.storage.formats.checkpoint import BrokenFile
from ottla.storage.formats.layout import RECOVERY_POINT_CHECKPOINT_FILE, TopicPartition, partition_directory_name
from ottla.storage.recovery.recovery_scan import unsure_bytes

if TYPE_CHECKING:
    from ottla.storage.directories.load_progress import LoadProgress
    from ottla.storage.directories.log_placement import WantedLog
    from ottla.storage.files.files import Files
    from ottla.storage.log.log import Log

Jobs = Mapping[LogDirectory, Sequence["WantedLog"]]
Opened = tuple[LogDirectory, "WantedLog", "Log | Exception"]


def open_all(
    files: Files,
    jobs: Jobs,
    open_one: Callable[[WantedLog, LogDirectory], Log],
    *,
    threads: int,
    progress: LoadProgress,
) -> list[Opened]:
    """Open every log; returns with each its result: the log, or the error that kept it from being opened.

    Raises LoadInterrupted when `progress` was stopped, and any other exception as a bug.
    """
    unsure = _unsure_bytes(files, jobs)
    progress.begin(sum(map(len, jobs.values())), {one: size_bytes for one, size_bytes in unsure.items() if size_bytes})
    opened: list[Opened] = []
    bugs: list[BaseException] = []

    def work(directory: LogDirectory, waiting: deque[WantedLog]) -> None:
        try:
            while not bugs:
                try:
                    one = waiting.popleft()
                except IndexError:
                    return
                if not directory.was_clean:  # a clean start ends soon, and only after it can a stop be clean
                    progress.check()
                try:
                    opened.append((directory, one, open_one(one, directory)))
                except (StorageError, BrokenFile, OSError) as error:
                    opened.append((directory, one, error))
                progress.log_done()
        except BaseException as error:  # raised by the thread that waits
            bugs.append(error)

    plans = []
    for directory, wanted in jobs.items():
        waiting = deque(sorted(wanted, key=lambda one: -unsure.get(one.topic_partition, 0)) if unsure else wanted)
        plans += [(directory, waiting)] * (1 if directory.was_clean else min(threads, len(wanted)))
    if len(plans) == 1:
        work(*plans[0])
    else:
        started = [_start(work, *plan) for plan in plans]
        for thread, plan in zip(started, plans, strict=True):
            if thread is None:
                work(*plan)
        for thread in started:
            if thread is not None:
                thread.join()
    if bugs:
        for _, _, log in opened:
            if not isinstance(log, Exception):
                log.abandon()
        raise bugs[0]
    return opened


def _start(
    work: Callable[[LogDirectory, deque[WantedLog]], None], directory: LogDirectory, waiting: deque[WantedLog]
) -> threading.Thread | None:
    """Start a thread that opens logs. None if the system refuses it: the caller opens the logs that no thread has
    begun.
    """
    thread = threading.Thread(target=work, args=(directory, waiting), name=f"load {directory.path.name}")
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return None
    return thread


def _unsure_bytes(files: Files, jobs: Jobs) -> dict[TopicPartition, int]:
    """The number of bytes that may have to be checked, of logs in directories that were not stopped cleanly."""
    unsure: dict[TopicPartition, int] = {}
    for directory, wanted in jobs.items():
        for one in () if directory.was_clean else wanted:
            recovery_point = directory.checkpoints.offset_of(RECOVERY_POINT_CHECKPOINT_FILE, one.topic_partition)
            path = directory.path / partition_directory_name(one.topic, one.partition)
            try:
                unsure[one.topic_partition] = unsure_bytes(files, path, recovery_point)
            except OSError:  # raised again when the log is opened
                continue
    return unsure
