"""ShareAcknowledge (key 79), versions 1-2: take what a member of a share group says of its records (KIP-932).

The answer says that it is durable. UNSUPPORTED_VERSION where share groups are not served.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.share.settings import check_share_groups
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse

NEEDS = (
    Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),
    Need(
        AclOperation.READ,
        ResourceType.TOPIC,
        when="partitions are acknowledged",
        lacking="the partitions of the topic are refused",
    ),
)
CHUNKS = ()


def handle(request: ShareAcknowledgeRequest, context: Context) -> Pending[ShareAcknowledgeResponse]:
    """Answer each partition for itself."""
    check_share_groups(context.services.catalog)
    may_read = partial(context.may, AclOperation.READ, ResourceType.TOPIC)
    return context.services.share_groups.get().acknowledge(request, context, may_read)
