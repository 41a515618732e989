"""What the modules of the APIs state: each states it, and the rights are those that Kafka documents."""

from __future__ import annotations

import inspect

import pytest

from ottla.broker.api import HANDLERS
from ottla.broker.declarations import Chunks, Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.errors import ErrorCode

WITHOUT_HANDLER: dict[ApiKey, str] = {}
"""APIs that are declared and not served, each with its reason."""

DOCUMENTED = """
Produce: Write Topic, Write TransactionalId, IdempotentWrite Cluster
Fetch: Read Topic, ClusterAction Cluster
ListOffsets: Describe Topic
Metadata: Describe Topic, Create Topic, Create Cluster
OffsetCommit: Read Group, Read Topic
OffsetFetch: Describe Group, Describe Topic
FindCoordinator: Describe Group, Describe TransactionalId
JoinGroup: Read Group
Heartbeat: Read Group
LeaveGroup: Read Group
SyncGroup: Read Group
DescribeGroups: Describe Group
ListGroups: Describe Cluster, Describe Group
SaslHandshake:
ApiVersions:
SaslAuthenticate:
CreateTopics: Create Cluster, Create Topic
DeleteTopics: Delete Topic
DeleteRecords: Delete Topic
InitProducerId: Write TransactionalId, IdempotentWrite Cluster
OffsetForLeaderEpoch: ClusterAction Cluster, Describe Topic
DescribeAcls: Describe Cluster
CreateAcls: Alter Cluster
DeleteAcls: Alter Cluster
DescribeConfigs: DescribeConfigs Cluster, DescribeConfigs Topic
AlterConfigs: AlterConfigs Cluster, AlterConfigs Topic
AlterReplicaLogDirs: Alter Cluster
DescribeLogDirs: Describe Cluster
CreatePartitions: Alter Topic
CreateDelegationToken: CreateTokens User
RenewDelegationToken:
ExpireDelegationToken:
DescribeDelegationToken: Describe DelegationToken, DescribeTokens User
DeleteGroups: Delete Group
ElectLeaders: ClusterAction Cluster
IncrementalAlterConfigs: AlterConfigs Cluster, AlterConfigs Topic
AlterPartitionReassignments: Alter Cluster
ListPartitionReassignments: Describe Cluster
OffsetDelete: Delete Group, Read Topic
DescribeClientQuotas: DescribeConfigs Cluster
AlterClientQuotas: AlterConfigs Cluster
DescribeUserScramCredentials:
AlterUserScramCredentials:
DescribeQuorum: Describe Cluster
UpdateFeatures: Alter Cluster
DescribeCluster: Describe Cluster
DescribeProducers: Read Topic
ConsumerGroupHeartbeat: Read Group
ConsumerGroupDescribe: Read Group
ListConfigResources: DescribeConfigs Cluster
DescribeTopicPartitions: Describe Topic
AddPartitionsToTxn: Write TransactionalId, Write Topic
AddOffsetsToTxn: Write TransactionalId, Read Group
EndTxn: Write TransactionalId
UnregisterBroker: Alter Cluster
WriteTxnMarkers: Alter Cluster, ClusterAction Cluster
TxnOffsetCommit: Write TransactionalId, Read Group, Read Topic
DescribeTransactions: Describe TransactionalId
ListTransactions: Describe TransactionalId
ShareGroupHeartbeat: Read Group
ShareGroupDescribe: Describe Group
ShareFetch: Read Group, Read Topic
ShareAcknowledge: Read Group, Read Topic
DescribeShareGroupOffsets: Describe Group, Describe Topic
AlterShareGroupOffsets: Read Group, Read Topic
DeleteShareGroupOffsets: Delete Group, Read Topic
StreamsGroupHeartbeat: Read Group, Describe Topic, Create Topic, Create Cluster
StreamsGroupDescribe: Describe Group, Describe Topic
StreamsGroupTopologyDescriptionUpdate: Read Group
"""
"""Kafka 4.1, docs/security.html, "Operations and Resources on Protocols"; the rights of share groups are those that the
code of Kafka 4.2 asks for (KafkaApis), and the rights of streams groups those of Kafka 4.4."""

DIFFERENT = {
    # What the code of Kafka 4.1 asks for (KafkaApis, ControllerApis), where its documentation says less or otherwise.
    "Produce": ("-IdempotentWrite Cluster", "the right to write to the topic is enough since 3.0 (KIP-679)"),
    "Metadata": ("+Describe Cluster", "for the authorized operations of the cluster (KIP-430)"),
    "CreateTopics": ("+DescribeConfigs Topic", "for the configuration in the answer (KIP-525)"),
    "DeleteTopics": ("+Describe Topic +Delete Cluster", "ids must not show names; the cluster stands for all topics"),
    "InitProducerId": ("+Write Topic", "of any topic, in place of IdempotentWrite (KIP-679)"),
    "DescribeConfigs": ("+DescribeConfigs Group", "groups have configurations since 4.0 (KIP-848)"),
    "AlterConfigs": ("+AlterConfigs Group", "the same"),
    "IncrementalAlterConfigs": ("+AlterConfigs Group", "the same"),
    "ElectLeaders": ("-ClusterAction Cluster +Alter Cluster", "the page has the right of the API's first draft"),
    "FindCoordinator": ("+ClusterAction Cluster", "of brokers, for a share group's state (KIP-932)"),
    "AddPartitionsToTxn": ("+ClusterAction Cluster", "of brokers, from version 4 on (KIP-890)"),
    "DescribeUserScramCredentials": ("+Describe Cluster", "the page does not have it"),
    "AlterUserScramCredentials": ("+Alter Cluster", "the same"),
    "DescribeTransactions": ("+Describe Topic", "partitions of other topics are left out"),
    "ConsumerGroupHeartbeat": ("+Describe Topic", "of the topics that are subscribed to"),
    "ShareGroupHeartbeat": ("+Describe Topic", "of the topics that are subscribed to"),
    "ShareGroupDescribe": ("+Describe Topic", "of the topics that members have"),
    "ConsumerGroupDescribe": (
        "-Read Group +Describe Group +Describe Topic",
        "the documentation is wrong, says CVE-2026-41115; topics of members are not shown to everybody",
    ),
}
OPERATIONS = {operation.name.replace("_", "").lower(): operation for operation in AclOperation}
TYPES = {kind.name.replace("_", "").lower(): kind for kind in ResourceType}
Right = tuple[AclOperation, ResourceType]


def right(text: str) -> Right:
    operation, kind = text.lower().split()
    return OPERATIONS[operation], TYPES[kind]


def documented() -> dict[str, set[Right]]:
    table = {}
    for line in DOCUMENTED.strip().splitlines():
        name, _, rights = line.partition(":")
        table[name] = {right(one) for one in rights.split(",") if one.strip()}
    for name, (changes, _reason) in DIFFERENT.items():
        words = changes.split()
        for sign_and_operation, kind in zip(words[::2], words[1::2], strict=True):
            changed = right(f"{sign_and_operation[1:]} {kind}")
            assert (changed in table[name]) == sign_and_operation.startswith("-"), f"{name}: {changes} changes nothing"
            table[name] ^= {changed}
    return table


def stated(needs: tuple[Need, ...]) -> set[Right]:
    rights = {(need.operation, need.resource_type) for need in needs}
    return rights | {need.unless for need in needs if need.unless is not None}


def test_every_declared_api_has_its_handler_or_a_reason_why_not() -> None:
    assert set(REGISTRY) == HANDLERS.keys() | WITHOUT_HANDLER.keys()
    assert not HANDLERS.keys() & WITHOUT_HANDLER.keys()


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: key.name)
def test_every_module_states_what_its_api_needs_and_whether_it_is_chunked(key: ApiKey) -> None:
    handler = HANDLERS[key]()
    assert all(type(need) is Need for need in handler.needs)
    assert all(type(one) is Chunks for one in handler.chunks)
    assert list(inspect.signature(handler.handle).parameters) == ["request", "context"]
    assert inspect.getmodule(handler.handle).__name__ == f"ottla.broker.api.{key.name.lower()}"  # type: ignore[union-attr]  # a module's function


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: key.name)
def test_the_rights_that_an_api_needs_are_those_that_kafka_documents(key: ApiKey) -> None:
    assert stated(HANDLERS[key]().needs) == documented()[REGISTRY[key].name]


@pytest.mark.parametrize("key", REGISTRY, ids=lambda key: key.name)
def test_every_api_states_how_it_is_refused(key: ApiKey) -> None:
    api = REGISTRY[key]
    parameters = inspect.signature(api.refused).parameters
    assert list(parameters) == ["request", "version", "code", "message"]
    assert api.refused.__module__ == api.request.__module__ == api.response.__module__
    assert ErrorCode.__name__ in str(parameters["code"].annotation)


def test_the_numbers_of_operations_and_resource_types_are_kafkas() -> None:
    """Against kafka-python's tables, which are older than KIP-939."""
    from kafka.admin import ACLOperation
    from kafka.admin import ResourceType as KafkaResourceType

    theirs = {one.name: one.value for one in ACLOperation} | {"TWO_PHASE_COMMIT": 15}
    assert {one.name: one.value for one in AclOperation} == {one.name: theirs[one.name] for one in AclOperation}
    types = {one.name: one.value for one in KafkaResourceType}
    assert {one.name: one.value for one in ResourceType} == {one.name: types[one.name] for one in ResourceType}
