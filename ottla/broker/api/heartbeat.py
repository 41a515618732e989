"""Heartbeat, versions 0-4: a member of the classic protocol reports that it is alive, and learns whether to rejoin.

While the group is being loaded, every heartbeat is accepted, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.groups.classic_answers import refuse_heartbeat
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse

NEEDS = (Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),)
CHUNKS = ()


def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse | Pending[HeartbeatResponse]:
    """Note the sign of life."""
    return refuse_heartbeat(request) or context.services.groups.get().heartbeat(request, context)
