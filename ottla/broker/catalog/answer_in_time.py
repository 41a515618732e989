"""The answer to a change of topics in time for its client: when all is done, or at half of `timeout_ms`.

Ten thousand partitions take longer to create, or to remove, than a client waits for an answer. It would send the
request again and get TOPIC_ALREADY_EXISTS for a topic that it has created itself. So once half of `timeout_ms` is over,
the request is answered as soon as the change is on disk in the metadata log, as Kafka's controller answers: a crash
cannot undo it. The rest of the partitions follows; until then clients see them without a leader. The other half is for
the way of the answer: clients wait no longer than the `timeout_ms` that they send.

Without a positive `timeout_ms` the answer waits for the partitions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.metadata.change_requests import ResultsCallback, TopicResult
    from ottla.broker.runtime.timers import Timer, Timers
    from ottla.storage.files.clock import Clock

logger = logging.getLogger(__name__)

NAMES_SHOWN = 5
"""The number of topics that the log line names."""


class AnswerInTime:
    """See the module. `answer(results)` is called once.

    `began_ms` is the wall time at which the request began: the chunks of a long one share its `timeout_ms`.
    """

    def __init__(
        self,
        timers: Timers,
        clock: Clock,
        *,
        began_ms: int,
        timeout_ms: int,
        answer: ResultsCallback,
    ) -> None:
        self._timeout_ms = timeout_ms
        self._answer = answer
        self._is_answered = False
        self._is_due = False
        self._recorded: list[TopicResult] | None = None
        self._timer: Timer | None = None
        if timeout_ms > 0:
            gone_ms = max(0, clock.wall_ms() - began_ms)  # the wall clock may have been set back
            deadline_ms = clock.monotonic_ms() + max(0, timeout_ms // 2 - gone_ms)
            self._timer = timers.at(deadline_ms, self._due)

    def cancel(self) -> None:
        """Answer no more: the client has gone."""
        self._is_answered = True
        if self._timer is not None:
            self._timer.cancel()

    def recorded(self, results: list[TopicResult]) -> None:
        """Note the results that are on disk in the metadata log, before partitions are created or removed."""
        self._recorded = results
        if self._is_due:
            self._answer_early(results)

    def finished(self, results: list[TopicResult]) -> None:
        """Answer, unless that is done: all partitions are created or removed, or the change was refused."""
        if not self._is_answered:
            self.cancel()
            self._answer(results)

    def _due(self) -> None:
        self._is_due = True
        if self._recorded is not None:
            self._answer_early(self._recorded)

    def _answer_early(self, results: list[TopicResult]) -> None:
        names = [result.name for result in results if result.name is not None and not result.failed]
        logger.info(
            "half of timeout_ms=%d is over: a change is answered before all partitions are ready or removed, of %s",
            self._timeout_ms,
            ", ".join(names[:NAMES_SHOWN]) + (f" and {len(names) - NAMES_SHOWN} more" * (len(names) > NAMES_SHOWN)),
        )
        self.finished(results)
