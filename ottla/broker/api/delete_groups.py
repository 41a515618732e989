"""DeleteGroups (key 42), versions 0-2: remove groups and their offsets; the answer is sent when that survives a crash.

NON_EMPTY_GROUP while there are members, GROUP_ID_NOT_FOUND for a group that does not exist. A group that is named twice
is answered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

NEEDS = (Need(AclOperation.DELETE, ResourceType.GROUP, named=("groups_names",), answered="results"),)
CHUNKS = (Chunks(("groups_names",), ("results",)),)


def handle(request: DeleteGroupsRequest, context: Context) -> Pending[DeleteGroupsResponse]:
    """Remove each group independently."""
    return context.services.groups.get().delete_groups(request, context)
