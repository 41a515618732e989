"""The error response of each API, when the whole request is refused (Kafka's `AbstractRequest.getErrorResponse`).

A response with an `error_code` at its top says it there; the others say it for every item that was asked for.
Handlers refuse single items themselves; this is for what concerns all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.groups.classic_answers import join_refused, sync_refused
from ottla.broker.requests.admin_refusals import ADMIN_REFUSALS
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.api.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.api.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.join_group import JoinGroupRequest
from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.api.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.types import ZERO_UUID


def refusal(request: Request, version: int, code: ErrorCode, message: str) -> Response | None:
    """The response that refuses all of `request`; None where there is none (acks=0, ApiVersions and the like)."""
    refuse = _REFUSALS.get(type(request))
    return None if refuse is None else refuse(request, version, code, message)


def _produce(request: ProduceRequest, version: int, code: ErrorCode, message: str) -> Response | None:
    if request.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=-1, error_message=message
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: FetchRequest, version: int, code: ErrorCode, message: str) -> Response:
    """From version 7 on the code stands at the top and no partition is named: the session is what failed."""
    if version >= 7:
        return FetchResponse(error_code=code, responses=[])
    return FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=asked.partition, error_code=code, high_watermark=-1, records=b""
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list_offsets(request: ListOffsetsRequest, version: int, code: ErrorCode, message: str) -> Response:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _metadata(request: MetadataRequest, version: int, code: ErrorCode, message: str) -> Response:
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponse.MetadataResponseTopic(
                error_code=code,
                name=topic.name if version >= 12 else topic.name or "",
                topic_id=topic.topic_id,
                partitions=[],
            )
            for topic in request.topics or ()
        ],
        error_code=code,
    )


def _offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    OffsetForLeaderEpochResponse.EpochEndOffset(error_code=code, partition=asked.partition)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _delete_records(request: DeleteRecordsRequest, version: int, code: ErrorCode, message: str) -> Response:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsResponse.DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index, low_watermark=-1, error_code=code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _init_producer_id(request: InitProducerIdRequest, version: int, code: ErrorCode, message: str) -> Response:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


def _find_coordinator(request: FindCoordinatorRequest, version: int, code: ErrorCode, message: str) -> Response:
    if version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
            )
            for key in request.coordinator_keys
        ]
    )


def _offset_commit(request: OffsetCommitRequest, version: int, code: ErrorCode, message: str) -> Response:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: OffsetFetchRequest, version: int, code: ErrorCode, message: str) -> Response:
    """For each group, for the request from version 2 on, and before that for each partition."""
    if version >= 8:
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        return OffsetFetchResponse(
            groups=[group(group_id=asked.group_id, topics=[], error_code=code) for asked in request.groups]
        )
    if version >= 2:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _offset_delete(request: OffsetDeleteRequest, version: int, code: ErrorCode, message: str) -> Response:
    return OffsetDeleteResponse(error_code=code, topics=[])


def _list_groups(request: ListGroupsRequest, version: int, code: ErrorCode, message: str) -> Response:
    return ListGroupsResponse(error_code=code, groups=[])


def _describe_groups(request: DescribeGroupsRequest, version: int, code: ErrorCode, message: str) -> Response:
    return DescribeGroupsResponse(
        groups=[
            DescribeGroupsResponse.DescribedGroup(
                error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
            )
            for group_id in request.groups
        ]
    )


def _delete_groups(request: DeleteGroupsRequest, version: int, code: ErrorCode, message: str) -> Response:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id in request.groups_names
        ]
    )


def _create_topics(request: CreateTopicsRequest, version: int, code: ErrorCode, message: str) -> Response:
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


def _delete_topics(request: DeleteTopicsRequest, version: int, code: ErrorCode, message: str) -> Response:
    result = DeleteTopicsResponse.DeletableTopicResult
    if version >= 6:
        results = [
            result(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message)
            for topic in request.topics
        ]
    else:
        results = [
            result(name=name, topic_id=ZERO_UUID, error_code=code, error_message=message)
            for name in request.topic_names
        ]
    return DeleteTopicsResponse(responses=results)


def _create_partitions(request: CreatePartitionsRequest, version: int, code: ErrorCode, message: str) -> Response:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=topic.name, error_code=code, error_message=message
            )
            for topic in request.topics
        ]
    )


def _describe_configs(request: DescribeConfigsRequest, version: int, code: ErrorCode, message: str) -> Response:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResponse.DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[],
            )
            for resource in request.resources
        ]
    )


def _describe_cluster(request: DescribeClusterRequest, version: int, code: ErrorCode, message: str) -> Response:
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])


def _describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
                error_code=code, name=topic.name, topic_id=ZERO_UUID, partitions=[]
            )
            for topic in request.topics
        ]
    )


def _join_group(request: JoinGroupRequest, version: int, code: ErrorCode, message: str) -> Response:
    return join_refused(version, request.member_id, code)


def _sync_group(request: SyncGroupRequest, version: int, code: ErrorCode, message: str) -> Response:
    return sync_refused(code)


def _heartbeat(request: HeartbeatRequest, version: int, code: ErrorCode, message: str) -> Response:
    return HeartbeatResponse(error_code=code)


def _leave_group(request: LeaveGroupRequest, version: int, code: ErrorCode, message: str) -> Response:
    """No member is named where all of the request is refused."""
    return LeaveGroupResponse(error_code=code)


def _consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def _consumer_group_describe(
    request: ConsumerGroupDescribeRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return ConsumerGroupDescribeResponse(
        groups=[
            ConsumerGroupDescribeResponse.DescribedGroup(
                error_code=code,
                error_message=message,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for group_id in request.group_ids
        ]
    )


_REFUSALS: dict[type[Request], Callable[[Any, int, ErrorCode, str], Response | None]] = {
    ProduceRequest: _produce,
    FetchRequest: _fetch,
    ListOffsetsRequest: _list_offsets,
    MetadataRequest: _metadata,
    OffsetForLeaderEpochRequest: _offset_for_leader_epoch,
    DeleteRecordsRequest: _delete_records,
    InitProducerIdRequest: _init_producer_id,
    FindCoordinatorRequest: _find_coordinator,
    OffsetCommitRequest: _offset_commit,
    OffsetFetchRequest: _offset_fetch,
    OffsetDeleteRequest: _offset_delete,
    ListGroupsRequest: _list_groups,
    DescribeGroupsRequest: _describe_groups,
    DeleteGroupsRequest: _delete_groups,
    CreateTopicsRequest: _create_topics,
    DeleteTopicsRequest: _delete_topics,
    CreatePartitionsRequest: _create_partitions,
    DescribeConfigsRequest: _describe_configs,
    DescribeClusterRequest: _describe_cluster,
    DescribeTopicPartitionsRequest: _describe_topic_partitions,
    JoinGroupRequest: _join_group,
    SyncGroupRequest: _sync_group,
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: _leave_group,
    ConsumerGroupHeartbeatRequest: _consumer_group_heartbeat,
    ConsumerGroupDescribeRequest: _consumer_group_describe,
    **ADMIN_REFUSALS,
}
