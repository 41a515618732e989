"""The catalog on a simulated disk: what is answered, what is on disk by then, what a restart finds."""

from __future__ import annotations

import errno
import random
from uuid import UUID

import pytest
from kit.nodes import DATA, pass_time, start_node
from kit.topics import codes, create, delete, grow, record_names

from ottla.broker.catalog.catalog import NewPartitions, NewTopic, TopicResult
from ottla.broker.metadata.reading import METADATA_DIRECTORY
from ottla.protocol.errors import ErrorCode

METADATA = DATA / METADATA_DIRECTORY


# --- Creating


def test_a_created_topic_is_synced_and_has_its_directories_when_it_is_answered() -> None:
    node, files, _ = start_node()
    (outcome,) = create(node, NewTopic("orders", partitions=3, configs=[("retention.ms", "60000")]))
    assert outcome.error_code is ErrorCode.NONE
    assert outcome.partitions == 3
    assert {"orders-0", "orders-1", "orders-2"} <= set(files.list_directory(DATA))
    topic = node.services.catalog.topics["orders"]
    assert node.services.catalog.topics_by_id[outcome.id] is topic
    assert topic.config.retention_ms == 60000
    assert [partition.leader_epoch for partition in topic.partitions if partition] == [0, 0, 0]
    assert record_names(files)[-1] == ["TopicRecord", "ConfigRecord", *["PartitionRecord"] * 3]


def test_nothing_is_seen_or_answered_before_the_sync() -> None:
    node, files, _ = start_node()
    answers: list[list[TopicResult]] = []
    node.services.catalog.create_topics([NewTopic("orders")], answers.append)
    node.services.turn.end()
    assert answers == []
    assert node.services.catalog.topics == {}
    assert not files.exists(DATA / "orders-0")
    node.settle()
    assert len(answers) == 1
    assert "orders" in node.services.catalog.topics


def test_of_two_requests_for_one_name_the_second_finds_it_there() -> None:
    node, _, _ = start_node()
    answers: list[list[TopicResult]] = []
    for _ in range(2):
        node.services.catalog.create_topics([NewTopic("orders")], answers.append)
    node.settle()
    assert [codes(answer) for answer in answers] == [[ErrorCode.NONE], [ErrorCode.TOPIC_ALREADY_EXISTS]]


def test_topics_of_one_request_succeed_and_fail_each_for_itself_in_one_batch() -> None:
    node, files, _ = start_node()
    before = len(record_names(files))
    outcomes = create(node, NewTopic("a"), NewTopic("bad name"), NewTopic("b"))
    assert codes(outcomes) == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
    assert set(node.services.catalog.topics) == {"a", "b"}
    assert len(record_names(files)) == before + 1


def test_validate_only_checks_and_creates_nothing() -> None:
    node, files, _ = start_node()
    before = record_names(files)
    outcomes = create(node, NewTopic("a", partitions=2), NewTopic("b", partitions=0), validate_only=True)
    assert codes(outcomes) == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
    assert outcomes[0].partitions == 2
    assert outcomes[0].id != UUID(int=0)  # as in Kafka: an id that no topic has
    assert node.services.catalog.topics == {}
    assert record_names(files) == before


@pytest.mark.parametrize(
    ("wanted", "code"),
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
def test_a_topic_that_cannot_be_created_is_refused_with_kafkas_code(wanted: NewTopic, code: ErrorCode) -> None:
    node, files, _ = start_node(ottla_max_partitions=100)
    create(node, NewTopic("there"), NewTopic("with.underscore"))
    before = record_names(files)
    (outcome,) = create(node, wanted)
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


@pytest.mark.parametrize("is_lenient", [False, True])
def test_a_larger_default_replication_factor_counts_as_1_and_an_explicit_one_is_refused(is_lenient: bool) -> None:
    """As in a server.properties of three nodes."""
    node, _, _ = start_node(default_replication_factor=3, ottla_replication_factor_lenient=is_lenient)
    assert codes(create(node, NewTopic("t"))) == [ErrorCode.NONE]
    asked = codes(create(node, NewTopic("u", replication_factor=3)))
    assert asked == [ErrorCode.NONE if is_lenient else ErrorCode.INVALID_REPLICATION_FACTOR]


def test_the_defaults_are_the_brokers() -> None:
    node, _, _ = start_node(num_partitions=4)
    (outcome,) = create(node, NewTopic("t"))
    assert outcome.partitions == 4


def test_auto_creation_of_a_topic_that_appears_meanwhile_is_a_success() -> None:
    node, _, _ = start_node()
    answers: list[list[TopicResult]] = []
    node.services.catalog.create_topics([NewTopic("t")], lambda _: None)
    node.services.catalog.auto_create(["t", "u", "t"], answers.append)
    node.settle()
    assert [codes(answer) for answer in answers] == [[ErrorCode.NONE, ErrorCode.NONE]]
    assert set(node.services.catalog.topics) == {"t", "u"}


def test_internal_topics_are_not_auto_created() -> None:
    node, _, _ = start_node()
    answers: list[list[TopicResult]] = []
    node.services.catalog.auto_create(["__consumer_offsets"], answers.append)
    node.settle()
    assert answers == [[]]
    assert node.services.catalog.topics == {}


# --- Growing and deleting


def test_a_topic_grows_and_its_new_partitions_are_there_after_a_restart() -> None:
    node, files, clock = start_node()
    create(node, NewTopic("t"))
    assert codes(grow(node, NewPartitions("t", 3, [[1], [1]]))) == [ErrorCode.NONE]
    assert len(node.services.catalog.topics["t"].partitions) == 3
    node.stop()
    again, _, _ = start_node(files, clock)
    assert [again.services.catalog.partition("t", index) is not None for index in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("wanted", "code"),
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
def test_growing_that_cannot_be_is_refused(wanted: NewPartitions, code: ErrorCode) -> None:
    node, _, _ = start_node()
    create(node, NewTopic("t", partitions=2))
    assert codes(grow(node, wanted)) == [code]
    assert len(node.services.catalog.topics["t"].partitions) == 2


def test_growing_can_be_only_validated() -> None:
    node, _, _ = start_node()
    create(node, NewTopic("t"))
    assert codes(grow(node, NewPartitions("t", 5), validate_only=True)) == [ErrorCode.NONE]
    assert len(node.services.catalog.topics["t"].partitions) == 1


def test_a_deleted_topic_is_gone_at_once_and_its_files_after_the_delay() -> None:
    node, files, clock = start_node()
    (created,) = create(node, NewTopic("t", configs=[("file.delete.delay.ms", "5000")]))
    assert codes(delete(node, "t")) == [ErrorCode.NONE]
    assert node.services.catalog.topics == {}
    assert node.services.catalog.topics_by_id == {}
    assert not files.exists(DATA / "t-0")
    assert [name for name in files.list_directory(DATA) if name.endswith("-delete")]
    pass_time(node, clock, 7_000)
    assert not [name for name in files.list_directory(DATA) if name.endswith("-delete")]
    assert created.id not in node.services.catalog.image.topics_by_id


def test_a_topic_made_again_has_a_new_id_and_none_of_the_old_configuration() -> None:
    node, files, clock = start_node()
    (old,) = create(node, NewTopic("t", configs=[("retention.ms", "1")]))
    delete(node, old.id)
    (new,) = create(node, NewTopic("t"))
    assert new.id != old.id
    assert node.services.catalog.topics["t"].overrides == {}
    node.stop()
    again, _, _ = start_node(files, clock)
    assert again.services.catalog.topics["t"].id == new.id


def test_deleting_what_is_not_there_says_so_by_name_and_by_id() -> None:
    node, _, _ = start_node()
    outcomes = delete(node, "t", UUID(int=12345))
    assert codes(outcomes) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
    assert (outcomes[0].name, outcomes[1].name, outcomes[1].id) == ("t", None, UUID(int=12345))


def test_a_topic_named_twice_be_it_by_name_and_id_is_not_deleted() -> None:
    node, _, _ = start_node()
    (created,) = create(node, NewTopic("t"))
    assert codes(delete(node, "t", created.id)) == [ErrorCode.INVALID_REQUEST] * 2
    assert "t" in node.services.catalog.topics


def test_deletion_can_be_switched_off() -> None:
    node, _, _ = start_node(delete_topic_enable=False)
    create(node, NewTopic("t"))
    assert codes(delete(node, "t")) == [ErrorCode.TOPIC_DELETION_DISABLED]
    assert "t" in node.services.catalog.topics


# --- Producer ids


def test_blocks_of_producer_ids_are_synced_before_they_are_given_and_never_given_twice() -> None:
    node, files, clock = start_node()
    blocks: list[range | None] = []
    node.services.catalog.allocate_producer_ids(blocks.append)
    assert blocks == []
    node.settle()
    survivor = files.crash(random.Random(1))
    again, _, _ = start_node(survivor, clock)
    again.services.catalog.allocate_producer_ids(blocks.append)
    again.settle()
    assert blocks == [range(0, 1000), range(1000, 2000)]


# --- The disk fails


def test_a_full_disk_refuses_the_change_and_the_next_one_succeeds() -> None:
    node, files, _ = start_node()
    files.fail("pwritev", f"{METADATA}/*.log", errno.ENOSPC)
    assert codes(create(node, NewTopic("t"))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert node.services.catalog.topics == {}
    for directory in node.services.log_manager.directories:
        assert directory.probe()
    assert codes(create(node, NewTopic("t"))) == [ErrorCode.NONE]


def test_a_failed_sync_refuses_this_and_every_later_change_and_promises_nothing() -> None:
    node, files, _ = start_node()
    files.fail("fdatasync", f"{METADATA}/*.log", errno.EIO)
    assert codes(create(node, NewTopic("t"))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert codes(create(node, NewTopic("u"))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert node.services.catalog.topics == {}
    blocks: list[range | None] = []
    node.services.catalog.allocate_producer_ids(blocks.append)
    assert blocks == [None]
