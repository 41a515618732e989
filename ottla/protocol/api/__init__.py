"""The APIs that Ottla speaks: one module per API, request and response together.

`REGISTRY` is what the broker looks requests up in. The version range of an `Api` is that of its declaration; which
versions are advertised, and to whom, is the broker's affair. To add an API: its module here, its line in `_DECLARED`,
its handler in ottla/broker/api.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from ottla.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.api.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.api.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.api.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.api.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.protocol.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.protocol.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.api.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from ottla.protocol.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.api.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.api.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.message import Request, Response
from ottla.protocol.versions import NO_VERSION, UNBOUNDED


class ApiKey(IntEnum):
    """The keys of the declared APIs, by the names that Kafka gives them."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class Api(NamedTuple):
    """One API: its key, its name as Kafka writes it, its two messages and their versions."""

    key: ApiKey
    name: str
    request: type[Request]
    response: type[Response]
    min_version: int
    max_version: int
    flexible_from: int
    """The first version with compact lengths, tagged fields and the longer headers; `UNBOUNDED` if there is none."""


def _declared(request: type[Request], response: type[Response]) -> Api:
    """Both messages state key and versions; they have to agree."""
    if (request.message_key, request.message_versions, request.flexible_versions) != (
        response.message_key,
        response.message_versions,
        response.flexible_versions,
    ):
        raise TypeError(f"{request.__name__} and {response.__name__} disagree about key or versions")
    name = request.__name__.removesuffix("Request")
    flexible = request.flexible_versions
    flexible_from = UNBOUNDED if flexible == NO_VERSION else flexible.first
    return Api(ApiKey(request.message_key), name, request, response, *request.message_versions, flexible_from)


_DECLARED = (
    (ProduceRequest, ProduceResponse),
    (FetchRequest, FetchResponse),
    (ListOffsetsRequest, ListOffsetsResponse),
    (MetadataRequest, MetadataResponse),
    (OffsetCommitRequest, OffsetCommitResponse),
    (OffsetFetchRequest, OffsetFetchResponse),
    (FindCoordinatorRequest, FindCoordinatorResponse),
    (JoinGroupRequest, JoinGroupResponse),
    (HeartbeatRequest, HeartbeatResponse),
    (LeaveGroupRequest, LeaveGroupResponse),
    (SyncGroupRequest, SyncGroupResponse),
    (DescribeGroupsRequest, DescribeGroupsResponse),
    (ListGroupsRequest, ListGroupsResponse),
    (ApiVersionsRequest, ApiVersionsResponse),
    (CreateTopicsRequest, CreateTopicsResponse),
    (DeleteTopicsRequest, DeleteTopicsResponse),
    (DeleteRecordsRequest, DeleteRecordsResponse),
    (InitProducerIdRequest, InitProducerIdResponse),
    (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    (DescribeAclsRequest, DescribeAclsResponse),
    (CreateAclsRequest, CreateAclsResponse),
    (DeleteAclsRequest, DeleteAclsResponse),
    (DescribeConfigsRequest, DescribeConfigsResponse),
    (AlterConfigsRequest, AlterConfigsResponse),
    (AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    (DescribeLogDirsRequest, DescribeLogDirsResponse),
    (CreatePartitionsRequest, CreatePartitionsResponse),
    (DeleteGroupsRequest, DeleteGroupsResponse),
    (ElectLeadersRequest, ElectLeadersResponse),
    (IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    (AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    (ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    (OffsetDeleteRequest, OffsetDeleteResponse),
    (DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    (AlterClientQuotasRequest, AlterClientQuotasResponse),
    (DescribeQuorumRequest, DescribeQuorumResponse),
    (UpdateFeaturesRequest, UpdateFeaturesResponse),
    (DescribeClusterRequest, DescribeClusterResponse),
    (DescribeProducersRequest, DescribeProducersResponse),
    (ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    (ListConfigResourcesRequest, ListConfigResourcesResponse),
    (DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
)

REGISTRY: dict[int, Api] = {api.key: api for api in (_declared(*messages) for messages in _DECLARED)}
"""Every declared API by its key."""
