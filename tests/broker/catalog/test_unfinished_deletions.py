"""A deletion that a stop cut short is finished by the next start, and what nobody deleted is never removed.

The machine stops at every single call of a DeleteTopics, of the start behind it, and of a metadata snapshot, and the
disk keeps what it likes of what was not synced.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, produce_request
from kit.nodes import DATA, Later, pass_time, start_node, start_node_with
from kit.simulated_files import CrashPoint, SimulatedFiles
from kit.workers import HeldSteps

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.node import Node
from ottla.storage.formats.kafka_uuid import uuid_to_text
from ottla.storage.formats.partition_metadata import write_partition_metadata
from ottla.storage.tools.verify import Verification

PARTITIONS = 4
SNAPSHOT_KEYS: dict[str, object] = {"metadata_log_max_snapshot_interval_ms": 1}


def start(files: SimulatedFiles, clock: ManualClock, **keys: object) -> Node:
    node, _, _ = start_node(files, clock, **keys)
    return node


def prepared(later: Later | None = None, /, **keys: object) -> tuple[Node, SimulatedFiles, ManualClock]:
    """A broker with `old`, which has records in each partition, and `kept`."""
    node, files, clock = start_node_with(None, later, **keys)
    node.services.catalog.create_topics([NewTopic("old", partitions=PARTITIONS), NewTopic("kept")], lambda _: None)
    node.settle()
    client = Exchange(node)
    for index in range(PARTITIONS):
        client.send(produce_request("old", batch(1), partition=index, acks=-1), 9)
    node.settle()
    return node, files, clock


def delete(node: Node, topic: str = "old") -> None:
    node.services.catalog.delete_topics([topic], lambda _: None)
    node.settle()


def calls_of(deed: Callable[[Node], None], world: tuple[Node, SimulatedFiles, ManualClock]) -> int:
    node, files, _ = world
    before = files.calls
    deed(node)
    return files.calls - before


def names_of(files: SimulatedFiles, topic: str = "old", place: Path = DATA) -> list[str]:
    return [name for name in files.list_directory(place) if name.startswith(f"{topic}-")]


def strays(files: SimulatedFiles, place: Path = DATA) -> list[str]:
    return [name for name in files.list_directory(place) if name.endswith("-stray")]


def assert_settled(node: Node, files: SimulatedFiles, clock: ManualClock) -> None:
    """`kept` is served, `old` is whole or gone, and a minute later nothing of a deleted one is left."""
    assert "kept" in node.services.catalog.topics
    pass_time(node, clock, 62_000, step_ms=10_000)
    expected = [f"old-{index}" for index in range(PARTITIONS)] if "old" in node.services.catalog.topics else []
    assert sorted(names_of(files)) == expected


def test_a_crash_at_any_call_of_a_deletion_leaves_no_stray() -> None:
    cut_short = 0
    for call in range(1, calls_of(delete, prepared()) + 2):
        for seed in range(3):
            node, files, clock = prepared()
            files.crash_at = files.calls + call
            with contextlib.suppress(CrashPoint):
                delete(node)
            files = files.crash(random.Random(seed))
            cut_short += 0 < len([name for name in names_of(files) if not name.endswith("-delete")]) < PARTITIONS
            node = start(files, clock)
            assert strays(files) == [], f"call {call}, seed {seed}"
            assert_settled(node, files, clock)
    assert cut_short, "no crash came between two of the renames"


def test_a_crash_at_any_call_of_the_start_that_finishes_a_deletion_leaves_no_stray() -> None:
    def cut_short() -> tuple[SimulatedFiles, ManualClock]:
        node, files, clock = prepared()
        delete(node)
        renames = [name for name in names_of(files) if name.endswith("-delete")]
        for name in renames[1:]:  # as if the process had been killed behind the first rename
            files.rename(DATA / name, DATA / name.partition(".")[0])
        return files.crash(random.Random(1)), clock

    files, clock = cut_short()
    calls = calls_of(lambda _: start(files, clock) and None, (None, files, clock))  # type: ignore[arg-type]
    for call in range(1, calls + 1, 3):
        files, clock = cut_short()
        files.crash_at = files.calls + call
        with contextlib.suppress(CrashPoint):
            start(files, clock)
        files = files.crash(random.Random(call))
        node = start(files, clock)
        assert strays(files) == [], f"call {call}"
        assert "old" not in node.services.catalog.topics
        assert_settled(node, files, clock)


def delete_and_create_again(node: Node, clock: ManualClock) -> None:
    """`old` without its records, until the directories of its first life are gone, too."""
    delete(node)
    node.services.catalog.create_topics([NewTopic("old", partitions=PARTITIONS)], lambda _: None)
    node.settle()
    clock.advance(1_100)
    node.run_due()
    node.settle()


def with_rows_of_old(**keys: object) -> tuple[Node, SimulatedFiles, ManualClock]:
    """As `prepared`; the checkpoints speak of `old`, and nobody writes them in the next seconds."""
    node, files, clock = prepared(log_segment_delete_delay_ms=1_000, **keys)
    pass_time(node, clock, 61_000, step_ms=10_000)
    assert b"old 0 1" in files.read_bytes(DATA / "replication-offset-checkpoint")
    return node, files, clock


@pytest.mark.parametrize("is_killed", [True, False], ids=["kill", "power cut"])
def test_a_crash_at_any_call_while_a_topic_is_deleted_and_created_again_leaves_no_row_of_its_first_life(
    is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a row would look like a partition that was lost."""
    node, files, clock = with_rows_of_old()
    before = files.calls
    delete_and_create_again(node, clock)
    calls = files.calls - before
    with_rows = 0
    for call in range(1, calls + 2):
        node, files, clock = with_rows_of_old()
        files.crash_at = files.calls + call
        with contextlib.suppress(CrashPoint):
            delete_and_create_again(node, clock)
        files = files.kill() if is_killed else files.crash(random.Random(call))
        is_missing = "old-0" not in names_of(files)
        with_rows += is_missing and b"old 0 1" in files.read_bytes(DATA / "replication-offset-checkpoint")
        assert [one for one in Verification(files, DATA).run() if "had reached" in one.problem] == [], call
        # The next start is cut short as well, anywhere.
        files.crash_at = files.calls + 1 + call % 40
        with contextlib.suppress(CrashPoint):
            start(files, clock)
        files = files.kill()
        node = start(files, clock)
        assert [line for line in caplog.messages if "gone" in line] == [], call
        assert_settled(node, files, clock)
    assert with_rows, "no crash came between the deletion and the dropping of the rows"


def test_no_snapshot_forgets_a_deletion_whose_directories_may_be_there() -> None:
    """Snapshots are due all the time; the machine stops at each call of two deletions, twice."""

    def life(node: Node, clock: ManualClock) -> None:
        for topic in ("old", "more"):
            node.services.catalog.create_topics([NewTopic("more", partitions=2)], lambda _: None)
            node.settle()
            delete(node, topic)
            clock.advance(1_000)
            node.run_due()
            node.settle()

    node, files, clock = prepared(**SNAPSHOT_KEYS)
    calls = calls_of(lambda node: life(node, clock), (node, files, clock))
    assert node.services.catalog.snapshots_taken > 1
    for call in range(1, calls + 1, 2):
        node, files, clock = prepared(**SNAPSHOT_KEYS)
        for number in range(2):
            files.crash_at = files.calls + call // (number + 1)
            with contextlib.suppress(CrashPoint):
                life(node, clock)
            files = files.crash(random.Random(call))
            node = start(files, clock, **SNAPSHOT_KEYS)
            assert strays(files) == [], f"call {call}, crash {number}"


def test_a_snapshot_waits_for_directories_that_are_on_their_way_out_but_not_for_ever() -> None:
    waiting = HeldSteps(holds=False)
    node, files, clock = prepared(waiting, **SNAPSHOT_KEYS)
    waiting.holds = True  # the loop does not come to it
    clock.advance(1_000)
    node.services.catalog.delete_topics(["old"], lambda _: None)
    node.settle()
    assert node.services.catalog.begin_snapshot() is None
    assert "old" in node.services.catalog.image.removed_topics.values()
    while waiting:
        waiting.pop()()
    assert node.services.catalog.image.removed_topics == {}
    assert node.services.catalog.begin_snapshot() is not None
    assert not [name for name in names_of(files) if not name.endswith("-delete")]


def test_a_log_that_has_grown_long_waits_for_no_directory() -> None:
    waiting = HeldSteps(holds=False)
    node, _, _ = prepared(waiting, metadata_log_max_record_bytes_between_snapshots=2_000)
    waiting.holds = True
    node.services.catalog.delete_topics(["old"], lambda _: None)
    node.settle()
    for number in range(200):
        node.services.catalog.create_topics([NewTopic(f"t{number}")], lambda _: None)
        node.settle()
        if (snapshot := node.services.catalog.begin_snapshot()) is not None:
            break
    assert snapshot is not None
    assert number > 20, "it has waited for four times the bytes"


def test_what_a_snapshot_has_replaced_still_reports_which_topics_were_deleted() -> None:
    """As long as the log before it is kept: directories that appear again were deleted."""
    node, files, clock = prepared(**SNAPSHOT_KEYS)
    topic_id = node.services.catalog.topics["old"].id
    delete(node)
    clock.advance(1_000)
    node.run_due()
    node.settle()
    assert node.services.catalog.snapshots_taken == 1
    files = files.crash(random.Random(1))
    make_directory(files, "old-3", topic_id)
    node = start(files, clock, **SNAPSHOT_KEYS)
    assert strays(files) == []
    assert_settled(node, files, clock)


def make_directory(files: SimulatedFiles, name: str, topic_id: UUID | None, *, records: bool = True) -> None:
    """A partition's directory that no broker of ours has made."""
    files.make_directory(DATA / name)
    if topic_id is not None:
        write_partition_metadata(files, DATA / name, topic_id)
    files.write_atomically(DATA / name / f"{0:020d}.log", bytes(batch(1)) if records else b"")


@pytest.mark.parametrize(
    ("name", "has_id", "is_blank", "has_records", "is_finished"),
    [
        ("old-0", True, False, True, True),
        ("old-0", False, True, True, True),
        ("old-0", False, False, False, True),
        ("old-0", False, False, True, False),
        ("other-0", False, True, True, False),
        ("other-0", False, False, False, False),
    ],
    ids=["its id", "blank id", "no id, empty", "no id, records", "unknown, blank id", "unknown, empty"],
)
def test_after_a_crash_what_the_metadata_deleted_goes_and_what_it_does_not_know_stays(
    name: str, has_id: bool, is_blank: bool, has_records: bool, is_finished: bool
) -> None:
    node, files, clock = prepared()
    topic_id = node.services.catalog.topics["old"].id
    delete(node)
    files = files.crash(random.Random(1))
    make_directory(files, name, topic_id if has_id else None, records=has_records)
    if is_blank:
        files.write_atomically(DATA / name / "partition.metadata", b"\x00" * 40)
    start(files, clock)
    assert len(strays(files)) == (0 if is_finished else 1)


def test_an_unknown_directory_is_renamed_to_stray_and_never_removed() -> None:
    node, files, clock = prepared()
    files = files.crash(random.Random(1))
    make_directory(files, "old-7", UUID(int=99))
    node = start(files, clock)
    (stray,) = strays(files)
    pass_time(node, clock, 120_000, step_ms=60_000)
    files = files.crash(random.Random(2))
    start(files, clock)
    assert strays(files) == [stray]


def test_a_directory_that_is_put_back_after_a_clean_stop_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """A clean stop leaves none of a deleted topic, so a person has done that: it is theirs to remove."""
    node, files, clock = prepared()
    topic_id = node.services.catalog.topics["old"].id
    delete(node)
    node.stop()
    make_directory(files, "old-2", topic_id)
    with caplog.at_level(logging.WARNING):
        start(files, clock)
    assert len(strays(files)) == 1
    assert "its topic was deleted, and it was put here afterwards" in caplog.text


def test_a_deletion_that_begins_as_the_broker_stops_is_finished_by_the_next_start() -> None:
    """As the last turn ends, after its syncs: the deletion's record is on disk once the metadata log is closed."""
    node, files, clock = prepared()
    node.services.turn.send_at_end(lambda: node.services.catalog.delete_topics(["old"], lambda _: None))
    node.stop()
    assert len(names_of(files)) == PARTITIONS
    node = start(files, clock)
    assert strays(files) == []
    assert "old" not in node.services.catalog.topics
    assert_settled(node, files, clock)


def test_a_deletion_whose_sync_failed_is_finished_by_the_next_start() -> None:
    """It was refused, and its record may be on disk nevertheless. The other log directory stops in good order."""
    other = Path("/other")
    keys: dict[str, object] = {"log_dirs": f"{DATA},{other}"}
    node, files, clock = prepared(**keys)
    files.fail("fdatasync", "*/__cluster_metadata-0/*", errno.EIO)
    delete(node)
    assert node.services.log_manager.directories[0].is_offline
    node.stop()
    files.heal()
    assert names_of(files, place=other)
    node = start(files, clock, **keys)
    assert "old" not in node.services.catalog.topics
    assert strays(files, other) == []
    assert not [name for name in names_of(files, place=other) if not name.endswith("-delete")]


def test_a_finished_deletion_is_one_line_and_goes_after_the_usual_delay(caplog: pytest.LogCaptureFixture) -> None:
    node, files, clock = prepared()
    topic_id = node.services.catalog.topics["old"].id
    delete(node)
    files = files.crash(random.Random(1))
    for index in range(PARTITIONS):
        if not files.is_directory(DATA / f"old-{index}"):
            make_directory(files, f"old-{index}", topic_id)
    with caplog.at_level(logging.INFO):
        node = start(files, clock)
    (line,) = [text for text in caplog.messages if "directories of deleted topics" in text]
    assert f"{PARTITIONS} directories of deleted topics (old)" in line
    assert len([name for name in names_of(files) if name.endswith("-delete")]) == PARTITIONS
    assert "old" in [one.partition("-")[0] for one in names_of(files)]
    pass_time(node, clock, 50_000, step_ms=10_000)
    assert names_of(files)
    pass_time(node, clock, 20_000, step_ms=10_000)
    assert names_of(files) == []


def test_what_was_deleted_while_its_disk_was_away_goes_when_the_disk_is_back() -> None:
    other = Path("/other")
    keys: dict[str, object] = {"log_dirs": f"{DATA},{other}", **SNAPSHOT_KEYS}
    node, files, clock = prepared(**keys)
    assert names_of(files, place=other)
    files = files.crash(random.Random(1))
    files.fail("open", str(other), 5)
    node = start(files, clock, **keys)
    if node.services.log_manager.directories[1].is_offline is False:
        node.services.log_manager.directories[1].mark_offline(OSError(5, "gone"))
    delete(node)
    for _ in range(3):
        clock.advance(1_000)
        node.run_due()
        node.settle()
    assert node.services.catalog.snapshots_taken == 0, "it would not be known any more whose the directories are"
    files = files.crash(random.Random(1))
    start(files, clock, **keys)
    assert strays(files, other) == []
    assert not [name for name in names_of(files, place=other) if not name.endswith("-delete")]


def test_a_partition_that_could_not_be_opened_goes_with_its_topic() -> None:
    node, files, clock = prepared()
    node.stop()
    files.write_atomically(DATA / "old-1" / "partition.metadata", b"version: 0\ntopic_id: nonsense")
    text = uuid_to_text(node.services.catalog.topics["old"].id)
    node = start(files, clock)
    assert node.services.catalog.partition("old", 1) is None
    files.write_atomically(DATA / "old-1" / "partition.metadata", f"version: 0\ntopic_id: {text}".encode())
    delete(node)
    assert not [name for name in names_of(files) if not name.endswith("-delete")]
    node.stop()
    start(files, clock)
    assert strays(files) == []
