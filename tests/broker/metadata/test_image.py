"""The image is what replay makes of records, and `records_of` is its inverse."""

from __future__ import annotations

import base64
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples

from ottla.broker.metadata.image import TOPIC_RESOURCE, MetadataError, MetadataImage
from ottla.broker.metadata.image_records import quota_record, records_of
from ottla.broker.metadata.metadata_version import METADATA_VERSION, METADATA_VERSION_MAX, RECORD_VERSIONS
from ottla.broker.metadata.partition_state import PartitionState, partition_record
from ottla.protocol.stored.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterControllerRecord,
    ZkMigrationStateRecord,
    decode_metadata_record,
    encode_metadata_record,
)

DIRECTORY = UUID(int=1000)
TOPIC_ID = UUID(int=2000)

REGISTRATION_OF_KAFKA_4_4 = base64.b64decode(
    "AQAEAAAAAQC6QS+tPgJCwINeDhQD+ouMAAAAAAAAAA8CClBMQUlOVEVYVAoxMjcuMC4wLjG24QAAAAgUdHJhbnNhY3Rpb24udmVyc2lvbgAAAAIAEHN0"
    "cmVhbXMudmVyc2lvbgAAAAEADmdyb3VwLnZlcnNpb24AAAABAA5rcmFmdC52ZXJzaW9uAAAAAQAOc2hhcmUudmVyc2lvbgAAAAIAEW1ldGFkYXRhLnZl"
    "cnNpb24ABwAhACFlbGlnaWJsZS5sZWFkZXIucmVwbGljYXMudmVyc2lvbgAAAAEAAAEAAQARAio/yahaY6g1yYSjeqoeCWA="
)
"""A RegisterBrokerRecord of version 4, as Apache Kafka 4.4.0 has written it to its metadata log."""
CHANGE_OF_KAFKA_4_4 = base64.b64decode("AREAAAAAAQAAAAAAAAAPAQAB/w==")
"""The BrokerRegistrationChangeRecord after it, of version 0: the broker is no longer fenced."""
CORDONED_BY_KAFKA_4_4 = base64.b64decode("AREDAAAAAQAAAAAAAAAPAQMBAQ==")
"""One of version 3: no log directory is cordoned."""


def partition_state(epoch: int = 0) -> PartitionState:
    return PartitionState((1,), (1,), 1, epoch, 0, (DIRECTORY,))


def replay(*records: MetadataRecord) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        image.replay(record)
    return image


def topic(name: str = "orders", topic_id: UUID = TOPIC_ID, partitions: int = 1) -> list[MetadataRecord]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(partition_record(topic_id, index, partition_state()) for index in range(partitions)),
    ]


def registered() -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=1, incarnation_id=UUID(int=7), broker_epoch=3, end_points=[], features=[], rack=None, fenced=True
    )


def test_a_topic_is_found_by_name_and_by_id_with_its_partitions() -> None:
    image = replay(*topic(partitions=3))
    assert image.topics["orders"] is image.topics_by_id[TOPIC_ID]
    assert list(image.topics["orders"].partitions) == [0, 1, 2]
    assert image.partition_count == 3


def test_removing_a_topic_removes_its_partitions_and_its_configuration() -> None:
    config = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="orders", name="retention.ms", value="1")
    image = replay(*topic(), config, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert image == MetadataImage()


def test_a_change_that_names_a_leader_starts_a_leader_epoch_even_if_it_is_the_same_leader() -> None:
    image = replay(*topic(), PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
    changed = image.topics["orders"].partitions[0]
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (1, 1, 1)


def test_a_change_without_a_leader_keeps_the_leader_epoch() -> None:
    other = UUID(int=1001)
    image = replay(*topic(), PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, directories=[other]))
    changed = image.topics["orders"].partitions[0]
    assert (changed.leader_epoch, changed.partition_epoch, changed.directories) == (0, 1, (other,))


def test_a_configuration_set_to_null_is_gone() -> None:
    image = replay(
        *topic(),
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="orders", name="retention.ms", value="1"),
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="orders", name="retention.ms", value=None),
    )
    assert image.configs == {}
    assert image.topic_configs("orders") == {}


def test_unfencing_a_broker_keeps_the_rest_of_its_registration() -> None:
    record = registered()
    image = replay(record, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3, fenced=-1))
    assert image.brokers[1].fenced is False
    assert image.brokers[1].incarnation_id == UUID(int=7)
    assert record.fenced is True


def test_a_registration_of_kafka_4_4_is_read_and_a_change_of_it_keeps_the_rest() -> None:
    written = (REGISTRATION_OF_KAFKA_4_4, CORDONED_BY_KAFKA_4_4, CHANGE_OF_KAFKA_4_4)
    image = replay(*map(decode_metadata_record, written))
    broker = image.brokers[1]
    assert (broker.fenced, len(broker.log_dirs), broker.cordoned_log_dirs) == (False, 1, None)
    again = encode_metadata_record(broker, RECORD_VERSIONS[RegisterBrokerRecord])
    assert decode_metadata_record(again) == broker
    for data in written:
        assert encode_metadata_record(decode_metadata_record(data), data[2]) == data


def test_cordoned_directories_of_a_registration_are_not_kept_and_a_snapshot_can_be_written() -> None:
    record = decode_metadata_record(REGISTRATION_OF_KAFKA_4_4)
    assert isinstance(record, RegisterBrokerRecord)
    record.cordoned_log_dirs = list(record.log_dirs)
    broker = replay(record).brokers[1]
    assert record.cordoned_log_dirs, "the record is not changed"
    assert decode_metadata_record(encode_metadata_record(broker, RECORD_VERSIONS[RegisterBrokerRecord])) == broker
    assert (broker.log_dirs, broker.fenced) == (record.log_dirs, record.fenced)


def test_a_controller_that_was_removed_is_gone() -> None:
    controller = RegisterControllerRecord(
        controller_id=1, incarnation_id=UUID(int=1), zk_migration_ready=False, end_points=[], features=[]
    )
    gone = decode_metadata_record(b"\x01\x1d\x00\x00\x00\x00\x01\x00")
    assert gone == UnregisterControllerRecord(controller_id=1)
    assert replay(controller, gone, gone).controllers == {}


@pytest.mark.parametrize("level", [16, METADATA_VERSION_MAX + 1])
def test_a_metadata_version_that_is_not_known_is_refused_by_its_number(level: int) -> None:
    with pytest.raises(MetadataError, match=str(level)):
        replay(FeatureLevelRecord(name="metadata.version", feature_level=level))


@pytest.mark.parametrize(
    "record",
    [
        RemoveTopicRecord(topic_id=TOPIC_ID),
        partition_record(TOPIC_ID, 0, partition_state()),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0),
        EndTransactionRecord(),
    ],
)
def test_a_record_about_what_does_not_exist_is_damage(record: MetadataRecord) -> None:
    with pytest.raises(MetadataError):
        replay(record)


def test_a_topic_that_exists_cannot_be_created_again() -> None:
    with pytest.raises(MetadataError, match="orders"):
        replay(*topic(), TopicRecord(name="orders", topic_id=UUID(int=5)))


def test_producer_ids_never_go_back() -> None:
    newer = ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=2000)
    with pytest.raises(MetadataError, match="2000"):
        replay(newer, ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=1000))


def test_records_in_a_transaction_count_when_it_ends_and_not_when_it_is_aborted() -> None:
    image = replay(BeginTransactionRecord(name="bootstrap"), *topic())
    assert image.topics == {}
    image.replay(EndTransactionRecord())
    assert set(image.topics) == {"orders"}
    aborted = replay(BeginTransactionRecord(), *topic(), AbortTransactionRecord(reason="test"))
    assert aborted == MetadataImage()


def test_what_is_not_understood_is_carried_along_in_its_order() -> None:
    unknown: list[MetadataRecord] = [
        ZkMigrationStateRecord(zk_migration_state=1),
        ZkMigrationStateRecord(zk_migration_state=2),
    ]
    image = replay(NoOpRecord(), *unknown)
    assert list(records_of(image)) == unknown


def test_a_delegation_token_is_the_last_record_of_its_id_and_gone_when_it_was_removed() -> None:
    record = DelegationTokenRecord(
        owner="User:a",
        requester="User:b",
        renewers=["User:c:d"],
        issue_timestamp=1,
        max_timestamp=3,
        expiration_timestamp=2,
        token_id="t",
    )
    renewed = record.replace(expiration_timestamp=3)
    image = replay(record, renewed)
    assert list(records_of(image)) == [renewed]
    image.replay(RemoveDelegationTokenRecord(token_id="t"))
    image.replay(RemoveDelegationTokenRecord(token_id="t"))
    assert image == MetadataImage()


def test_a_delegation_token_of_nobody_is_damage() -> None:
    record = DelegationTokenRecord(
        owner="a", requester="", renewers=[], issue_timestamp=1, max_timestamp=3, expiration_timestamp=2, token_id="t"
    )
    with pytest.raises(MetadataError, match="DelegationTokenRecord t"):
        replay(record)


def quota(value: float, *, remove: bool = False, key: str = "producer_byte_rate") -> ClientQuotaRecord:
    parts = (("user", "a"), ("client-id", None))
    return ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        key=key,
        value=value,
        remove=remove,
    )


def test_a_quota_is_the_last_that_was_set_and_gone_when_it_was_removed() -> None:
    entity = (("client-id", None), ("user", "a"))
    image = replay(quota(1.0), quota(2.0), quota(5.0, key="request_percentage"))
    assert image.quotas == {entity: {"producer_byte_rate": 2.0, "request_percentage": 5.0}}
    assert replay(*records_of(image)).quotas == image.quotas
    image.replay(quota(0.0, remove=True))
    image.replay(quota(0.0, remove=True, key="request_percentage"))
    image.replay(quota(0.0, remove=True))
    assert image.quotas == {}


def test_a_feature_that_was_ended_is_not_one_that_never_began() -> None:
    image = replay(
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="group.version", feature_level=0),
    )
    assert replay(*records_of(image)).features == {"group.version": 0}


def test_a_controller_that_registers_again_replaces_its_registration() -> None:
    old, new = (
        RegisterControllerRecord(
            controller_id=1, incarnation_id=UUID(int=number), zk_migration_ready=False, end_points=[], features=[]
        )
        for number in (1, 2)
    )
    assert list(records_of(replay(old, new))) == [new]


@st.composite
def histories(draw: st.DrawFn) -> list[MetadataRecord]:
    """Records as a broker may write them, in a possible order."""
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION),
        registered(),
    ]
    alive: dict[str, UUID] = {}
    next_id = 10_000
    for step in draw(st.lists(st.integers(0, 5), max_size=30)):
        name = draw(st.sampled_from(["a", "b", "c"]))
        if name not in alive:
            next_id += 1
            alive[name] = UUID(int=next_id)
            records.extend(topic(name, alive[name], draw(st.integers(1, 3))))
        elif step == 0:
            records.append(RemoveTopicRecord(topic_id=alive.pop(name)))
        elif step == 1:
            records.append(PartitionChangeRecord(partition_id=0, topic_id=alive[name], leader=1))
        elif step == 2:
            value = draw(st.none() | st.sampled_from(["1", "2"]))
            records.append(
                ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name="retention.ms", value=value)
            )
        elif step == 3:
            next_id += 1000
            records.append(ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=next_id))
        elif step == 4:
            limit = draw(st.none() | st.sampled_from([1.0, 2.0]))
            records.append(quota_record((("user", name),), "producer_byte_rate", limit))
    return records


@given(histories())
@settings(max_examples=examples(60))
def test_the_records_of_an_image_replay_to_an_equal_image(history: list[MetadataRecord]) -> None:
    image = replay(*history)
    assert replay(*records_of(image)) == image


@given(histories(), st.integers(0, 60))
@settings(max_examples=examples(60))
def test_records_that_are_made_later_are_those_of_the_image_as_it_was(history: list[MetadataRecord], at: int) -> None:
    image = replay(*history[:at])
    later = records_of(image)
    at_once = list(records_of(image))
    for record in history[at:]:
        image.replay(record)
    assert list(later) == at_once


@pytest.mark.parametrize("name", ["", "..", "../../etc", "wit\x02ess", "two words", "x" * 250])
def test_a_name_that_no_topic_may_have_is_refused_before_it_becomes_a_folder(name: str) -> None:
    with pytest.raises(MetadataError, match="Topic name is invalid"):
        replay(*topic(name))
