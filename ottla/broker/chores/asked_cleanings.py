"""Cleanings that users have requested (`ottla log clean`): the state of each, for which a user may wait.

A request is waiting until its log is chosen, then running, and waiting again until nothing is left to clean; then it is
done. It has failed if the log cannot be cleaned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.plain import Plain
from ottla.storage.formats.layout import TopicPartition

if TYPE_CHECKING:
    from ottla.storage.cleaner.cleaner import LogCleaning
    from ottla.storage.log.log import Log

WAITING: Final = "waiting"
RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"


class AskedCleaning(Plain):
    """The result of a cleaning that a user has requested: `state` is waiting, running, done or failed."""

    state: str
    message: str = ""
    bytes_before: int = 0
    bytes_after: int = 0
    records_removed: int = 0
    end_offset: int = -1
    rounds: int = 0

    @property
    def is_waiting(self) -> bool:
        """Whether its log was not chosen yet, or has to be checked again."""
        return self.state == WAITING

    def fail(self, reason: str) -> None:
        """End it, unless it was chosen: then `note_round` ends it."""
        if self.is_waiting:
            self.state, self.message = FAILED, reason

    def note_round(self, cleaning: LogCleaning, state: str, message: str) -> None:
        """Note the end of a cleaning of its log."""
        if self.state != RUNNING:
            return
        self.state, self.message = state, message
        self.bytes_before += cleaning.bytes_before
        self.bytes_after += cleaning.bytes_after
        self.records_removed += cleaning.records_read - cleaning.records_kept
        self.end_offset = cleaning.end_offset
        self.rounds += 1


class AskedCleanings(dict[TopicPartition, AskedCleaning]):
    """The requests by partition, until the next request or the end of the partition."""

    def ask(self, one: TopicPartition) -> AskedCleaning:
        """The request for a partition: a new one, unless one is waiting or running."""
        known = self.get(one)
        if known is None or known.state not in (WAITING, RUNNING):
            known = self[one] = AskedCleaning(WAITING)
        return known

    def of(self, log: Log) -> AskedCleaning | None:
        """The request for a log, None if there is none."""
        return self.get(TopicPartition(log.topic, log.partition))

    def refuse_impossible(self, logs: Mapping[TopicPartition, Log]) -> None:
        """End the requests for logs that can no longer be cleaned."""
        for one, request in self.items():
            log = logs.get(one)
            if log is None:
                continue
            if not log.takes_writes:
                request.fail(str(log.error or "its log directory is offline"))
            elif "compact" not in log.config.cleanup_policy:
                request.fail(f"its cleanup.policy is {','.join(log.config.cleanup_policy)}")

    def keep(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Forget the requests for partitions that are gone."""
        for one in [each for each in self if each not in logs]:
            del self[one]
