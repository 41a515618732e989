"""The error responses of the administrators' APIs, when the whole request is refused; the rest of `refusals.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from ottla.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.api.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from ottla.protocol.api.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.api.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.protocol.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.protocol.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from ottla.protocol.api.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response


def _alter_configs(request: AlterConfigsRequest, version: int, code: ErrorCode, message: str) -> Response:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _describe_log_dirs(request: DescribeLogDirsRequest, version: int, code: ErrorCode, message: str) -> Response:
    return DescribeLogDirsResponse(error_code=code, results=[])


def _alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _elect_leaders(request: ElectLeadersRequest, version: int, code: ErrorCode, message: str) -> Response:
    return ElectLeadersResponse(
        error_code=code if version >= 1 else ErrorCode.NONE,
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersResponse.PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message, responses=[])


def _list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message, topics=[])


def _describe_client_quotas(
    request: DescribeClientQuotasRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _alter_client_quotas(request: AlterClientQuotasRequest, version: int, code: ErrorCode, message: str) -> Response:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponse.EntryData(
                error_code=code,
                error_message=message,
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _describe_quorum(request: DescribeQuorumRequest, version: int, code: ErrorCode, message: str) -> Response:
    return DescribeQuorumResponse(error_code=code, error_message=message, topics=[])


def _update_features(request: UpdateFeaturesRequest, version: int, code: ErrorCode, message: str) -> Response:
    return UpdateFeaturesResponse(error_code=code, error_message=message)


def _describe_producers(request: DescribeProducersRequest, version: int, code: ErrorCode, message: str) -> Response:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    DescribeProducersResponse.PartitionResponse(
                        partition_index=index, error_code=code, error_message=message, active_producers=[]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _list_config_resources(
    request: ListConfigResourcesRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return ListConfigResourcesResponse(error_code=code, config_resources=[])


def _describe_acls(request: DescribeAclsRequest, version: int, code: ErrorCode, message: str) -> Response:
    return DescribeAclsResponse(error_code=code, error_message=message, resources=[])


def _create_acls(request: CreateAclsRequest, version: int, code: ErrorCode, message: str) -> Response:
    one = CreateAclsResponse.AclCreationResult(error_code=code, error_message=message)
    return CreateAclsResponse(results=[one] * len(request.creations))


def _delete_acls(request: DeleteAclsRequest, version: int, code: ErrorCode, message: str) -> Response:
    one = DeleteAclsResponse.DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[])
    return DeleteAclsResponse(filter_results=[one] * len(request.filters))


ADMIN_REFUSALS: dict[type[Request], Callable[[Any, int, ErrorCode, str], Response | None]] = {
    AlterConfigsRequest: _alter_configs,
    IncrementalAlterConfigsRequest: _incremental_alter_configs,
    DescribeLogDirsRequest: _describe_log_dirs,
    AlterReplicaLogDirsRequest: _alter_replica_log_dirs,
    ElectLeadersRequest: _elect_leaders,
    AlterPartitionReassignmentsRequest: _alter_partition_reassignments,
    ListPartitionReassignmentsRequest: _list_partition_reassignments,
    DescribeClientQuotasRequest: _describe_client_quotas,
    AlterClientQuotasRequest: _alter_client_quotas,
    DescribeQuorumRequest: _describe_quorum,
    UpdateFeaturesRequest: _update_features,
    DescribeProducersRequest: _describe_producers,
    ListConfigResourcesRequest: _list_config_resources,
    DescribeAclsRequest: _describe_acls,
    CreateAclsRequest: _create_acls,
    DeleteAclsRequest: _delete_acls,
}
"""How each of these requests is refused, by its class."""
