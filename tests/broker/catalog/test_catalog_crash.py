"""The machine stops at every single call of a creation, a deletion, a growth and a first start.

Whatever the disk keeps of what was not synced: the next start succeeds, what was answered is there, what was not
answered is there whole or not at all, and nothing that was not deleted is renamed or lost.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest
from kit.clock import ManualClock
from kit.nodes import DATA, start_node
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.broker.catalog.catalog import NewPartitions, NewTopic
from ottla.broker.metadata.change_requests import SET, ConfigRequest
from ottla.broker.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataError
from ottla.broker.node import Node

Change = Callable[[Node, list[str]], None]
SEEDS_PER_CALL = 2


def creation(node: Node, answered: list[str]) -> None:
    node.services.catalog.create_topics([NewTopic("new", partitions=2)], lambda _: answered.append("yes"))
    node.settle()


def deletion(node: Node, answered: list[str]) -> None:
    node.services.catalog.delete_topics(["old"], lambda _: answered.append("yes"))
    node.settle()


def growth(node: Node, answered: list[str]) -> None:
    node.services.catalog.create_partitions([NewPartitions("old", 3)], lambda _: answered.append("yes"))
    node.settle()


def prepared() -> tuple[Node, SimulatedFiles, ManualClock]:
    node, files, clock = start_node()
    node.services.catalog.create_topics(
        [NewTopic("old", configs=[("retention.ms", "5")]), NewTopic("kept")], lambda _: None
    )
    node.settle()
    return node, files, clock


def calls_of(change: Change) -> int:
    node, files, _ = prepared()
    before = files.calls
    change(node, [])
    return files.calls - before


def crash_during(change: Change, call: int, seed: int) -> tuple[Node, SimulatedFiles, bool]:
    """The node after a crash at the call of this number, its disk, and whether the change was answered before."""
    node, files, clock = prepared()
    answered: list[str] = []
    files.crash_at = files.calls + call
    with contextlib.suppress(CrashPoint):
        change(node, answered)
    survivor = files.crash(random.Random(seed))
    again, _, _ = start_node(survivor, clock)
    return again, survivor, bool(answered)


def partitions(node: Node, name: str) -> int:
    """How many partitions a topic has, all of which accept requests; 0 when there is no such topic."""
    topic = node.services.catalog.topics.get(name)
    if topic is None:
        return 0
    assert all(topic.partitions)
    return len(topic.partitions)


def assert_directories_match(node: Node, files: SimulatedFiles) -> None:
    expected = {
        f"{topic.name}-{index}"
        for topic in node.services.catalog.topics.values()
        for index in range(len(topic.partitions))
    }
    names = set(files.list_directory(DATA))
    assert expected <= names
    assert {name for name in names if name.endswith("-0") or name.endswith("-1") or name.endswith("-2")} == expected | {
        "__cluster_metadata-0"
    }


@pytest.mark.parametrize(
    ("change", "name", "before", "after"),
    [(creation, "new", 0, 2), (deletion, "old", 1, 0), (growth, "old", 1, 3)],
    ids=["creation", "deletion", "growth"],
)
def test_a_crash_at_any_call_leaves_the_old_or_the_new_and_the_new_once_answered(
    change: Change, name: str, before: int, after: int
) -> None:
    seen = set()
    for call in range(1, calls_of(change) + 2):
        for seed in range(SEEDS_PER_CALL):
            node, files, answered = crash_during(change, call, seed)
            found = partitions(node, name)
            assert found in (before, after), f"call {call}, seed {seed}"
            if answered:
                assert found == after, f"call {call}, seed {seed}: answered, and not there"
            assert partitions(node, "kept") == 1
            assert_directories_match(node, files)
            seen.add((answered, found))
    assert (False, before) in seen
    assert (True, after) in seen


def test_a_crash_at_any_call_of_the_first_start_leaves_what_can_be_started() -> None:
    files = SimulatedFiles()
    start_node(files, ManualClock())
    calls = files.calls
    for call in range(1, calls + 1, 2):
        files = SimulatedFiles()
        files.crash_at = call
        with pytest.raises(CrashPoint):
            start_node(files, ManualClock())
        survivor = files.crash(random.Random(call))
        node, _, _ = start_node(survivor, ManualClock())
        node.services.catalog.create_topics([NewTopic("t")], lambda _: None)
        node.settle()
        assert partitions(node, "t") == 1


def test_a_crash_at_any_call_of_a_snapshot_loses_nothing() -> None:
    def changed() -> tuple[Node, SimulatedFiles, ManualClock]:
        node, files, clock = start_node(metadata_log_max_record_bytes_between_snapshots=1)
        for number in range(4):
            node.services.catalog.create_topics([NewTopic(f"t{number}")], lambda _: None)
            node.settle()
            if number < 3:
                clock.advance(1_000)
                node.run_due()
                node.settle()
        clock.advance(1_000)
        return node, files, clock

    node, files, _ = changed()
    before = files.calls
    node.run_due()
    for call in range(1, files.calls - before + 1):
        node, files, clock = changed()
        files.crash_at = files.calls + call
        with pytest.raises(CrashPoint):
            node.run_due()
        survivor = files.crash(random.Random(call))
        again, _, _ = start_node(survivor, clock)
        assert {partitions(again, f"t{number}") for number in range(4)} == {1}, f"call {call}"


@pytest.mark.parametrize("seed", range(30))
def test_many_changes_and_crashes_never_lose_an_answer(seed: int) -> None:
    chance = random.Random(seed)
    clock = ManualClock()
    files = SimulatedFiles()
    promised: set[str] = set()
    for _ in range(6):
        node, _, _ = start_node(files, clock, metadata_log_max_record_bytes_between_snapshots=1_000)
        assert promised <= set(node.services.catalog.topics)
        files.crash_at = files.calls + chance.randrange(20, 400)
        try:
            for number in range(30):
                name = f"t{chance.randrange(8)}"
                if name in promised and chance.random() < 0.5:
                    promised.discard(name)
                    node.services.catalog.delete_topics([name], lambda _: None)
                else:
                    made: list[str] = []
                    node.services.catalog.create_topics(
                        [NewTopic(name)], lambda _, made=made, name=name: made.append(name)
                    )
                    node.settle()
                    promised.update(made)
                if number % 5 == 4:
                    clock.advance(1_000)
                    node.run_due()
                node.settle()
        except CrashPoint:
            pass
        files = files.crash(chance)


def test_a_metadata_log_that_ends_torn_is_cut_and_goes_on() -> None:
    node, files, clock = prepared()
    end_offset = node.services.catalog.image.end_offset
    log = DATA / "__cluster_metadata-0" / f"{0:020d}.log"
    node.stop()
    torn = files.read_bytes(log) + b"\x00" * 7 + b"torn" * 20
    files.write_atomically(log, torn)
    files.unlink(DATA / ".kafka_cleanshutdown")
    again, _, _ = start_node(files, clock)
    assert set(again.services.catalog.topics) == {"old", "kept"}
    assert again.services.catalog.image.end_offset > end_offset


def test_an_unreadable_snapshot_refuses_to_start() -> None:
    node, files, clock = start_node(metadata_log_max_record_bytes_between_snapshots=1)
    clock.advance(1_000)
    node.run_due()
    node.stop()
    (path,) = [path for path in files.written_state() if path.endswith("-0000000001.checkpoint")]
    content = bytearray(files.written_state()[path])
    content[-30] ^= 1
    files.write_atomically(DATA / "__cluster_metadata-0" / path.rpartition("/")[2], bytes(content))
    with pytest.raises(MetadataError, match="snapshot"):
        start_node(files, clock)


def alteration(node: Node, answered: list[str]) -> None:
    """All changes of a request are one batch: two keys of a topic, and one of all brokers."""
    node.services.catalog.settings.alter_configs(
        [
            ConfigRequest(TOPIC_RESOURCE, "old", [("retention.ms", SET, "7"), ("segment.ms", SET, "8")]),
            ConfigRequest(BROKER_RESOURCE, "", [("log.index.interval.bytes", SET, "9")]),
        ],
        lambda _: answered.append("yes"),
    )
    node.settle()


def test_a_crash_at_any_call_of_a_configuration_change_leaves_all_of_it_or_nothing() -> None:
    seen = set()
    for call in range(1, calls_of(alteration) + 2):
        for seed in range(SEEDS_PER_CALL):
            node, _, answered = crash_during(alteration, call, seed)
            config = node.services.catalog.topics["old"].config
            found = (config.retention_ms, config.segment_ms, config.index_interval_bytes)
            assert found in ((5, 604_800_000, 4096), (7, 8, 9)), f"call {call}, seed {seed}"
            partition = node.services.catalog.partition("old", 0)
            assert partition is not None
            assert partition.log.config.retention_ms == config.retention_ms
            if answered:
                assert found == (7, 8, 9), f"call {call}, seed {seed}: answered, and not there"
            seen.add((answered, found[0]))
    assert {(False, 5), (True, 7)} <= seen
