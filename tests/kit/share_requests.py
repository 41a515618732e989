"""A share group `g` that reads topic `t`, request by request: its member `m` acquires, acknowledges, and goes."""

from __future__ import annotations

from uuid import UUID

from kit.clock import ManualClock
from kit.exchange import Exchange, batch, produce_request
from kit.group_requests import make_topic
from kit.nodes import ask, ask_for, partition_of, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.api import HANDLERS
from ottla.broker.context import Context
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api import ApiKey
from ottla.protocol.api.delete_records import DeleteRecordsRequest
from ottla.protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.protocol.api.share_fetch import AcknowledgeType, ShareFetchRequest, ShareFetchResponse
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.errors import ErrorCode

GROUP_RESOURCE = 32


def node_with_records(count: int, **keys: object) -> tuple[Node, SimulatedFiles, ManualClock]:
    """A node with keys of the configuration, and so many records; the group begins with the first of them."""
    node, files, clock = start_node(None, None, **keys)
    make_topic(node, "t", 1)
    if count:
        Exchange(node).ask(produce_request("t", batch(count)), 9)
    kind = IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = kind.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configs=[config])
    ask(node, kind(resources=[resource], validate_only=False), 1)
    heartbeat(node, 0)
    heartbeat(node, -1)
    return node, files, clock


def restarted(node: Node, files: SimulatedFiles, clock: ManualClock, **keys: object) -> tuple[Node, SimulatedFiles]:
    """The next node, after a stop in good order."""
    node.stop()
    files = files.successor()
    return start_node(files, clock, **keys)[0], files


def topic_id_of(node: Node) -> UUID:
    """The id of the topic."""
    return node.services.catalog.topics["t"].id


def heartbeat(node: Node, epoch: int) -> None:
    """Join (0), or leave (-1)."""
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
    request.subscribed_topic_names = ["t"] if epoch == 0 else None
    ask(node, request, 1)


def acquire_all(node: Node, peer: Peer, epoch: int) -> None:
    """Acquire what is available, which is something, at an epoch of the share session."""
    assert acquired_by(node, peer, epoch)


def fetch_pending(node: Node, peer: Peer, *, group_id: str) -> Pending[ShareFetchResponse]:
    """The answer to the first fetch of a member of another group, which waits for nothing but its durability."""
    request = _fetch_request(node, 0, group_id=group_id)
    answer = HANDLERS[ApiKey.SHARE_FETCH]().handle(request, Context(node.services, 78, 2, connection=peer))
    assert isinstance(answer, Pending)
    return answer


def acquired_by(node: Node, peer: Peer, epoch: int, *, member_id: str = "m") -> list[tuple[int, int, int]]:
    """First offset, last offset and delivery count of what a member acquires."""
    answer = ask(node, _fetch_request(node, epoch, member_id=member_id), 2, peer=peer)
    assert isinstance(answer, ShareFetchResponse)
    return [
        (one.first_offset, one.last_offset, one.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for one in partition.acquired_records
    ]


def _fetch_request(node: Node, epoch: int, *, group_id: str = "g", member_id: str = "m") -> ShareFetchRequest:
    partition = ShareFetchRequest.FetchPartition(partition_index=0, acknowledgement_batches=[])
    return ShareFetchRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=0,
        max_records=100,
        batch_size=100,
        topics=[ShareFetchRequest.FetchTopic(topic_id=topic_id_of(node), partitions=[partition])],
        forgotten_topics_data=[],
    )


def acknowledge(
    node: Node, peer: Peer, epoch: int, first: int, last: int, kind: AcknowledgeType = AcknowledgeType.ACCEPT
) -> None:
    """Acknowledge offsets, both inclusive, at an epoch of the share session."""
    of_offsets = ShareAcknowledgeRequest.AcknowledgementBatch(
        first_offset=first, last_offset=last, acknowledge_types=[int(kind)]
    )
    partition = ShareAcknowledgeRequest.AcknowledgePartition(partition_index=0, acknowledgement_batches=[of_offsets])
    topic = ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=topic_id_of(node), partitions=[partition])
    request = ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=epoch, topics=[topic])
    answer = ask(node, request, 2, peer=peer)
    assert isinstance(answer, ShareAcknowledgeResponse)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE


def delete_records_before(node: Node, before: int) -> None:
    """Let the log start at an offset."""
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=before)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])
    ask(node, DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
    assert partition_of(node, "t").log_start_offset == before


def described_offsets(node: Node) -> tuple[int, int]:
    """The start offset and the lag."""
    kind = DescribeShareGroupOffsetsRequest
    topic = kind.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])
    request = kind(groups=[kind.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[topic])])
    answer = ask_for(DescribeShareGroupOffsetsResponse, node, request, 1).groups[0]
    assert answer.error_code == ErrorCode.NONE
    partition = answer.topics[0].partitions[0]
    return partition.start_offset, partition.lag
