"""FindCoordinator (key 10), versions 0-6: the broker that coordinates a group, a transaction or a share group's state.

Versions: 1 adds the key type, throttle time and error message · 3 is flexible · 4 has several keys (KIP-699)
· 5 may answer TRANSACTION_ABORTABLE (KIP-890) · 6 adds key type 2 (KIP-932).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import Int8, Int16, Int32, NullableString, String


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    """The keys: `key` up to version 3, `coordinator_keys` after. `key_type` 0 group, 1 transaction, 2 share."""

    key: String = ranged("0-3", default="")
    key_type: Int8 = since("1+", default=0)
    coordinator_keys: list[String] = since("4+", factory=list)


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    """The coordinator of `key` (its fields at top level) up to version 3, `coordinators` after."""

    class Coordinator(Struct):
        """The coordinator of one key, or the reason why there is none."""

        key: String
        node_id: Int32
        host: String
        port: Int32
        error_code: Int16 = 0
        error_message: NullableString = None

    throttle_time_ms: Int32 = since("1+", default=0, ignorable=True)
    error_code: Int16 = ranged("0-3", default=0)
    error_message: NullableString = ranged("1-3", default=None, ignorable=True)
    node_id: Int32 = ranged("0-3", default=0)
    host: String = ranged("0-3", default="")
    port: Int32 = ranged("0-3", default=0)
    coordinators: list[Coordinator] = since("4+", factory=list)


def refused(request: FindCoordinatorRequest, version: int, code: ErrorCode, message: str) -> FindCoordinatorResponse:
    """Refuse every key from version 4 on; before it, the request."""
    if version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
            )
            for key in request.coordinator_keys
        ]
    )
