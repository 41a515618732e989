"""What broke clients of other brokers, one test each (the numbers are those of the project's list of wire traps).

Raw frames, so that no client papers over a mistake.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator

import pytest
from kafka.protocol.broker_version_data import BrokerVersionData
from kit.broker import BrokerProcess
from kit.wire import Wire

from ottla.protocol.api import ApiKey
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.describe_configs import DescribeConfigsRequest
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import Record

STAMP_MS = 1_700_000_000_000


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


def create(wire: Wire, topic: str, **configs: str) -> uuid.UUID:
    wanted = CreateTopicsRequest.CreatableTopic(
        name=topic,
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
    )
    answer = wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer.topics[0].error_message
    return answer.topics[0].topic_id


def batch(count: int, size: int = 10, compression: Compression = Compression.NONE, key: bytes | None = b"k") -> bytes:
    records = [Record(i, STAMP_MS + i * 1000, key, b"v" * size, ()) for i in range(count)]
    return bytes(encode_batch(records, compression=compression))


def produce_request(topic: str, records: bytes, acks: int = -1) -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(index=0, records=records)
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[data])


def produce(wire: Wire, topic: str, records: bytes, version: int = 9) -> object:
    return wire.call(produce_request(topic, records), version).responses[0].partition_responses[0]


def fetch_request(
    topic: str,
    offset: int,
    *,
    topic_id: uuid.UUID | None = None,
    partition_max_bytes: int = 1 << 20,
    min_bytes: int = 0,
    max_wait_ms: int = 0,
):
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    wanted = FetchRequest.FetchTopic(topic=topic, partitions=[partition])
    if topic_id is not None:
        wanted.topic_id = topic_id
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1 << 30, session_epoch=-1, topics=[wanted]
    )


def fetch(wire: Wire, topic: str, offset: int, version: int = 12, **options: object):
    answer = wire.call(fetch_request(topic, offset, **options), version)
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize("version", range(5))
def test_01_api_versions_answers_with_header_v0_at_every_version(wire: Wire, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="trap", client_software_version="1")
    correlation_id = wire.send_request(request, version)
    frame = wire.read_frame()
    # correlation id, then at once the error code: no tag buffer between them
    assert struct.unpack_from(">ih", frame) == (correlation_id, 0)
    count = frame[6] - 1 if version >= 3 else struct.unpack_from(">i", frame, 6)[0]
    assert 10 < count < 100


def test_02_an_unsupported_api_versions_is_answered_in_v0_with_the_list(wire: Wire) -> None:
    wire.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\0")
    frame = wire.read_frame()
    correlation_id, code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    keys = {struct.unpack_from(">hhh", frame, 10 + 6 * i) for i in range(count)}
    assert (18, 0, 4) in keys
    assert len(frame) == 10 + 6 * count
    assert wire.call(ApiVersionsRequest(), 0).error_code == 0  # the connection lives on


def test_03_produce_is_advertised_from_0(wire: Wire) -> None:
    ranges = {api.api_key: (api.min_version, api.max_version) for api in wire.call(ApiVersionsRequest(), 0).api_keys}
    assert ranges[0][0] == 0


@pytest.mark.parametrize("version", [13, 16, 17])
def test_06_fetch_by_topic_id_knows_its_topics_and_refuses_others(wire: Wire, topic: str, version: int) -> None:
    topic_id = create(wire, topic)
    produce(wire, topic, batch(1))
    answer = wire.call(fetch_request("", 0, topic_id=topic_id), version)
    assert answer.responses[0].topic_id == topic_id
    assert len(answer.responses[0].partitions[0].records) > 0
    answer = wire.call(fetch_request("", 0, topic_id=uuid.uuid4()), version)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_06_produce_by_topic_id(wire: Wire, topic: str) -> None:
    topic_id = create(wire, topic)
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch(1))
    for wanted, code in ((topic_id, ErrorCode.NONE), (uuid.uuid4(), ErrorCode.UNKNOWN_TOPIC_ID)):
        data = ProduceRequest.TopicProduceData(topic_id=wanted, partition_data=[partition])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
        assert wire.call(request, 13).responses[0].partition_responses[0].error_code == code


def test_07_an_empty_partition_has_zero_length_records_not_null(wire: Wire, topic: str) -> None:
    create(wire, topic)
    got = fetch(wire, topic, 0)
    assert got.records is not None
    assert len(got.records) == 0
    assert (got.high_watermark, got.last_stable_offset, got.log_start_offset) == (0, 0, 0)


def test_08_an_offset_inside_a_batch_returns_the_whole_batch(wire: Wire, topic: str) -> None:
    create(wire, topic)
    sent = batch(10)
    produce(wire, topic, sent)
    produce(wire, topic, sent)
    got = bytes(fetch(wire, topic, 17).records)
    assert struct.unpack_from(">q", got)[0] == 10
    assert got[16:] == sent[16:]


def test_08_the_first_batch_comes_whole_even_when_larger_than_the_limit(wire: Wire, topic: str) -> None:
    create(wire, topic)
    sent = batch(1, size=100_000)
    produce(wire, topic, sent)
    assert len(fetch(wire, topic, 0, partition_max_bytes=1000).records) == len(sent)


def test_10_no_hidden_batches(wire: Wire, topic: str) -> None:
    create(wire, topic)
    assert produce(wire, topic, batch(3)).base_offset == 0
    assert fetch(wire, topic, 0).high_watermark == 3


def test_11_describe_configs_returns_every_key_with_all_its_facts(wire: Wire, topic: str) -> None:
    create(wire, topic, **{"retention.ms": "1000"})
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    configs = {c.name: c for c in wire.call(request, 4).results[0].configs}
    assert {"cleanup.policy", "segment.bytes", "max.message.bytes", "min.insync.replicas"} <= configs.keys()
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
    assert configs["segment.bytes"].config_source == 5
    for config in configs.values():
        assert config.config_type > 0
        assert config.documentation, config.name
    names = [s.name for s in configs["retention.ms"].synonyms]
    assert names[0] == "retention.ms"


def test_13_a_batch_over_the_topic_limit_is_refused(wire: Wire, topic: str) -> None:
    create(wire, topic, **{"max.message.bytes": "1000"})
    assert produce(wire, topic, batch(1, size=2000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(wire, topic, batch(1, size=200)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("compression", list(Compression))
def test_20_a_keyless_record_on_a_compacted_topic_is_refused_by_its_index(
    wire: Wire, topic: str, compression: Compression
) -> None:
    create(wire, topic, **{"cleanup.policy": "compact"})
    records = [Record(i, STAMP_MS, None if i == 2 else b"k", b"v", ()) for i in range(4)]
    answer = produce(wire, topic, bytes(encode_batch(records, compression=compression)))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [e.batch_index for e in answer.record_errors] == [2]
    assert fetch(wire, topic, 0).high_watermark == 0


def test_14_the_newest_advertised_versions_are_those_of_one_release_but_for_newer_groups(wire: Wire) -> None:
    """Kafka 4.1 had share groups as a preview; members of 4.2 renew acquired records with version 2. Streams groups are
    those of 4.4.
    """
    release = {key: high for key, (_, high) in BrokerVersionData((4, 1)).api_versions.items()}
    release |= {ApiKey.SHARE_FETCH: 2, ApiKey.SHARE_ACKNOWLEDGE: 2, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 1}
    release |= {ApiKey.STREAMS_GROUP_HEARTBEAT: 1, ApiKey.STREAMS_GROUP_DESCRIBE: 1}
    release |= {ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: 0}
    for api in wire.call(ApiVersionsRequest(), 0).api_keys:
        assert api.max_version <= release[api.api_key], api


def test_16_acks_0_is_never_answered(wire: Wire, topic: str) -> None:
    create(wire, topic)
    wire.send_request(produce_request(topic, batch(2), acks=0), 9)
    asked = wire.send_request(ApiVersionsRequest(), 0)
    assert struct.unpack_from(">i", wire.read_frame())[0] == asked
    # Nobody waited for the disk: readers see the records when it has them, which may be later than the next request.
    assert fetch(wire, topic, 0, min_bytes=1, max_wait_ms=20_000).high_watermark == 2


def test_16_an_error_at_acks_0_closes_the_connection(broker: BrokerProcess, wire: Wire, topic: str) -> None:
    create(wire, topic)
    broken = bytearray(batch(2))
    broken[-1] ^= 1
    wire.send_request(produce_request(topic, bytes(broken), acks=0), 9)
    assert wire.is_closed_by_peer()
    with Wire(broker.port) as other:
        assert fetch(other, topic, 0).high_watermark == 0


def test_17_telemetry_is_not_advertised(wire: Wire) -> None:
    keys = {api.api_key for api in wire.call(ApiVersionsRequest(), 0).api_keys}
    assert not keys & {71, 72}


@pytest.mark.parametrize("compression", list(Compression))
def test_19_a_look_up_by_time_finds_the_record_inside_the_batch(
    wire: Wire, topic: str, compression: Compression
) -> None:
    create(wire, topic)
    produce(wire, topic, batch(10, compression=compression))
    produce(wire, topic, batch(10, compression=compression))
    for timestamp, offset, stamp in (
        (STAMP_MS + 4500, 5, STAMP_MS + 5000),
        (0, 0, STAMP_MS),
        (STAMP_MS + 9001, -1, -1),
        (-3, 9, STAMP_MS + 9000),
        (-2, 0, -1),
        (-1, 20, -1),
    ):
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        data = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])
        got = wire.call(ListOffsetsRequest(replica_id=-1, topics=[data]), 7).topics[0].partitions[0]
        assert (got.error_code, got.offset, got.timestamp) == (0, offset, stamp), timestamp


@pytest.mark.parametrize("version", range(1, 10))
def test_18_offsets_of_a_group_that_does_not_exist_are_none_and_no_error(wire: Wire, topic: str, version: int) -> None:
    create(wire, topic)
    group = f"{topic}-nobody"
    if version >= 8:
        asked = OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 7])
        answer = wire.call(
            OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[asked])]),
            version,
        ).groups[0]
    else:
        asked = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 7])
        answer = wire.call(OffsetFetchRequest(group_id=group, topics=[asked]), version)
    assert answer.error_code == ErrorCode.NONE
    assert [
        (each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code)
        for each in answer.topics[0].partitions
    ] == [(0, -1, -1, "", 0), (7, -1, -1, "", 0)]


def test_21_internal_topics_are_flagged_and_the_metadata_log_is_no_topic(wire: Wire, topic: str) -> None:
    create(wire, topic)
    assert wire.call(FindCoordinatorRequest(key=topic, key_type=0), 2).error_code == ErrorCode.NONE
    answer = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
    shown = {each.name: each.is_internal for each in answer.topics}
    assert shown["__consumer_offsets"] is True
    assert shown[topic] is False
    assert "__cluster_metadata" not in shown


def test_21_clients_may_not_write_to_internal_topics(wire: Wire, topic: str) -> None:
    wire.call(FindCoordinatorRequest(key=topic, key_type=0), 2)
    answer = wire.call(produce_request("__consumer_offsets", batch(1)), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    listed = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
    assert [each.error_code for each in listed.topics if each.name == "__consumer_offsets"] == [ErrorCode.NONE]


def test_auto_created_topics_are_usable_at_once(wire: Wire, topic: str) -> None:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    answer = wire.call(request, 12)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert [p.leader_id for p in answer.topics[0].partitions] == [answer.brokers[0].node_id]
    assert produce(wire, topic, batch(1)).error_code == ErrorCode.NONE


def test_find_coordinator_answers_self_for_groups_and_for_share_partitions(wire: Wire) -> None:
    answer = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"]), 4)
    assert [(c.key, c.error_code) for c in answer.coordinators] == [("a", 0), ("b", 0)]
    answer = wire.call(FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAQ:0"]), 6)
    assert [(c.key, c.error_code, c.node_id) for c in answer.coordinators] == [("g:AAAAAAAAAAAAAAAAAAAAAQ:0", 0, 1)]
    answer = wire.call(FindCoordinatorRequest(key_type=2, coordinator_keys=["g"]), 6)
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
