"""The part of an Admin that changes configurations and quotas, and describes log directories and reassignments.

A broker's own configuration and loggers are changed at that broker, everything else at any broker. Refusals are
reported by name in an `AdminError`; the rest is done.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from ottla.client.admin_client import refusals
from ottla.client.admin_results import AdminError, ConfigResource
from ottla.client.admin_settings_results import (
    ConfigChange,
    LogDirDescription,
    PartitionReassignment,
    QuotaEntity,
    ReplicaDescription,
)
from ottla.client.admin_tokens import TokenAdmin
from ottla.client.errors import KafkaError
from ottla.client.structs import TopicPartition
from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from ottla.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.protocol.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from ottla.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.errors import ErrorCode

_EXACT, _DEFAULT = 0, 1


class SettingsAdmin(TokenAdmin):
    """See the module; `Admin` is the class for programs."""

    # Settings ---------------------------------------------------------------------------------------------------

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> None:
        """Change single keys, or only check the changes (`validate_only`); raises AdminError by resource name.

        All changes of a resource are made, or none. For a broker that is not in the cluster, BROKER_NOT_AVAILABLE is
        raised immediately.
        """
        cluster = self._started()
        by_node: dict[int | None, list[ConfigResource]] = defaultdict(list)
        for resource in changes:
            by_node[resource.node_id].append(resource)

        async def ask(node_id: int | None, asked: list[ConfigResource]) -> dict[str, KafkaError]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsRequest.AlterConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            IncrementalAlterConfigsRequest.AlterableConfig(
                                name=one.name, config_operation=one.operation, value=one.value
                            )
                            for one in changes[resource]
                        ],
                    )
                    for resource in asked
                ],
                validate_only=validate_only,
            )
            await cluster.require_broker(node_id)
            answer = await cluster.ask(node_id, request, IncrementalAlterConfigsResponse)
            return refusals((one.resource_name, one.error_code, one.error_message) for one in answer.responses)

        answers = await asyncio.gather(
            *(cluster.retry(partial(ask, node_id, asked), self._timeout_ms) for node_id, asked in by_node.items())
        )
        refused = {name: error for answer in answers for name, error in answer.items()}
        if refused:
            raise AdminError(refused)

    async def describe_log_dirs(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """Return each broker's log directories by node id, with all of their partitions or only those given."""
        cluster = self._started()
        topics = None if partitions is None else _by_topic(partitions)

        async def ask(node_id: int) -> list[LogDirDescription]:
            asked = None
            if topics is not None:
                asked = [
                    DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=indexes)
                    for topic, indexes in topics.items()
                ]
            answer = await cluster.ask(node_id, DescribeLogDirsRequest(topics=asked), DescribeLogDirsResponse)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code))
            return [_log_dir(result) for result in answer.results]

        async def attempt() -> dict[int, list[LogDirDescription]]:
            await cluster.refresh()
            node_ids = sorted(cluster.brokers)
            return dict(zip(node_ids, await asyncio.gather(*map(ask, node_ids)), strict=True))

        return await cluster.retry(attempt, self._timeout_ms)

    async def describe_quotas(
        self, entity: Mapping[str, str | None] | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of all entities, or of those with the parts of `entity`, such as {"user": "alice"}.

        A name of None is the default of its type.
        """
        components = [
            DescribeClientQuotasRequest.ComponentData(
                entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name
            )
            for kind, name in (entity or {}).items()
        ]

        async def attempt() -> dict[QuotaEntity, dict[str, float]]:
            request = DescribeClientQuotasRequest(components=components, strict=False)
            answer = await self._started().ask(None, request, DescribeClientQuotasResponse)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), answer.error_message)
            return {
                tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
                    value.key: value.value for value in entry.values
                }
                for entry in answer.entries or ()
            }

        return await self._started().retry(attempt, self._timeout_ms)

    async def alter_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set quotas of entities, None to remove one; raises AdminError by entity, such as "user=alice,client-id=*"."""
        request = AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequest.EntryData(
                    entity=[
                        AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                    ],
                    ops=[
                        AlterClientQuotasRequest.OpData(
                            key=key, value=0.0 if value is None else value, remove=value is None
                        )
                        for key, value in quotas.items()
                    ],
                )
                for entity, quotas in changes.items()
            ],
            validate_only=validate_only,
        )

        # A broker may name the parts of an entity in another order than the program.
        names = {frozenset(entity): _entity_name(entity) for entity in changes}

        async def attempt() -> dict[str, KafkaError]:
            answer = await self._started().ask(None, request, AlterClientQuotasResponse)
            answered = [
                (tuple((one.entity_type, one.entity_name) for one in each.entity), each) for each in answer.entries
            ]
            return refusals(
                (names.get(frozenset(entity), _entity_name(entity)), each.error_code, each.error_message)
                for entity, each in answered
            )

        await self._change(attempt)

    async def alter_partition_reassignments(self, replicas: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Move partitions to these brokers, None to cancel a move; raises AdminError by `topic-partition`."""
        topics: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = defaultdict(list)
        for (topic, index), brokers in replicas.items():
            topics[topic].append(
                AlterPartitionReassignmentsRequest.ReassignablePartition(
                    partition_index=index, replicas=None if brokers is None else list(brokers)
                )
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._options.request_timeout_ms,
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

        async def attempt() -> dict[str, KafkaError]:
            connection, version = await self._controller(AlterPartitionReassignmentsRequest)
            answer = await connection.send(request, AlterPartitionReassignmentsResponse, version)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), answer.error_message)
            return refusals(
                (f"{topic.name}-{one.partition_index}", one.error_code, one.error_message)
                for topic in answer.responses
                for one in topic.partitions
            )

        await self._change(attempt)

    async def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Return the partitions that are moving between brokers."""

        async def attempt() -> dict[TopicPartition, PartitionReassignment]:
            request = ListPartitionReassignmentsRequest(timeout_ms=self._options.request_timeout_ms, topics=None)
            connection, version = await self._controller(ListPartitionReassignmentsRequest)
            answer = await connection.send(request, ListPartitionReassignmentsResponse, version)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), answer.error_message)
            return {
                TopicPartition(topic.name, one.partition_index): PartitionReassignment(
                    one.replicas, one.adding_replicas, one.removing_replicas
                )
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._started().retry(attempt, self._timeout_ms)


def _entity_name(entity: QuotaEntity) -> str:
    return ",".join(f"{kind}={'*' if name is None else name}" for kind, name in entity)


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        topics[topic].append(index)
    return topics


def _log_dir(entry: DescribeLogDirsResponse.DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        path=entry.log_dir,
        total_bytes=entry.total_bytes,
        usable_bytes=entry.usable_bytes,
        replicas={
            TopicPartition(topic.name, one.partition_index): ReplicaDescription(
                one.partition_size, one.offset_lag, one.is_future_key
            )
            for topic in entry.topics
            for one in topic.partitions
        },
        error=KafkaError(ErrorCode.of(entry.error_code)) if entry.error_code else None,
        is_cordoned=entry.is_cordoned,
    )
