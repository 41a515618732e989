"""The removal of deleted partitions: their syncs end, the log is closed, the directory renamed, and the new name
synced.

A removal waits only for syncs that have begun: deleted data need not reach the disk. In a turn of the loop one log is
closed and renamed; one with many segments takes several turns. A worker syncs the directories, once for all that were
renamed while it was busy. No topic of the same name can be created (`Catalog.create_topics`) until the new name of the
topic's last directory is on the disk, no worker uses it any more (retention, a producer snapshot), and the groups have
forgotten their offsets of it. If a name could not be synced because no descriptor was free, it is not on the disk yet:
`settle_again` tries again.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.runtime.steps import run_in_turns
from ottla.storage.files.files import NotOpened

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.disk import GroupSyncer
    from ottla.broker.runtime.workers import Workers
    from ottla.storage.directories.manager import LogManager

logger = logging.getLogger(__name__)

Gone = Callable[["Partition"], None]


class _Renamed(NamedTuple):
    """A directory that has been renamed in memory; `settle` syncs the new name."""

    partition: Partition
    settle: Callable[[], None]
    gone: Gone


class PartitionRemoval:
    """Removes partitions. All calls are made on the broker's thread.

    `later(step)` runs a step in a later turn of the loop; without it everything is done immediately.
    """

    def __init__(
        self,
        log_manager: LogManager,
        syncer: GroupSyncer,
        workers: Workers,
        later: Callable[[Callable[[], None]], None] | None,
    ) -> None:
        self._log_manager = log_manager
        self._syncer = syncer
        self._workers = workers
        self._later = later
        self._quiet: deque[tuple[Partition, Gone]] = deque()
        self._renamed: list[_Renamed] = []
        self._not_opened: list[_Renamed] = []
        """Directories that could not be opened for the sync."""
        self._is_planned = False
        self._is_settling = False
        self._under_way: Counter[str] = Counter()
        """For each topic, the number of directories that still have its name, plus one while it is being forgotten."""
        self._waiting: list[Callable[[], None]] = []
        """Callbacks that wait for a topic's name."""
        self._has_left_files = False

    @property
    def is_settled(self) -> bool:
        """Whether no directory of a deleted topic is known to be left under its name: none is being removed, and none
        was left to the next start.
        """
        return not self._under_way and not self._has_left_files and self._log_manager.deletions.are_settled

    def is_under_way(self, topic: str) -> bool:
        """Whether anything of a deleted topic of that name is left."""
        return topic in self._under_way

    def call_after_topic(self, waiter: Callable[[], None]) -> None:
        """Call `waiter()` once, when nothing is left of the next topic that is completely removed."""
        self._waiting.append(waiter)

    def remove(self, partitions: Iterable[Partition], gone: Gone) -> None:
        """Close the logs of partitions that have ended and rename their directories.

        `gone(partition)` is called for each, once the new name is on disk, or once the files are left to the next
        start, which was logged then.
        """
        was_planned, self._is_planned = self._is_planned, True  # all partitions end before anything else is done
        for partition in partitions:
            self._under_way[partition.topic] += 1
            self._syncer.retire(partition.log, partial(self._note_quiet, partition, gone))
        self._is_planned = was_planned
        self._plan()

    def remove_topics(self, topics: Iterable[Topic], forgetting: Iterator[None], done: Callable[[], None]) -> None:
        """Remove all partitions of the topics, as `remove` does. `done()` when all are removed, and the steps of
        `forgetting` are done, in which other parts forget the topics.
        """
        topics = list(topics)
        for topic in topics:
            self._remove_unopened(topic)
        doomed = [partition for topic in topics for partition in topic.partitions if partition is not None]
        waiting = len(doomed) + 1

        def one_done(_: Partition | None = None) -> None:
            nonlocal waiting
            waiting -= 1
            if waiting == 0:
                done()

        def forgotten() -> None:
            for topic in topics:
                self._let_go(topic.name)
            one_done()

        self._under_way.update(topic.name for topic in topics)
        run_in_turns(forgetting, self._later, forgotten)
        self.remove(doomed, one_done)

    def _remove_unopened(self, topic: Topic) -> None:
        """Remove the directories of partitions that could not be opened; nothing uses them."""
        unopened = [index for index, partition in enumerate(topic.partitions) if partition is None]
        if unopened:
            self._log_manager.delete_unopened(topic.name, topic.id, unopened)

    def finish(self) -> None:
        """Do all remaining work now, because the broker stops. Call it after the syncer and the workers have ended;
        blocks.
        """
        while self._quiet:
            self._rename_next()
        renamed, self._renamed, self._not_opened = self._renamed + self._not_opened, [], []
        self._report([(one.partition, failure) for one, failure in _settle(renamed)])

    def settle_again(self) -> None:
        """Try again to sync the names for which no descriptor was free."""
        if self._not_opened:
            self._renamed += self._not_opened
            self._not_opened = []
            self._settle()

    def _note_quiet(self, partition: Partition, gone: Gone) -> None:
        self._quiet.append((partition, gone))
        self._plan()

    def _plan(self) -> None:
        if self._is_planned or not self._quiet:
            return
        if self._later is not None:
            self._is_planned = True
            self._later(self._step)
            return
        while self._quiet:
            self._rename_next()
        self._settle()

    def _step(self) -> None:
        self._is_planned = False
        if self._quiet:
            self._rename_next()
        self._settle()
        self._plan()

    def _rename_next(self) -> None:
        """Rename the next directory, or close some more of its files first."""
        partition, gone = self._quiet[0]
        if partition.log.unsynced.ticket is not None:
            self._quiet.popleft()
            # A sync has begun while it waited for its turn, for example by retention, which has rolled the log.
            self._syncer.retire(partition.log, partial(self._note_quiet, partition, gone))
            return
        for _ in partition.log.abandon_in_steps():
            return  # the rest in the next turn
        self._quiet.popleft()
        try:
            settle = self._log_manager.delete_log(partition.topic, partition.index)
        except OSError as failure:
            self._report([(partition, failure)])
            self._end(partition, gone)
            return
        self._renamed.append(_Renamed(partition, settle, gone))

    def _settle(self) -> None:
        """Let a worker sync the names; names that are added meanwhile wait for the next sync."""
        if self._is_settling or not self._renamed:
            return
        renamed, self._renamed = self._renamed, []
        self._is_settling = True

        def settled(failures: list[tuple[_Renamed, OSError]] | None, error: BaseException | None) -> None:
            self._is_settling = False
            if error is not None:
                logger.error("bug: the names of deleted partitions could not be synced: %s", error)
            not_opened = {id(one): one for one, failure in failures or () if isinstance(failure, NotOpened)}
            self._not_opened += not_opened.values()
            self._report([(one.partition, failure) for one, failure in failures or () if id(one) not in not_opened])
            for one in renamed:
                if id(one) not in not_opened:
                    one.partition.log.call_when_quiet(partial(self._end, one.partition, one.gone))
            self._settle()

        self._workers.run(partial(_settle, renamed), settled)

    def _end(self, partition: Partition, gone: Gone) -> None:
        self._let_go(partition.topic, partial(gone, partition))

    def _let_go(self, topic: str, gone: Callable[[], None] | None = None) -> None:
        """One use less of the topic's name; `gone` is called before those that wait for the name."""
        self._under_way[topic] -= 1
        is_last = not self._under_way[topic]
        if is_last:
            del self._under_way[topic]
        if gone is not None:
            gone()
        if not is_last:
            return
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter()

    def _report(self, failures: list[tuple[Partition, OSError]]) -> None:
        for partition, failure in failures:
            self._has_left_files = True
            logger.warning(
                "%s-%d is deleted, its files are removed by the next start: %s",
                partition.topic,
                partition.index,
                failure,
            )


def _settle(renamed: list[_Renamed]) -> list[tuple[_Renamed, OSError]]:
    """Sync the names. Return those that failed. May run in any thread."""
    failures = []
    for one in renamed:
        try:
            one.settle()
        except OSError as failure:
            failures.append((one, failure))
    return failures
