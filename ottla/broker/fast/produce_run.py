"""A run: Produce requests of one template, in flight together, and the callback for the results of their batches.

They start together and are acknowledged together: one call appends their batches, one sync covers them, and their
answers are sent together.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.partitions.visibility import promise_failure
from ottla.broker.runtime.in_flight_request import InFlightRequest
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.fast.produce_template import ProduceTemplate
    from ottla.broker.partitions.append_shares import AppendPayer
    from ottla.broker.partitions.appending import PartitionAppend
    from ottla.storage.log.append import Appended, AppendResult

_NONE = ErrorCode.NONE


class ProduceRun(InFlightRequest):
    """Produce requests in flight, one after the other, and the callback for their batches.

    `end` is where the frame of the last one ends, `added` how many the last read added. The turn's flush reports the
    results. The answers are sent together, when the last of the batches may be acknowledged.
    """

    __slots__ = ("_correlation_ids", "_started_ns", "_succeeded", "_template", "added", "end")

    # The same for all such requests: constants of the class, since setting an attribute takes time on the hot path.
    pending = None
    parks = False
    close_reason = None

    def __init__(self, template: ProduceTemplate, correlation_ids: list[int], end: int, started_ns: int) -> None:
        self.owner = None
        self.is_done = False
        self.requests = self.added = self._succeeded = len(correlation_ids)
        self.size_bytes = 0
        self.end = end
        self._template = template
        self._correlation_ids = correlation_ids
        self._started_ns = started_ns

    def goes_on(self, template: ProduceTemplate, correlation_ids: list[int], end: int) -> bool:
        """Add the requests of one more read of the turn, if of this template and nothing was gathered after it."""
        if template is not self._template or template.partition.newest_waiter is not self:
            return False
        self._correlation_ids += correlation_ids
        self.added = len(correlation_ids)
        self.requests += self.added
        self._succeeded += self.added
        self.end = end
        return True

    def cancel(self) -> None:
        """Drop the answers: the connection has ended. The batches are stored all the same; as on the slow path, the
        requests are not counted.
        """
        self.owner = None
        self.is_done = True

    def charge_append(self, payer: AppendPayer, size_bytes: int) -> None:
        """Charge the client for the append of what the last read added."""
        self._template.partition.charge_append(payer, self.added, size_bytes)

    def run_appended(self, appended: Appended, partition: PartitionAppend) -> None:
        """Encode the answers, and send them as soon as they may be sent. Called by the turn's flush."""
        template = self._template
        correlation_ids = self._correlation_ids
        if appended.refused is None:
            answers = template.stored(correlation_ids, appended)
        else:
            answers = list(map(self._answer, correlation_ids, appended))
        last_offsets = appended.offsets_of_all()
        end_offset = max(last_offsets) + 1
        if partition.may_acknowledge(end_offset, template.acks):
            self._answered(answers)
            return

        def visible(error: BaseException | None) -> None:
            self._answered(answers if error is None else self._after_failure(answers, last_offsets, error))

        partition.when_visible(end_offset, visible, template.clock.monotonic_ms() + template.timeout_ms)

    def _answer(self, correlation_id: int, result: AppendResult) -> bytes:
        """The answer to one request: stored, stored before, or refused."""
        if result.error_code is not _NONE:
            return self._refuse(correlation_id, result.error_code, result.error_message, result)
        template = self._template
        behind = template.set_behind(result.log_append_time_ms, result.log_start_offset)
        return template.pack(template.front, correlation_id, template.before, result.base_offset, behind)

    def _after_failure(self, answers: list[bytes], last_offsets: list[int], error: BaseException) -> list[bytes]:
        """The answers where waiting for the sync failed: only a batch that is visible all the same is a success."""
        code, message = promise_failure(error)
        high_watermark = self._template.partition.high_watermark
        return [
            # A refused batch has a last offset of -1, and its answer already.
            answer if last_offset < high_watermark else self._refuse(correlation_id, code, message, None)
            for answer, last_offset, correlation_id in zip(answers, last_offsets, self._correlation_ids, strict=True)
        ]

    def _refuse(self, correlation_id: int, code: ErrorCode, message: str | None, result: AppendResult | None) -> bytes:
        """Count and encode the answer of a request that failed."""
        template = self._template
        if not self.is_done:
            template.meter_of(code).note((perf_counter_ns() - self._started_ns) // 1000, 1)
        self._succeeded -= 1
        return template.refusal(correlation_id, code, message, result)

    def _answered(self, answers: list[bytes]) -> None:
        """All answers are known: count those that succeeded, and let them be sent."""
        if self.is_done:
            return  # the connection has ended
        template = self._template
        elapsed_us = (perf_counter_ns() - self._started_ns) // 1000
        template.meter.note(elapsed_us, self._succeeded)
        reply = b"".join(answers)
        self.buffers = [reply]
        self.size_bytes = len(reply)
        self.is_done = True
        owner = self.owner
        if owner is not None:
            owner.request_finished(self)
