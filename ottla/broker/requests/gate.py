"""The gate: every request passes it, whether it takes the slow path or is answered from a template.

    version   `serves`            before the request's bytes are decoded
    right     `admit`             before a handler sees the request, and a template is learnt from it (`rights.py`)
    refusal   `refuse`            the API's own error response, made from any raised error
    quota     `Context.quota`     created by the dispatcher, settled with the answer; templates charge their own
    metering  `Admission.count`   once for each answered request

An `Admission` is a decision of the gate. A template is learnt from an admitted request, counts with the meters of its
admission, and is forgotten when anything changes on which the decision depends (`runtime/validity.py`). So it checks no
right again, and answers nothing that would not be admitted.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from functools import cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeAlias, cast

from ottla.broker.api import HANDLERS, Handler
from ottla.broker.profiles import profiles
from ottla.broker.profiles.profiles import AdvertisedApi
from ottla.broker.requests.long_answers import encode_long
from ottla.broker.requests.rights import check_rights
from ottla.broker.runtime.in_flight_request import CloseConnection
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.api_versions import ApiVersionsResponse
from ottla.protocol.compiler import ELEMENTS_PER_STEP
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.headers import response_header
from ottla.protocol.message import encode_buffers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.api import LoadHandler
    from ottla.broker.context import ApiServices, Context
    from ottla.broker.profiles.profiles import Profile
    from ottla.broker.profiles.releases import Range
    from ottla.broker.runtime.metrics import RequestMeter
    from ottla.broker.runtime.steps import Steps
    from ottla.protocol.api import Api
    from ottla.protocol.api.fetch import FetchResponse
    from ottla.protocol.api.produce import ProduceResponse
    from ottla.protocol.headers import RequestHeader
    from ottla.protocol.message import Request, Response
    from ottla.protocol.types import Buffer

LOG = logging.getLogger("ottla.dispatch")

_SIZE = struct.Struct(">i")
LONGEST_SHOWN_ID = 100

Meters: TypeAlias = "Callable[[str, int, int], RequestMeter]"
"""Returns the meter of an API's requests, by its name, their version and the error code of their answers."""


class Admission:
    """One API in one version, as the gate admits its requests: their class, their handler, their meters."""

    __slots__ = ("_load", "_meters", "_succeeded", "api", "handler", "name", "request", "version")

    def __init__(self, api: Api, version: int, load: LoadHandler, meters: Meters) -> None:
        self.api = api
        self.name = api.name
        self.version = version
        self.request = api.request
        self.handler: Handler | None = None
        self._load = load
        self._meters = meters
        self._succeeded: RequestMeter | None = None

    def load(self) -> Handler:
        """Load and keep the handler. Raises what its import raises."""
        handler = self.handler = self._load()
        return handler

    def meter(self, error_code: int) -> RequestMeter:
        """The meter of the requests whose answers have this error code."""
        return self._meters(self.name, self.version, error_code)

    def count(self, error_code: int, started_ns: int) -> None:
        """Count an answered request by the (first) error code of its answer, with its time until now."""
        if error_code:
            meter = self.meter(error_code)
        else:
            meter = self._succeeded or self.meter(0)
            self._succeeded = meter
        meter.note((perf_counter_ns() - started_ns) // 1000, 1)


def first_error(response: Response) -> int:
    """The error code under which an answered Produce is counted: the first one of a partition, 0 if all was stored."""
    topics = cast("ProduceResponse", response).responses
    return next((each.error_code for topic in topics for each in topic.partition_responses if each.error_code), 0)


def advertised_apis(
    handlers: Mapping[ApiKey, LoadHandler] = HANDLERS, profile: Profile = profiles.DEFAULT
) -> list[AdvertisedApi]:
    """The APIs that ApiVersions lists: every declared API with a handler, in the profile's versions, by key."""
    return [api for api in _advertised_by(profile) if api.key in handlers]


@cache
def _advertised_by(profile: Profile) -> tuple[AdvertisedApi, ...]:
    versions = ((api.key, profile.advertised(api)) for api in REGISTRY.values())
    return tuple(AdvertisedApi(key, *advertised) for key, advertised in versions if advertised is not None)


@cache
def _served_by(profile: Profile) -> dict[ApiKey, Range]:
    versions = ((api.key, profile.served(api)) for api in REGISTRY.values())
    return {key: served for key, served in versions if served is not None}


class Gate:
    """The gate of one broker. `handlers` and `meters` can be replaced in tests."""

    def __init__(
        self,
        services: ApiServices,
        handlers: Mapping[ApiKey, LoadHandler] = HANDLERS,
        *,
        meters: Meters | None = None,
    ) -> None:
        self._services = services
        self._audit = services.audit
        self._meters = services.metrics.meter if meters is None else meters
        self._handlers = handlers
        self._versions = {
            int(key): versions for key, versions in _served_by(services.profile).items() if key in handlers
        }
        self._admissions: dict[tuple[int, int], Admission] = {}

    def serves(self, api_key: int, version: int) -> Admission | None:
        """The admission of requests of this API and version; None if they are not served.

        Raises CloseConnection if the API's module cannot be imported, for example because no descriptor is free.
        """
        admission = self._admissions.get((api_key, version))
        if admission is None:
            versions = self._versions.get(api_key)
            if versions is None or not versions[0] <= version <= versions[1]:
                return None
            api = REGISTRY[api_key]
            try:
                admission = Admission(api, version, self._handlers[api.key], self._meters)
            except (OSError, MemoryError) as error:
                raise CloseConnection(f"{api.name} cannot be loaded: {error}") from error
            self._admissions[(api_key, version)] = admission
        return admission

    def admit(self, admission: Admission, request: Request, context: Context) -> tuple[Handler, Request]:
        """Check the rights of a request. Returns its handler, and the request without the elements that are refused
        individually, whose answers are kept for `answer`.

        Raises KafkaError if the client lacks a right without which nothing of the request can be answered.
        """
        handler = admission.handler or admission.load()
        if self._services.authorizer is not None:
            request = check_rights(handler.needs, admission.api, request, context)
        return handler, request

    def answer(
        self, admission: Admission, request: Request, context: Context, response: Response, started_ns: int
    ) -> Steps[list[Buffer]]:
        """The frame of a response, which is counted here; a response that cannot be encoded becomes a refusal. A long
        one is encoded in steps; its records may have been read in earlier turns.

        Raises CloseConnection if there is no answer.
        """
        version = admission.version
        if context.refused is not None:
            response = context.refused.beside(response)
        if context.quota is not None:
            context.quota.settle(response)
        if self._audit is not None and context.api_key in self._audit.administration:
            self._audit.request(context, request, response)
        try:
            # Produce is 0, Fetch 1.
            if context.api_key == 0 or (context.api_key == 1 and not _is_long(cast("FetchResponse", response))):
                buffers = encode_buffers(response, version)
            else:
                if context.api_key == ApiKey.FETCH:
                    yield  # building the response took one step already
                buffers = yield from encode_long(response, version)
        except ValueError as error:
            response = self.refuse(admission, request, context, error)
            buffers = encode_buffers(response, version)
        # Produce is 0. Its answer has no error code but those of its partitions.
        code = getattr(response, "error_code", 0) if context.api_key else first_error(response)
        admission.count(code, started_ns)
        return _framed(response_header(context.api_key, version, context.correlation_id), buffers)

    def refuse(self, admission: Admission, request: Request, context: Context, error: BaseException) -> Response:
        """The error response; raises CloseConnection if the API has none, and re-raises what is no Exception."""
        if isinstance(error, CloseConnection) or not isinstance(error, Exception):
            raise error
        if isinstance(error, MemoryError):
            self._services.memory_reserve.let_go()
            raise CloseConnection(f"the system gives no memory for its {admission.name}")
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.message
            name, version = admission.name, admission.version
            LOG.error("bug: %s v%d of client %s failed", name, version, shown(context.client_id), exc_info=error)
        response = admission.api.refused(request, admission.version, code, message)
        if response is None:
            raise CloseConnection(f"{admission.name} failed and can have no answer: {code.name}: {message}")
        return response

    def answer_unserved(self, header: RequestHeader) -> list[Buffer]:
        """The answer to ApiVersions above the supported versions: version 0 with UNSUPPORTED_VERSION and the whole
        list, so that the client can ask again (KIP-511). Raises CloseConnection for everything else, as in Kafka.
        """
        api_key, version, correlation_id, client_id = header
        versions = self._versions.get(api_key)
        if api_key == ApiKey.API_VERSIONS and versions is not None:
            response = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=[
                    ApiVersionsResponse.ApiVersion(
                        api_key=api.key, min_version=api.min_version, max_version=api.max_version
                    )
                    for api in self._services.advertised_apis
                ],
            )
            # Counted under the version of the answer: clients may send any number as version, and a counter for each
            # would be kept, and scraped, forever.
            self._meters("ApiVersions", 0, ErrorCode.UNSUPPORTED_VERSION).note(0, 1)
            return _framed(response_header(api_key, 0, correlation_id), encode_buffers(response, 0))
        if versions is None:
            raise CloseConnection(f"client {shown(client_id)} sent API key {api_key} v{version}, which is not served")
        raise CloseConnection(
            f"client {shown(client_id)} sent {REGISTRY[api_key].name} v{version}; "
            f"versions {versions[0]} to {versions[1]} are served"
        )


def _is_long(response: FetchResponse) -> bool:
    """Whether it has more partitions than one step encodes."""
    return sum(len(topic.partitions) for topic in response.responses) > ELEMENTS_PER_STEP


def shown(client_id: str | None) -> str:
    """A client id for a log line, truncated: it may have 32,767 bytes, and strangers choose one, too."""
    if client_id is not None and len(client_id) > LONGEST_SHOWN_ID:
        return f"{client_id[:LONGEST_SHOWN_ID]!r}..."
    return repr(client_id)


def _framed(header: bytes, buffers: list[Buffer]) -> list[Buffer]:
    """A complete response. Bytes before the records are joined, so that an answer without records is one buffer."""
    size_bytes = len(header)
    for buffer in buffers:
        size_bytes += len(buffer)
    head = _SIZE.pack(size_bytes) + header
    if len(buffers) == 1:
        return [head + buffers[0]] if isinstance(buffers[0], bytes) else [head, buffers[0]]
    return [head, *buffers]
