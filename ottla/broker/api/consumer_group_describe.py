"""ConsumerGroupDescribe (key 69), versions 0-1: groups of the consumer protocol with their members (KIP-848).

A group of another protocol, or that does not exist, is GROUP_ID_NOT_FOUND; an empty id is INVALID_GROUP_ID. Without an
authorizer everybody may do everything with a group. UNSUPPORTED_VERSION where the consumer protocol is not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.groups.consumer_checks import check_consumer_protocol
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.GROUP),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, when="members have topics"),
)
CHUNKS = (Chunks(("group_ids",), ("groups",)),)


def handle(request: ConsumerGroupDescribeRequest, context: Context) -> Pending[ConsumerGroupDescribeResponse]:
    """Answer with what is durable."""
    groups = context.services.groups.get()
    check_consumer_protocol(groups.settings, context.services.catalog)
    return groups.describe_consumer_groups(request, context)
