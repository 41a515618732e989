"""`log-start-offset-checkpoint` with a flipped bit: whatever it says then, no record that was acknowledged goes."""

from __future__ import annotations

import errno
import logging
import random

import pytest
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.nodes import DATA, ask, partition_of, pass_time, start_node
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.broker.metadata.rebuild import MetadataRebuild
from ottla.broker.node import Node
from ottla.protocol.api.delete_records import DeleteRecordsRequest
from ottla.storage.errors import StorageError
from ottla.storage.tools.repair import Repair
from ottla.storage.tools.verify import Verification
from ottla.storage.tools.verify_findings import Severity

STARTS = DATA / "log-start-offset-checkpoint"
COPY = DATA / "ottla-log-start-offset-copy"
KEYS: dict[str, object] = {"log_segment_bytes": 1024}
RECORDS = 15


def lived(delete_before: int = 10, **configs: str) -> tuple[SimulatedFiles, Node]:
    """Fifteen records in several segments, of which DeleteRecords took ten."""
    node, files, clock = start_node(**KEYS)
    files.now_ms = clock.wall_ms()
    make_topic(node, "t", **configs)
    for _ in range(RECORDS):
        Exchange(node).ask(produce_request("t", batch(value=b"v" * 200)), 9)
    delete(node, delete_before)
    return files, node


def delete(node: Node, before: int) -> None:
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=before)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[wanted])
    ask(node, DeleteRecordsRequest(topics=[topic], timeout_ms=30_000), 2)


def bend(files: SimulatedFiles, old: bytes, new: bytes) -> None:
    """In place, as a disk does it: nobody writes the file again."""
    data = files.read_bytes(STARTS)
    assert data.count(old) == 1
    file = files.open(STARTS, writable=True)
    modified_ms = files.modified_ms(STARTS)
    file.pwritev([data.replace(old, new)], 0)
    file.fdatasync()
    file.close()
    files.set_modified_ms(STARTS, modified_ms)


def repair(files: SimulatedFiles) -> None:
    for _ in Repair(files, DATA, 0, None, MetadataRebuild(files, DATA, 0, ())).run():
        pass


def damage(files: SimulatedFiles) -> list[str]:
    return [one.problem for one in Verification(files, DATA).run() if one.severity is Severity.DAMAGE]


def bounds(node: Node) -> tuple[int, int]:
    log = partition_of(node, "t").log
    return log.log_start_offset, log.log_end_offset


@pytest.mark.parametrize("has_copy", [True, False])
def test_a_log_start_beyond_the_log_refuses_the_start_and_changes_nothing(has_copy: bool) -> None:
    files, node = lived()
    node.stop()
    bend(files, b"t 0 10\n", b"t 0 90\n")
    if not has_copy:
        files.unlink(COPY)
    before = files.written_state()
    words = (
        rf"{STARTS}: t-0 is said to begin at offset 90, and its log ends at 15: .*`ottla log verify --repair {DATA}`"
    )
    with pytest.raises(StorageError, match=words) as refused:
        start_node(files, **KEYS)
    assert "\n" not in str(refused.value)
    files.kill()
    assert files.written_state() == before | {f"{DATA}/.lock": b""}
    assert damage(files)

    repair(files)
    assert not damage(files)
    node, _, _ = start_node(files, **KEYS)
    assert bounds(node) == ((10 if has_copy else 0), 15), "what is not known any more shows records, and hides none"


def test_a_log_start_inside_of_the_log_is_what_it_was(caplog: pytest.LogCaptureFixture) -> None:
    files, node = lived()
    node.stop()
    bend(files, b"t 0 10\n", b"t 0 14\n")
    assert damage(files) == ["a bit has flipped: 't 0 14' was 't 0 10', by ottla-log-start-offset-copy"]
    node, _, clock = start_node(files, **KEYS)
    assert "'t 0 14' was 't 0 10'" in caplog.text
    assert bounds(node) == (10, 15)
    pass_time(node, clock, 400_000, step_ms=100_000)
    node.stop()
    assert not damage(files)
    node, _, _ = start_node(files, clock, **KEYS)
    assert bounds(node) == (10, 15)


def test_a_log_start_that_became_lower_does_not_show_what_was_deleted() -> None:
    files, node = lived()
    files.kill()
    bend(files, b"t 0 10\n", b"t 0 00\n")
    node, _, _ = start_node(files, **KEYS)
    assert bounds(node) == (10, 15)


def test_a_power_cut_while_a_bent_log_start_is_mended_leaves_it_mendable() -> None:
    """Also where the clock is wrong then: a copy written again at that time would look older than the checkpoint."""
    files, node = lived()
    node.stop()
    bend(files, b"t 0 10\n", b"t 0 14\n")
    files.now_ms -= 12 * 3_600_000
    files.crash_when = lambda call, path: call == "pwritev" and path.name == STARTS.name + ".tmp"
    with pytest.raises(CrashPoint):
        start_node(files, **KEYS)
    node, _, _ = start_node(files.crash(random.Random(1)), **KEYS)
    assert bounds(node) == (10, 15)


def test_a_bent_log_start_is_mended_later_where_there_is_no_inode_for_it(caplog: pytest.LogCaptureFixture) -> None:
    files, node = lived()
    node.stop()
    bend(files, b"t 0 10\n", b"t 0 14\n")
    failure = files.fail("open", "*.tmp", errno.ENOSPC, times=None)
    node, _, _ = start_node(files, **KEYS)
    assert bounds(node) == (10, 15)
    assert f"{STARTS} is rewritten later" in caplog.text
    files.heal(failure)
    delete(node, 12)
    node.stop()
    assert not damage(files)
    node, _, _ = start_node(files, **KEYS)
    assert bounds(node) == (12, 15)


def test_rows_that_somebody_else_wrote_are_not_taken_for_bent_ones(caplog: pytest.LogCaptureFixture) -> None:
    """Apache Kafka, say, which has had the directory since and deleted more."""
    files, node = lived()
    node.stop()
    files.now_ms += 3_600_000
    files.write_atomically(STARTS, b"0\n1\nt 0 14\n")
    node, _, _ = start_node(files, **KEYS)
    assert bounds(node) == (14, 15)
    assert "has flipped" not in caplog.text


@pytest.mark.parametrize("others", ["an older version", "a Kafka"])
def test_a_start_makes_a_copy_of_rows_that_others_wrote(others: str) -> None:
    """From then on a bent bit is noticed; before, nobody knows."""
    files, node = lived()
    node.stop()
    files.now_ms += 3_600_000
    if others == "a Kafka":
        files.write_atomically(STARTS, b"0\n1\nt 0 12\n")
    else:
        files.unlink(COPY)
    start = 12 if others == "a Kafka" else 10
    node, _, _ = start_node(files, **KEYS)
    assert bounds(node) == (start, 15)
    node.stop()
    bend(files, b"t 0 %d\n" % start, b"t 0 %d\n" % (start ^ 1))
    node, _, _ = start_node(files, **KEYS)
    assert bounds(node) == (start, 15)


def test_a_copy_that_cannot_be_written_at_a_start_stops_nobody() -> None:
    files, node = lived()
    node.stop()
    files.unlink(COPY)
    files.fail("open", f"{COPY}.tmp", errno.ENOSPC, times=None)
    node, _, _ = start_node(files, **KEYS)
    assert bounds(node) == (10, 15)
    assert not files.exists(COPY)


@pytest.mark.parametrize("content", [b"", b"?", b"0\n1\nt 0 14\ncrc32c 1\n"])
def test_a_copy_that_cannot_be_read_is_nobodys_witness(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    files, node = lived()
    node.stop()
    files.write_atomically(COPY, content)
    with caplog.at_level(logging.WARNING):
        node, _, _ = start_node(files, **KEYS)
    assert bounds(node) == (10, 15)
    assert str(COPY) in caplog.text
    delete(node, 12)
    node.stop()
    caplog.clear()
    node, _, _ = start_node(files, **KEYS)
    assert bounds(node) == (12, 15)
    assert str(COPY) not in caplog.text


def test_a_crash_between_copy_and_checkpoint_leaves_the_one_or_the_other() -> None:
    for call in range(40):
        files, node = lived(delete_before=4)
        calls = 0

        def stops(kind: str, path: object, last: int = call) -> bool:
            nonlocal calls
            calls += "log-start" in str(path)
            return calls > last

        files.crash_when = stops
        try:
            delete(node, 12)
        except BaseException:
            start = (4, 12)
        else:
            start = (12, 12)
        files.kill()
        again, _, _ = start_node(files, **KEYS)
        assert bounds(again)[0] in start
        if start == (12, 12):
            return
    raise AssertionError("no deletion came to an end")


@pytest.mark.parametrize("acks", ["sync", "page-cache"])
def test_after_a_crash_a_log_that_lost_only_what_was_deleted_begins_at_its_start(
    acks: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In `page-cache` nobody has promised the records to a power cut, and their deletion was. No segment is unlinked
    by the start: it goes with retention.
    """
    files, node = lived(delete_before=15, ottla_acks_all=acks)
    names = {path for path in files.written_state() if "/t-0/" in path and path.endswith(".log")}
    last = max(names)
    files.kill()
    file = files.open(DATA / "t-0" / last.rpartition("/")[2], writable=True)
    file.truncate(0)
    file.fdatasync()
    file.close()
    with caplog.at_level(logging.WARNING):
        node, _, clock = start_node(files, **KEYS)
    assert bounds(node) == (15, 15)
    assert "records that were acknowledged" not in caplog.text
    assert names <= set(files.written_state())
    pass_time(node, clock, 320_000, step_ms=10_000)
    left = files.written_state()
    assert any(path.endswith(".log.deleted") for path in left)
    assert all(name in left or f"{name}.deleted" in left for name in names)
    pass_time(node, clock, 120_000, step_ms=10_000)
    assert not names & set(files.written_state())


def test_an_older_directory_without_a_copy_refuses_such_a_partition_after_a_crash_in_sync() -> None:
    files, node = lived()
    node.services.log_manager.checkpoints.write_recovery_points()
    files.kill()
    bend(files, b"t 0 10\n", b"t 0 90\n")
    files.unlink(COPY)
    names = {path for path in files.written_state() if path.endswith(".log")}
    node, _, clock = start_node(files, **KEYS)
    assert node.services.catalog.partition("t", 0) is None
    pass_time(node, clock, 400_000, step_ms=100_000)
    assert names <= set(files.written_state())
    files.kill()
    node, _, _ = start_node(files, **KEYS)
    assert node.services.catalog.partition("t", 0) is None, "what the log did not bear out is not copied"
    files.kill()
    repair(files)
    node, _, _ = start_node(files, **KEYS)
    assert bounds(node) == (0, 15)
