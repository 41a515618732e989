"""The handlers: one module per API, named as its module in `ottla.protocol.api`. Each has three names.

    handle(request, context) -> Response | Pending[Response] | None        (None: no reply is sent)
    NEEDS   the rights that a request needs                                (`broker/declarations.py`)
    CHUNKS  the lists at which a long request is split, () for none

A handler may raise KafkaError; the gate turns it into the API's own error response. Handlers never import each other.
An API is registered by one line in `_HANDLED`; without it the API is not advertised.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ottla.protocol.api import ApiKey

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.declarations import Chunks, Need


class Handler(NamedTuple):
    """The contents of an API's module. Request and response types differ per API; each module is typed strictly."""

    handle: Callable[[Any, Context], Any]
    needs: tuple[Need, ...]
    chunks: tuple[Chunks, ...]


LoadHandler: TypeAlias = Callable[[], Handler]
"""Returns the handler of an API; imports its module if necessary."""

_HANDLED = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
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
    ApiKey.FIND_COORDINATOR,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
)
"""The handler of each is the module of its name, in lower case."""

_AT_START = (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS)
"""The first requests of a producer. The other modules are imported by their first request, to keep a start short."""


def _load(key: ApiKey) -> Handler:
    module = import_module(f"{__name__}.{key.name.lower()}")
    return Handler(module.handle, module.NEEDS, module.CHUNKS)


for _key in _AT_START:
    _load(_key)

HANDLERS: dict[ApiKey, LoadHandler] = {key: partial(_load, key) for key in _HANDLED}
"""The handlers of the served APIs."""
