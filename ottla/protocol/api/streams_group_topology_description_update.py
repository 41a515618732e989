"""StreamsGroupTopologyDescriptionUpdate (key 93): a member sends the nodes of its topology (KIP-1331, Kafka 4.4).

A client sends it after a heartbeat was answered with `topology_description_required`. Kafka gives the description to a
plugin of the broker; a broker without one refuses with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int8, Int16, Int32, NullableString, String


class StreamsGroupTopologyDescriptionUpdateRequest(
    Request, key=93, versions="0", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The description of a topology of a certain epoch."""

    class TopologyDescriptionNode(Struct):
        """A node of the topology. `node_type`: 1 source, 2 processor, 3 sink."""

        name: String
        node_type: Int8
        source_topics: list[String]
        sink_topic: NullableString = None
        stores: list[String]
        successors: list[String]

    class TopologyDescriptionSubtopology(Struct):
        """The nodes of a subtopology."""

        subtopology_id: String
        nodes: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode]

    class TopologyDescriptionGlobalStore(Struct):
        """A global store: the source that fills it, and the processor that writes it."""

        source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode
        processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode

    class TopologyDescription(Struct):
        """All nodes of the topology."""

        subtopologies: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology]
        global_stores: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore]

    group_id: String
    member_id: String
    topology_epoch: Int32
    topology_description: TopologyDescription


class StreamsGroupTopologyDescriptionUpdateResponse(Response, key=93, versions="0", flexible="0+"):
    """Whether the description was accepted."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


def refused(
    request: StreamsGroupTopologyDescriptionUpdateRequest, version: int, code: ErrorCode, message: str
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Refuse the request."""
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=code, error_message=message)
