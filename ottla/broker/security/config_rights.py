"""The rights to configurations: the ACL resource of each configuration.

A topic's or group's configuration belongs to the topic or group; those of brokers, their loggers and client metrics
belong to the cluster. As in Kafka's `authorizeAlterResource` and `ConfigHelper`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.security.authorizer import AUTHORIZATION_CODES
from ottla.protocol.acls import CLUSTER_NAME, ResourceType
from ottla.protocol.errors import KafkaError

if TYPE_CHECKING:
    from ottla.protocol.acls import AclOperation

_TYPES: Final = {
    2: ResourceType.TOPIC,
    4: ResourceType.CLUSTER,
    8: ResourceType.CLUSTER,
    16: ResourceType.CLUSTER,
    32: ResourceType.GROUP,
}
"""The ACL resource by Kafka's `ConfigResource.Type`: topic, broker, its loggers, client metrics, group."""


def config_refusal(
    may: Callable[[AclOperation, ResourceType, str], bool], operation: AclOperation, config_type: int, name: str
) -> KafkaError | None:
    """Why the client may not do this with a configuration; None where it may, and for types that do not exist."""
    resource_type = _TYPES.get(config_type)
    if resource_type is None:
        return None
    if may(operation, resource_type, CLUSTER_NAME if resource_type is ResourceType.CLUSTER else name):
        return None
    return KafkaError(AUTHORIZATION_CODES[resource_type])
