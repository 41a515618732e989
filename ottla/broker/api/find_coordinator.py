"""FindCoordinator (key 10), versions 0-6: the coordinator of a group or a transaction, which is always this broker.

Version 4 and later ask for many keys in one request. Key type 0 is a group, 1 a transactional id, 2 (version 6) a share
group's state. Share groups are not supported, so that and every other type is INVALID_REQUEST: for each key from
version 4 on, before that for the request. An empty transactional id is INVALID_REQUEST, as for InitProducerId (a
difference from Kafka); an empty group id is a group like any other.

The first key of a group creates `__consumer_offsets`, the first transactional id `__transaction_state`.
COORDINATOR_NOT_AVAILABLE where that cannot be created, or where the key's partition is offline. Difference from Kafka,
which answers COORDINATOR_NOT_AVAILABLE until the topic is created: here the answer waits for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.catalog.descriptions import describe_broker
from ottla.broker.declarations import Chunks, Need
from ottla.broker.runtime.pending import Pending
from ottla.broker.share.stored_state import is_share_partition
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.context import Context

Coordinator = FindCoordinatorResponse.Coordinator

GROUP = 0
TRANSACTION = 1
SHARE = 2
FIRST_VERSION_WITH_SHARE = 6
FIRST_BATCHED_VERSION = 4
NOBODY = -1

NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.GROUP, when="the key is a group", lacking="the key is refused"),
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TRANSACTIONAL_ID,
        when="the key is a transactional id",
        lacking="the key is refused",
    ),
    Need(
        AclOperation.CLUSTER_ACTION,
        ResourceType.CLUSTER,
        when="the key is a share group's state",
        lacking="the key is refused",
    ),
)
CHUNKS = (Chunks(("coordinator_keys",), ("coordinators",)),)


def handle(request: FindCoordinatorRequest, context: Context) -> Pending[FindCoordinatorResponse]:
    """Answer with this broker's address for this client, once the coordinator's topic exists."""
    pending: Pending[FindCoordinatorResponse] = Pending()
    is_batched = context.api_version >= FIRST_BATCHED_VERSION
    keys = request.coordinator_keys if is_batched else [request.key]
    found: list[Coordinator | None] = [None] * len(keys)
    missing = len(keys)

    def complete() -> None:
        if not missing:  # counted: searching `found` for each key would take quadratic time
            answers = [each for each in found if each is not None]
            pending.complete(_batched(answers) if is_batched else _single(answers[0]))

    def look_up(place: int, key: str) -> None:
        def prepared(error: KafkaError | None) -> None:
            nonlocal missing
            missing -= 1
            found[place] = _here(key, context) if error is None else _nowhere(key, error)
            complete()

        refusal = _refusal(key, request.key_type, context)
        if refusal is not None:
            prepared(refusal)
        elif request.key_type == GROUP:
            context.services.groups.get().prepare(key, prepared)
        elif request.key_type == SHARE:
            context.services.share_groups.get().prepare(key, prepared)
        else:
            context.services.transactions.get().prepare(key, prepared)

    for place, key in enumerate(keys):
        look_up(place, key)
    if not keys:
        complete()
    return pending


def _batched(answers: Sequence[Coordinator]) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=list(answers))


def _single(answer: Coordinator) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=answer.error_code,
        error_message=answer.error_message,
        node_id=answer.node_id,
        host=answer.host,
        port=answer.port,
    )


def _refusal(key: str, key_type: int, context: Context) -> KafkaError | None:
    if key_type == GROUP and not context.may(AclOperation.DESCRIBE, ResourceType.GROUP, key):
        return KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if key_type == TRANSACTION and not context.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
        return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (
        key_type == SHARE
        and context.api_version >= FIRST_VERSION_WITH_SHARE
        and not context.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    ):
        return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if key_type == SHARE and context.api_version >= FIRST_VERSION_WITH_SHARE:
        is_known = is_share_partition(key)
        return None if is_known else KafkaError(ErrorCode.INVALID_REQUEST, f"{key!r} names no share partition")
    if key_type not in (GROUP, TRANSACTION):
        return KafkaError(ErrorCode.INVALID_REQUEST, f"coordinators of key type {key_type} are not served")
    if key_type == TRANSACTION and not key:
        return KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    return None


def _nowhere(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key, node_id=NOBODY, host="", port=NOBODY, error_code=error.code, error_message=error.message
    )


def _here(key: str, context: Context) -> Coordinator:
    services = context.services
    broker = describe_broker(services.config, services.catalog.node_id, context.connection)
    return Coordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port)
