"""The effect of the answers to Fetch on the assigned partitions: batches are added, errors are handled or stored.

An error of a partition is either handled (another leader, an offset out of range with a reset policy) or stored in its
`failure` for the reader to raise. `fetcher.py` sends the requests, and drops answers to those from before a seek.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from ottla.client.assigned import AssignedPartition, FetchedBatch
from ottla.client.cluster import Cluster
from ottla.client.consumer_options import ISOLATION_LEVELS, RESETS, ConsumerOptions
from ottla.client.errors import (
    ClientFailed,
    CorruptRecords,
    KafkaError,
    LogTruncated,
    OffsetOutOfRange,
    PartitionFailure,
)
from ottla.client.metrics import ConsumerMetrics
from ottla.client.sent_fetch import SentFetch
from ottla.client.structs import TopicPartition
from ottla.client_core.fetch_template import Fetched
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import parse_only
from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.formats import iter_any

logger = logging.getLogger(__name__)


class FetchAnswers:
    """See the module. `on_data` is called when a reader should check again, `wake_at` with a time of the loop at which
    more may be requested.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        metrics: ConsumerMetrics,
        *,
        on_data: Callable[[], None],
        wake_at: Callable[[float], None],
    ) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._isolation_level = ISOLATION_LEVELS[options.isolation_level]
        self._reset_to = RESETS[options.auto_offset_reset]
        self._on_data = on_data
        self._wake_at = wake_at
        self._loop = asyncio.get_running_loop()

    def take(self, asked: dict[TopicPartition, AssignedPartition], sent: SentFetch, answer: FetchResponse) -> None:
        """Process an answer without an error of its own; `asked` are the partitions that have not moved since."""
        self._measure(answer, sent.asked_at)
        for topic in answer.responses:
            name = topic.topic if sent.names_by_id is None else sent.names_by_id.get(topic.topic_id, "")
            for answered in topic.partitions:
                wanted = asked.get(TopicPartition(name, answered.partition_index))
                if wanted is not None:
                    self._take(wanted, answered)
        self._note_empty(asked.values(), answer)
        if any(assigned.has_data or assigned.empty_before >= 0 for assigned in asked.values()):
            self._on_data()
        if answer.throttle_time_ms > 0:
            until = self._loop.time() + answer.throttle_time_ms / 1000
            for assigned in asked.values():
                assigned.not_before = max(assigned.not_before, until)

    def take_fetched(self, assigned: AssignedPartition | None, sent: SentFetch, fetched: Fetched) -> None:
        """Process the usual answer to a Fetch of one partition, None if it has moved since."""
        now = self._loop.time()
        self._metrics.fetches.add(now, len(fetched.records), (now - sent.asked_at) * 1000, 0)
        if assigned is None:
            return
        assigned.failures = 0
        assigned.high_watermark, assigned.last_stable_offset, assigned.log_start_offset, records = fetched
        if records:
            self._add(assigned, records, [])
        else:
            self._note_none(assigned)
        if assigned.fetched or assigned.empty_before >= 0 or assigned.has_data:
            self._on_data()

    def back_off_or_fail(self, partitions: Sequence[AssignedPartition], error: KafkaError) -> None:
        """Request these partitions again later, or store the error if that cannot help."""
        may_heal = error.code.retriable or error.code in (
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.BROKER_NOT_AVAILABLE,
        )
        may_heal = may_heal and not isinstance(error, ClientFailed)
        now = self._loop.time()
        for assigned in partitions:
            if not may_heal:
                self.fail(assigned, error)
                continue
            assigned.failures += 1
            assigned.not_before = now + self._cluster.options.retry_pause_s(assigned.failures)
            self._wake_at(assigned.not_before)
        if may_heal:
            logger.info("fetch: %s; will be asked again", error)

    def fail(self, assigned: AssignedPartition, error: KafkaError) -> None:
        """Store an error for the reader of a partition."""
        assigned.failure = error
        self._on_data()

    def _note_empty(self, asked: Collection[AssignedPartition], answer: FetchResponse) -> None:
        """Note, from an answer without records, that there are none up to the end offset in it. If any partition got
        records, there may have been no room for those of the rest (KIP-74); a throttled answer shows nothing, and one
        about a truncated log neither: its partition has moved back, and has no end offset of the log as it is now.
        """
        answered = [one for topic in answer.responses for one in topic.partitions]
        if answer.throttle_time_ms > 0 or any(
            one.error_code or len(one.records or b"") or _diverged_at(one) >= 0 for one in answered
        ):
            return
        for assigned in asked:
            self._note_none(assigned)

    def _note_none(self, assigned: AssignedPartition) -> None:
        end = assigned.last_stable_offset if self._isolation_level == 1 else assigned.high_watermark
        if end > assigned.fetch_offset >= 0:
            assigned.empty_before = end

    def _measure(self, answer: FetchResponse, asked_at: float) -> None:
        now = self._loop.time()
        records_bytes = sum(len(answered.records or b"") for topic in answer.responses for answered in topic.partitions)
        self._metrics.fetches.add(now, records_bytes, (now - asked_at) * 1000, answer.throttle_time_ms)

    def _take(self, assigned: AssignedPartition, answered: FetchResponse.PartitionData) -> None:
        if answered.error_code:
            self._refused(assigned, ErrorCode.of(answered.error_code))
            return
        if (diverged_at := _diverged_at(answered)) >= 0:
            self._on_truncated(assigned, diverged_at)
            return
        assigned.failures = 0
        assigned.high_watermark = answered.high_watermark
        assigned.last_stable_offset = answered.last_stable_offset
        assigned.log_start_offset = answered.log_start_offset
        if answered.records is None or not len(answered.records):
            return
        aborted = sorted((t.first_offset, t.producer_id) for t in answered.aborted_transactions or ())
        self._add(assigned, memoryview(answered.records), aborted)

    def _add(self, assigned: AssignedPartition, view: memoryview, aborted: list[tuple[int, int]]) -> None:
        """Add fetched batches to a partition; `aborted` are pairs (first offset, producer id), in order."""
        wanted_from = assigned.fetch_offset
        only = parse_only(view)
        if only is not None and not aborted and only.next_offset > wanted_from:
            assigned.add(FetchedBatch(view, only, []))
            return
        try:
            for position, header in iter_any(view, allow_partial_tail=True):
                if header.next_offset <= wanted_from:
                    continue
                starting: list[int] = []
                if aborted:
                    starting = [producer_id for first, producer_id in aborted if first <= header.last_offset]
                    del aborted[: len(starting)]
                assigned.add(FetchedBatch(view[position : position + header.size_bytes], header, starting))
        except CorruptBatch as corrupt:
            if assigned.has_data:  # raised after that is read; until then, do not fetch the same bytes in a busy loop
                assigned.not_before = self._loop.time() + self._cluster.options.retry_pause_s(1)
            else:
                self.fail(assigned, CorruptRecords(assigned.partition, assigned.fetch_offset, str(corrupt)))
            return
        if assigned.fetch_offset == wanted_from:
            reason = f"the broker sent {len(view)} bytes without a whole batch"
            self.fail(assigned, CorruptRecords(assigned.partition, wanted_from, reason))

    def _refused(self, assigned: AssignedPartition, code: ErrorCode) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if assigned.has_data:
                assigned.not_before = self._loop.time() + self._cluster.options.retry_pause_s(1)
            elif self._reset_to is None:
                self.fail(assigned, OffsetOutOfRange(assigned.partition, assigned.fetch_offset))
            else:
                logger.warning("%s-%d: offset %d is out of range, reset", *assigned.partition, assigned.fetch_offset)
                assigned.move(-1, reset_to=self._reset_to)
            return
        if code == ErrorCode.CORRUPT_MESSAGE:
            # Retriable for a producer, whose bytes were damaged in transit; damage on the broker's disk is permanent.
            if assigned.has_data:  # raised after that is read
                assigned.not_before = self._loop.time() + self._cluster.options.retry_pause_s(1)
            else:
                reason = "what the broker has stored at this offset is damaged"
                self.fail(assigned, CorruptRecords(assigned.partition, assigned.fetch_offset, reason))
            return
        error = PartitionFailure(code, assigned.partition, assigned.fetch_offset, code.message)
        self._cluster.mark_stale()
        self.back_off_or_fail([assigned], error)

    def _on_truncated(self, assigned: AssignedPartition, end_offset: int) -> None:
        """Handle a log that has diverged at `end_offset`: the records that were read after it are gone (KIP-320)."""
        offset = min(end_offset, assigned.next_offset)
        if self._reset_to is None:
            self.fail(assigned, LogTruncated(assigned.partition, offset))
            return
        logger.warning("%s-%d: the log was truncated, reading continues at %d", *assigned.partition, offset)
        assigned.move(offset)


def _diverged_at(answered: FetchResponse.PartitionData) -> int:
    """The offset at which the leader's log differs from what was fetched of it (KIP-320), -1 if it does not."""
    return -1 if answered.diverging_epoch is None else answered.diverging_epoch.end_offset
