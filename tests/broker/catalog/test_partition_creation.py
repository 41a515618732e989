"""Partitions made on a simulated disk: where, some at a time, behind a deleted topic's, and with no room for them."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from kit.nodes import DATA, pass_time, start_node, start_node_with
from kit.topics import codes, create, delete
from kit.workers import HeldSteps

from ottla.broker.catalog.catalog import NewPartitions, NewTopic, TopicResult
from ottla.broker.catalog.partition_creation import PARTITIONS_PER_STEP
from ottla.broker.catalog.topic import Topic
from ottla.broker.node import Node
from ottla.protocol.errors import ErrorCode
from ottla.storage.formats.layout import TopicPartition


def test_a_new_partition_begins_with_its_first_leader_epoch_and_a_stop_syncs_it() -> None:
    node, files, _ = start_node()
    create(node, NewTopic("t"))
    path = str(DATA / "t-0" / "leader-epoch-checkpoint")
    assert files.written_state()[path] == b"0\n1\n0 0\n"
    node.stop()
    assert files.synced_state()[path] == b"0\n1\n0 0\n"


def test_partitions_go_to_the_directory_that_holds_the_fewest() -> None:
    node, files, _ = start_node(log_dirs="/one,/two")
    create(node, NewTopic("a", partitions=4))
    homes = [next(d for d in ("/one", "/two") if files.exists(Path(d) / f"a-{index}")) for index in range(4)]
    assert sorted(homes) == ["/one", "/one", "/two", "/two"]
    states = node.services.catalog.image.topics["a"].partitions
    ids = {str(directory.path): directory.id for directory in node.services.log_manager.directories}
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


def test_directories_that_a_full_disk_did_not_let_be_made_are_made_when_there_is_room() -> None:
    node, files, clock = start_node()
    full = files.fail("make_directory", "*t-1", errno.ENOSPC, times=None)
    assert codes(create(node, NewTopic("t", partitions=2))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert node.services.catalog.partition("t", 0) is not None
    assert node.services.catalog.partition("t", 1) is None
    assert node.services.catalog.why_missing("t", 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.services.catalog.why_missing("t", 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    files.heal(full)
    pass_time(node, clock, 6_000)
    assert node.services.catalog.partition("t", 1) is not None
    assert node.services.catalog.image.topics["t"].partitions[1].leader_epoch == 0


def test_a_partition_that_the_process_lacked_descriptors_for_is_made_when_there_are_some() -> None:
    node, files, clock = start_node()
    lacking = files.fail("open", "*t-1/*", errno.EMFILE, times=None)
    assert codes(create(node, NewTopic("t", partitions=2))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert node.services.log_manager.directories[0].is_online
    files.heal(lacking)
    pass_time(node, clock, 6_000)
    assert node.services.catalog.partition("t", 1) is not None


def test_the_metadata_say_where_a_partition_is_that_was_made_elsewhere_than_was_planned() -> None:
    """Were the disk away on which it is, a start would take the other one's word and make it again, empty."""
    node, _, _ = start_node(log_dirs="/one,/two")
    answers: list[list[TopicResult]] = []
    node.services.catalog.create_topics([NewTopic("t")], answers.append)
    planned, other = node.services.log_manager.directories
    planned.mark_full(OSError(errno.ENOSPC, "No space left on device"))
    node.settle()
    assert codes(answers[0]) == [ErrorCode.NONE]
    assert node.services.log_manager.directory_of("t", 0) is other
    assert node.services.catalog.image.topics["t"].partitions[0].directories == (other.id,)


def test_partitions_are_made_and_removed_some_at_a_time_and_a_name_is_free_once_all_are_gone() -> None:
    later = HeldSteps()
    node, files, _ = start_node_with(None, later)
    reported: list[str] = []

    def begin(name: str, partitions: int) -> None:
        node.services.catalog.create_topics(
            [NewTopic(name, partitions)], lambda outcomes: reported.append(f"made {name}")
        )
        node.settle()

    def directories() -> int:
        return sum(name.startswith("t-") for name in files.list_directory(DATA) if not name.endswith("-delete"))

    begin("t", 10)
    assert (directories(), reported, len(later)) == (PARTITIONS_PER_STEP, [], 1)
    while later:
        before = directories()
        later.pop()()
        assert directories() <= before + PARTITIONS_PER_STEP
    assert (directories(), reported) == (10, ["made t"])

    first = node.services.catalog.topics["t"].id
    node.services.catalog.delete_topics(["t"], lambda outcomes: reported.append("deleted t"))
    node.settle()
    assert "t" not in node.services.catalog.topics
    later.pop()()
    assert directories() == 9
    begin("t", 2)  # it waits: directories of that name are there
    assert reported == ["made t"]
    while later:
        later.pop()()
        node.settle()
    assert reported == ["made t", "deleted t", "made t"]
    assert node.services.catalog.topics["t"].id != first
    assert directories() == 2
    assert all(partition is not None for partition in node.services.catalog.topics["t"].partitions)


def test_a_topic_that_is_deleted_while_it_is_made_is_gone() -> None:
    later = HeldSteps()
    node, files, _ = start_node_with(None, later)
    reported: list[str] = []
    node.services.catalog.create_topics([NewTopic("t", 10)], lambda outcomes: reported.append("made"))
    node.settle()
    node.services.catalog.delete_topics(["t"], lambda outcomes: reported.append("deleted"))
    node.settle()
    while later:
        later.popleft()()
        node.settle()
    assert sorted(reported) == ["deleted", "made"]
    names = [name for name in files.list_directory(DATA) if name.startswith("t-")]
    assert all(name.endswith("-delete") for name in names)


def served(node: Node, topic: str) -> int:
    return sum(partition is not None for partition in node.services.catalog.topics[topic].partitions)


def test_growing_a_topic_that_is_still_being_made_is_answered_when_the_new_partitions_accept_requests() -> None:
    later = HeldSteps()
    node, _, _ = start_node_with(None, later)
    reported: list[tuple[str, int]] = []
    node.services.catalog.create_topics(
        [NewTopic("a", 4), NewTopic("b", 2)], lambda _: reported.append(("made", served(node, "b")))
    )
    node.settle()
    node.services.catalog.create_partitions(
        [NewPartitions("b", 5)], lambda _: reported.append(("grown", served(node, "b")))
    )
    node.settle()
    while later:
        later.popleft()()
        node.settle()
    assert reported == [("made", 2), ("grown", 5)]


def test_a_topic_is_not_recorded_before_directories_of_a_deleted_one_have_lost_its_name() -> None:
    """Else a start after a power cut could take one for the new topic's, if its topic id was not on disk yet."""
    later = HeldSteps(holds=False)
    node, files, _ = start_node_with(None, later)
    create(node, NewTopic("t", 3))
    later.holds = True
    reported: list[str] = []
    catalog = node.services.catalog
    catalog.delete_topics(["t"], lambda _: reported.append("deleted"))
    catalog.create_topics([NewTopic("t", 2)], lambda _: reported.append(f"made with {served(node, 't')}"))
    catalog.create_partitions([NewPartitions("t", 4)], lambda results: reported.append(results[0].error_code.name))
    node.settle()
    waited = 0
    while later:
        former = [name for name in files.crash(random.Random(1)).list_directory(DATA) if name in {"t-0", "t-1", "t-2"}]
        if not reported[1:]:
            assert not (former and "t" in catalog.image.topics)
        waited += bool(former)
        later.popleft()()
        node.settle()
    assert waited
    assert reported == ["UNKNOWN_TOPIC_OR_PARTITION", "deleted", "made with 2"]


def test_what_the_end_of_a_topic_asks_for_lets_no_waiting_creation_begin_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change that is submitted while the topic is closed is not planned then, nor is the creation before it."""
    later = HeldSteps(holds=False)
    node, _, _ = start_node_with(None, later)
    create(node, NewTopic("t", 3))
    later.holds = True
    catalog = node.services.catalog
    close = Topic.close

    def close_and_ask(topic: Topic, error: BaseException) -> None:
        close(topic, error)
        catalog.allocate_producer_ids(lambda block: reported.append("ids"))

    monkeypatch.setattr(Topic, "close", close_and_ask)
    reported: list[str] = []
    catalog.delete_topics(["t"], lambda _: reported.append("deleted"))
    catalog.create_topics([NewTopic("t", 2)], lambda _: reported.append(f"made with {served(node, 't')}"))
    node.settle()
    assert reported == ["ids"]
    while later:
        later.popleft()()
        node.settle()
    assert reported == ["ids", "deleted", "made with 2"]


def test_of_two_creations_that_wait_for_a_deleted_topic_one_succeeds() -> None:
    later = HeldSteps(holds=False)
    node, _, _ = start_node_with(None, later)
    create(node, NewTopic("t", 3))
    later.holds = True
    reported: list[str] = []
    catalog = node.services.catalog
    catalog.delete_topics(["t"], lambda results: reported.append(f"deletion {results[0].error_code.name}"))
    catalog.create_topics([NewTopic("t", 1)], lambda results: reported.append(f"creation {results[0].error_code.name}"))
    catalog.delete_topics(["t"], lambda results: reported.append(f"another {results[0].error_code.name}"))
    catalog.create_topics([NewTopic("t", 2)], lambda results: reported.append(f"later {results[0].error_code.name}"))
    assert codes(create(node, NewTopic("t", 1), validate_only=True)) == [ErrorCode.NONE]
    while later:
        later.popleft()()
        node.settle()
    assert sorted(reported) == [
        "another UNKNOWN_TOPIC_OR_PARTITION",
        "creation NONE",
        "deletion NONE",
        "later TOPIC_ALREADY_EXISTS",
    ]
    assert served(node, "t") == 1


def test_a_partition_that_the_disk_refuses_is_reported_to_the_request() -> None:
    later = HeldSteps()
    node, files, _ = start_node_with(None, later)
    files.fail("make_directory", "*b-3", errno.ENOSPC, times=None)
    reported: list[list[ErrorCode]] = []
    node.services.catalog.create_topics(
        [NewTopic("a", 4), NewTopic("b", 2)], lambda outcomes: reported.append(codes(outcomes))
    )
    node.settle()
    node.services.catalog.create_partitions([NewPartitions("b", 5)], lambda outcomes: reported.append(codes(outcomes)))
    node.settle()
    while later:
        later.popleft()()
        node.settle()
    assert reported == [[ErrorCode.NONE, ErrorCode.NONE], [ErrorCode.KAFKA_STORAGE_ERROR]]


def test_a_topic_that_is_deleted_while_it_is_made_can_be_made_again() -> None:
    later = HeldSteps()
    node, files, _ = start_node_with(None, later)
    reported: list[str] = []
    node.services.catalog.create_topics([NewTopic("t", 10)], lambda _: reported.append("made"))
    node.services.catalog.delete_topics(["t"], lambda _: reported.append("deleted"))
    node.services.catalog.create_topics([NewTopic("t", 2)], lambda _: reported.append(f"made with {served(node, 't')}"))
    node.settle()
    while later:
        later.popleft()()
        node.settle()
    assert reported[-1] == "made with 2"
    assert sorted(reported) == ["deleted", "made", "made with 2"]
    assert {name for name in files.list_directory(DATA) if name.startswith("t-") and "-delete" not in name} == {
        "t-0",
        "t-1",
    }


def test_the_checkpoints_rows_of_a_former_life_go_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    node, files, _ = start_node()
    create(node, NewTopic("t", partitions=3))
    node.services.log_manager.checkpoints.write_recovery_points()
    delete(node, "t")
    one = TopicPartition("t", 0)
    assert node.services.log_manager.remembers(one)
    in_worker = False
    call = files.call

    def noting(work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        nonlocal in_worker
        in_worker = True
        result = work()
        in_worker = False
        done(result, None)

    syncs: list[bool] = []

    def calling(kind: str, path: Path) -> AbstractContextManager[object]:
        if kind == "fdatasync" and "checkpoint" in path.name:
            syncs.append(in_worker)
        return call(kind, path)

    monkeypatch.setattr(node.services.workers, "run", noting)
    monkeypatch.setattr(files, "call", calling)
    assert codes(create(node, NewTopic("t", partitions=3))) == [ErrorCode.NONE]
    assert syncs == [True], "one file had rows, and one write serves all partitions"
    assert not node.services.log_manager.remembers(one)
