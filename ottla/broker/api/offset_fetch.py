"""OffsetFetch (key 9), versions 0-9: the offsets that groups have committed; several groups from version 8 on.

A partition without a committed offset is answered with -1 and no error, also one that does not exist, and also in a
group that does not exist: librdkafka takes GROUP_ID_NOT_FOUND here as fatal. Null topics ask for all of a group's
offsets. A member of the consumer protocol may name itself (version 9): UNKNOWN_MEMBER_ID and STALE_MEMBER_EPOCH then
concern its group. `require_stable` (version 7) asks for UNSTABLE_OFFSET_COMMIT where a transaction may change the
offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.GROUP),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC),
)
CHUNKS = (
    Chunks(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions")),
    Chunks(("topics", "partition_indexes"), ("topics", "partitions")),
)


def handle(request: OffsetFetchRequest, context: Context) -> Pending[OffsetFetchResponse]:
    """Answer with what is durable."""
    return context.services.groups.get().fetch_offsets(request, context)
