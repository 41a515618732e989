"""ShareGroupHeartbeat (key 76), version 1: the one request by which members of a share group are members (KIP-932).

UNSUPPORTED_VERSION unless the feature `share.version` is at level 1, as in Kafka. What else is refused, and where Ottla
differs: `groups/share_group.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.share.settings import check_share_groups
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

NEEDS = (
    Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        when="topics are subscribed to",
        lacking="the request is refused",
    ),
)
CHUNKS = ()


def handle(request: ShareGroupHeartbeatRequest, context: Context) -> Pending[ShareGroupHeartbeatResponse]:
    """Join, stay, or leave; answered when what the answer rests on is durable."""
    check_share_groups(context.services.catalog)
    names = request.subscribed_topic_names or ()
    if not all(context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return context.services.groups.get().share_heartbeat(request, context)
