"""What a start finds, founds, refuses and raises: the metadata log, the registration, leader epochs, ids, features."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from kit.nodes import DATA, ask, start_node
from kit.topics import codes, create, record_names

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.metadata.features import INITIAL_LEVELS, SUPPORTED_FEATURES
from ottla.broker.metadata.image import MetadataError
from ottla.broker.metadata.reading import METADATA_DIRECTORY
from ottla.broker.metadata.scan import scan_log
from ottla.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.stored.metadata import (
    BeginTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    TopicRecord,
)
from ottla.storage.errors import StorageError

METADATA = DATA / METADATA_DIRECTORY


@contextmanager
def version_without(feature: str) -> Iterator[None]:
    """A time in which this process is an earlier Ottla, which did not have `feature`.

    The dictionaries are emptied and filled again as a whole, so that their order, in which records are written, is
    the same afterwards: monkeypatch.delitem would put the key back at the end.
    """
    tables: list[dict[str, object]] = [INITIAL_LEVELS, SUPPORTED_FEATURES]  # type: ignore[list-item]  # keys only
    before = [dict(table) for table in tables]
    for table in tables:
        del table[feature]
    try:
        yield
    finally:
        for table, entries in zip(tables, before, strict=True):
            table.clear()
            table.update(entries)


def test_a_new_directory_is_founded_as_kafka_formats_one() -> None:
    node, files, _ = start_node()
    names = {path.removeprefix("/data/") for path in files.synced_state()}
    assert {
        "bootstrap.checkpoint",
        "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
        "__cluster_metadata-0/quorum-state",
        "__cluster_metadata-0/partition.metadata",
        "__cluster_metadata-0/leader-epoch-checkpoint",
        "__cluster_metadata-0/00000000000000000000.log",
    } <= names
    assert b"topic_id: AAAAAAAAAAAAAAAAAAAAAQ" in files.read_bytes(METADATA / "partition.metadata")
    assert record_names(files) == [
        [],
        ["FeatureLevelRecord"] * 5 + ["RegisterBrokerRecord", "BrokerRegistrationChangeRecord"],
    ]
    assert node.services.catalog.finalized_features() == (7, INITIAL_LEVELS)
    assert INITIAL_LEVELS == {
        "metadata.version": 27,
        "group.version": 1,
        "transaction.version": 2,
        "share.version": 1,
        "streams.version": 1,
    }


def test_the_broker_epoch_is_the_offset_of_the_registration() -> None:
    node, files, clock = start_node()
    assert node.services.catalog.node_epoch == 6
    assert node.services.catalog.image.brokers[1].broker_epoch == 6
    node.stop()
    end_offset = node.services.catalog.image.end_offset
    again, _, _ = start_node(files, clock)
    assert again.services.catalog.node_epoch == end_offset + 1


def test_each_run_is_a_raft_epoch_that_begins_with_a_leader_change() -> None:
    node, files, clock = start_node()
    node.stop()
    start_node(files, clock)
    epochs = [(header.partition_leader_epoch, header.is_control) for header, _ in scan_log(files, METADATA, 0)]
    assert epochs == [(1, True), (1, False), (1, False), (2, True), (2, False)]
    assert b'"leaderEpoch":2' in files.read_bytes(METADATA / "quorum-state")


def test_every_run_registers_with_an_incarnation_of_its_own_and_the_directories() -> None:
    node, files, clock = start_node()
    first = node.services.catalog.image.brokers[1]
    assert first.log_dirs == [directory.id for directory in node.services.log_manager.directories]
    assert first.fenced is False
    node.stop()
    assert node.services.catalog.image.brokers[1].fenced is True
    again, _, _ = start_node(files, clock)
    assert again.services.catalog.image.brokers[1].incarnation_id != first.incarnation_id


def test_partitions_without_a_metadata_log_refuse_to_start() -> None:
    node, files, clock = start_node()
    create(node, NewTopic("orders"))
    node.stop()
    for path in list(files.written_state()):
        if "__cluster_metadata" in path:
            files.unlink(Path(path))
    with pytest.raises(StorageError, match="orders-0 exists"):
        start_node(files, clock)
    assert files.exists(DATA / "orders-0")


def test_a_damaged_metadata_log_refuses_to_start_in_one_line_and_changes_nothing() -> None:
    node, files, clock = start_node()
    create(node, NewTopic("orders"))
    node.stop()
    log = METADATA / "00000000000000000000.log"
    content = bytearray(files.read_bytes(log))
    content[150] ^= 0xFF
    files.write_atomically(log, bytes(content))
    with pytest.raises(MetadataError) as caught:
        start_node(files, clock)
    assert "\n" not in str(caught.value)
    assert "damaged at byte" in str(caught.value)
    assert files.read_bytes(log) == bytes(content)
    assert files.exists(DATA / "orders-0")


def test_a_transaction_that_a_stopped_controller_left_open_is_aborted() -> None:
    node, files, clock = start_node()
    node.services.catalog.change(
        lambda image: [BeginTransactionRecord(), TopicRecord(name="t", topic_id=UUID(int=500))], lambda error: None
    )
    node.settle()
    again, _, _ = start_node(files.crash(random.Random(1)), clock)
    assert again.services.catalog.topics == {}
    assert again.services.catalog.node_epoch == again.services.catalog.image.brokers[1].broker_epoch
    assert codes(create(again, NewTopic("t"))) == [ErrorCode.NONE]


def test_the_metadata_of_a_larger_cluster_is_refused() -> None:
    node, files, clock = start_node()
    create(node, NewTopic("t"))
    topic_id = node.services.catalog.topics["t"].id
    change = PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2])
    node.services.catalog.change(lambda image: [change], lambda error: None)
    node.settle()
    node.stop()
    with pytest.raises(MetadataError, match=r"brokers \[1, 2\]"):
        start_node(files, clock)


def test_a_clean_restart_keeps_leader_epochs_and_an_unclean_one_raises_each_by_one() -> None:
    node, files, clock = start_node()
    create(node, NewTopic("t", partitions=2))
    node.stop()
    node, _, _ = start_node(files, clock)
    assert [partition.leader_epoch for partition in node.services.catalog.topics["t"].partitions if partition] == [0, 0]
    survivor = files.crash(random.Random(1))
    node, _, _ = start_node(survivor, clock)
    assert [partition.leader_epoch for partition in node.services.catalog.topics["t"].partitions if partition] == [1, 1]
    log = node.services.catalog.topics["t"].partitions[1]
    assert log is not None
    assert log.log.leader_epoch == 1
    durable = survivor.crash(random.Random(2))
    node, _, _ = start_node(durable, clock)
    assert node.services.catalog.image.topics["t"].partitions[0].leader_epoch == 2


def test_a_wanted_cluster_id_is_taken_and_kept_and_another_one_is_refused() -> None:
    node, files, clock = start_node(ottla_cluster_id="MkU3OEVBNTcwNTJENDM2Qk")
    assert node.services.catalog.cluster_id == "MkU3OEVBNTcwNTJENDM2Qk"
    node.stop()
    again, _, _ = start_node(files, clock)
    assert again.services.catalog.cluster_id == "MkU3OEVBNTcwNTJENDM2Qk"
    again.stop()
    with pytest.raises(StorageError, match="another-one"):
        start_node(files, clock, ottla_cluster_id="another-one")


def test_a_directory_of_an_earlier_version_gets_the_features_that_this_one_has() -> None:
    with version_without("group.version"):
        node, files, clock = start_node()
        assert "group.version" not in node.services.catalog.finalized_features()[1]
        node.stop()
    again, _, _ = start_node(files, clock)
    assert again.services.catalog.finalized_features()[1] == INITIAL_LEVELS


@pytest.mark.parametrize(("profile", "has_it"), [("default", True), ("kafka-4.1", False), ("kafka-3.9", False)])
def test_a_directory_is_founded_without_streams_groups_for_a_kafka_that_has_none(profile: str, has_it: bool) -> None:
    node, _, _ = start_node(ottla_profile=profile)
    levels = node.services.catalog.finalized_features()[1]
    assert ("streams.version" in levels) == has_it
    assert levels.keys() | {"streams.version"} == INITIAL_LEVELS.keys()


@pytest.mark.parametrize("feature", ["transaction.version", "streams.version"])
def test_a_directory_of_an_earlier_version_has_no_feature_that_only_an_administrator_may_raise(feature: str) -> None:
    with version_without(feature):
        node, files, clock = start_node()
        node.stop()
    for _ in range(2):
        node, files, clock = start_node(files, clock)
        assert feature not in node.services.catalog.finalized_features()[1]
        node.stop()
    node, _, _ = start_node(files, clock)
    level = INITIAL_LEVELS[feature]
    wanted = UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level)
    answer = ask(node, UpdateFeaturesRequest(feature_updates=[wanted]), 1)
    assert isinstance(answer, UpdateFeaturesResponse)
    assert answer.error_code == ErrorCode.NONE
    assert node.services.catalog.finalized_features()[1][feature] == level


def test_a_directory_of_an_earlier_version_keeps_its_transactions_until_somebody_raises_them() -> None:
    with version_without("transaction.version"):
        node, files, clock = start_node()
        node.stop()
    for _ in range(2):
        node, files, clock = start_node(files, clock)
        assert node.services.catalog.transaction_version == 0
        assert "transaction.version" not in node.services.catalog.finalized_features()[1]
        node.stop()
    node, files, clock = start_node(files, clock)
    wanted = UpdateFeaturesRequest.FeatureUpdateKey(feature="transaction.version", max_version_level=2)
    answer = ask(node, UpdateFeaturesRequest(feature_updates=[wanted]), 1)
    assert isinstance(answer, UpdateFeaturesResponse)
    assert answer.error_code == ErrorCode.NONE
    assert node.services.catalog.transaction_version == 2
    node.stop()
    again, _, _ = start_node(files, clock)
    assert again.services.catalog.finalized_features()[1] == INITIAL_LEVELS


def test_a_lowered_transaction_version_stays_so() -> None:
    node, files, clock = start_node()
    wanted = UpdateFeaturesRequest.FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
    ask(node, UpdateFeaturesRequest(feature_updates=[wanted]), 1)
    assert node.services.catalog.transaction_version == 1
    node.stop()
    again, _, _ = start_node(files, clock)
    assert again.services.catalog.transaction_version == 1


def test_a_feature_that_was_taken_back_stays_so() -> None:
    node, files, clock = start_node()
    wanted = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    answer = ask(node, UpdateFeaturesRequest(feature_updates=[wanted]), 1)
    assert isinstance(answer, UpdateFeaturesResponse)
    assert answer.error_code == ErrorCode.NONE
    node.stop()
    again, _, _ = start_node(files, clock)
    assert "group.version" not in again.services.catalog.finalized_features()[1]


@pytest.mark.parametrize(("finalized", "served"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_the_transaction_version_is_the_finalized_one_as_far_as_it_is_known(finalized: int, served: int) -> None:
    node, _, _ = start_node()
    node.services.catalog.image.replay(FeatureLevelRecord(name="transaction.version", feature_level=finalized))
    assert node.services.catalog.transaction_version == served
