"""The way from a frame to its answer: header, gate, handler, answer, and the one request-wide `except`.

    frame -> header -> decode -> admit -> handle(request, context) -> answer

Three kinds of errors arrive here. Malformed bytes, an unknown API or version close the connection with one log line
that names the problem. A `KafkaError` becomes the API's own error response. Anything else is a bug: its traceback is
logged and the client gets UNKNOWN_SERVER_ERROR. The gate decides about requests (`gate.py`).

Runs without a loop; `Connection` and simulations call `start`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.context import Context
from ottla.broker.fast.hot_path import learn
from ottla.broker.requests.chunks import handle_in_chunks, split_of
from ottla.broker.requests.coordinator_imports import COORDINATED, import_and_handle, not_imported
from ottla.broker.requests.gate import shown
from ottla.broker.runtime.in_flight_request import CloseConnection, InFlightRequest
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.headers import decode_request_header
from ottla.protocol.message import Request, Response, decode

if TYPE_CHECKING:
    from ottla.broker.api import Handler
    from ottla.broker.context import ApiServices
    from ottla.broker.peer import Peer
    from ottla.broker.requests.gate import Admission, Gate
    from ottla.broker.security.quotas.client_quotas import ClientQuotas
    from ottla.broker.security.quotas.request_quota import RequestQuota
    from ottla.protocol.api.produce import ProduceRequest
    from ottla.protocol.types import Buffer

LOG = logging.getLogger("ottla.dispatch")

LONG_TURN_MS = 5
"""After this time in the requests of one turn, those that have not begun wait for the next."""


class RequestDispatcher:
    """Starts the requests of one broker."""

    def __init__(self, services: ApiServices, gate: Gate) -> None:
        self._services = services
        self._gate = gate
        self._clock = services.clock
        self._turn = services.turn
        self._metrics = services.metrics
        self._quotas = services.quotas

    def start(self, frame: memoryview, peer: Peer) -> list[Buffer] | InFlightRequest | None:
        """Start the request in `frame`. Returns its encoded answer, the request in flight, or None for no answer.

        Raises CloseConnection with the reason, for the log.
        """
        started_ns = perf_counter_ns()
        turn = self._turn
        if turn.began_ms is None:
            turn.begin(self._clock.monotonic_ms())
        try:
            header, position = decode_request_header(frame)
        except MalformedMessage as error:
            raise CloseConnection(f"malformed request header: {error}") from error
        api_key, version, correlation_id, client_id = header
        gate = self._gate
        admission = gate.serves(api_key, version)
        if admission is None:
            return gate.answer_unserved(header)
        try:
            request = decode(admission.request, frame, version, position)
        except MalformedMessage as error:
            raise CloseConnection(
                f"malformed {admission.name} v{version} of client {shown(client_id)}: {error}"
            ) from error
        context = Context(
            self._services,
            api_key,
            version,
            client_id=client_id,
            correlation_id=correlation_id,
            connection=peer,
            now_ms=self._clock.wall_ms(),
        )
        if self._quotas.clients is not None:
            context.quota = self._charge(self._quotas.clients, frame, request, context)
        try:
            handler, request = gate.admit(admission, request, context)
            missing = not_imported(self._services, request) if api_key in COORDINATED else None
            if missing:
                handle = partial(self._handle, handler, request, context)
                answer = context.in_steps(import_and_handle(missing, handle))
            else:
                answer = self._handle(handler, request, context)
            # Produce is 0, Fetch 1. To learn a template of EndTxn would import what is missing.
            if (api_key <= ApiKey.FETCH or api_key == ApiKey.END_TXN) and not (missing or context.lacks_rights):
                learn(frame, request, context, answer, admission.meter, self.go_on)
        except Exception as error:  # the request-wide except: refuse() distinguishes refusals and bugs
            answer = gate.refuse(admission, request, context, error)
        if isinstance(answer, Pending):
            if not answer.done:
                waiting = InFlightRequest(answer)
                answer.then(lambda done: self._finish(waiting, admission, request, context, done, started_ns))
                self._note_hold(admission, started_ns)
                if context.quota is not None:
                    context.quota.hold()
                return waiting
            if answer.error is not None:
                answer = gate.refuse(admission, request, context, answer.error)
            else:
                answer = answer.response
        if answer is None:
            admission.count(0, started_ns)
            self._note_hold(admission, started_ns)
            return None
        return self._answer(admission, request, context, answer, started_ns)

    def _handle(self, handler: Handler, request: Request, context: Context) -> Any:
        """The handler's answer; a long request is handled in chunks."""
        split = split_of(handler.chunks, request) if handler.chunks else None
        if split is None:
            return handler.handle(request, context)
        return handle_in_chunks(self._services, request, split, partial(_handle_chunk, handler.handle, context))

    def _answer(
        self, admission: Admission, request: Request, context: Context, answer: Response, started_ns: int
    ) -> list[Buffer] | InFlightRequest:
        """The encoded answer, or the request in flight while a long one is encoded in steps."""
        encoded = context.in_steps(self._gate.answer(admission, request, context, answer, started_ns))
        self._note_hold(admission, started_ns)
        if not isinstance(encoded, Pending):
            return encoded
        waiting = InFlightRequest(encoded)
        self._await_bytes(waiting, admission, context, encoded)
        return waiting

    @staticmethod
    def _charge(quotas: ClientQuotas, frame: memoryview, request: Request, context: Context) -> RequestQuota | None:
        """The quota to which the request is charged. A Produce is charged its bytes, but no time if acks=0."""
        quota = quotas.request(context.connection, context.client_id, context.api_key, context.api_version)
        if quota is not None and context.api_key == ApiKey.PRODUCE:
            quota.produced(len(frame))
            if not cast("ProduceRequest", request).acks:
                quota.is_timed = False
        return quota

    def go_on(
        self,
        waiting: InFlightRequest,
        frame: bytes,
        peer: Peer,
        handle: Callable[[Any, Context], Response | Pending[Any]],
        started_ns: int,
    ) -> None:
        """Finish `waiting`, an admitted request that a template has let wait and that takes the slow path now: `handle`
        does the rest of it. It came at `started_ns`.
        """
        (api_key, version, correlation_id, client_id), position = decode_request_header(frame)
        admission = self._gate.serves(api_key, version)
        assert admission is not None
        request = decode(admission.request, frame, version, position)
        context = Context(
            self._services, api_key, version, client_id=client_id, correlation_id=correlation_id, connection=peer
        )
        if self._quotas.clients is not None:
            context.quota = self._quotas.clients.request(peer, client_id, api_key, version)
        answer: Response | Pending[Any]
        try:
            answer = handle(request, context)
        except Exception as error:  # a refusal or a bug is the answer: `refuse` distinguishes them
            failed: Pending[Any] = Pending()
            failed.fail(error)
            answer = failed
        if not isinstance(answer, Pending):
            response, answer = answer, Pending()
            answer.complete(response)
        waiting.pending = answer
        if context.quota is not None:
            context.quota.hold()
        answer.then(lambda done: self._finish(waiting, admission, request, context, done, started_ns))

    def _note_hold(self, admission: Admission, since_ns: int) -> None:
        """Count the time for which a request has held the loop, and check whether the turn is long by now."""
        self._metrics.hold(admission.name, (perf_counter_ns() - since_ns) // 1000)
        began_ms = self._turn.began_ms
        if began_ms is not None and self._clock.monotonic_ms() - began_ms >= LONG_TURN_MS:
            self._turn.is_long = True

    def _finish(
        self,
        waiting: InFlightRequest,
        admission: Admission,
        request: Request,
        context: Context,
        done: Pending[Any],
        started_ns: int,
    ) -> None:
        """Encode a pending answer that is ready now into `waiting`."""
        answered_ns = perf_counter_ns()
        if context.quota is not None:
            context.quota.go_on()
        gate = self._gate
        encoded: list[Buffer] | Pending[list[Buffer]] | None = None
        try:
            answer = done.response
            if done.error is not None:
                answer = gate.refuse(admission, request, context, done.error)
            if answer is not None:
                encoded = context.in_steps(gate.answer(admission, request, context, answer, started_ns))
        except Exception as error:  # no memory, or a bug: the client must not wait forever
            self._fail(waiting, admission, error)
        else:
            if isinstance(encoded, Pending):
                waiting.pending = encoded
                self._await_bytes(waiting, admission, context, encoded)
            else:
                waiting.finish(encoded)
        self._note_hold(admission, answered_ns)

    def _await_bytes(
        self, waiting: InFlightRequest, admission: Admission, context: Context, encoded: Pending[list[Buffer]]
    ) -> None:
        """Finish `waiting` when its long answer is encoded, or cannot be."""

        def done(encoded: Pending[list[Buffer]]) -> None:
            if encoded.error is None:
                waiting.finish(encoded.response)
            else:
                self._fail(waiting, admission, encoded.error)

        if context.quota is not None:
            context.quota.hold()
        encoded.then(done)

    def _fail(self, waiting: InFlightRequest, admission: Admission, error: BaseException) -> None:
        """Finish `waiting` without an answer: whatever the error is, the client must not wait forever."""
        if isinstance(error, CloseConnection):
            waiting.finish(None, close_reason=str(error))
            return
        if isinstance(error, MemoryError):
            self._services.memory_reserve.let_go()
        else:
            text = "bug: the answer to %s v%d has no bytes"
            LOG.error(text, admission.name, admission.version, exc_info=error)
        waiting.finish(None, close_reason=f"no answer to its {admission.name} could be made")


def _handle_chunk(handle: Callable[[Any, Context], Any], context: Context, chunk: Request) -> Any:
    """Handle one chunk of a long request, and charge its time to the client."""
    context.begin_step()
    try:
        return handle(chunk, context)
    finally:
        context.end_step()
