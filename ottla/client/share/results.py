"""The results of acknowledgements, by partition, until `commit` takes them: an error before a success.

Each error is logged, since a program may never call `commit`. Kafka reports them by `AcknowledgementCommitCallback`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.client.cluster import Cluster
from ottla.client.errors import KafkaError
from ottla.client.share.session import Acknowledgements, Place, ShareSession
from ottla.client.structs import TopicPartition
from ottla.client_core.cluster_view import STALE_METADATA
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


class AcknowledgementResults:
    """See the module."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._results: dict[TopicPartition, KafkaError | None] = {}

    def take(self) -> dict[TopicPartition, KafkaError | None]:
        """Return the results since the last call."""
        results, self._results = self._results, {}
        return results

    def note(self, partition: TopicPartition, error: KafkaError | None) -> None:
        """Note the result of a partition's acknowledgements."""
        if error is not None:
            logger.warning("%s-%d: records were not acknowledged: %s", *partition, error.message)
            self._results[partition] = error
        else:
            self._results.setdefault(partition, None)

    def note_place(self, session: ShareSession, place: Place, error: KafkaError | None) -> None:
        """Note the result at a place in a session's request."""
        partition = session.name_of(place)
        if partition is not None:
            self.note(partition, error)

    def note_expired(self, session: ShareSession, now: float) -> None:
        """Drop the acknowledgements of a session whose lock has ended: they would take others along."""
        for partition in session.take_expired(now):
            self.note(partition, KafkaError(ErrorCode.INVALID_RECORD_STATE, "the acquisition lock has ended"))

    def on_answer(
        self, session: ShareSession, sent: Acknowledgements, codes: Mapping[Place, tuple[int, str | None]]
    ) -> bool:
        """Note the results in an answer; return whether some acknowledgements are to be sent again."""
        is_retried = False
        for place, runs in sent.items():
            number, message = codes.get(place, (int(ErrorCode.UNKNOWN_SERVER_ERROR), "the broker's answer lacks it"))
            code = ErrorCode.of(number)
            if not code:
                self.note_place(session, place, None)
            elif code.retriable and code not in STALE_METADATA:  # the records are still acquired
                is_retried = True
                session.retry(place, runs)
            else:
                if code in STALE_METADATA:
                    self._cluster.mark_stale()
                self.note_place(session, place, KafkaError(code, message or code.message))
        return is_retried
