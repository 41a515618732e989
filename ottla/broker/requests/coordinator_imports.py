"""The first request that needs a coordinator: its modules are imported in steps, so that other requests run in between.

The group coordinator has 85 modules, which take 40 ms; a start imports none of them. An import cannot be interrupted,
so the request, which parks, imports some in each turn of the loop, dependencies first (`OnDemand`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.protocol.api import ApiKey

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices
    from ottla.broker.runtime.on_demand import OnDemand
    from ottla.broker.runtime.steps import Steps
    from ottla.protocol.message import Request

GROUP_APIS: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_DESCRIBE,
    }
)
"""The APIs whose requests the group coordinator usually answers."""
TRANSACTION_APIS: Final = frozenset(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
"""The APIs whose requests the transaction coordinator answers."""
SHARE_APIS: Final = frozenset(
    {
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""The APIs whose requests the share coordinator answers."""
COORDINATED: Final = GROUP_APIS | TRANSACTION_APIS | SHARE_APIS | {ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID}
GROUP, TRANSACTION, SHARE = 0, 1, 2
"""FindCoordinator's types of keys."""


def not_imported(services: ApiServices, request: Request) -> list[OnDemand[Any]]:
    """The coordinators that a request of a `COORDINATED` API needs and that were not imported yet."""
    api_key = request.message_key
    key_type = getattr(request, "key_type", None) if api_key == ApiKey.FIND_COORDINATOR else None
    needed: list[OnDemand[Any]] = []
    if api_key in GROUP_APIS or key_type == GROUP:
        needed.append(services.groups)
    if (
        api_key in TRANSACTION_APIS
        or key_type == TRANSACTION
        or (api_key == ApiKey.INIT_PRODUCER_ID and getattr(request, "transactional_id", None) is not None)
    ):
        needed.append(services.transactions)
    if api_key in SHARE_APIS or key_type == SHARE:
        needed.append(services.share_groups)
    return [one for one in needed if not one.is_imported]


def import_and_handle(coordinators: Sequence[OnDemand[Any]], handle: Callable[[], Any]) -> Steps[Any]:
    """Import them in steps, then handle the request."""
    for coordinator in coordinators:
        yield from coordinator.import_some()
    return handle()
