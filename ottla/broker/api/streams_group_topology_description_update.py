"""StreamsGroupTopologyDescriptionUpdate (key 93), version 0: the nodes of a topology, for a plugin of the broker.

There is no plugin, so it is refused with UNSUPPORTED_VERSION, as by a Kafka without one, and no heartbeat asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.protocol.api.streams_group_topology_description_update import (
        StreamsGroupTopologyDescriptionUpdateRequest,
        StreamsGroupTopologyDescriptionUpdateResponse,
    )

NEEDS = (Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),)
CHUNKS = ()


def handle(
    request: StreamsGroupTopologyDescriptionUpdateRequest, context: Context
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Refuse it."""
    raise KafkaError(
        ErrorCode.UNSUPPORTED_VERSION, "The broker has no streams group topology description plugin configured."
    )
