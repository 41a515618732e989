"""UnregisterBroker (key 64), version 0: forget a broker that has left the cluster for good (KIP-631)."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.types import Int16, Int32, NullableString


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible="0+"):
    """The broker to forget."""

    broker_id: Int32


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    """The result."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


def refused(request: UnregisterBrokerRequest, version: int, code: ErrorCode, message: str) -> UnregisterBrokerResponse:
    """Refuse the request."""
    return UnregisterBrokerResponse(error_code=code, error_message=message)
