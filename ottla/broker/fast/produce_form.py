"""What the remembered bytes of a Produce request mean, and the answer around what differs from request to request.

The answer of a stored batch is packed of parts that stay: its length, tags and topic before the base offset, log append
time and log start offset behind it. Everything else, every error included, is encoded by the long way. Made by
`produce_path.py`, which knows when a form holds.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import response_header
from ottla.protocol.message import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.metrics import Metrics
    from ottla.broker.services import Services
    from ottla.config.topic import TopicConfig
    from ottla.storage.files.clock import Clock
    from ottla.storage.log.append import AppendResult
    from ottla.storage.log.append_plan import PlannedBatch
    from ottla.storage.log.log import Log

_LENGTH_BYTES = 4
_INT32 = struct.Struct(">i")
_OFFSETS = struct.Struct(">qqq")  # base offset, log append time, log start offset
_TIME_AND_START = struct.Struct(">qq")
_MARKS = 0x5EED_0FF5_E7A1_B2C3, 0x7EA5_7A3B_0001_0203  # that nothing else in an answer looks like


class ProduceForm:
    """What the remembered bytes mean, and the answer around what differs."""

    __slots__ = (
        "_after",
        "_behind",
        "_log_append_time_ms",
        "_log_start_offset",
        "acks",
        "before",
        "clock",
        "config",
        "front",
        "index",
        "log",
        "meter",
        "metrics",
        "name",
        "pack",
        "partition",
        "timeout_ms",
        "topic_id",
        "version",
    )

    def __init__(self, request: ProduceRequest, version: int, partition: Partition, services: Services) -> None:
        topic = request.topic_data[0]
        self.version = version
        self.acks = request.acks
        self.timeout_ms = max(request.timeout_ms, 0)
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.index = topic.partition_data[0].index
        self.partition = partition
        self.log: Log = partition.log
        self.config: TopicConfig = partition.log.config
        self.clock: Clock = services.clock
        self.metrics: Metrics = services.metrics
        self.meter = services.metrics.meter("Produce", version, 0)
        whole = self.encode(ErrorCode.NONE, *_MARKS, 0)
        mark = whole.index(_TIME_AND_START.pack(*_MARKS))
        tags = response_header(0, version, 0)[4:]
        self.before = tags + whole[:mark]
        self._after = whole[mark + _OFFSETS.size :]
        self._log_append_time_ms = self._log_start_offset = -1
        self._behind = _TIME_AND_START.pack(-1, -1) + self._after
        layout = struct.Struct(f">{_LENGTH_BYTES}si{len(self.before)}sq{len(self._behind)}s")
        self.front = _INT32.pack(layout.size - _LENGTH_BYTES)
        self.pack = layout.pack
        """An answer with its length: `front`, correlation id, `before`, base offset, `behind`."""

    def behind(self, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """What stands behind the base offset in the answers of batches that were stored."""
        self._log_append_time_ms, self._log_start_offset = log_append_time_ms, log_start_offset
        self._behind = _TIME_AND_START.pack(log_append_time_ms, log_start_offset) + self._after
        return self._behind

    def stored(
        self, correlation_ids: list[int], batches: Sequence[PlannedBatch], log_append_time_ms: int
    ) -> list[bytes]:
        """The whole responses of batches that were stored, with their lengths."""
        pack, front, before, behind = self.pack, self.front, self.before, self._behind
        log_start_offset = self.log.log_start_offset
        if self._log_append_time_ms != log_append_time_ms or self._log_start_offset != log_start_offset:
            behind = self.behind(log_append_time_ms, log_start_offset)
        answers: list[bytes] = []
        for correlation_id in correlation_ids:
            answers.append(pack(front, correlation_id, before, batches[len(answers)][2], behind))
        return answers

    def refusal(self, correlation_id: int, code: ErrorCode, message: str | None, result: AppendResult | None) -> bytes:
        """The whole response of a batch that was refused, or is not promised, with its length."""
        log_start_offset = -1 if result is None else result.log_start_offset
        body = self.encode(code, -1, -1, log_start_offset, message or code.message, result)
        header = response_header(0, self.version, correlation_id)
        return _INT32.pack(len(header) + len(body)) + header + body

    def encode(
        self,
        code: ErrorCode,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        message: str | None = None,
        result: AppendResult | None = None,
    ) -> bytes:
        """The response's body, by the long way."""
        errors = () if result is None else result.record_errors
        partition = ProduceResponse.PartitionProduceResponse(
            index=self.index,
            error_code=code,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
            error_message=message,
            record_errors=[
                ProduceResponse.BatchIndexAndErrorMessage(
                    batch_index=error.batch_index, batch_index_error_message=error.message
                )
                for error in errors
            ],
        )
        topic = ProduceResponse.TopicProduceResponse(
            name=self.name, topic_id=self.topic_id, partition_responses=[partition]
        )
        return encode(ProduceResponse(responses=[topic]), self.version)
