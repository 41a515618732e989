"""Small files that are there and hold nothing, as a crash of Kafka or a disk that lost their content leaves them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest
from kit.cleaning import records_of
from kit.exchange import STAMP_MS, Exchange, batch, make_topic, produce_request
from kit.nodes import DATA, ask, pass_time, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition
from ottla.protocol.api.delete_records import DeleteRecordsRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.storage.directories.blank_checkpoints import Blank, meaning_of
from ottla.storage.directories.directory_checkpoints import CHECKPOINT_FILES
from ottla.storage.errors import StorageError
from ottla.storage.tools.repair import Repair
from ottla.storage.tools.verify import Verification
from ottla.storage.tools.verify_findings import Finding, Severity

LOG_STARTS, CLEANED = "log-start-offset-checkpoint", "cleaner-offset-checkpoint"
BLANKS = [b"", bytes(4096)]


def partition_of(node: Node) -> Partition:
    partition = node.services.catalog.partition("t", 0)
    assert partition is not None
    return partition


def filled(files: SimulatedFiles, **keys: object) -> None:
    """A broker that took three records and was killed; checkpoints as its chores leave them."""
    node, _, _ = start_node(files, **keys)
    make_topic(node, "t")
    for _ in range(3):
        Exchange(node).ask(produce_request("t", batch(1)), 9)
    node.services.log_manager.checkpoints.write_recovery_points()
    node.services.log_manager.checkpoints.write_high_watermarks()
    files.kill()


@pytest.mark.parametrize("content", BLANKS)
@pytest.mark.parametrize("name", [name for name in CHECKPOINT_FILES if name != LOG_STARTS])
def test_a_start_goes_on_without_a_blank_checkpoint_and_says_what_that_means(
    name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    files = SimulatedFiles()
    filled(files)
    files.write_atomically(DATA / name, content)
    with caplog.at_level(logging.WARNING):
        node, _, _ = start_node(files)
    assert partition_of(node).high_watermark == 3
    assert f"{DATA / name}: line 1: " in caplog.text


def test_without_recovery_points_every_batch_is_checked() -> None:
    files = SimulatedFiles()
    filled(files)
    files.write_atomically(DATA / "recovery-point-offset-checkpoint", b"")
    node, _, _ = start_node(files)
    log = partition_of(node).log
    assert log.recovery.scanned_bytes == log.size_bytes > 0


@pytest.mark.parametrize("content", BLANKS)
def test_a_blank_log_start_checkpoint_is_refused_because_deleted_records_would_be_back(content: bytes) -> None:
    files = SimulatedFiles()
    node, _, clock = start_node(files)
    make_topic(node, "t")
    for _ in range(3):
        Exchange(node).ask(produce_request("t", batch(1)), 9)
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=2)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[wanted])
    ask(node, DeleteRecordsRequest(topics=[topic], timeout_ms=30_000), 2)
    files.kill()
    files.write_atomically(DATA / LOG_STARTS, content)
    with pytest.raises(StorageError, match=r"deleted records would be visible again; `ottla log verify --repair"):
        start_node(files, clock)
    files.kill()
    for _ in Repair(files, DATA, clock.wall_ms()).run():
        pass
    again, _, _ = start_node(files, clock)
    assert partition_of(again).log_start_offset == 0, "as the line has said"


def test_empty_checkpoints_of_a_kafka_that_was_killed_in_its_first_minute_mean_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = SimulatedFiles()
    filled(files)
    files.unlink(DATA / "ottla.format")
    for name in CHECKPOINT_FILES:
        files.write_atomically(DATA / name, b"")
    with caplog.at_level(logging.WARNING):
        node, _, clock = start_node(files)
    assert partition_of(node).high_watermark == 3
    assert "checkpoint" not in caplog.text
    files.kill()
    caplog.clear()
    start_node(files, clock)  # and the directory is ours now, with checkpoints of ours
    assert "checkpoint" not in caplog.text


def test_a_directory_of_ours_has_a_log_start_checkpoint_from_its_first_start_on() -> None:
    """A Kafka that works in it would else make an empty one, which means here that it was lost."""
    _, files, _ = start_node()
    assert files.read_bytes(DATA / LOG_STARTS) == b"0\n0\n"


@pytest.mark.parametrize(
    ("name", "has_zeros", "is_ours", "meaning"),
    [
        (LOG_STARTS, False, False, Blank.NEVER_WRITTEN),
        (LOG_STARTS, True, False, Blank.REFUSED),
        (LOG_STARTS, False, True, Blank.REFUSED),
        (CLEANED, False, False, Blank.NEVER_WRITTEN),
        (CLEANED, False, True, Blank.LOST),
        (CLEANED, True, False, Blank.LOST),
    ],
)
def test_whose_a_blank_checkpoint_is_decides_what_it_means(
    name: str, has_zeros: bool, is_ours: bool, meaning: Blank
) -> None:
    assert meaning_of(name, has_zeros=has_zeros, is_ours=is_ours) is meaning


@pytest.mark.parametrize("content", BLANKS)
def test_logs_with_missing_offsets_outlive_the_loss_of_the_cleaners_checkpoint(content: bytes) -> None:
    """The topic is not compacted any more, so nothing else says why offsets are missing; at two starts in a row."""
    files = SimulatedFiles()
    keys: dict[str, object] = {"log_segment_bytes": 1024}
    node, _, clock = start_node(files, **keys)
    make_topic(node, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    for number in range(6):
        key = b"once" if number == 0 else b"often"
        records = encode_batch([Record(0, STAMP_MS, key, b"v" * 900, ())])
        Exchange(node).ask(produce_request("t", bytes(records)), 9)
    pass_time(node, clock, 60_000)
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="cleanup.policy", config_operation=0, value="delete")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
    ask(node, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    kept = [record.offset for record in records_of(partition_of(node).log)]
    assert kept[0] == 0
    assert len(kept) < 6, "offsets are missing"
    files.kill()
    files.write_atomically(DATA / CLEANED, content)
    for _ in range(2):
        files.write_atomically(DATA / "recovery-point-offset-checkpoint", b"0\n0\n")  # look at everything
        node, _, _ = start_node(files, clock, **keys)
        assert [record.offset for record in records_of(partition_of(node).log)] == kept
        files.kill()


@pytest.mark.parametrize("content", BLANKS)
def test_verify_distinguishes_what_a_start_mends_from_what_it_refuses(content: bytes) -> None:
    files = SimulatedFiles()
    filled(files)
    for name in CHECKPOINT_FILES:
        files.write_atomically(DATA / name, content)
    findings: Iterable[Finding] = Verification(files, DATA).run()
    found = [(one.severity, one.path.name) for one in findings if one.severity is not Severity.NOTE]
    assert sorted(found) == sorted(
        (Severity.DAMAGE if name == LOG_STARTS else Severity.UNSURE, name) for name in CHECKPOINT_FILES
    )


@pytest.mark.parametrize("content", BLANKS)
def test_a_blank_quorum_state_is_as_good_as_none(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    filled(files)
    path = DATA / "__cluster_metadata-0" / "quorum-state"
    before = files.read_bytes(path)
    files.write_atomically(path, content)
    node, _, _ = start_node(files)
    assert partition_of(node).high_watermark == 3
    assert "the epoch is taken from the metadata log" in caplog.text
    assert files.read_bytes(path) == before.replace(b'"leaderEpoch":1', b'"leaderEpoch":2')


@pytest.mark.parametrize("content", BLANKS)
def test_a_partition_whose_id_was_lost_is_the_one_that_the_metadata_know(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    files = SimulatedFiles()
    filled(files)
    path = DATA / "t-0" / "partition.metadata"
    before = files.read_bytes(path)
    files.write_atomically(path, content)
    node, _, _ = start_node(files)
    assert partition_of(node).high_watermark == 3
    assert files.read_bytes(path) == before
    assert f"{path}: line 1: " in caplog.text


@pytest.mark.parametrize("content", BLANKS)
def test_a_blank_epoch_checkpoint_is_rebuilt_from_the_batches(content: bytes) -> None:
    files = SimulatedFiles()
    filled(files)
    path = DATA / "t-0" / "leader-epoch-checkpoint"
    files.write_atomically(path, content)
    node, _, _ = start_node(files)
    assert partition_of(node).log.epoch_for_offset(0) == 0
    assert partition_of(node).high_watermark == 3


@pytest.mark.parametrize("content", BLANKS)
@pytest.mark.parametrize("name", ["meta.properties", "ottla.format"])
def test_whose_a_directory_is_is_never_guessed(name: str, content: bytes) -> None:
    files = SimulatedFiles()
    filled(files)
    files.write_atomically(DATA / name, content)
    with pytest.raises(StorageError, match=rf"{DATA / name}: line 1: .*; `ottla log verify --repair {DATA}`"):
        start_node(files)


def test_a_tail_of_zeros_is_called_so(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    filled(files)
    path = DATA / "t-0" / "00000000000000000000.log"
    size = files.size(path)
    file = files.open(path, writable=True)
    file.truncate(size + 5_000)
    file.fdatasync()
    with caplog.at_level(logging.WARNING):
        node, _, _ = start_node(files)
    assert partition_of(node).high_watermark == 3
    words = f"at position {size}: zeros where a batch was expected"
    assert f"torn tail of 5000 bytes truncated, the log ends at offset 3 ({words})" in caplog.text
