"""ListPartitionReassignments (key 46), version 0: the partitions that are moving between brokers.

With one broker there are none. As in Kafka, topics and partitions that do not exist are no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),)
CHUNKS = ()


def handle(request: ListPartitionReassignmentsRequest, context: Context) -> ListPartitionReassignmentsResponse:
    """Answer immediately."""
    return ListPartitionReassignmentsResponse(error_message=None, topics=[])
