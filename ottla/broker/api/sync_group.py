"""SyncGroup, versions 0-5: the leader sends the assignment, every member gets its part of it.

The answer parks until the leader has sent the assignment and it is durable. From version 5 on a request that does not
name protocol type and protocol is INCONSISTENT_GROUP_PROTOCOL before any group is checked, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.groups.classic_answers import refuse_sync
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse

NEEDS = (Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),)
CHUNKS = ()


def handle(request: SyncGroupRequest, context: Context) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    """Wait for the assignment, unless the request is invalid for any group."""
    return refuse_sync(request, context.api_version) or context.services.groups.get().sync(request, context)
