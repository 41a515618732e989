"""DeleteGroups (key 42), versions 0-3: remove groups and their offsets; the answer is sent when that survives a crash.

NON_EMPTY_GROUP while there are members, GROUP_ID_NOT_FOUND for a group that does not exist. A group that is named twice
is answered once. From version 3 on each refusal has a message.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.share.administration import forget_groups
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.storage.formats.layout import SHARE_GROUP_STATE_TOPIC

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

NEEDS = (Need(AclOperation.DELETE, ResourceType.GROUP, named=("groups_names",), answered="results"),)
CHUNKS = (Chunks(("groups_names",), ("results",)),)


def handle(request: DeleteGroupsRequest, context: Context) -> Pending[DeleteGroupsResponse]:
    """Remove each group independently; the offsets of share groups first."""
    services = context.services
    groups = services.groups.get()
    remove = partial(groups.delete_groups, request, context)
    if SHARE_GROUP_STATE_TOPIC not in services.catalog.topics:
        return remove()
    return forget_groups(request.groups_names, groups, services.share_groups.get(), remove)
