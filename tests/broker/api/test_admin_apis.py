"""Log directories, elections, reassignments, producers, quotas, features, the quorum: Apache Kafka 4.1's answers."""

from __future__ import annotations

import random

import pytest
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.nodes import DATA, ask, partition_of, start_node
from kit.settings import BROKER, DELETE, GROUP, SET, alter

from ottla.broker.api import describe_producers
from ottla.broker.context import Context
from ottla.broker.metadata import quota_plans
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api import ApiKey
from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from ottla.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.api.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from ottla.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.protocol.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.api.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.producers.producer_entry import ProducerEntry

EXACT, DEFAULT, SPECIFIED = range(3)
INVALID, NONE = ErrorCode.INVALID_REQUEST, ErrorCode.NONE
Entity = list[tuple[str, str | None]]


@pytest.fixture
def node() -> Node:
    node, _, _ = start_node(log_dirs="/data,/more")
    make_topic(node, "t", 2)
    return node


# --- DescribeLogDirs and AlterReplicaLogDirs


def log_dirs(
    node: Node, topics: list[tuple[str, list[int]]] | None = None, version: int = 4
) -> DescribeLogDirsResponse:
    asked = None
    if topics is not None:
        asked = [
            DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=partitions)
            for name, partitions in topics
        ]
    response = ask(node, DescribeLogDirsRequest(topics=asked), version)
    assert isinstance(response, DescribeLogDirsResponse)
    return response


def partitions_described(response: DescribeLogDirsResponse) -> list[tuple[str, str, int]]:
    return sorted(
        (result.log_dir, topic.name, partition.partition_index)
        for result in response.results
        for topic in result.topics
        for partition in topic.partitions
    )


@pytest.mark.parametrize("version", range(6))
def test_each_log_directory_is_described_with_what_is_in_it(node: Node, version: int) -> None:
    Exchange(node).ask(produce_request("t", batch(1, value=b"v" * 500)), 9)
    response = log_dirs(node, version=version)
    assert [(result.log_dir, result.error_code) for result in response.results] == [("/data", NONE), ("/more", NONE)]
    assert [name for _, name, _ in partitions_described(response)] == ["t", "t"]
    assert {directory for directory, _, _ in partitions_described(response)} == {"/data", "/more"}
    everything = [one for result in response.results for topic in result.topics for one in topic.partitions]
    assert sorted(one.partition_size > 500 for one in everything) == [False, True]
    assert {(one.offset_lag, one.is_future_key) for one in everything} == {(0, False)}


def test_only_the_partitions_that_were_asked_for_and_exist_are_described(node: Node) -> None:
    assert [reported[1:] for reported in partitions_described(log_dirs(node, [("t", [1, 5]), ("nope", [0])]))] == [
        ("t", 1)
    ]
    assert partitions_described(log_dirs(node, [])) == []
    assert [reported[1:] for reported in partitions_described(log_dirs(node, [("t", [1]), ("t", [0]), ("t", [])]))] == [
        ("t", 0),
        ("t", 1),
    ]
    assert partitions_described(log_dirs(node, [("__cluster_metadata", [0])])) == []


def test_a_directory_that_has_failed_says_so(node: Node) -> None:
    node.services.log_manager.directories[1].mark_offline(OSError(5, "Input/output error"))
    results = {result.log_dir: result for result in log_dirs(node).results}
    assert (results["/data"].error_code, results["/more"].error_code) == (NONE, ErrorCode.KAFKA_STORAGE_ERROR)
    assert results["/more"].topics == []


def test_the_only_broker_cannot_be_unregistered(node: Node) -> None:
    """Apache Kafka obeys, and has no broker and no controller any more."""
    answer = Exchange(node).ask(UnregisterBrokerRequest(broker_id=1), 0)
    assert isinstance(answer, UnregisterBrokerResponse)
    assert (answer.error_code, "the only broker" in str(answer.error_message)) == (INVALID, True)


def cordon(node: Node, value: str, name: str = "1") -> tuple[ErrorCode, str | None]:
    return alter(node, BROKER, name, ("cordoned.log.dirs", SET, value))


def places(node: Node) -> list[str]:
    return [directory for directory, _, _ in partitions_described(log_dirs(node))]


def test_a_cordoned_directory_takes_no_new_partitions_and_keeps_those_that_it_has(node: Node) -> None:
    assert cordon(node, "/data") == (NONE, None)
    assert [(one.log_dir, one.is_cordoned) for one in log_dirs(node, version=5).results] == [
        ("/data", True),
        ("/more", False),
    ]
    make_topic(node, "u", 4)
    assert places(node) == ["/data", *["/more"] * 5]
    assert alter(node, BROKER, "1", ("cordoned.log.dirs", DELETE, None)) == (NONE, None)
    make_topic(node, "v", 4)
    assert places(node).count("/data") == 5


@pytest.mark.parametrize("value", ["*", "/data,/more"])
def test_while_all_directories_are_cordoned_no_topic_is_created(node: Node, value: str) -> None:
    """With the codes of Apache Kafka 4.4."""
    assert cordon(node, value) == (NONE, None)
    assert [one.is_cordoned for one in log_dirs(node, version=5).results] == [True, True]

    def create(*assignments: CreateTopicsRequest.CreatableReplicaAssignment) -> int:
        topic = CreateTopicsRequest.CreatableTopic(
            name="u",
            num_partitions=-1 if assignments else 1,
            replication_factor=-1 if assignments else 1,
            assignments=list(assignments),
            configs=[],
        )
        answer = ask(node, CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7)
        assert isinstance(answer, CreateTopicsResponse)
        return answer.topics[0].error_code

    assert create() == ErrorCode.INVALID_REPLICATION_FACTOR
    manual = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    assert create(manual) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=3, assignments=None)
    grown = ask(node, CreatePartitionsRequest(topics=[more], timeout_ms=1_000, validate_only=False), 3)
    assert isinstance(grown, CreatePartitionsResponse)
    assert grown.results[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert cordon(node, "") == (NONE, None)
    assert create() == NONE


@pytest.mark.parametrize("value", ["/nope", "/data,/nope", "*,/data"])
def test_only_log_directories_can_be_cordoned(node: Node, value: str) -> None:
    code, message = cordon(node, value)
    assert (code, "cordoned.log.dirs" in str(message)) == (INVALID, True)
    assert not any(one.is_cordoned for one in log_dirs(node, version=5).results)


def test_directories_are_cordoned_for_one_broker_and_not_for_all(node: Node) -> None:
    code, message = cordon(node, "*", name="")
    assert (code, "broker id must be specified" in str(message)) == (INVALID, True)


def move(node: Node, path: str, *partitions: tuple[str, int]) -> list[ErrorCode]:
    topics = [
        AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=[index]) for name, index in partitions
    ]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=topics)])
    response = ask(node, request, 2)
    assert isinstance(response, AlterReplicaLogDirsResponse)
    return [ErrorCode(one.error_code) for result in response.results for one in result.partitions]


def test_a_partition_stays_where_it_is(node: Node) -> None:
    home = node.services.log_manager.directory_of("t", 0)
    other = next(one for one in node.services.log_manager.directories if one is not home)
    assert home is not None
    assert move(node, str(home.path), ("t", 0)) == [NONE]
    assert move(node, str(other.path), ("t", 0)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert move(node, "/nowhere", ("t", 0)) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert move(node, f"{home.path}/", ("t", 0)) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert move(node, str(DATA), ("t", 7), ("nope", 0)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


# --- ElectLeaders and reassignments


@pytest.mark.parametrize("version", range(3))
def test_a_leader_need_not_be_elected(node: Node, version: int) -> None:
    asked = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        topic_partitions=[asked(topic="t", partitions=[0, 9]), asked(topic="nope", partitions=[0])]
    )
    response = ask(node, request, version)
    assert isinstance(response, ElectLeadersResponse)
    assert response.error_code == NONE
    reported = [
        (one.topic, [part.error_code for part in one.partition_result]) for one in response.replica_election_results
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reported == [("t", [ErrorCode.ELECTION_NOT_NEEDED, unknown]), ("nope", [unknown])]


def test_elections_of_all_and_of_no_known_type(node: Node) -> None:
    response = ask(node, ElectLeadersRequest(topic_partitions=None), 2)
    assert isinstance(response, ElectLeadersResponse)
    assert [(one.topic, one.partition_result) for one in response.replica_election_results] == [("t", [])]
    asked = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
    response = ask(node, ElectLeadersRequest(election_type=5, topic_partitions=asked), 2)
    assert isinstance(response, ElectLeadersResponse)
    assert response.error_code == INVALID
    assert response.replica_election_results[0].partition_result[0].error_message == "Unknown election type 5"
    assert ask(node, ElectLeadersRequest(election_type=5, topic_partitions=[]), 2) == ElectLeadersResponse(
        replica_election_results=[]
    )


def reassign(node: Node, topic: str, index: int, replicas: list[int] | None) -> tuple[ErrorCode, str | None]:
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
    asked = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[partition])
    response = ask(node, AlterPartitionReassignmentsRequest(topics=[asked]), 1)
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    assert response.error_code == NONE
    answer = response.responses[0].partitions[0]
    return ErrorCode(answer.error_code), answer.error_message


@pytest.mark.parametrize("may_change", [True, False])
def test_a_reassignment_returns_whether_it_may_change_the_replication_factor(node: Node, may_change: bool) -> None:
    response = ask(node, AlterPartitionReassignmentsRequest(topics=[], allow_replication_factor_change=may_change), 1)
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    assert response.allow_replication_factor_change is may_change


def test_a_partition_can_be_reassigned_to_this_broker_only(node: Node) -> None:
    wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    begins = "The manual partition assignment includes"
    assert reassign(node, "t", 0, [1]) == (NONE, None)
    assert reassign(node, "t", 0, [2]) == (wrong, f"{begins} broker 2, but no such broker is registered.")
    assert reassign(node, "t", 0, [1, 2]) == (wrong, f"{begins} broker 2, but no such broker is registered.")
    assert reassign(node, "t", 0, []) == (wrong, f"{begins} an empty replica list.")
    assert reassign(node, "t", 0, [1, 1]) == (wrong, f"{begins} the broker 1 more than once.")
    assert reassign(node, "t", 0, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    assert reassign(node, "t", 9, [1])[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(node, "nope", 0, None)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nothing_is_being_reassigned(node: Node) -> None:
    asked = [ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="nope", partition_indexes=[0])]
    for topics in (None, [], asked):
        response = ask(node, ListPartitionReassignmentsRequest(topics=topics), 0)
        assert isinstance(response, ListPartitionReassignmentsResponse)
        assert (response.error_code, response.error_message, response.topics) == (NONE, None, [])


# --- DescribeProducers


def producers(node: Node, topic: str, index: int) -> DescribeProducersResponse.PartitionResponse:
    asked = [DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[index])]
    response = ask(node, DescribeProducersRequest(topics=asked), 0)
    assert isinstance(response, DescribeProducersResponse)
    (partition,) = response.topics[0].partitions
    return partition


def test_the_producers_that_a_partition_remembers_are_described(node: Node) -> None:
    Exchange(node).ask(produce_request("t", batch(3, producer_id=7, producer_epoch=2, base_sequence=0)), 9)
    (producer,) = producers(node, "t", 0).active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 2)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert producer.last_timestamp > 0
    assert producers(node, "t", 1).active_producers == []


def test_producers_of_what_is_not_there(node: Node) -> None:
    assert producers(node, "t", 9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producers(node, "nope", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producers(node, "bad topic", 0).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_many_producers_are_described_some_in_a_turn_and_all_in_the_answer(node: Node) -> None:
    log = partition_of(node, "t", 0).log
    most = describe_producers.PRODUCERS_PER_STEP
    for number in range(2 * most + 1):
        log.producers.publish(ProducerEntry.of(number, 0, ((3, number, 3, 5),) if number else (), 0))
    asked = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[1, 0, 9])
    context = Context(node.services, ApiKey.DESCRIBE_PRODUCERS, 0, connection=Peer())
    answer = describe_producers.handle(DescribeProducersRequest(topics=[asked]), context)
    assert isinstance(answer, Pending)
    log.producers.publish(ProducerEntry.of(0, 1, ((9, 9, 0, 5),), 0))  # it was answered as it was
    turns = 0
    while not answer.done:
        node.run_due()
        turns += 1
    assert turns == 2
    assert answer.response is not None
    other, ours, missing = answer.response.topics[0].partitions
    assert (other.active_producers, missing.error_code) == ([], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [(one.producer_id, one.last_sequence) for one in ours.active_producers] == [
        (number, 3 if number else -1) for number in range(2 * most + 1)
    ]


def test_no_producers_are_described_when_the_connection_has_ended(node: Node) -> None:
    log = partition_of(node, "t", 0).log
    for number in range(2 * describe_producers.PRODUCERS_PER_STEP):
        log.producers.publish(ProducerEntry.of(number, 0, ((3, number, 3, 5),), 0))
    asked = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
    context = Context(node.services, ApiKey.DESCRIBE_PRODUCERS, 0, connection=Peer())
    answer = describe_producers.handle(DescribeProducersRequest(topics=[asked]), context)
    assert isinstance(answer, Pending)
    answer.cancel()
    node.run_due()
    assert answer.response is None


# --- quotas


def set_quotas(
    node: Node, *entries: tuple[Entity, list[tuple[str, float | None]]], validate_only: bool = False, version: int = 1
) -> list[tuple[ErrorCode, str | None]]:
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[
                    AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                ops=[
                    AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in changes
                ],
            )
            for entity, changes in entries
        ],
        validate_only=validate_only,
    )
    response = ask(node, request, version)
    assert isinstance(response, AlterClientQuotasResponse)
    assert [[(part.entity_type, part.entity_name) for part in one.entity] for one in response.entries] == [
        entity for entity, _ in entries
    ]
    return [(ErrorCode(one.error_code), one.error_message) for one in response.entries]


def find(node: Node, *components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )
    response = ask(node, request, 1)
    assert isinstance(response, DescribeClientQuotasResponse)
    return response


def found(node: Node, *components: tuple[str, int, str | None], strict: bool = False) -> set[str]:
    """The matching entities, each as one word."""
    response = find(node, *components, strict=strict)
    assert (response.error_code, response.error_message) == (NONE, "")
    return {
        "+".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity) for entry in response.entries or ()
    }


BYTE_RATE = "producer_byte_rate"


@pytest.fixture
def quotas(node: Node) -> Node:
    answers = set_quotas(
        node,
        ([("user", "alice")], [(BYTE_RATE, 1000.0)]),
        ([("user", "alice"), ("client-id", "c")], [(BYTE_RATE, 500.0), ("request_percentage", 12.5)]),
        ([("user", None)], [(BYTE_RATE, 2000.0)]),
        ([("client-id", "c")], [("consumer_byte_rate", 7.0)]),
        ([("ip", "127.0.0.1")], [("connection_creation_rate", 7.0)]),
        ([("ip", None)], [("connection_creation_rate", 9.0)]),
    )
    assert answers == [(NONE, None)] * 6
    return node


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([("user", EXACT, "alice")], False, {"user=alice", "client-id=c+user=alice"}),
        ([("user", EXACT, "alice")], True, {"user=alice"}),
        ([("user", DEFAULT, None)], False, {"user=None"}),
        ([("user", SPECIFIED, None)], False, {"user=alice", "user=None", "client-id=c+user=alice"}),
        ([("user", SPECIFIED, None)], True, {"user=alice", "user=None"}),
        ([("client-id", SPECIFIED, None)], False, {"client-id=c", "client-id=c+user=alice"}),
        ([("ip", SPECIFIED, None)], False, {"ip=127.0.0.1", "ip=None"}),
        ([("user", EXACT, "alice"), ("client-id", EXACT, "c")], False, {"client-id=c+user=alice"}),
        ([("user", SPECIFIED, None), ("client-id", SPECIFIED, None)], True, {"client-id=c+user=alice"}),
        ([], True, set()),
    ],
)
def test_a_filter_finds_what_kafkas_finds(
    quotas: Node, components: list[tuple[str, int, str | None]], strict: bool, expected: set[str]
) -> None:
    assert found(quotas, *components, strict=strict) == expected


def test_no_filter_finds_all(quotas: Node) -> None:
    assert len(found(quotas)) == 6


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("user", EXACT, None)], INVALID, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", DEFAULT, "x")], INVALID, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", 5, "x")], INVALID, "Unknown match type 5"),
        ([("nope", SPECIFIED, None)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type nope"),
        ([("", SPECIFIED, None)], INVALID, "Invalid empty entity type."),
        ([("user", SPECIFIED, None)] * 2, INVALID, "Entity type user cannot appear more than once in the filter."),
        ([("user", SPECIFIED, None), ("ip", SPECIFIED, None)], INVALID, "Invalid entity filter component combination."),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    quotas: Node, components: list[tuple[str, int, str | None]], code: ErrorCode, message: str
) -> None:
    response = find(quotas, *components)
    assert (response.error_code, response.entries) == (code, None)
    assert (response.error_message or "").startswith(message)


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        ([("user", "a")], BYTE_RATE, 1.5, "producer_byte_rate cannot be a fractional value."),
        ([("user", "a")], BYTE_RATE, -1.0, "Quota producer_byte_rate must be greater than 0"),
        ([("user", "a")], BYTE_RATE, float("nan"), "Quota producer_byte_rate must be a finite number"),
        ([("user", "a")], BYTE_RATE, 1e30, "Proposed value for producer_byte_rate is too large for a LONG."),
        ([("user", "a")], BYTE_RATE, float("inf"), "Quota producer_byte_rate must be a finite number"),
        ([("user", "a")], "request_percentage", float("inf"), "Quota request_percentage must be a finite number"),
        ([("ip", None)], "connection_creation_rate", 1e10, "Proposed value for connection_creation_rate is too large"),
        ([("user", "a")], "nope", 1.0, "Invalid configuration key nope"),
        ([("user", "a")], "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ([("ip", "::1")], BYTE_RATE, 1.0, "Invalid configuration key producer_byte_rate"),
        ([("ip", "not an ip!")], "connection_creation_rate", 1.0, "not an ip! is not a valid IP or resolvable host."),
        ([("ip", "::1"), ("user", "a")], BYTE_RATE, 1.0, "Invalid quota entity combination"),
        ([("nope", "a")], BYTE_RATE, 1.0, "Unhandled client quota entity type: nope"),
        ([("user", "")], BYTE_RATE, 1.0, "Empty user not supported"),
        ([], BYTE_RATE, 1.0, "Invalid empty client quota entity"),
    ],
)
def test_a_quota_that_cannot_be_is_refused(node: Node, entity: Entity, key: str, value: float, message: str) -> None:
    ((code, said),) = set_quotas(node, (entity, [(key, value)]))
    assert code == INVALID
    assert (said or "").startswith(message)
    assert found(node) == set()


def test_quotas_are_removed_and_checks_change_nothing(quotas: Node) -> None:
    assert set_quotas(quotas, ([("user", "v")], [(BYTE_RATE, 1.0)]), validate_only=True) == [(NONE, None)]
    assert set_quotas(quotas, ([("user", None)], [(BYTE_RATE, None), ("nope", None)]), version=0) == [(NONE, None)]
    assert found(quotas, ("user", SPECIFIED, None), strict=True) == {"user=alice"}
    twice = set_quotas(quotas, ([("user", "w")], [(BYTE_RATE, 1.0)]), ([("user", "w")], [(BYTE_RATE, 2.0)]))
    assert [code for code, _ in twice] == [INVALID, INVALID]


def test_the_number_of_entities_is_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_plans, "MAX_QUOTA_ENTITIES", 2)
    answers = set_quotas(node, *[([("user", name)], [(BYTE_RATE, 1.0)]) for name in ("a", "b", "c")])
    assert [code for code, _ in answers] == [NONE, NONE, ErrorCode.POLICY_VIOLATION]
    assert set_quotas(node, ([("user", "a")], [(BYTE_RATE, 2.0)])) == [(NONE, None)]


def test_quotas_survive_the_loss_of_power() -> None:
    node, files, clock = start_node()
    set_quotas(node, ([("user", "alice"), ("client-id", None)], [(BYTE_RATE, 5.0)]))
    again, _, _ = start_node(files.crash(random.Random(4)), clock)
    (entry,) = find(again).entries or []
    assert [(value.key, value.value) for value in entry.values] == [(BYTE_RATE, 5.0)]


# --- UpdateFeatures


def update(
    node: Node, *requested: tuple[str, int, int], version: int = 1, validate_only: bool = False
) -> UpdateFeaturesResponse:
    updates = [
        UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=how)
        for name, level, how in requested
    ]
    response = ask(node, UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only), version)
    assert isinstance(response, UpdateFeaturesResponse)
    return response


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (
            ("metadata.version", 99, 1),
            "Invalid update version 99 for feature metadata.version. Local controller only",
        ),
        (("nope", 1, 1), "Invalid update version 1 for feature nope. Local controller does not support this feature."),
        (
            ("metadata.version", 20, 1),
            "Invalid update version 20 for feature metadata.version. Can't downgrade the",
        ),
        (("metadata.version", 20, 2), "Invalid metadata.version 20. Refusing to perform the requested downgrade"),
        (("metadata.version", 20, 3), "Invalid metadata.version 20. Unsafe metadata downgrade is not supported"),
        (("group.version", 5, 1), "Invalid update version 5 for feature group.version. Local controller only supports"),
        (("transaction.version", 3, 1), "Invalid update version 3 for feature transaction.version. Local controller"),
        (
            ("transaction.version", 1, 1),
            "Invalid update version 1 for feature transaction.version. Can't downgrade the version of this feature",
        ),
        (("group.version", -1, 1), "Invalid update version -1 for feature group.version. A feature version cannot be"),
        (
            ("group.version", 1, 9),
            "Invalid update version 1 for feature group.version. The controller does not support",
        ),
    ],
)
def test_a_level_that_cannot_be_fails_all(node: Node, version: int, wanted: tuple[str, int, int], reason: str) -> None:
    before = node.services.catalog.finalized_features()
    response = update(node, ("group.version", 0, 2), wanted, version=version)
    assert (response.error_code, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    failed = "The update failed for all features since the following feature had an error: "
    assert (response.error_message or "").startswith(failed + reason)
    assert node.services.catalog.finalized_features() == before


def test_a_feature_ends_and_stays_ended_after_a_restart() -> None:
    node, files, clock = start_node()
    assert update(node, ("group.version", 0, 2), validate_only=True).error_code == NONE
    assert node.services.catalog.finalized_features()[1]["group.version"] == 1
    response = update(node, ("group.version", 0, 2), ("metadata.version", 27, 1))
    assert [(one.feature, one.error_code) for one in response.results] == [
        ("group.version", 0),
        ("metadata.version", 0),
    ]
    again, _, _ = start_node(files.crash(random.Random(5)), clock)
    assert "group.version" not in again.services.catalog.finalized_features()[1]
    assert update(again, ("group.version", 1, 1), version=2).results == []
    assert again.services.catalog.finalized_features()[1]["group.version"] == 1


@pytest.mark.parametrize("how", [2, 3])
def test_the_metadata_goes_back_to_a_level_of_the_same_records_and_forth_again(how: int) -> None:
    node, files, clock = start_node()
    assert update(node, ("metadata.version", 22, how)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(node, ("metadata.version", 23, how)).error_code == NONE
    again, _, _ = start_node(files.crash(random.Random(5)), clock)
    assert again.services.catalog.finalized_features()[1]["metadata.version"] == 23
    assert update(again, ("metadata.version", 22, how)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(again, ("metadata.version", 27, 1)).error_code == NONE
    assert again.services.catalog.finalized_features()[1]["metadata.version"] == 27


def test_the_metadata_goes_to_the_level_of_kafka_4_4_and_back_only_across_levels_without_new_records() -> None:
    node, files, clock = start_node()
    assert update(node, ("metadata.version", 31, 1)).error_code == NONE
    assert update(node, ("metadata.version", 30, 2)).error_code == NONE
    assert update(node, ("metadata.version", 29, 2)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(node, ("metadata.version", 33, 1)).error_code == NONE
    assert update(node, ("metadata.version", 32, 3)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    again, _, _ = start_node(files.crash(random.Random(5)), clock)
    assert again.services.catalog.finalized_features()[1]["metadata.version"] == 33


def test_the_first_version_asks_for_a_downgrade_by_a_flag(node: Node) -> None:
    one = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=False)
    for allowed, code in ((False, ErrorCode.INVALID_UPDATE_VERSION), (True, NONE)):
        response = ask(node, UpdateFeaturesRequest(feature_updates=[one.replace(allow_downgrade=allowed)]), 0)
        assert isinstance(response, UpdateFeaturesResponse)
        assert response.error_code == code


# --- DescribeQuorum and ListConfigResources


def quorum(node: Node, *topics: tuple[str, list[int]], version: int = 2) -> DescribeQuorumResponse:
    asked = [
        DescribeQuorumRequest.TopicData(
            topic_name=name,
            partitions=[DescribeQuorumRequest.PartitionData(partition_index=index) for index in indexes],
        )
        for name, indexes in topics
    ]
    response = ask(node, DescribeQuorumRequest(topics=asked), version)
    assert isinstance(response, DescribeQuorumResponse)
    return response


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_this_broker(version: int) -> None:
    node, _, _ = start_node(
        listeners="PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093", controller_listener_names="CONTROLLER"
    )
    response = quorum(node, ("__cluster_metadata", [0]), version=version)
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (NONE, 1, 1)
    assert partition.high_watermark == node.services.catalog.metadata_end_offset
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset, partition.observers) == (1, partition.high_watermark, [])
    addresses = [(one.name, one.host, one.port) for one in response.nodes[0].listeners] if version == 2 else None
    assert addresses == ([("CONTROLLER", "127.0.0.1", 9093)] if version == 2 else None)


@pytest.mark.parametrize(
    "topics", [[("__cluster_metadata", [1])], [("t", [0])], [("__cluster_metadata", [0]), ("t", [0])]]
)
def test_nothing_else_has_a_quorum(node: Node, topics: list[tuple[str, list[int]]]) -> None:
    response = quorum(node, *topics)
    codes = {one.error_code for topic in response.topics for one in topic.partitions}
    assert (response.error_code, codes, response.nodes) == (NONE, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, [])


def resources(node: Node, types: list[int], version: int = 1) -> list[tuple[int, str]]:
    response = ask(node, ListConfigResourcesRequest(resource_types=types), version)
    assert isinstance(response, ListConfigResourcesResponse)
    return [(one.resource_type, one.resource_name) for one in response.config_resources]


def test_resources_with_a_configuration_are_listed(node: Node) -> None:
    alter(node, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    assert resources(node, []) == [(32, "g"), (8, "1"), (4, "1"), (2, "t")]
    assert resources(node, [2]) == [(2, "t")]
    assert resources(node, [4, 4]) == [(4, "1")]
    assert resources(node, [], version=0) == []


@pytest.mark.parametrize("kind", [0, 99])
def test_a_type_of_resource_that_is_not_known_is_refused(node: Node, kind: int) -> None:
    with pytest.raises(KafkaError) as refused:
        resources(node, [2, kind])
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_short_request_has_no_endless_answer(node: Node) -> None:
    Exchange(node).ask(produce_request("t", batch(1, producer_id=7, producer_epoch=0, base_sequence=0)), 9)
    asked = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0] * 1000)
    response = ask(node, DescribeProducersRequest(topics=[asked]), 0)
    assert isinstance(response, DescribeProducersResponse)
    assert len(response.topics[0].partitions) == 1
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name="t", configuration_keys=None
    )
    described = ask(node, DescribeConfigsRequest(resources=[resource] * 1000), 4)
    assert isinstance(described, DescribeConfigsResponse)
    assert len(described.results) == 1
