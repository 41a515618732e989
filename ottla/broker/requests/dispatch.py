"""From a frame to its answer: header, handler table, encoding, and the one request-wide `except`.

    frame -> header -> decode -> handle(request, context) -> encode -> frame

Three kinds of wrong meet here. Malformed bytes, an unknown API or version close the connection with one line that says
what was wrong. A `KafkaError` becomes the API's own error response. Anything else is a bug: its traceback is logged and
the client gets UNKNOWN_SERVER_ERROR. ApiVersions of a version above ours is answered in version 0 with
UNSUPPORTED_VERSION and the full list, so that the client can ask again (KIP-511).

Runs without a loop; `Connection` and simulations call `start`.
"""

from __future__ import annotations

import logging
import struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.api import HANDLERS, Handler
from ottla.broker.context import Context
from ottla.broker.fast.hot_path import learn
from ottla.broker.profiles import profiles
from ottla.broker.profiles.profiles import AdvertisedApi
from ottla.broker.requests.parts import handle_in_parts, splits
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.slot import CloseConnection, Slot
from ottla.protocol.api import REGISTRY, Api, ApiKey
from ottla.protocol.api.api_versions import ApiVersionsResponse
from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.headers import RequestHeader, decode_request_header, response_header
from ottla.protocol.message import Request, Response, decode, encode_buffers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.context import ApiServices
    from ottla.broker.peer import Peer
    from ottla.broker.profiles.profiles import Profile
    from ottla.protocol.types import Buffer

LOG = logging.getLogger("ottla.dispatch")

_SIZE = struct.Struct(">i")
LONG_TURN_MS = 10
"""Once the requests of a turn have taken so long, those that have not begun wait for the next."""


def advertised_apis(
    handlers: Mapping[ApiKey, Handler] = HANDLERS, profile: Profile = profiles.DEFAULT
) -> list[AdvertisedApi]:
    """What ApiVersions lists: every declared API that has a handler, in the profile's versions, by key."""
    return [
        AdvertisedApi(api.key, *versions)
        for api in sorted(REGISTRY.values())
        if api.key in handlers and (versions := profile.advertised(api)) is not None
    ]


class _Served(NamedTuple):
    """An API with its handler."""

    api: Api
    handle: Handler
    min_version: int
    max_version: int
    request: type[Request]


class RequestDispatcher:
    """Starts requests of one broker. `handlers` can be replaced in tests."""

    def __init__(self, services: ApiServices, handlers: Mapping[ApiKey, Handler] = HANDLERS) -> None:
        self._services = services
        self._clock = services.clock
        self._memory_reserve = services.memory_reserve
        self._turn = services.turn
        self._metrics = services.metrics
        self._served = {
            int(api.key): _Served(api, handlers[api.key], *versions, api.request)
            for api in REGISTRY.values()
            if api.key in handlers and (versions := services.profile.served(api)) is not None
        }

    def start(self, frame: memoryview, peer: Peer) -> list[Buffer] | Slot | None:
        """Start the request of `frame`: its encoded answer, a slot that will hold it, or None for no answer.

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
        served = self._served.get(api_key)
        if served is None or not served.min_version <= version <= served.max_version:
            return self._answer_unsupported(header, peer)
        try:
            request = decode(served.request, frame, version, position)
        except MalformedMessage as error:
            raise CloseConnection(f"malformed {served.api.name} v{version} of client {client_id!r}: {error}") from error
        context = Context(
            self._services,
            api_key,
            version,
            client_id=client_id,
            correlation_id=correlation_id,
            connection=peer,
            now_ms=self._clock.wall_ms(),
        )
        try:
            split = splits(request)
            if split is None:
                answer = served.handle(request, context)
            else:
                answer = handle_in_parts(self._services, request, split, lambda part: served.handle(part, context))
            learn(frame, request, context, answer)
        except Exception as error:  # the request-wide except: a refusal or a bug, told apart in _refuse
            answer = self._refuse(served, request, context, error)
        if isinstance(answer, Pending):
            if not answer.done:
                waiting = Slot(answer)
                answer.then(lambda done: self._finish(waiting, served, request, context, done, started_ns))
                self._note_hold(served, started_ns)
                return waiting
            if answer.error is not None:
                answer = self._refuse(served, request, context, answer.error)
            else:
                answer = answer.response
        if answer is None:
            self._metrics.request(served.api.name, version, 0, (perf_counter_ns() - started_ns) // 1000)
            self._note_hold(served, started_ns)
            return None
        buffers = self._encode(served, request, context, answer, started_ns)
        self._note_hold(served, started_ns)
        return buffers

    def _note_hold(self, served: _Served, since_ns: int) -> None:
        """A request had the loop to itself since then: count it, and see whether the turn is long by now."""
        self._metrics.hold(served.api.name, (perf_counter_ns() - since_ns) // 1000)
        began_ms = self._turn.began_ms
        if began_ms is not None and self._clock.monotonic_ms() - began_ms >= LONG_TURN_MS:
            self._turn.is_long = True

    def _finish(
        self,
        slot: Slot,
        served: _Served,
        request: Request,
        context: Context,
        done: Pending[Any],
        started_ns: int,
    ) -> None:
        """A pending answer is there: encode it into its slot."""
        answered_ns = perf_counter_ns()
        try:
            answer = done.response
            if done.error is not None:
                answer = self._refuse(served, request, context, done.error)
            buffers = None if answer is None else self._encode(served, request, context, answer, started_ns)
        except CloseConnection as reason:
            slot.finish(None, close_reason=str(reason))
        except Exception as failed:  # whatever it is, the client must not wait for ever
            if isinstance(failed, MemoryError):
                self._memory_reserve.let_go()
            else:
                LOG.exception("bug: the answer to %s v%d has no bytes", served.api.name, context.api_version)
            slot.finish(None, close_reason=f"no answer to its {served.api.name} could be made")
        else:
            slot.finish(buffers)
        self._note_hold(served, answered_ns)

    def _encode(
        self, served: _Served, request: Request, context: Context, response: Response, started_ns: int
    ) -> list[Buffer]:
        version = context.api_version
        try:
            buffers = encode_buffers(response, version)
        except ValueError as error:
            response = self._refuse(served, request, context, error)
            buffers = encode_buffers(response, version)
        elapsed_us = (perf_counter_ns() - started_ns) // 1000
        self._metrics.request(served.api.name, version, getattr(response, "error_code", 0), elapsed_us)
        return _framed(response_header(context.api_key, version, context.correlation_id), buffers)

    def _refuse(self, served: _Served, request: Request, context: Context, error: BaseException) -> Response:
        """The error response; raises CloseConnection where the API has none, and what is no Exception."""
        if isinstance(error, CloseConnection) or not isinstance(error, Exception):
            raise error
        if isinstance(error, MemoryError):
            self._memory_reserve.let_go()
            raise CloseConnection(f"the system gives no memory for its {served.api.name}")
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.message
            name, version = served.api.name, context.api_version
            LOG.error("bug: %s v%d of client %r failed", name, version, context.client_id, exc_info=error)
        response = served.api.refused(request, context.api_version, code, message)
        if response is None:
            raise CloseConnection(f"{served.api.name} failed and can have no answer: {code.name}: {message}")
        return response

    def _answer_unsupported(self, header: RequestHeader, peer: Peer) -> list[Buffer]:
        """ApiVersions above our versions is told what we speak; everything else closes the connection, as in Kafka."""
        api_key, version, correlation_id, client_id = header
        if api_key == ApiKey.API_VERSIONS and api_key in self._served:
            response = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=[
                    ApiVersionsResponse.ApiVersion(
                        api_key=api.key, min_version=api.min_version, max_version=api.max_version
                    )
                    for api in self._services.advertised_apis
                ],
            )
            # Counted under the version of the answer: that of the request is any number that a client thinks of, and a
            # counter for each would be kept, and scraped, for ever.
            self._metrics.request("ApiVersions", 0, ErrorCode.UNSUPPORTED_VERSION, 0)
            return _framed(response_header(api_key, 0, correlation_id), encode_buffers(response, 0))
        served = self._served.get(api_key)
        if served is None:
            raise CloseConnection(f"client {client_id!r} sent API key {api_key} v{version}, which is not served")
        raise CloseConnection(
            f"client {client_id!r} sent {served.api.name} v{version}; "
            f"versions {served.min_version} to {served.max_version} are served"
        )


def _framed(header: bytes, buffers: list[Buffer]) -> list[Buffer]:
    """A whole response; what is not record bytes is joined, so that a plain answer is one buffer."""
    size_bytes = len(header)
    for buffer in buffers:
        size_bytes += len(buffer)
    head = _SIZE.pack(size_bytes) + header
    if len(buffers) == 1:
        return [head + buffers[0]] if isinstance(buffers[0], bytes) else [head, buffers[0]]
    return [head, *buffers]
