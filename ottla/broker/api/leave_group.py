"""LeaveGroup, versions 0-5: members leave a group, or an administrator removes them.

Versions: 0-2 name one member, whose code is the code of the answer · from 3 on each member has its own code, and an
empty member id with an instance id removes a static member. In a group that does not exist every member is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.groups.classic_answers import refuse_leave
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse

NEEDS = (Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),)
CHUNKS = (Chunks(("members",), ("members",)),)


def handle(request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse | Pending[LeaveGroupResponse]:
    """Remove the members."""
    return refuse_leave(request) or context.services.groups.get().leave(request, context)
