"""A Produce of several partitions in flight, from its template: the callback for the results of its batches.

Its answer is sent when each batch is appended and may be acknowledged. What is appended together is synced together,
as a rule. So of the partitions that must be waited for, the request waits only for the one that was appended last, as
on the slow path (`api/produce.py`). If all batches were stored, the answer is joined from packed pieces; an answer with
an error is encoded as on the slow path.
"""

from __future__ import annotations

import struct
from functools import partial
from itertools import islice
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.partitions.visibility import promise_failure
from ottla.broker.runtime.in_flight_request import InFlightRequest
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import encode

if TYPE_CHECKING:
    from ottla.broker.fast.produce_layout import ProduceLayout
    from ottla.broker.partitions.appending import PartitionAppend
    from ottla.broker.runtime.metrics import MeterOf, RequestMeter
    from ottla.storage.files.clock import Clock
    from ottla.storage.log.append import Appended, AppendResult

PartitionResponse = ProduceResponse.PartitionProduceResponse

ACKS_ALL: Final = -1
_NONE = ErrorCode.NONE
_LENGTH_AND_ID: Final = struct.Struct(">ii")


class Template(Protocol):
    """What a request needs from its template (`several_template.py`)."""

    acks: int
    clock: Clock
    layout: ProduceLayout
    meter: RequestMeter
    meter_of: MeterOf
    timeout_ms: int
    version: int


class SeveralRequest(InFlightRequest):
    """See the module.

    `results` has the partitions in the order of the request: the packed piece of the answer for each batch that was
    stored, else None. `failed` has the partition responses for batches that were refused or not acknowledged.
    """

    __slots__ = (
        *("_correlation_id", "_failed", "_missing", "_started_ns", "_template", "_topics"),
        *("_unappended", "_unpromised", "results"),
    )

    # The same for all such requests: constants of the class, since setting an attribute takes time on the hot path.
    pending = None
    parks = False
    requests = 1
    close_reason = None

    def __init__(
        self,
        template: Template,
        correlation_id: int,
        results: dict[PartitionAppend, bytes | None],
        topics: list[tuple[bytes, int]],
        started_ns: int,
    ) -> None:
        self.owner = None
        self.is_done = False
        self.size_bytes = 0
        self._template = template
        self._correlation_id = correlation_id
        self.results = results
        self._topics = topics
        self._started_ns = started_ns
        self._unappended = len(results)
        """Batches whose append has no result yet."""
        self._missing = 0
        """The number of partitions that are waited for."""
        self._unpromised: list[tuple[PartitionAppend, int]] = []
        """Partitions whose batch is stored and not acknowledged, and up to which offset they have to be visible."""
        self._failed: dict[PartitionAppend, PartitionResponse] | None = None

    def run_appended(self, appended: Appended, partition: PartitionAppend) -> None:
        """The result of the batch of one partition, from the turn's flush."""
        refused = appended.refused
        if refused is None:
            (base_offset,), (last_offset,) = appended.base_offsets, appended.last_offsets
            self.stored(partition, base_offset, last_offset, appended.log_append_time_ms, appended.log_start_offset)
        else:
            (result,) = refused
            if result.error_code is _NONE:  # stored, or stored before
                self.stored(
                    partition,
                    result.base_offset,
                    result.last_offset,
                    result.log_append_time_ms,
                    result.log_start_offset,
                )
            else:
                self.refused(partition, result)
        self._unappended -= 1
        if not self._unappended:
            if self._unpromised:
                self.wait()
            else:
                self.answered()

    def stored(
        self,
        partition: PartitionAppend,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
    ) -> None:
        """A batch is in the log: keep its part of the answer, and note whether that has to wait."""
        template = self._template
        layout, end_offset = template.layout, last_offset + 1
        pack = layout.pack_partition  # CPython is slow at looking up a slot and calling it in one expression
        self.results[partition] = pack(
            partition.index, 0, base_offset, log_append_time_ms, log_start_offset, layout.no_errors
        )
        # `may_acknowledge`, without the call in most cases: a request may have many partitions.
        if partition.high_watermark < end_offset and (
            template.acks == ACKS_ALL or not partition.may_acknowledge(end_offset, template.acks)
        ):
            self._unpromised.append((partition, end_offset))

    def refused(self, partition: PartitionAppend, result: AppendResult) -> None:
        """A batch is not stored: keep its part of the answer, as on the slow path."""
        self._fail(
            partition,
            PartitionResponse(
                index=partition.index,
                error_code=result.error_code,
                base_offset=-1,
                log_start_offset=result.log_start_offset,
                record_errors=[
                    ProduceResponse.BatchIndexAndErrorMessage(
                        batch_index=error.batch_index, batch_index_error_message=error.message
                    )
                    for error in result.record_errors
                ],
                error_message=result.error_message or result.error_code.message,
            ),
        )

    def _fail(self, partition: PartitionAppend, response: PartitionResponse) -> None:
        if self._failed is None:
            self._failed = {}
        self._failed[partition] = response

    def wait(self) -> None:
        """Wait until the batch that was appended last may be acknowledged; then check the other partitions.

        Where the broker's thread syncs them here, there is nothing to wait for afterwards, as a rule.
        """
        template, unpromised = self._template, self._unpromised
        if unpromised[-1][0].sync_last():
            self._unpromised = unpromised = [wait for wait in unpromised if wait[0].high_watermark < wait[1]]
            if not unpromised:
                self.answered()
                return
        deadline_ms = template.clock.monotonic_ms() + template.timeout_ms
        self._missing = len(unpromised)
        partition, end_offset = unpromised.pop()
        if unpromised:
            partition.when_visible(end_offset, partial(self.last_visible, partition, deadline_ms), deadline_ms)
        else:
            partition.when_visible(end_offset, partial(self.visible, partition), deadline_ms)

    def last_visible(self, partition: PartitionAppend, deadline_ms: float, error: BaseException | None) -> None:
        """The wait for the last partition has ended: check the other partitions."""
        missing = [wait for wait in self._unpromised if wait[0].high_watermark < wait[1]]
        self._missing = len(missing) + 1
        for other, end_offset in missing:
            other.when_visible(end_offset, partial(self.visible, other), deadline_ms)
        self.visible(partition, error)

    def visible(self, partition: PartitionAppend, error: BaseException | None) -> None:
        """The wait for one partition has ended, with or without an error."""
        if error is not None:
            response = self._response_of(partition)
            code, message = promise_failure(error)
            response.error_code, response.error_message = code, message or code.message
            response.base_offset = -1
            self._fail(partition, response)
        self._missing -= 1
        if not self._missing:
            self.answered()

    def answered(self) -> None:
        """All results are known: let the answer be sent, and count it."""
        template = self._template
        reply = self._packed() if self._failed is None else self._encoded()
        self.buffers = [reply]
        self.size_bytes = len(reply)
        self.is_done = True
        owner = self.owner
        if owner is not None:  # else the connection has ended: as on the slow path, nothing is counted
            failed = self._failed
            meter = template.meter if failed is None else template.meter_of(self._first_error(failed))
            meter.note((perf_counter_ns() - self._started_ns) // 1000, 1)
            owner.request_finished(self)

    def _first_error(self, failed: dict[PartitionAppend, PartitionResponse]) -> int:
        """The error code by which the request is counted, as the gate does on the slow path."""
        return next(failed[partition].error_code for partition in self.results if partition in failed)

    def _packed(self) -> bytes:
        """The whole answer where all was stored, with its length. Raises TypeError where a batch has no result."""
        layout = self._template.layout
        results = iter(self.results.values())
        pieces = [layout.header_tags, layout.count(len(self._topics))]
        for key, count in self._topics:
            pieces += (key, layout.count(count))
            pieces += islice(results, count)  # type: ignore[arg-type]  # none is missing, or the join fails
            pieces.append(layout.end_of_topic)
        pieces.append(layout.end)
        body = b"".join(pieces)
        return _LENGTH_AND_ID.pack(len(body) + 4, self._correlation_id) + body

    def _encoded(self) -> bytes:
        """The whole answer, with its length, encoded as on the slow path."""
        layout, version = self._template.layout, self._template.version
        partitions = iter(self.results)
        topics = []
        for key, count in self._topics:
            name, topic_id = layout.topic_of(key)
            of_topic = [self._response_of(partition) for partition in islice(partitions, count)]
            topics.append(
                ProduceResponse.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=of_topic)
            )
        body = layout.header_tags + encode(ProduceResponse(responses=topics), version)
        return _LENGTH_AND_ID.pack(len(body) + 4, self._correlation_id) + body

    def _response_of(self, partition: PartitionAppend) -> PartitionResponse:
        """A partition's part of the answer."""
        failed = None if self._failed is None else self._failed.get(partition)
        if failed is not None:
            return failed
        packed = self.results[partition]
        assert packed is not None
        unpack = self._template.layout.unpack_partition
        index, code, base_offset, log_append_time_ms, log_start_offset, _ = unpack(packed)
        return PartitionResponse(
            index=index,
            error_code=code,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
        )
