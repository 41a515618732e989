"""One request of a share session, and what its answer brings: records, results of acknowledgements, renewed locks.

Which request a session sends, and when, is the driver's affair (`fetcher.py`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.errors import KafkaError, UnsupportedByBroker
from ottla.client.metrics import ConsumerMetrics
from ottla.client.share.acknowledgements import Run
from ottla.client.share.acquired_records import AcquiredRecords
from ottla.client.share.acquisition import Decoder
from ottla.client.share.ready_records import ReadyRecords
from ottla.client.share.results import AcknowledgementResults
from ottla.client.share.session import FetchLimits, Place, ShareSession
from ottla.client.share_consumer_options import ShareConsumerOptions
from ottla.client.structs import TopicPartition
from ottla.client_core.cluster_view import STALE_METADATA
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.protocol.api.share_fetch import ShareFetchRequest, ShareFetchResponse
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

MAY_HEAL = STALE_METADATA | {ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR}
"""Errors after which a request is sent again, with new metadata."""
_FIRST_VERSION_WITH_RENEWALS = 2


class Answered(NamedTuple):
    """How a request was answered: `has_problem` if a part of it has to be sent again."""

    has_problem: bool
    throttle_ms: int


class ShareRequests:
    """See the module.

    `is_assigned(partition, topic_id)`: whether its records are still for the program. `on_renewed` is called with a
    partition whose renewals were accepted, and the new end of the locks. All requests raise KafkaError if they are
    refused as a whole, or lost.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ShareConsumerOptions,
        metrics: ConsumerMetrics,
        ready: ReadyRecords,
        results: AcknowledgementResults,
        *,
        is_assigned: Callable[[TopicPartition, UUID], bool],
        on_renewed: Callable[[TopicPartition, float], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._metrics = metrics
        self._ready = ready
        self._results = results
        self._is_assigned = is_assigned
        self._on_renewed = on_renewed
        self._is_explicit = options.share_acknowledgement_mode == "explicit"
        self._decoder = Decoder(options.check_crcs, options.key_deserializer, options.value_deserializer)
        self._loop = asyncio.get_running_loop()

    async def fetch(
        self, session: ShareSession, connection: Connection, wanted: Mapping[Place, TopicPartition], limits: FetchLimits
    ) -> Answered:
        """Send a ShareFetch of these partitions, with the session's acknowledgements."""
        version = connection.version_for(ShareFetchRequest)
        request = session.fetch(wanted, limits)
        asked_at = self._loop.time()
        timeout_ms = self._options.request_timeout_ms + limits.max_wait_ms
        answer = await connection.send(request, ShareFetchResponse, version, timeout_ms)
        code = ErrorCode.of(answer.error_code)
        if code:
            raise KafkaError(code, f"share fetch: {answer.error_message or code.message}")
        now = self._loop.time()
        sent = session.answered()
        size_bytes = sum(len(one.records or b"") for topic in answer.responses for one in topic.partitions)
        self._metrics.fetches.add(now, size_bytes, (now - asked_at) * 1000, answer.throttle_time_ms)
        codes: dict[Place, tuple[int, str | None]] = {}
        has_problem = False
        lock_until = _lock_until(now, answer.acquisition_lock_timeout_ms)
        for topic in answer.responses:
            for answered in topic.partitions:
                place = (topic.topic_id, answered.partition_index)
                codes[place] = (answered.acknowledge_error_code, answered.acknowledge_error_message)
                partition = wanted.get(place)
                if partition is None:
                    continue
                if answered.error_code:
                    has_problem = True
                    self._refused(partition, ErrorCode.of(answered.error_code), answered.error_message)
                if answered.acquired_records:
                    self._take(session, partition, place, answered, lock_until)
        has_problem |= self._results.on_answer(session, sent, codes)
        return Answered(has_problem, answer.throttle_time_ms)

    async def acknowledge(
        self, session: ShareSession, connection: Connection, request: ShareAcknowledgeRequest
    ) -> Answered | None:
        """Send a ShareAcknowledge of the session; None if the broker is too old for it, which is a result."""
        version = connection.version_for(ShareAcknowledgeRequest)
        if request.is_renew_ack and version < _FIRST_VERSION_WITH_RENEWALS:
            old = UnsupportedByBroker(f"the broker at {connection.address} is too old to renew acquired records")
            for place in session.in_flight:
                self._results.note_place(session, place, old)
            session.in_flight = {}
            return None
        answer = await connection.send(request, ShareAcknowledgeResponse, version)
        code = ErrorCode.of(answer.error_code)
        if code:
            raise KafkaError(code, f"share acknowledge: {answer.error_message or code.message}")
        now = self._loop.time()
        sent = session.answered()
        codes = {
            (topic.topic_id, one.partition_index): (one.error_code, one.error_message)
            for topic in answer.responses
            for one in topic.partitions
        }
        if request.is_renew_ack:
            lock_until = _lock_until(now, answer.acquisition_lock_timeout_ms)
            for place, (number, _) in codes.items():
                partition = session.name_of(place)
                if not number and partition is not None:
                    self._on_renewed(partition, lock_until)
        has_problem = self._results.on_answer(session, sent, codes)
        return Answered(has_problem, answer.throttle_time_ms)

    async def end(self, session: ShareSession, connection: Connection) -> None:
        """Send a session's last acknowledgements, which also end it."""
        version = connection.version_for(ShareAcknowledgeRequest)
        request = session.acknowledge(is_final=True)
        answer = await connection.send(request, ShareAcknowledgeResponse, version)
        code = ErrorCode.of(answer.error_code)
        if code:
            raise KafkaError(code, f"share acknowledge: {answer.error_message or code.message}")
        for topic in answer.responses:
            for one in topic.partitions:
                if one.error_code:
                    final = ErrorCode.of(one.error_code)
                    error = KafkaError(final, one.error_message or final.message)
                    self._results.note_place(session, (topic.topic_id, one.partition_index), error)

    def _take(
        self,
        session: ShareSession,
        partition: TopicPartition,
        place: Place,
        answered: ShareFetchResponse.PartitionData,
        lock_until: float,
    ) -> None:
        found = self._decoder.decode(partition, answered)
        session.add(place, partition, [Run(*one, lock_until) for one in found.refused])
        is_assigned = self._is_assigned(partition, place[0])
        now = self._loop.time()
        for piece in found.pieces:
            if isinstance(piece, KafkaError):
                self._ready.queue.append(piece)
                continue
            records = AcquiredRecords(partition, place, session, piece, lock_until, is_explicit=self._is_explicit)
            self._metrics.consumed_records.add(len(piece), now)
            if is_assigned:
                self._ready.add(records)
            else:
                session.add(place, partition, records.release_left())
        self._metrics.consumed_bytes.add(len(answered.records or b""), now)

    def _refused(self, partition: TopicPartition, code: ErrorCode, message: str | None) -> None:
        """Handle the error of a partition that was to be fetched."""
        error = KafkaError(code, f"{partition.topic}-{partition.partition}: {message or code.message}")
        if code in MAY_HEAL or (code.retriable and code is not ErrorCode.CORRUPT_MESSAGE):
            logger.info("share fetch: %s; will be asked again", error)
            self._cluster.mark_stale()
        else:
            self._ready.queue.append(error)


def _lock_until(now: float, timeout_ms: int) -> float:
    """Return the end of a lock; a broker that does not say how long it lasts checks that itself."""
    return now + timeout_ms / 1000 if timeout_ms > 0 else math.inf
