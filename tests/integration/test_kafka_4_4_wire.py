"""The versions that are new in Kafka 4.4, as raw frames. Apache Kafka 4.4 passes these tests, too."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kit.broker import BrokerProcess
from kit.wire import Wire

from ottla.broker.profiles.releases import FEATURES, RELEASES
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.delete_groups import DeleteGroupsRequest
from ottla.protocol.api.describe_cluster import DescribeClusterRequest
from ottla.protocol.api.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.api.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.api.write_txn_markers import WriteTxnMarkersRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.protocol.types import ZERO_UUID

NONE, UNKNOWN_ID = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID
NO_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOBODYS = uuid.UUID("11111111-2222-4333-8444-555555555555")
Codes = dict[uuid.UUID, dict[int, int]]


class Scene:
    """A topic of two partitions, its id, and a connection to a broker that coordinates groups and transactions."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self.wire, self.topic, self.group = wire, topic, f"g-{topic}"
        self.topic_id = self.create(topic)
        for kind in (0, 1):
            while wire.call(FindCoordinatorRequest(key=topic, key_type=kind), 2).error_code:
                pass
        while self.commit({self.topic_id: [0]}) != {self.topic_id: {0: NONE}}:
            pass

    def create(self, name: str) -> uuid.UUID:
        """A new topic's id."""
        wanted = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        (answer,) = self.wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7).topics
        assert answer.error_code == NONE
        found: uuid.UUID = answer.topic_id
        return found

    def commit(self, wanted: dict[uuid.UUID, list[int]], *, group: str | None = None, generation: int = -1) -> Codes:
        """The codes of an OffsetCommit of offset 5."""
        partition = OffsetCommitRequest.OffsetCommitRequestPartition
        topics = [
            OffsetCommitRequest.OffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=[
                    partition(partition_index=index, committed_offset=5, committed_metadata="m") for index in indexes
                ],
            )
            for topic_id, indexes in wanted.items()
        ]
        group = self.group if group is None else group
        request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=generation, topics=topics)
        answer = self.wire.call(request, 10)
        return {
            topic.topic_id: {one.partition_index: one.error_code for one in topic.partitions} for topic in answer.topics
        }


@pytest.fixture
def scene(broker: BrokerProcess, topic: str) -> Iterator[Scene]:
    with Wire(broker.port) as connection:
        yield Scene(connection, topic)


def test_the_versions_and_features_are_those_of_kafka_4_4(scene: Scene) -> None:
    answer = scene.wire.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 5)
    release = RELEASES["4.4"]
    for api in answer.api_keys:
        first, last = release[api.api_key]
        assert api.min_version <= first, api
        assert api.max_version == last, api
    for feature in answer.supported_features:
        assert feature.max_version <= FEATURES["4.4"][feature.name][1], feature


def test_a_client_that_expects_another_broker_bootstraps_again(broker: BrokerProcess, scene: Scene) -> None:
    known = scene.wire.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
    ours, node_id = known.cluster_id, known.brokers[0].broker_id
    invalid, again = ErrorCode.INVALID_REQUEST, ErrorCode.REBOOTSTRAP_REQUIRED
    cases: list[tuple[str | None, int, ErrorCode]] = [
        (None, -1, NONE),
        (ours, node_id, NONE),
        (ours, -1, invalid),
        (None, node_id, invalid),
        ("other", -1, invalid),
        ("other", node_id, again),
        (ours, node_id + 1, again),
        ("", node_id, again),
    ]
    for cluster_id, node, code in cases:
        request = ApiVersionsRequest(
            client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node
        )
        with Wire(broker.port) as other:
            answer = other.call(request, 5)
            assert (answer.error_code, bool(answer.api_keys)) == (code, code is NONE), (cluster_id, node)
            assert other.call(ApiVersionsRequest(), 0).error_code == NONE


@pytest.mark.parametrize("broker_id", [-1, 77, 2**31 - 1])
def test_a_broker_that_is_not_registered_cannot_be_unregistered(scene: Scene, broker_id: int) -> None:
    answer = scene.wire.call(UnregisterBrokerRequest(broker_id=broker_id), 0)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert answer.error_message == f"Broker ID {broker_id} is not currently registered"


@pytest.mark.parametrize(("version", "code"), [(10, ErrorCode.UNSUPPORTED_VERSION), (11, NONE)])
def test_no_offset_waits_for_tiering(scene: Scene, version: int, code: ErrorCode) -> None:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-6)
    topic = ListOffsetsRequest.ListOffsetsTopic(name=scene.topic, partitions=[asked])
    answer = scene.wire.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), version).topics[0].partitions[0]
    assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (code, -1, -1, -1)


def test_deletions_of_groups_have_the_field_for_a_message(scene: Scene) -> None:
    answer = scene.wire.call(DeleteGroupsRequest(groups_names=[scene.group, "no-such-group"]), 3)
    found = {one.group_id: one for one in answer.results}
    assert (found[scene.group].error_code, found[scene.group].error_message) == (NONE, None)
    assert found["no-such-group"].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_late_marker_does_not_end_an_open_transaction(scene: Scene) -> None:
    wire = scene.wire
    who = wire.call(InitProducerIdRequest(transactional_id=scene.topic, transaction_timeout_ms=60_000), 4)
    while who.error_code:
        who = wire.call(InitProducerIdRequest(transactional_id=scene.topic, transaction_timeout_ms=60_000), 4)

    def mark(epoch: int, level: int) -> int:
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=who.producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=scene.topic, partition_indexes=[0])],
            coordinator_epoch=-1,
            transaction_version=level,
        )
        code: int = wire.call(WriteTxnMarkersRequest(markers=[marker]), 2).markers[0].topics[0].partitions[0].error_code
        return code

    batch = encode_batch(
        [Record(0, 1_700_000_000_000, b"k", b"v")],
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = ProduceRequest.PartitionProduceData(index=0, records=memoryview(bytes(batch)))
    topic = ProduceRequest.TopicProduceData(name=scene.topic, partition_data=[data])
    request = ProduceRequest(transactional_id=scene.topic, acks=-1, timeout_ms=10_000, topic_data=[topic])
    code = -1
    while code != NONE:  # Kafka adds the partition to the transaction meanwhile
        code = wire.call(request, 12).responses[0].partition_responses[0].error_code
    epoch = who.producer_epoch
    assert mark(epoch, 2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert mark(epoch + 1, 2) == NONE
    assert mark(epoch + 1, 2) == NONE
    assert mark(epoch, 1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_only_log_directories_are_cordoned_and_descriptions_show_them(scene: Scene) -> None:
    wire = scene.wire
    node_id = wire.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 0).brokers[0].broker_id

    def cordon(value: str, name: str = str(node_id)) -> int:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=4,
            resource_name=name,
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(
                    name="cordoned.log.dirs", config_operation=0, value=value
                )
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        code: int = wire.call(request, 1).responses[0].error_code
        return code

    def is_cordoned() -> list[bool]:
        return [one.is_cordoned for one in wire.call(DescribeLogDirsRequest(topics=[]), 5).results]

    (path,) = [one.log_dir for one in wire.call(DescribeLogDirsRequest(topics=[]), 5).results]
    assert is_cordoned() == [False]
    invalid = ErrorCode.INVALID_REQUEST
    assert [cordon("/no-such-directory"), cordon(f"*,{path}"), cordon("*", name="")] == [invalid] * 3
    assert cordon("") == NONE
    assert is_cordoned() == [False]


def test_offsets_are_committed_by_topic_ids(scene: Scene) -> None:
    ours = scene.topic_id
    assert scene.commit({ours: [0, 1, 2]}) == {ours: {0: NONE, 1: NONE, 2: NO_PARTITION}}
    assert scene.commit({NOBODYS: [0, 1], ours: [1]}) == {NOBODYS: {0: UNKNOWN_ID, 1: UNKNOWN_ID}, ours: {1: NONE}}
    assert scene.commit({ZERO_UUID: [0]}) == {ZERO_UUID: {0: UNKNOWN_ID}}
    missing = scene.commit({NOBODYS: [0], ours: [0]}, group=f"no-{scene.group}", generation=3)
    assert missing == {NOBODYS: {0: UNKNOWN_ID}, ours: {0: ErrorCode.GROUP_ID_NOT_FOUND}}


def test_offsets_are_fetched_by_topic_ids(scene: Scene) -> None:
    ours = scene.topic_id
    assert scene.commit({ours: [0, 1]}) == {ours: {0: NONE, 1: NONE}}

    def fetched(topics: dict[uuid.UUID, list[int]] | None, group: str = scene.group) -> dict[uuid.UUID, object]:
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group,
            topics=None
            if topics is None
            else [
                OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=indexes)
                for topic_id, indexes in topics.items()
            ],
        )
        (answer,) = scene.wire.call(OffsetFetchRequest(groups=[asked]), 10).groups
        assert (answer.group_id, answer.error_code) == (group, NONE)
        return {
            topic.topic_id: {
                one.partition_index: (one.committed_offset, one.metadata, one.error_code) for one in topic.partitions
            }
            for topic in answer.topics
        }

    assert fetched({NOBODYS: [0], ours: [0, 5], ZERO_UUID: [1]}) == {
        NOBODYS: {0: (-1, "", UNKNOWN_ID)},
        ours: {0: (5, "m", NONE), 5: (-1, "", NONE)},
        ZERO_UUID: {1: (-1, "", UNKNOWN_ID)},
    }
    assert fetched(None) == {ours: {0: (5, "m", NONE), 1: (5, "m", NONE)}}
    assert fetched({ours: [0], NOBODYS: [0]}, group=f"no-{scene.group}") == {
        ours: {0: (-1, "", NONE)},
        NOBODYS: {0: (-1, "", UNKNOWN_ID)},
    }
    assert fetched({}) == {}


@pytest.mark.parametrize(
    ("generation", "code"), [(-1, NONE), (3, ErrorCode.GROUP_ID_NOT_FOUND)], ids=["nobody", "a member of no group"]
)
def test_offsets_of_a_transaction_are_committed_by_topic_ids(scene: Scene, generation: int, code: ErrorCode) -> None:
    wire = scene.wire
    asked = InitProducerIdRequest(transactional_id=scene.topic, transaction_timeout_ms=60_000)
    who = wire.call(asked, 5)
    while who.error_code:
        who = wire.call(asked, 5)
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id=scene.topic,
        group_id=f"tx-{scene.group}",
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        generation_id_or_member_epoch=generation,
        member_id="" if generation < 0 else "m",
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(topic_id=each, partitions=[partition])
            for each in (NOBODYS, scene.topic_id)
        ],
    )
    answer = wire.call(request, 6)
    found = {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics}
    assert found == {NOBODYS: UNKNOWN_ID, scene.topic_id: code}
