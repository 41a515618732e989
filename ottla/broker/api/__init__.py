"""The handlers: one module per API, named as its module in `ottla.protocol.api`, each with one plain function

    handle(request, context) -> Response | Pending[Response] | None        (None: no reply is sent)

A handler may raise KafkaError; the dispatcher turns it into the API's own error response. Handlers never import each
other. Registration is one line in `HANDLERS`; what is not here is not advertised.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.protocol.api import ApiKey

if TYPE_CHECKING:
    from ottla.broker.requests.context import Context

Handler: TypeAlias = "Callable[[Any, Context], Any]"
"""Request and response types differ per API: the table is where they meet, and each module is typed strictly."""

_MODULES: dict[ApiKey, str] = {
    ApiKey.PRODUCE: "produce",
    ApiKey.FETCH: "fetch",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.METADATA: "metadata",
    ApiKey.OFFSET_COMMIT: "offset_commit",
    ApiKey.OFFSET_FETCH: "offset_fetch",
    ApiKey.JOIN_GROUP: "join_group",
    ApiKey.HEARTBEAT: "heartbeat",
    ApiKey.LEAVE_GROUP: "leave_group",
    ApiKey.SYNC_GROUP: "sync_group",
    ApiKey.DESCRIBE_GROUPS: "describe_groups",
    ApiKey.LIST_GROUPS: "list_groups",
    ApiKey.DELETE_GROUPS: "delete_groups",
    ApiKey.OFFSET_DELETE: "offset_delete",
    ApiKey.FIND_COORDINATOR: "find_coordinator",
    ApiKey.API_VERSIONS: "api_versions",
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.DELETE_RECORDS: "delete_records",
    ApiKey.INIT_PRODUCER_ID: "init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch",
    ApiKey.DESCRIBE_ACLS: "describe_acls",
    ApiKey.CREATE_ACLS: "create_acls",
    ApiKey.DELETE_ACLS: "delete_acls",
    ApiKey.DESCRIBE_CONFIGS: "describe_configs",
    ApiKey.CREATE_PARTITIONS: "create_partitions",
    ApiKey.DESCRIBE_CLUSTER: "describe_cluster",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_group_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer_group_describe",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "describe_topic_partitions",
    ApiKey.ALTER_CONFIGS: "alter_configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "incremental_alter_configs",
    ApiKey.DESCRIBE_LOG_DIRS: "describe_log_dirs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "alter_replica_log_dirs",
    ApiKey.ELECT_LEADERS: "elect_leaders",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "list_partition_reassignments",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "describe_client_quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: "alter_client_quotas",
    ApiKey.DESCRIBE_QUORUM: "describe_quorum",
    ApiKey.UPDATE_FEATURES: "update_features",
    ApiKey.DESCRIBE_PRODUCERS: "describe_producers",
    ApiKey.LIST_CONFIG_RESOURCES: "list_config_resources",
}

_AT_START = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS}
"""What every client begins with; the others are imported by their first request, so that a start need not wait."""


def _handler(key: ApiKey) -> Handler:
    name = f"{__name__}.{_MODULES[key]}"
    if key in _AT_START:
        return import_module(name).handle  # type: ignore[no-any-return]  # the table is where types meet

    def handle(request: Any, context: Context) -> Any:
        return import_module(name).handle(request, context)

    return handle


HANDLERS: dict[ApiKey, Handler] = {key: _handler(key) for key in _MODULES}
