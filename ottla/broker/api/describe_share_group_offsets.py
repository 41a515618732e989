"""DescribeShareGroupOffsets (key 90), versions 0-1: where share groups are, and how many records they have to read.

A partition that the group has not read yet is at offset -1, and so is what does not exist: group, topic or partition.
Of all topics of a group those are left out that the client may not describe. UNSUPPORTED_VERSION where share groups are
not served.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.share.administration import describe_offsets
from ottla.broker.share.settings import check_share_groups
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponse,
    )

NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.GROUP, named=("groups", "group_id"), answered="groups"),
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        when="offsets are described",
        lacking="the topic is refused, or left out where all are asked for",
    ),
)
CHUNKS = (Chunks(("groups",), ("groups",)),)


def handle(request: DescribeShareGroupOffsetsRequest, context: Context) -> Pending[DescribeShareGroupOffsetsResponse]:
    """Answer each group for itself."""
    services = context.services
    check_share_groups(services.catalog)
    may_describe = partial(context.has, AclOperation.DESCRIBE, ResourceType.TOPIC)
    return describe_offsets(request, services.groups.get(), services.share_groups.get(), services.catalog, may_describe)
