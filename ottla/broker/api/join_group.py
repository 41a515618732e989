"""JoinGroup, versions 0-9: a member joins a group of the classic protocol, or joins it again for a rebalance.

The answer parks until the group has joined. INVALID_GROUP_ID and INVALID_SESSION_TIMEOUT are returned before any group
is checked; the group decides everything else (`broker/groups/classic.py`, or `consumer.py` for a classic member in a
group of the consumer protocol).

Versions: before 1 the session timeout is the rebalance timeout too · from 4 on a dynamic member gets an id with which
it joins again (MEMBER_ID_REQUIRED), a static one never does · 9 lets a leader that returns skip the assignment
(KIP-814).

Differences from Kafka: `classic_rebalance.py` and `classic.py` list them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.groups.classic_answers import refuse_join
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse

NEEDS = (Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),)
CHUNKS = ()


def handle(request: JoinGroupRequest, context: Context) -> JoinGroupResponse | Pending[JoinGroupResponse]:
    """Join, unless the request is invalid for any group."""
    groups = context.services.groups.get()
    return refuse_join(request, context.api_version, groups.settings) or groups.join(request, context)
