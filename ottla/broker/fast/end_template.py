"""The template of EndTxn requests, for a producer that ends one transaction after the other.

    length · 00 1a 00 05 · correlation id | client id ... transactional id | producer id 8 · epoch 2 · committed 1 · 00
                                            --------- remembered ---------

Only version 5 has one, which producers of `transaction.version` 2 send. The right to the transactional id was checked
when the template was learnt, and is valid as long as the template. The coordinator is asked each time. What it refuses
takes the slow path, which returns the reason; so does an end that needs a new producer id.

The answer has a fixed layout: the throttle time (0 unless the client is over its quota of time), error code, producer
id, epoch.
"""

from __future__ import annotations

import struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.runtime.in_flight_request import InFlightRequest
from ottla.broker.transactions.machine import ProducerIdAndEpoch
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices, Context
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.protocol.api.end_txn import EndTxnRequest

VERSION: Final = 5
_FIXED: Final = struct.Struct(">8si")  # length, API key, version; correlation id
_TAIL: Final = struct.Struct(">qh?B")  # producer id, epoch, committed, no tagged fields
_LENGTH_BYTES: Final = 4
_KEY_AND_VERSION: Final = struct.pack(">hh", ApiKey.END_TXN, VERSION)
_ANSWER: Final = struct.Struct(">iiBihqhB")
_NOTHING: Final = -1
"""Producer id and epoch in the answer to a refused request."""


class EndTemplate:
    """The template of one connection. Only frames of `frame_bytes` are compared, the length field included. `quota` is
    what they are charged to; None where the client is under none.
    """

    __slots__ = (
        "_coordinator",
        "_front",
        "_middle",
        "_transactional_id",
        "_unpack",
        "frame_bytes",
        "meter",
        "meter_of",
        "quota",
    )

    def __init__(
        self,
        frame: memoryview,
        request: EndTxnRequest,
        services: ApiServices,
        meter_of: MeterOf,
        quota: TemplateQuota | None = None,
    ) -> None:
        self.quota = quota
        self._coordinator = services.transactions.get()
        self._transactional_id = request.transactional_id
        self._middle = bytes(frame[_FIXED.size - _LENGTH_BYTES : -_TAIL.size])
        self._front = len(frame).to_bytes(_LENGTH_BYTES, "big") + _KEY_AND_VERSION
        self._unpack = struct.Struct(f"{_FIXED.format}{len(self._middle)}s{_TAIL.format[1:]}").unpack_from
        self.frame_bytes = _LENGTH_BYTES + len(frame)
        self.meter_of = meter_of
        self.meter = meter_of(0)

    def start(self, view: memoryview, start: int) -> EndInFlight | None:
        """Start the frame at `start`, which is whole. None, with nothing done, where the slow path must take it."""
        unpack = self._unpack  # CPython is slow at looking up a slot and calling it in one expression
        front, correlation_id, middle, producer_id, epoch, is_commit, tags = unpack(view, start)
        if middle != self._middle or front != self._front or tags:
            return None
        ending = EndInFlight(self, correlation_id)
        producer = ProducerIdAndEpoch(producer_id, epoch)
        return ending if self._coordinator.end_now(self._transactional_id, producer, is_commit, ending) else None


def is_learnable(frame: memoryview, request: EndTxnRequest, context: Context) -> bool:
    """Whether a request that took the slow path is of this version, encoded as the template expects: without tags."""
    version = context.api_version
    if version != VERSION:
        return False
    header = encode_request_header(request.message_key, version, context.correlation_id, context.client_id)
    return frame == header + encode(request, version)


class EndInFlight(InFlightRequest):
    """An EndTxn request in flight, which the coordinator answers."""

    __slots__ = ("_correlation_id", "_started_ns", "_template")

    # The same for all such requests: constants of the class, as in `ProduceRun`.
    pending = None
    parks = False
    close_reason = None
    requests = 1

    def __init__(self, template: EndTemplate, correlation_id: int) -> None:
        self.owner = None
        self.is_done = False
        self.buffers = None
        self.size_bytes = 0
        self._template = template
        self._correlation_id = correlation_id
        self._started_ns = perf_counter_ns()

    def complete(self, response: Any) -> None:
        """Answer with the producer id and epoch that the producer continues with (`Waiter`)."""
        self._answer(self._template.meter, ErrorCode.NONE, response.producer_id, response.producer_epoch)

    def fail(self, error: BaseException) -> None:
        """Answer with the error that leaves the end of the transaction unknown (`Waiter`)."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        self._answer(self._template.meter_of(code), code, _NOTHING, _NOTHING)

    def cancel(self) -> None:
        """Drop the answer: the connection has ended. The transaction ends all the same."""
        self.owner = None
        self.is_done = True

    def _answer(self, meter: Any, code: int, producer_id: int, epoch: int) -> None:
        if self.is_done:
            return
        quota = self._template.quota
        throttle_ms = 0 if quota is None else quota.end(ApiKey.END_TXN)
        meter.note((perf_counter_ns() - self._started_ns) // 1000, 1)
        size_bytes = _ANSWER.size - _LENGTH_BYTES
        self.buffers = [_ANSWER.pack(size_bytes, self._correlation_id, 0, throttle_ms, code, producer_id, epoch, 0)]
        self.size_bytes = _ANSWER.size
        self.is_done = True
        owner = self.owner
        if owner is not None:
            owner.request_finished(self)
