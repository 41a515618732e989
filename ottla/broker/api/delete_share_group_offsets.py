"""DeleteShareGroupOffsets (key 92), version 0: let a share group without members forget topics.

GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, INVALID_GROUP_ID; UNKNOWN_TOPIC_OR_PARTITION for a topic that the group has not.
The answer says that they are forgotten for good. UNSUPPORTED_VERSION where share groups are not served.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.share.administration import delete_offsets
from ottla.broker.share.settings import check_share_groups
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponse,
    )

NEEDS = (
    Need(AclOperation.DELETE, ResourceType.GROUP, named=("group_id",)),
    Need(AclOperation.READ, ResourceType.TOPIC, when="topics are forgotten", lacking="the topic is refused"),
)
CHUNKS = ()


def handle(request: DeleteShareGroupOffsetsRequest, context: Context) -> Pending[DeleteShareGroupOffsetsResponse]:
    """Answer each topic for itself."""
    services = context.services
    check_share_groups(services.catalog)
    may_read = partial(context.may, AclOperation.READ, ResourceType.TOPIC)
    return delete_offsets(request, services.groups.get(), services.share_groups.get(), services.catalog, may_read)
