"""Requests that no well-behaved client sends, or few do, as raw frames. Apache Kafka 4.4 passes these tests, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.broker import BrokerProcess
from kit.exchange import batch
from kit.wire import Wire

from ottla.config.options import ConfigSource
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.api.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.describe_cluster import DescribeClusterRequest
from ottla.protocol.api.describe_configs import DescribeConfigsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.errors import ErrorCode

NONE = ErrorCode.NONE
PASSING = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
"""Kafka creates topics meanwhile, and begins transactions."""
BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


def create(
    wire: Wire, topic: str, partitions: int = 1, *, only_check: bool = False, config: tuple[str, str] | None = None
) -> int:
    wanted = CreateTopicsRequest.CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[] if config is None else [CreateTopicsRequest.CreatableTopicConfig(name=config[0], value=config[1])],
    )
    (answer,) = wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=only_check), 7).topics
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    while not answer.error_code and not only_check and wire.call(asked, 12).topics[0].error_code:
        pass
    code: int = answer.error_code
    return code


def new_producer(wire: Wire, transactional_id: str) -> InitProducerIdResponse:
    while wire.call(FindCoordinatorRequest(key=transactional_id, key_type=1), 2).error_code:
        pass
    while True:
        asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answer: InitProducerIdResponse = wire.call(asked, 4)
        if answer.error_code not in PASSING:
            assert answer.error_code == NONE
            return answer


@pytest.mark.parametrize("version", [12, 13])
def test_the_first_batch_of_a_transaction_in_a_partition_has_sequence_0(wire: Wire, topic: str, version: int) -> None:
    assert create(wire, topic, 2) == NONE
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    topic_id = wire.call(asked, 12).topics[0].topic_id
    who = new_producer(wire, topic)

    def put(partition: int, sequence: int) -> int:
        records = batch(
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = ProduceRequest.PartitionProduceData(index=partition, records=records)
        topic_data = ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
        request = ProduceRequest(transactional_id=topic, acks=-1, timeout_ms=10_000, topic_data=[topic_data])
        while True:
            code: int = wire.call(request, version).responses[0].partition_responses[0].error_code
            if code not in PASSING:
                return code

    assert put(0, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [put(0, 0), put(0, 1)] == [NONE, NONE]
    assert put(1, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(0, 2) == NONE


@pytest.mark.parametrize("version", [3, 5])
def test_a_producer_that_begins_again_in_an_open_transaction_gets_the_epoch_that_aborts_it(
    wire: Wire, topic: str, version: int
) -> None:
    assert create(wire, topic) == NONE
    who = new_producer(wire, topic)

    def begin_again(epoch: int) -> tuple[int, int]:
        asked = InitProducerIdRequest(
            transactional_id=topic,
            transaction_timeout_ms=60_000,
            producer_id=who.producer_id,
            producer_epoch=epoch,
        )
        while True:
            answer = wire.call(asked, version)
            if answer.error_code not in PASSING:
                return answer.error_code, answer.producer_epoch

    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=topic,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    (added,) = wire.call(add, 3).results_by_topic_v3_and_below
    assert added.results_by_partition[0].partition_error_code == NONE
    assert begin_again(0) == (NONE, 1)
    assert begin_again(0) == (NONE, 1)  # the answer got lost
    assert new_producer(wire, topic).producer_epoch == 2
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH if version < 4 else ErrorCode.PRODUCER_FENCED
    assert begin_again(0) == (fenced, -1)


@pytest.mark.parametrize("version", [0, 3])
@pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
def test_a_client_adds_no_internal_topic_to_its_transaction(
    wire: Wire, topic: str, internal: str, version: int
) -> None:
    assert create(wire, topic) == NONE
    while wire.call(FindCoordinatorRequest(key=topic, key_type=0), 2).error_code:
        pass
    who = new_producer(wire, f"{topic}-{internal}")
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=f"{topic}-{internal}",
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (topic, internal)
        ],
    )
    answer = wire.call(request, version).results_by_topic_v3_and_below
    assert {one.name: one.results_by_partition[0].partition_error_code for one in answer} == {
        topic: ErrorCode.OPERATION_NOT_ATTEMPTED,
        internal: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


@pytest.mark.parametrize(
    ("kind", "key", "synonyms"),
    [
        (GROUP, "consumer.session.timeout.ms", ["group.consumer.session.timeout.ms"]),
        (GROUP, "share.delivery.count.limit", ["group.share.delivery.count.limit"]),
        (GROUP, "streams.num.standby.replicas", ["group.streams.num.standby.replicas"]),
        (GROUP, "share.auto.offset.reset", ["share.auto.offset.reset"]),
        (CLIENT_METRICS, "interval.ms", []),
    ],
)
def test_a_default_has_the_key_from_which_it_comes_as_synonym(
    wire: Wire, topic: str, kind: int, key: str, synonyms: list[str]
) -> None:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=topic, configuration_keys=[key]
    )
    answer = wire.call(DescribeConfigsRequest(resources=[asked], include_synonyms=True), 4).results[0]
    (entry,) = answer.configs
    assert (answer.error_code, entry.name, entry.config_source) == (NONE, key, ConfigSource.DEFAULT_CONFIG)
    assert [one.name for one in entry.synonyms] == synonyms


def test_a_logger_has_no_null_as_its_level(wire: Wire) -> None:
    node_id = wire.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 0).brokers[0].broker_id
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="root", config_operation=0, value=None)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER_LOGGER, resource_name=str(node_id), configs=[config]
    )
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == "Null value not supported for : root"


@pytest.mark.parametrize("key", ["producer_byte_rate", "request_percentage", "controller_mutation_rate"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_quota_is_a_finite_number(wire: Wire, topic: str, key: str, value: float) -> None:
    entry = AlterClientQuotasRequest.EntryData(
        entity=[AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=topic)],
        ops=[AlterClientQuotasRequest.OpData(key=key, value=value, remove=False)],
    )
    (answer,) = wire.call(AlterClientQuotasRequest(entries=[entry], validate_only=True), 1).entries
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == f"Quota {key} must be a finite number"


@pytest.mark.parametrize("may_change", [True, False])
def test_a_reassignment_returns_whether_it_may_change_the_replication_factor(
    wire: Wire, topic: str, may_change: bool
) -> None:
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0)
    topics = [AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[partition])]
    request = AlterPartitionReassignmentsRequest(topics=topics, allow_replication_factor_change=may_change)
    answer = wire.call(request, 1)
    assert (answer.error_code, answer.allow_replication_factor_change) == (NONE, may_change)


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("max.decompressed.message.bytes", "1", "0"),
        ("remote.copy.lag.ms", "-1", "-2"),
        ("remote.copy.lag.bytes", "-1", "-2"),
    ],
)
def test_a_topic_may_have_the_keys_of_kafka_4_4(wire: Wire, topic: str, key: str, right: str, wrong: str) -> None:
    assert create(wire, topic, only_check=True, config=(key, right)) == NONE
    assert create(wire, topic, only_check=True, config=(key, wrong)) == ErrorCode.INVALID_CONFIG
