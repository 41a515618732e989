"""One template of Produce requests: the meaning of its bytes, and the encoding of its answer.

The answer is packed from parts that stay the same: its length, tags and topic before the base offset; log append time
and log start offset after it. Every error is encoded as on the slow path. `produce_templates.py` finds and learns
templates; nothing here knows of frames.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import response_header
from ottla.protocol.message import encode
from ottla.storage.log.append import FIRST_PRODUCE_VERSION_WITH_ZSTD, TAKES_ZSTD

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.protocol.api.produce import ProduceRequest
    from ottla.storage.files.clock import Clock
    from ottla.storage.log.append import Appended, AppendResult

_LENGTH_BYTES = 4
_INT32 = struct.Struct(">i")
_OFFSETS = struct.Struct(">qqq")  # base offset, log append time, log start offset
_TIME_AND_START = struct.Struct(">qq")
_MARKS = 0x5EED_0FF5_E7A1_B2C3, 0x7EA5_7A3B_0001_0203  # unlike anything else in an answer


class ProduceTemplate:
    """The meaning of the remembered bytes, and the fixed parts of the answer.

    `behind` is packed for `log_append_time_ms` and `log_start_offset`; all three change by `set_behind`.
    """

    __slots__ = (
        "_after",
        "acks",
        "before",
        "behind",
        "clock",
        "front",
        "index",
        "log_append_time_ms",
        "log_start_offset",
        "meter",
        "meter_of",
        "name",
        "pack",
        "partition",
        "takes",
        "timeout_ms",
        "topic_id",
        "version",
    )

    def __init__(
        self, request: ProduceRequest, version: int, partition: Partition, services: ApiServices, meter_of: MeterOf
    ) -> None:
        topic = request.topic_data[0]
        self.version = version
        self.acks = request.acks
        self.timeout_ms = max(request.timeout_ms, 0)
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.index = topic.partition_data[0].index
        self.partition = partition
        self.takes = TAKES_ZSTD if version >= FIRST_PRODUCE_VERSION_WITH_ZSTD else 0
        self.clock: Clock = services.clock
        self.meter_of = meter_of
        self.meter = meter_of(0)
        whole = self.encode(ErrorCode.NONE, *_MARKS, 0)
        mark = whole.index(_TIME_AND_START.pack(*_MARKS))
        tags = response_header(0, version, 0)[4:]
        self.before = tags + whole[:mark]
        self._after = whole[mark + _OFFSETS.size :]
        self.log_append_time_ms = self.log_start_offset = -1
        self.behind = _TIME_AND_START.pack(-1, -1) + self._after
        layout = struct.Struct(f">{_LENGTH_BYTES}si{len(self.before)}sq{len(self.behind)}s")
        self.front = _INT32.pack(layout.size - _LENGTH_BYTES)
        self.pack = layout.pack
        """Packs an answer with its length: `front`, correlation id, `before`, base offset, `behind`."""

    def set_behind(self, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """Pack `behind`, the bytes after the base offset in the answers of batches that were stored."""
        self.log_append_time_ms, self.log_start_offset = log_append_time_ms, log_start_offset
        self.behind = _TIME_AND_START.pack(log_append_time_ms, log_start_offset) + self._after
        return self.behind

    def stored(self, correlation_ids: list[int], appended: Appended) -> list[bytes]:
        """The whole responses of batches that were all stored, with their lengths."""
        pack, front, before, behind = self.pack, self.front, self.before, self.behind
        log_append_time_ms, log_start_offset = appended.log_append_time_ms, appended.log_start_offset
        if self.log_append_time_ms != log_append_time_ms or self.log_start_offset != log_start_offset:
            behind = self.set_behind(log_append_time_ms, log_start_offset)
        answers: list[bytes] = []
        base_offsets = appended.base_offsets
        for correlation_id in correlation_ids:
            answers.append(pack(front, correlation_id, before, base_offsets[len(answers)], behind))
        return answers

    def refusal(self, correlation_id: int, code: ErrorCode, message: str | None, result: AppendResult | None) -> bytes:
        """The whole response, with its length, for a batch that was refused or not acknowledged."""
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
        """The response's body, encoded as on the slow path."""
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
