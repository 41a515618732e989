"""AlterShareGroupOffsets (key 91), version 0: let a share group without members continue at other offsets.

A group that does not exist is created. GROUP_ID_NOT_FOUND for one of another type, NON_EMPTY_GROUP, INVALID_GROUP_ID;
UNKNOWN_TOPIC_OR_PARTITION for a partition that does not exist. The answer says that the offsets are durable.
UNSUPPORTED_VERSION where share groups are not served.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.share.administration import alter_offsets
from ottla.broker.share.settings import check_share_groups
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponse,
    )

NEEDS = (
    Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),
    Need(AclOperation.READ, ResourceType.TOPIC, when="offsets are altered", lacking="the topic is refused"),
)
CHUNKS = ()


def handle(request: AlterShareGroupOffsetsRequest, context: Context) -> Pending[AlterShareGroupOffsetsResponse]:
    """Answer each partition for itself."""
    services = context.services
    check_share_groups(services.catalog)
    may_read = partial(context.may, AclOperation.READ, ResourceType.TOPIC)
    return alter_offsets(request, services.groups.get(), services.share_groups.get(), services.catalog, may_read)
