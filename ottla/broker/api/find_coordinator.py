"""FindCoordinator (key 10), versions 0-6: who coordinates a group or a transaction; here always this broker.

Version 4 and later ask for many keys at once. Key type 0 is a group, 1 a transactional id, 2 (version 6) a share
group's state; share groups are not served, so that and every other type is INVALID_REQUEST, for each key from version
4 on and for the request before. Kafka answers an empty transactional id with INVALID_REQUEST; so do we. An empty group
id is a group like any other.

Difference from Kafka: it creates `__consumer_offsets` and answers COORDINATOR_NOT_AVAILABLE until that is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.descriptions import describe_broker
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context

GROUP = 0
TRANSACTION = 1
FIRST_BATCHED_VERSION = 4
NOBODY = -1


def handle(request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    """Answer with this broker's address for this client."""
    if context.api_version >= FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(
            coordinators=[_find(key, request.key_type, context) for key in request.coordinator_keys]
        )
    found = _find(request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(key: str, key_type: int, context: Context) -> FindCoordinatorResponse.Coordinator:
    refusal = None
    if key_type not in (GROUP, TRANSACTION):
        refusal = f"coordinators of key type {key_type} are not served"
    elif key_type == TRANSACTION and not key:
        refusal = "a transactional id must not be empty"
    if refusal is not None:
        return FindCoordinatorResponse.Coordinator(
            key=key,
            node_id=NOBODY,
            host="",
            port=NOBODY,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=refusal,
        )
    broker = describe_broker(context)
    return FindCoordinatorResponse.Coordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port)
