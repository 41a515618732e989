"""Admin: creates, grows, describes and deletes topics, describes configurations and offsets, deletes records.

A method that handles several things does all it can, then raises `AdminError` with the refusals by name. Changes are
sent to the controller if the broker names one, and again to the new one after NOT_CONTROLLER; transient errors are
retried for `default_api_timeout_ms`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from ottla.client.admin_client import refusals
from ottla.client.admin_features import FeatureAdmin
from ottla.client.admin_results import (
    AdminError,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSynonym,
    NewTopic,
    PartitionDescription,
    TopicDescription,
)
from ottla.client.errors import KafkaError, UnsupportedByBroker, is_worth_retrying
from ottla.client.missing_look_ups import gives_up_on_a_topic, gives_up_soon, most_final
from ottla.client.offsets import OffsetAndTimestamp, list_offsets
from ottla.client.structs import BrokerAddress, TopicPartition, as_names
from ottla.client.unanswered_attempts import UnansweredAttempts
from ottla.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.api.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import ZERO_UUID

_FIRST_VERSION_WITH_BROKER_DEFAULTS = 4
_FIRST_VERSION_WITH_DOCUMENTATION = 3
_FIRST_VERSION_THAT_DELETES_BY_STATE = 6


class Admin(FeatureAdmin):
    """See the module. Use it as a context manager, or call `start` and `close`.

    `bootstrap_servers` is `host:port`, with commas or as a list; or a mapping of options under Kafka's dotted names,
    including `bootstrap.servers`. Options as keywords have underscores: `AdminOptions` and `ClientOptions` describe
    them. Raises ValueError for an option that does not exist or is invalid.
    """

    # Topics -----------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
    ) -> None:
        """Create one topic; -1 means the broker's default. Raises KafkaError, such as TOPIC_ALREADY_EXISTS."""
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        try:
            await self.create_topics([topic])
        except AdminError as refused:
            raise refused.errors[name] from None

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics, or only check whether that is possible (`validate_only`); raises AdminError by topic."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=topic.name,
                    num_partitions=-1 if topic.assignments else topic.partitions,
                    replication_factor=-1 if topic.assignments else topic.replication_factor,
                    assignments=[
                        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                        for index, brokers in sorted(topic.assignments.items())
                    ],
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                        for name, value in topic.configs.items()
                    ],
                )
                for topic in topics
            ],
            timeout_ms=self._options.request_timeout_ms,
            validate_only=validate_only,
        )
        wants_defaults = any(-1 in (t.partitions, t.replication_factor) and not t.assignments for t in topics)

        lowest = _FIRST_VERSION_WITH_BROKER_DEFAULTS if wants_defaults else 0
        attempts = UnansweredAttempts(ErrorCode.TOPIC_ALREADY_EXISTS, "created the topic")

        async def attempt() -> dict[str, KafkaError]:
            connection, version = await self._controller(CreateTopicsRequest, lowest)
            answer = await attempts.watch(connection.send(request, CreateTopicsResponse, version))
            refused = refusals((topic.name, topic.error_code, topic.error_message) for topic in answer.topics)
            return attempts.explained(refused)

        await self._change(attempt)

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their records; raises AdminError by topic."""
        names = as_names(names)
        states = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
        attempts = UnansweredAttempts(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted the topic")

        async def attempt() -> dict[str, KafkaError]:
            connection, version = await self._controller(DeleteTopicsRequest)
            request = DeleteTopicsRequest(
                topics=states if version >= _FIRST_VERSION_THAT_DELETES_BY_STATE else [],
                topic_names=names,
                timeout_ms=self._options.request_timeout_ms,
            )
            answer = await attempts.watch(connection.send(request, DeleteTopicsResponse, version))
            refused = refusals((topic.name or "", topic.error_code, topic.error_message) for topic in answer.responses)
            return attempts.explained(refused)

        await self._change(attempt)

    async def create_partitions(self, totals: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Grow topics to these numbers of partitions; raises AdminError by topic."""
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in totals.items()
            ],
            timeout_ms=self._options.request_timeout_ms,
            validate_only=validate_only,
        )
        attempts = UnansweredAttempts(ErrorCode.INVALID_PARTITIONS, "added the partitions")

        async def attempt() -> dict[str, KafkaError]:
            connection, version = await self._controller(CreatePartitionsRequest)
            answer = await attempts.watch(connection.send(request, CreatePartitionsResponse, version))
            refused = refusals((topic.name, topic.error_code, topic.error_message) for topic in answer.results)
            return attempts.explained(refused)

        await self._change(attempt)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted."""
        topics = await self._metadata(None)
        return sorted(t.name for t in topics if t.name is not None and (include_internal or not t.is_internal))

    async def describe_topics(self, names: Sequence[str] | None = None) -> dict[str, TopicDescription]:
        """Return topics by name, all of them for None; raises AdminError by topic for those that do not exist."""
        errors: dict[str, KafkaError] = {}
        found: dict[str, TopicDescription] = {}
        for topic in await self._metadata(None if names is None else as_names(names)):
            name = topic.name or ""
            if topic.error_code:
                code = ErrorCode.of(topic.error_code)
                errors[name] = KafkaError(code)
                continue
            partitions = [
                PartitionDescription(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
                for p in sorted(topic.partitions, key=lambda p: p.partition_index)
            ]
            found[name] = TopicDescription(name, topic.topic_id, topic.is_internal, partitions)
        if errors:
            raise AdminError(errors)
        return found

    # Cluster and configurations ---------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        """Return the brokers, the controller and the cluster's id."""
        cluster = self._started()

        async def attempt() -> ClusterDescription:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            try:
                answer = await cluster.ask(None, request, DescribeClusterResponse)
            except UnsupportedByBroker:  # before Kafka 2.8; its metadata has the same
                await cluster.refresh()
                known = list(cluster.brokers.values())
                return ClusterDescription(cluster.cluster_id, cluster.controller_id, known)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), answer.error_message)
            brokers = [BrokerAddress(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers]
            return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)

        return await cluster.retry(attempt, self._timeout_ms)

    async def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        *,
        keys: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return configurations by name, all or those in `keys`; raises AdminError by resource name.

        The configuration of a broker is requested from that broker, others from any. For a broker that is not in the
        cluster, BROKER_NOT_AVAILABLE is raised immediately.
        """
        cluster = self._started()
        by_node: dict[int | None, list[ConfigResource]] = defaultdict(list)
        for resource in resources:
            by_node[resource.node_id].append(resource)

        async def ask(node_id: int | None, asked: list[ConfigResource]) -> DescribeConfigsResponse:
            await cluster.require_broker(node_id)
            connection = await (cluster.any_connection() if node_id is None else cluster.connection(node_id))
            version = connection.version_for(DescribeConfigsRequest)
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None if keys is None else list(keys),
                    )
                    for resource in asked
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation and version >= _FIRST_VERSION_WITH_DOCUMENTATION,
            )
            return await connection.send(request, DescribeConfigsResponse, version)

        answers = await asyncio.gather(
            *(cluster.retry(partial(ask, node_id, asked), self._timeout_ms) for node_id, asked in by_node.items())
        )
        results = [result for answer in answers for result in answer.results]
        refused = refusals((result.resource_name, result.error_code, result.error_message) for result in results)
        if refused:
            raise AdminError(refused)
        return {
            ConfigResource(ConfigResourceType(result.resource_type), result.resource_name): {
                entry.name: _config_entry(entry) for entry in result.configs
            }
            for result in results
        }

    # Offsets ----------------------------------------------------------------------------------------------------

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, per partition, the first record with that timestamp (ms) or later, None where there is none.

        `EARLIEST`, `LATEST` and `MAX_TIMESTAMP` may be given as a timestamp. Raises KafkaError,
        UNKNOWN_TOPIC_OR_PARTITION at once for a topic that does not exist, and soon for a partition.
        """
        asked = {TopicPartition(*partition): timestamp for partition, timestamp in timestamps.items()}
        return await list_offsets(
            self._started(),
            asked,
            isolation_level=int(read_committed),
            timeout_ms=self._timeout_ms,
            gives_up=gives_up_on_a_topic,
        )

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (-1: all records) and return the new start offset of each partition.

        Raises AdminError by `topic-partition`; a topic that does not exist is asked for again for half a second.
        """
        cluster = self._started()
        done: dict[TopicPartition, int] = {}
        refused: dict[str, KafkaError] = {}

        async def attempt() -> None:
            missing = [TopicPartition(*partition) for partition in before if TopicPartition(*partition) not in done]
            if any(cluster.leader_of(*partition) < 0 for partition in missing):
                await cluster.refresh({partition.topic for partition in missing})
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for partition in missing:
                by_leader[cluster.leader_of(*partition)].append(partition)
            refused.clear()
            for leader_id, partitions in by_leader.items():
                await self._delete_records_at(leader_id, {p: before[p] for p in partitions}, done, refused)
            passing = [error for error in refused.values() if is_worth_retrying(error)]
            if passing:
                cluster.mark_stale()
                raise most_final(passing)

        try:
            await cluster.retry(attempt, self._timeout_ms, gives_up_soon)
        except KafkaError:
            if not refused:
                raise
        if refused:
            raise AdminError(refused)
        return done

    async def _delete_records_at(
        self,
        leader_id: int,
        before: Mapping[TopicPartition, int],
        done: dict[TopicPartition, int],
        refused: dict[str, KafkaError],
    ) -> None:
        if leader_id < 0:
            unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            refused.update({f"{topic}-{partition}": unknown for topic, partition in before})
            return
        by_topic: dict[str, list[DeleteRecordsRequest.DeleteRecordsPartition]] = defaultdict(list)
        for (topic, partition), offset in before.items():
            by_topic[topic].append(
                DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
            )
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
            timeout_ms=self._options.request_timeout_ms,
        )
        answer = await self._started().ask(leader_id, request, DeleteRecordsResponse)
        for entry in answer.topics:
            for result in entry.partitions:
                if result.error_code:
                    error = KafkaError(ErrorCode.of(result.error_code))
                    refused[f"{entry.name}-{result.partition_index}"] = error
                else:
                    done[TopicPartition(entry.name, result.partition_index)] = result.low_watermark

    # Inside -----------------------------------------------------------------------------------------------------

    async def _all_topics(self) -> Mapping[str, TopicDescription]:
        return await self.describe_topics()

    async def _metadata(self, names: Sequence[str] | None) -> list[MetadataResponse.MetadataResponseTopic]:
        """Request the metadata of topics, without creating any."""
        cluster = self._started()
        topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

        async def attempt() -> list[MetadataResponse.MetadataResponseTopic]:
            return (await cluster.ask(None, request, MetadataResponse)).topics

        return await cluster.retry(attempt, self._timeout_ms)


def _config_entry(entry: DescribeConfigsResponse.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=entry.config_source,
        is_read_only=entry.read_only,
        is_sensitive=entry.is_sensitive,
        synonyms=[ConfigSynonym(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
        documentation=entry.documentation,
    )
