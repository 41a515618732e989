"""ConsumerGroupHeartbeat (key 68), versions 0-1: the only request of members of the consumer protocol (KIP-848).

UNSUPPORTED_VERSION unless `group.coordinator.rebalance.protocols` has `consumer` and the feature `group.version` is at
level 1, as in Kafka. Other refusals, and differences from Kafka: `groups/consumer.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.groups.consumer_checks import check_consumer_protocol
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )

NEEDS = (
    Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        when="topics are subscribed to",
        lacking="the request is refused; topics that an expression matches are left out",
    ),
)
CHUNKS = ()


def handle(request: ConsumerGroupHeartbeatRequest, context: Context) -> Pending[ConsumerGroupHeartbeatResponse]:
    """Join, stay, or leave; answered when all that the answer reports is durable."""
    groups = context.services.groups.get()
    check_consumer_protocol(groups.settings, context.services.catalog)
    if context.services.authorizer is None:
        return groups.consumer_heartbeat(request, context)
    may_name = partial(context.may, AclOperation.DESCRIBE, ResourceType.TOPIC)
    if not all(map(may_name, request.subscribed_topic_names or ())):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    may_see = partial(context.has, AclOperation.DESCRIBE, ResourceType.TOPIC)
    return groups.consumer_heartbeat(request, context, may_see)
