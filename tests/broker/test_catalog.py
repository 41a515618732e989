"""The catalog on a simulated disk: what is answered, what is on disk by then, what a restart finds."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from kit.nodes import DATA, ask, pass_time, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.catalog import NewPartitions, NewTopic, TopicOutcome
from ottla.broker.metadata.features import INITIAL_LEVELS, SUPPORTED_FEATURES
from ottla.broker.metadata.image import MetadataError, MetadataImage
from ottla.broker.metadata.journal import METADATA_DIRECTORY
from ottla.broker.metadata.scan import scan_log
from ottla.broker.node import Node
from ottla.broker.partition_creation import PARTITIONS_PER_STEP
from ottla.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import decode_batch
from ottla.protocol.stored.metadata import (
    BeginTransactionRecord,
    PartitionChangeRecord,
    TopicRecord,
    decode_metadata_record,
)
from ottla.storage.errors import StorageError

METADATA = DATA / METADATA_DIRECTORY


def create(node: Node, *wishes: NewTopic, validate_only: bool = False) -> list[TopicOutcome]:
    answers: list[list[TopicOutcome]] = []
    node.catalog.create_topics(wishes, answers.append, validate_only=validate_only)
    node.settle()
    (answer,) = answers
    return answer


def grow(node: Node, *wishes: NewPartitions, validate_only: bool = False) -> list[TopicOutcome]:
    answers: list[list[TopicOutcome]] = []
    node.catalog.create_partitions(wishes, answers.append, validate_only=validate_only)
    node.settle()
    (answer,) = answers
    return answer


def delete(node: Node, *targets: str | UUID) -> list[TopicOutcome]:
    answers: list[list[TopicOutcome]] = []
    node.catalog.delete_topics(targets, answers.append)
    node.settle()
    (answer,) = answers
    return answer


def codes(outcomes: list[TopicOutcome]) -> list[ErrorCode]:
    return [outcome.error_code for outcome in outcomes]


def record_names(files: SimulatedFiles) -> list[list[str]]:
    """The types of the records of the metadata log, batch by batch; control batches as []."""
    return [
        []
        if header.is_control
        else [type(decode_metadata_record(record.value or b"")).__name__ for record in decode_batch(batch)]
        for header, batch in scan_log(files, METADATA, 0)
    ]


# --- Founding and starting


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
        ["FeatureLevelRecord"] * 2 + ["RegisterBrokerRecord", "BrokerRegistrationChangeRecord"],
    ]
    assert node.catalog.finalized_features() == (4, {"metadata.version": 27, "group.version": 1})


def test_the_broker_epoch_is_the_offset_of_the_registration() -> None:
    node, files, clock = start_node()
    assert node.catalog.node_epoch == 3
    assert node.catalog.image.brokers[1].broker_epoch == 3
    node.stop()
    end_offset = node.catalog.image.end_offset
    again, _, _ = start_node(files, clock)
    assert again.catalog.node_epoch == end_offset + 1


def test_each_run_is_a_raft_epoch_that_begins_with_a_leader_change() -> None:
    node, files, clock = start_node()
    node.stop()
    start_node(files, clock)
    epochs = [(header.partition_leader_epoch, header.is_control) for header, _ in scan_log(files, METADATA, 0)]
    assert epochs == [(1, True), (1, False), (1, False), (2, True), (2, False)]
    assert b'"leaderEpoch":2' in files.read_bytes(METADATA / "quorum-state")


def test_every_run_registers_with_an_incarnation_of_its_own_and_the_directories() -> None:
    node, files, clock = start_node()
    first = node.catalog.image.brokers[1]
    assert first.log_dirs == [directory.id for directory in node.log_manager.directories]
    assert first.fenced is False
    node.stop()
    assert node.catalog.image.brokers[1].fenced is True
    again, _, _ = start_node(files, clock)
    assert again.catalog.image.brokers[1].incarnation_id != first.incarnation_id


def test_partitions_without_a_metadata_log_refuse_to_start() -> None:
    node, files, clock = start_node()
    create(node, NewTopic("orders"))
    node.stop()
    for path in list(files.written_state()):
        if "__cluster_metadata" in path:
            files.unlink(Path(path))
    with pytest.raises(MetadataError, match="orders-0 is there"):
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
    node.catalog._journal.append_now([BeginTransactionRecord(), TopicRecord(name="t", topic_id=UUID(int=500))])
    again, _, _ = start_node(files.crash(random.Random(1)), clock)
    assert again.catalog.topics == {}
    assert again.catalog.node_epoch == again.catalog.image.brokers[1].broker_epoch
    assert codes(create(again, NewTopic("t"))) == [ErrorCode.NONE]


def test_the_metadata_of_a_larger_cluster_is_refused() -> None:
    node, files, clock = start_node()
    create(node, NewTopic("t"))
    topic_id = node.catalog.topics["t"].id
    node.catalog._journal.append_now([PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2])])
    node.stop()
    with pytest.raises(MetadataError, match=r"brokers \[1, 2\]"):
        start_node(files, clock)


# --- Creating


def test_a_created_topic_is_synced_and_has_its_directories_when_it_is_answered() -> None:
    node, files, _ = start_node()
    (outcome,) = create(node, NewTopic("orders", partitions=3, configs=[("retention.ms", "60000")]))
    assert outcome.error_code is ErrorCode.NONE
    assert outcome.partitions == 3
    assert {"orders-0", "orders-1", "orders-2"} <= set(files.list_directory(DATA))
    topic = node.catalog.topics["orders"]
    assert node.catalog.topics_by_id[outcome.id] is topic
    assert topic.config.retention_ms == 60000
    assert [partition.leader_epoch for partition in topic.partitions if partition] == [0, 0, 0]
    assert record_names(files)[-1] == ["TopicRecord", "ConfigRecord", *["PartitionRecord"] * 3]


def test_nothing_is_seen_or_answered_before_the_sync() -> None:
    node, files, _ = start_node()
    answers: list[list[TopicOutcome]] = []
    node.catalog.create_topics([NewTopic("orders")], answers.append)
    node.turn.end()
    assert answers == []
    assert node.catalog.topics == {}
    assert not files.exists(DATA / "orders-0")
    node.settle()
    assert len(answers) == 1
    assert "orders" in node.catalog.topics


def test_of_two_requests_for_one_name_the_second_finds_it_there() -> None:
    node, _, _ = start_node()
    answers: list[list[TopicOutcome]] = []
    for _ in range(2):
        node.catalog.create_topics([NewTopic("orders")], answers.append)
    node.settle()
    assert [codes(answer) for answer in answers] == [[ErrorCode.NONE], [ErrorCode.TOPIC_ALREADY_EXISTS]]


def test_topics_of_one_request_succeed_and_fail_each_for_itself_in_one_batch() -> None:
    node, files, _ = start_node()
    before = len(record_names(files))
    outcomes = create(node, NewTopic("a"), NewTopic("bad name"), NewTopic("b"))
    assert codes(outcomes) == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
    assert set(node.catalog.topics) == {"a", "b"}
    assert len(record_names(files)) == before + 1


def test_validate_only_checks_and_creates_nothing() -> None:
    node, files, _ = start_node()
    before = record_names(files)
    outcomes = create(node, NewTopic("a", partitions=2), NewTopic("b", partitions=0), validate_only=True)
    assert codes(outcomes) == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
    assert (outcomes[0].partitions, outcomes[0].id) == (2, UUID(int=0))
    assert node.catalog.topics == {}
    assert record_names(files) == before


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (NewTopic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("with_underscore"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", partitions=10_001), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", partitions=101), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", configs=[("retention.ms", "soon")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("no.such.key", "1")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("retention.ms", "1"), ("retention.ms", "2")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", assignments=[(0, [1])], partitions=1), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=[(0, [1])], replication_factor=1), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=[(0, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (2, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_with_kafkas_code(wish: NewTopic, code: ErrorCode) -> None:
    node, files, _ = start_node(ottla_max_partitions=100)
    create(node, NewTopic("there"), NewTopic("with.underscore"))
    before = record_names(files)
    (outcome,) = create(node, wish)
    assert outcome.error_code is code
    assert outcome.error_message
    assert record_names(files) == before


def test_a_name_that_is_twice_in_a_request_is_refused_both_times() -> None:
    node, _, _ = start_node()
    outcomes = create(node, NewTopic("a"), NewTopic("b"), NewTopic("a"))
    assert codes(outcomes) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def test_a_manual_assignment_to_this_broker_sets_the_number_of_partitions() -> None:
    node, _, _ = start_node()
    (outcome,) = create(node, NewTopic("t", assignments=[(1, [1]), (0, [1])]))
    assert (outcome.error_code, outcome.partitions) == (ErrorCode.NONE, 2)


def test_a_larger_replication_factor_counts_as_1_where_that_is_allowed() -> None:
    node, _, _ = start_node(ottla_replication_factor_lenient=True)
    assert codes(create(node, NewTopic("t", replication_factor=3))) == [ErrorCode.NONE]


def test_the_defaults_are_the_brokers() -> None:
    node, _, _ = start_node(num_partitions=4)
    (outcome,) = create(node, NewTopic("t"))
    assert outcome.partitions == 4


def test_partitions_go_to_the_directory_that_holds_the_fewest() -> None:
    node, files, _ = start_node(log_dirs="/one,/two")
    create(node, NewTopic("a", partitions=4))
    homes = [next(d for d in ("/one", "/two") if files.exists(Path(d) / f"a-{index}")) for index in range(4)]
    assert sorted(homes) == ["/one", "/one", "/two", "/two"]
    states = node.catalog.image.topics["a"].partitions
    ids = {str(directory.path): directory.id for directory in node.log_manager.directories}
    assert [states[index].directories for index in range(4)] == [(ids[home],) for home in homes]


@pytest.mark.parametrize("is_enabled", [False, True])
def test_a_compacted_topic_on_a_broker_whose_cleaner_is_off_is_said(
    caplog: pytest.LogCaptureFixture, is_enabled: bool
) -> None:
    node, _, _ = start_node(log_cleaner_enable=is_enabled)
    with caplog.at_level(logging.WARNING):
        assert codes(create(node, NewTopic("t", configs=[("cleanup.policy", "compact")]))) == [ErrorCode.NONE]
    said = [record.message for record in caplog.records if "log.cleaner.enable is false" in record.message]
    assert bool(said) is not is_enabled


def test_auto_creation_of_a_topic_that_appears_meanwhile_is_a_success() -> None:
    node, _, _ = start_node()
    answers: list[list[TopicOutcome]] = []
    node.catalog.create_topics([NewTopic("t")], lambda _: None)
    node.catalog.auto_create(["t", "u", "t"], answers.append)
    node.settle()
    assert [codes(answer) for answer in answers] == [[ErrorCode.NONE, ErrorCode.NONE]]
    assert set(node.catalog.topics) == {"t", "u"}


def test_internal_topics_are_not_auto_created() -> None:
    node, _, _ = start_node()
    answers: list[list[TopicOutcome]] = []
    node.catalog.auto_create(["__consumer_offsets"], answers.append)
    node.settle()
    assert answers == [[]]
    assert node.catalog.topics == {}


# --- Growing and deleting


def test_a_topic_grows_and_its_new_partitions_are_there_after_a_restart() -> None:
    node, files, clock = start_node()
    create(node, NewTopic("t"))
    assert codes(grow(node, NewPartitions("t", 3, [[1], [1]]))) == [ErrorCode.NONE]
    assert len(node.catalog.topics["t"].partitions) == 3
    node.stop()
    again, _, _ = start_node(files, clock)
    assert [again.catalog.partition("t", index) is not None for index in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("nowhere", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 2_000_000_000), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_growing_that_cannot_be_is_refused(wish: NewPartitions, code: ErrorCode) -> None:
    node, _, _ = start_node()
    create(node, NewTopic("t", partitions=2))
    assert codes(grow(node, wish)) == [code]
    assert len(node.catalog.topics["t"].partitions) == 2


def test_growing_can_be_only_validated() -> None:
    node, _, _ = start_node()
    create(node, NewTopic("t"))
    assert codes(grow(node, NewPartitions("t", 5), validate_only=True)) == [ErrorCode.NONE]
    assert len(node.catalog.topics["t"].partitions) == 1


def test_a_deleted_topic_is_gone_at_once_and_its_files_after_the_delay() -> None:
    node, files, clock = start_node()
    (created,) = create(node, NewTopic("t", configs=[("file.delete.delay.ms", "5000")]))
    assert codes(delete(node, "t")) == [ErrorCode.NONE]
    assert node.catalog.topics == {}
    assert node.catalog.topics_by_id == {}
    assert not files.exists(DATA / "t-0")
    assert [name for name in files.list_directory(DATA) if name.endswith("-delete")]
    pass_time(node, clock, 7_000)
    assert not [name for name in files.list_directory(DATA) if name.endswith("-delete")]
    assert created.id not in node.catalog.image.topics_by_id


def test_a_topic_made_again_has_a_new_id_and_none_of_the_old_configuration() -> None:
    node, files, clock = start_node()
    (old,) = create(node, NewTopic("t", configs=[("retention.ms", "1")]))
    delete(node, old.id)
    (new,) = create(node, NewTopic("t"))
    assert new.id != old.id
    assert node.catalog.topics["t"].overrides == {}
    node.stop()
    again, _, _ = start_node(files, clock)
    assert again.catalog.topics["t"].id == new.id


def test_deleting_what_is_not_there_says_so_by_name_and_by_id() -> None:
    node, _, _ = start_node()
    outcomes = delete(node, "t", UUID(int=12345))
    assert codes(outcomes) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
    assert (outcomes[0].name, outcomes[1].name, outcomes[1].id) == ("t", None, UUID(int=12345))


def test_a_topic_named_twice_be_it_by_name_and_id_is_not_deleted() -> None:
    node, _, _ = start_node()
    (created,) = create(node, NewTopic("t"))
    assert codes(delete(node, "t", created.id)) == [ErrorCode.INVALID_REQUEST] * 2
    assert "t" in node.catalog.topics


def test_deletion_can_be_switched_off() -> None:
    node, _, _ = start_node(delete_topic_enable=False)
    create(node, NewTopic("t"))
    assert codes(delete(node, "t")) == [ErrorCode.TOPIC_DELETION_DISABLED]
    assert "t" in node.catalog.topics


# --- Producer ids


def test_blocks_of_producer_ids_are_synced_before_they_are_given_and_never_given_twice() -> None:
    node, files, clock = start_node()
    blocks: list[range | None] = []
    node.catalog.allocate_producer_ids(blocks.append)
    assert blocks == []
    node.settle()
    survivor = files.crash(random.Random(1))
    again, _, _ = start_node(survivor, clock)
    again.catalog.allocate_producer_ids(blocks.append)
    again.settle()
    assert blocks == [range(0, 1000), range(1000, 2000)]


# --- Leader epochs


def test_a_clean_restart_keeps_leader_epochs_and_an_unclean_one_raises_each_by_one() -> None:
    node, files, clock = start_node()
    create(node, NewTopic("t", partitions=2))
    node.stop()
    node, _, _ = start_node(files, clock)
    assert [partition.leader_epoch for partition in node.catalog.topics["t"].partitions if partition] == [0, 0]
    survivor = files.crash(random.Random(1))
    node, _, _ = start_node(survivor, clock)
    assert [partition.leader_epoch for partition in node.catalog.topics["t"].partitions if partition] == [1, 1]
    log = node.catalog.topics["t"].partitions[1]
    assert log is not None
    assert log.log.leader_epoch == 1
    durable = survivor.crash(random.Random(2))
    node, _, _ = start_node(durable, clock)
    assert node.catalog.image.topics["t"].partitions[0].leader_epoch == 2


# --- The disk fails


def test_a_full_disk_refuses_the_change_and_the_next_one_succeeds() -> None:
    node, files, _ = start_node()
    files.fail("pwritev", f"{METADATA}/*.log", errno.ENOSPC)
    assert codes(create(node, NewTopic("t"))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert node.catalog.topics == {}
    for directory in node.log_manager.directories:
        assert directory.probe()
    assert codes(create(node, NewTopic("t"))) == [ErrorCode.NONE]


def test_a_failed_sync_refuses_this_and_every_later_change_and_promises_nothing() -> None:
    node, files, _ = start_node()
    files.fail("fdatasync", f"{METADATA}/*.log", errno.EIO)
    assert codes(create(node, NewTopic("t"))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert codes(create(node, NewTopic("u"))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert node.catalog.topics == {}
    blocks: list[range | None] = []
    node.catalog.allocate_producer_ids(blocks.append)
    assert blocks == [None]


def test_directories_that_a_full_disk_did_not_let_be_made_are_made_when_there_is_room() -> None:
    node, files, clock = start_node()
    full = files.fail("make_directory", "*t-1", errno.ENOSPC, times=None)
    assert codes(create(node, NewTopic("t", partitions=2))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert node.catalog.partition("t", 0) is not None
    assert node.catalog.partition("t", 1) is None
    assert node.catalog.why_missing("t", 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.catalog.why_missing("t", 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    files.heal(full)
    pass_time(node, clock, 6_000)
    assert node.catalog.partition("t", 1) is not None
    assert node.catalog.image.topics["t"].partitions[1].leader_epoch == 0


# --- Snapshots


def test_snapshot_and_log_replay_to_the_image_of_the_log_alone() -> None:
    node, files, clock = start_node(metadata_log_max_record_bytes_between_snapshots=2_000)
    for number in range(40):
        create(node, NewTopic(f"t{number}", partitions=2, configs=[("retention.ms", str(number))]))
        if number % 3 == 0:
            delete(node, f"t{number}")
        pass_time(node, clock, 1_000)
    assert node.catalog.snapshots_taken > 3
    live = node.catalog.image
    node.stop()
    again, _, _ = start_node(files, clock)
    found = again.catalog.image
    assert set(found.topics) == set(live.topics)
    assert _essence(found) == _essence(live)
    kept = [name for name in files.list_directory(METADATA) if name.endswith(".checkpoint")]
    assert len(kept) == 3
    bases = [name for name in files.list_directory(METADATA) if name.endswith(".log")]
    assert bases[0] > f"{0:020d}.log"


def _essence(image: MetadataImage) -> object:
    return image.topics, image.configs, image.next_producer_id, image.features, image.partition_count


def test_a_snapshot_is_taken_by_time_only_when_something_changed() -> None:
    node, _, clock = start_node(metadata_log_max_snapshot_interval_ms=10_000)
    pass_time(node, clock, 15_000)
    taken = node.catalog.snapshots_taken
    pass_time(node, clock, 30_000)
    assert node.catalog.snapshots_taken == taken
    create(node, NewTopic("t"))
    pass_time(node, clock, 2_000)
    assert node.catalog.snapshots_taken == taken + 1


def test_a_snapshot_that_the_disk_refuses_does_no_harm() -> None:
    node, files, clock = start_node(metadata_log_max_record_bytes_between_snapshots=1)
    files.fail("*", "*.checkpoint.tmp", errno.ENOSPC)
    create(node, NewTopic("t"))
    pass_time(node, clock, 2_000)
    assert node.catalog.snapshots_taken == 0
    assert node.metrics.chore("metadata snapshot").failures == 1
    create(node, NewTopic("u"))
    pass_time(node, clock, 2_000)
    assert node.catalog.snapshots_taken == 1
    node.stop()
    again, _, _ = start_node(files, clock)
    assert set(again.catalog.topics) == {"t", "u"}


# --- The cluster id


def test_a_wanted_cluster_id_is_taken_and_kept_and_another_one_is_refused() -> None:
    node, files, clock = start_node(ottla_cluster_id="MkU3OEVBNTcwNTJENDM2Qk")
    assert node.catalog.cluster_id == "MkU3OEVBNTcwNTJENDM2Qk"
    node.stop()
    again, _, _ = start_node(files, clock)
    assert again.catalog.cluster_id == "MkU3OEVBNTcwNTJENDM2Qk"
    again.stop()
    with pytest.raises(StorageError, match="another-one"):
        start_node(files, clock, ottla_cluster_id="another-one")


# --- Features


def test_a_directory_of_an_earlier_version_gets_the_features_that_this_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.delitem(INITIAL_LEVELS, "group.version")
        earlier.delitem(SUPPORTED_FEATURES, "group.version")
        node, files, clock = start_node()
        assert node.catalog.finalized_features()[1] == {"metadata.version": 27}
        node.stop()
    again, _, _ = start_node(files, clock)
    assert again.catalog.finalized_features()[1] == {"metadata.version": 27, "group.version": 1}


def test_a_feature_that_was_taken_back_stays_so() -> None:
    node, files, clock = start_node()
    wish = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    answer = ask(node, UpdateFeaturesRequest(feature_updates=[wish]), 1)
    assert isinstance(answer, UpdateFeaturesResponse)
    assert answer.error_code == ErrorCode.NONE
    node.stop()
    again, _, _ = start_node(files, clock)
    assert again.catalog.finalized_features()[1] == {"metadata.version": 27}


def test_partitions_are_made_and_removed_some_at_a_time_and_a_name_is_free_once_all_are_gone() -> None:
    later: list[Callable[[], None]] = []
    node, files, _ = start_node()
    node.catalog._creation._later = node.catalog._removal._later = later.append
    told: list[str] = []

    def create(name: str, partitions: int) -> None:
        node.catalog.create_topics([NewTopic(name, partitions)], lambda outcomes: told.append(f"made {name}"))
        node.settle()

    def directories() -> int:
        return sum(name.startswith("t-") for name in files.list_directory(DATA) if not name.endswith("-delete"))

    create("t", 10)
    assert (directories(), told, len(later)) == (PARTITIONS_PER_STEP, [], 1)
    while later:
        before = directories()
        later.pop()()
        assert directories() <= before + PARTITIONS_PER_STEP
    assert (directories(), told) == (10, ["made t"])

    first = node.catalog.topics["t"].id
    node.catalog.delete_topics(["t"], lambda outcomes: told.append("deleted t"))
    node.settle()
    assert "t" not in node.catalog.topics
    later.pop()()
    assert directories() == 9
    create("t", 2)  # it waits: directories of that name are there
    assert told == ["made t"]
    while later:
        later.pop()()
        node.settle()
    assert told == ["made t", "deleted t", "made t"]
    assert node.catalog.topics["t"].id != first
    assert directories() == 2
    assert all(partition is not None for partition in node.catalog.topics["t"].partitions)


def test_a_topic_that_is_deleted_while_it_is_made_is_gone() -> None:
    later: list[Callable[[], None]] = []
    node, files, _ = start_node()
    node.catalog._creation._later = node.catalog._removal._later = later.append
    told: list[str] = []
    node.catalog.create_topics([NewTopic("t", 10)], lambda outcomes: told.append("made"))
    node.settle()
    node.catalog.delete_topics(["t"], lambda outcomes: told.append("deleted"))
    node.settle()
    while later:
        later.pop(0)()
        node.settle()
    assert sorted(told) == ["deleted", "made"]
    names = [name for name in files.list_directory(DATA) if name.startswith("t-")]
    assert all(name.endswith("-delete") for name in names)
