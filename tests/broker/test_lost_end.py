"""Logs that became shorter while no broker ran: a start says what is gone, and gives no offset out twice."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.flip_specimen import on_disk
from kit.group_requests import commit, committed
from kit.nodes import DATA, ask_for, partition_of, pass_time, start_node
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.broker.metadata.image import MetadataError
from ottla.broker.metadata.rebuild import MetadataRebuild
from ottla.broker.node import Node
from ottla.protocol.api.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.api.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.storage.tools.repair import Repair
from ottla.storage.tools.verify import Verification
from ottla.storage.tools.verify_findings import Severity

KEYS: dict[str, object] = {
    "log_segment_bytes": 1024,
    "offsets_topic_num_partitions": 1,
    "ottla_redo_log_enable": False,  # after a kill it would give the logs their ends back
}
RECORDS = 12
PLACE = DATA / "t-0"
OFFSETS = DATA / "__consumer_offsets-0"
Damage = Callable[[SimulatedFiles, Path], int]


def lived(**configs: str) -> tuple[SimulatedFiles, Node]:
    """A broker with twelve records of 200 bytes in several segments, and a group that has read them all."""
    node, files, _ = start_node(**KEYS)
    make_topic(node, "t", **configs)
    for _ in range(RECORDS):
        Exchange(node).ask(produce_request("t", batch(value=b"v" * 200)), 9)
    assert not commit(node, "g", {0: RECORDS}, topic="t")
    return files, node


def logs(files: SimulatedFiles, place: Path = PLACE) -> list[Path]:
    return sorted(place / name for name in files.list_directory(place) if name.endswith(".log"))


def cut(files: SimulatedFiles, path: Path, size: int) -> None:
    file = files.open(path, writable=True)
    file.truncate(size)
    file.fdatasync()
    file.close()


def emptied(files: SimulatedFiles, place: Path = PLACE) -> int:
    """The active `.log` has no byte any more."""
    active = logs(files, place)[-1]
    cut(files, active, 0)
    return int(active.stem)


def cut_at_a_batch(files: SimulatedFiles, place: Path = PLACE) -> int:
    active = logs(files, place)[-1]
    last_position, last = list(iter_batches(files.read_bytes(active)))[-1]
    cut(files, active, last_position)
    return last.base_offset


def torn(files: SimulatedFiles, place: Path = PLACE) -> int:
    active = logs(files, place)[-1]
    last_position, last = list(iter_batches(files.read_bytes(active)))[-1]
    cut(files, active, last_position + 70)
    return last.base_offset


def removed(files: SimulatedFiles, place: Path = PLACE) -> int:
    """The active `.log` is gone, with its indexes."""
    active = logs(files, place)[-1]
    for suffix in (".log", ".index", ".timeindex"):
        files.unlink(active.with_suffix(suffix))
    return int(active.stem)


def all_removed(files: SimulatedFiles, place: Path = PLACE) -> int:
    for path in logs(files, place):
        for suffix in (".log", ".index", ".timeindex"):
            files.unlink(path.with_suffix(suffix))
    return 0


DAMAGES = [emptied, cut_at_a_batch, torn, removed, all_removed]


def found(files: SimulatedFiles, severity: Severity = Severity.DAMAGE) -> list[str]:
    return [one.problem for one in Verification(files, DATA).run() if one.severity is severity]


def repair(files: SimulatedFiles) -> None:
    mender = MetadataRebuild(files, DATA, 0, ())
    for _ in Repair(files, DATA, 0, None, mender).run():
        pass


def delete_records(node: Node, topic: str, before: int) -> None:
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=before)
    topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[wanted])]
    answer = ask_for(DeleteRecordsResponse, node, DeleteRecordsRequest(topics=topics, timeout_ms=30_000), 2)
    assert not answer.topics[0].partitions[0].error_code


def produced_at(node: Node) -> int:
    answer = Exchange(node).ask(produce_request("t", batch(value=b"new")), 9)
    assert isinstance(answer, ProduceResponse)
    (partition,) = answer.responses[0].partition_responses
    assert not partition.error_code
    return partition.base_offset


def values_from(node: Node, offset: int) -> dict[int, bytes | None]:
    """What a consumer gets that steps over what it is given, until nothing comes."""
    got: dict[int, bytes | None] = {}
    while True:
        answer = ask_for(FetchResponse, node, fetch_request("t", offset), 12)
        (partition,) = answer.responses[0].partitions
        assert not partition.error_code
        if not partition.records:
            assert offset == partition.high_watermark, "nobody waits at an offset that never comes"
            return got
        data = bytes(partition.records)
        for at, header in iter_batches(data):
            got |= {one.offset: one.value for one in decode_batch(data[at : at + header.size_bytes])}
            offset = max(offset, header.next_offset)


@pytest.mark.parametrize("damage", [emptied, removed, all_removed])
def test_a_log_goes_on_behind_what_only_the_redo_log_knows_of(damage: Damage) -> None:
    """The checkpoints are older than the last records, whose files are gone."""
    keys = KEYS | {"ottla_redo_log_enable": True}
    node, files, _ = start_node(**keys)
    make_topic(node, "t")
    for _ in range(RECORDS):
        Exchange(node).ask(produce_request("t", batch(value=b"v" * 200)), 9)
    files.kill()
    damage(files, PLACE)
    node, _, _ = start_node(files, **keys)
    assert partition_of(node, "t").high_watermark == RECORDS
    assert produced_at(node) == RECORDS


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_log_that_became_shorter_goes_on_behind_what_is_gone(
    damage: Damage, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files, node = lived()
    epoch = partition_of(node, "t").leader_epoch
    if is_clean:
        node.stop()
    else:
        node.services.log_manager.checkpoints.write_recovery_points()
        files.kill()
    first_lost = damage(files, PLACE)
    assert found(files), "verify finds it before a start"
    node, _, clock = start_node(files, **KEYS)
    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    (line,) = [line for line in lines if "are gone" in line]
    assert f"offsets {first_lost} to {RECORDS - 1}" in line
    assert str(PLACE) in line

    partition = partition_of(node, "t")
    assert partition.leader_epoch == partition.log.leader_epoch > epoch
    assert partition.high_watermark == RECORDS
    assert partition.log.segments[-1].base_offset == RECORDS
    assert committed(node, "g", topic="t") == RECORDS
    assert produced_at(node) == RECORDS
    assert list(values_from(node, 0)) == [*range(first_lost), RECORDS]
    for offset in range(first_lost, RECORDS):
        assert values_from(node, offset) == {RECORDS: b"new"}
    assert partition.log.epoch_for_offset(RECORDS) == partition.leader_epoch

    for ending in ("stop", "kill"):
        # No later start takes the gap for damage, whatever is known of the log.
        if ending == "stop":
            node.stop()
        else:
            files.kill()
            files.write_atomically(DATA / "recovery-point-offset-checkpoint", b"0\n0\n")
        caplog.clear()
        assert not found(files)
        node, _, clock = start_node(files, clock, **KEYS)
        assert "are gone" not in caplog.text
        assert list(values_from(node, 0)) == [*range(first_lost), RECORDS]
        assert partition_of(node, "t").high_watermark == RECORDS + 1


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_is_lost_with_a_log_whose_records_had_all_been_deleted(
    damage: Damage, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is reported as lost and the offsets go on; a new leader epoch would have nothing to say to anybody."""
    files, node = lived()
    epoch = partition_of(node, "t").leader_epoch
    delete_records(node, "t", RECORDS)
    if is_clean:
        node.stop()
    else:
        node.services.log_manager.checkpoints.write_recovery_points()
        files.kill()
    damage(files, PLACE)
    node, _, _ = start_node(files, **KEYS)
    assert "are gone" not in caplog.text
    partition = partition_of(node, "t")
    assert partition.log.log_start_offset == partition.high_watermark == RECORDS
    if is_clean and damage is all_removed:
        assert partition.leader_epoch == epoch, "the start finds an empty log, as it would be without the damage"
    else:
        assert partition.leader_epoch > epoch
    assert partition.log.epoch_for_offset(RECORDS - 1) <= epoch, "what a consumer that stands there asks by its epoch"
    assert produced_at(node) == RECORDS
    assert values_from(node, RECORDS) == {RECORDS: b"new"}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_repair_gives_no_offset_out_twice_and_is_over_with_it(damage: Damage) -> None:
    files, node = lived()
    node.stop()
    first_lost = damage(files, PLACE)
    repair(files)
    assert not found(files)
    notes = found(files, Severity.NOTE)
    assert any(f"offsets {first_lost} to {RECORDS - 1} are gone" in one or "quarantined" in one for one in notes)
    before = files.written_state()
    repair(files)
    assert files.written_state() == before, "a second repair does nothing"
    node, _, _ = start_node(files, **KEYS)
    assert produced_at(node) == RECORDS
    assert list(values_from(node, 0)) == [*range(first_lost), RECORDS]


def test_the_offsets_that_are_gone_are_asked_for_by_epoch_and_by_time() -> None:
    files, node = lived()
    node.stop()
    first_lost = emptied(files)
    node, _, _ = start_node(files, **KEYS)
    question = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[question])]
    listed = ask_for(ListOffsetsResponse, node, ListOffsetsRequest(replica_id=-1, topics=topics), 5)
    assert listed.topics[0].partitions[0].offset == RECORDS
    question.timestamp = -3  # the largest timestamp
    listed = ask_for(ListOffsetsResponse, node, ListOffsetsRequest(replica_id=-1, topics=topics), 7)
    assert listed.topics[0].partitions[0].offset < first_lost
    of = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0, current_leader_epoch=-1)
    asked = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[of])]
    )
    reported = ask_for(OffsetForLeaderEpochResponse, node, asked, 4)
    assert reported.topics[0].partitions[0].end_offset == RECORDS


def test_the_cleaner_steps_over_a_gap() -> None:
    files, node = lived(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    node.stop()
    emptied(files)
    node, _, clock = start_node(files, **KEYS)
    for _ in range(12):
        produced_at(node)
    pass_time(node, clock, 120_000)
    assert list(values_from(node, 0))[-1] == RECORDS + 11
    node.stop()
    assert not found(files)


def test_an_idempotent_producer_goes_on_where_the_log_ends() -> None:
    """What it has to send again because its answer never came is stored, and no lost batch is called a duplicate."""
    files, node = lived()
    for number in range(4):
        sent = batch(value=b"p" * 300, producer_id=7, producer_epoch=0, base_sequence=number)
        Exchange(node).ask(produce_request("t", sent), 9)
    node.stop()
    end = RECORDS + 4
    assert cut_at_a_batch(files) == end - 1
    node, _, _ = start_node(files, **KEYS)
    answer = Exchange(node).ask(
        produce_request("t", batch(value=b"p" * 300, producer_id=7, producer_epoch=0, base_sequence=3)), 9
    )
    assert isinstance(answer, ProduceResponse)
    (partition,) = answer.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (0, end)


def test_a_power_cut_in_the_start_that_leaves_a_gap_brings_no_lost_batch_back_as_a_duplicate() -> None:
    """The snapshot of the clean stop speaks of it, and lies below the end of the log once the gap is there."""
    whole, node = lived()
    for number in range(4):
        sent = batch(value=b"p" * 300, producer_id=7, producer_epoch=0, base_sequence=number)
        Exchange(node).ask(produce_request("t", sent), 9)
    node.stop()
    cut_at_a_batch(whole)
    again = batch(value=b"p" * 300, producer_id=7, producer_epoch=0, base_sequence=3)
    for change in range(200):
        files = on_disk(whole.written_state())

        def stops(kind: str, path: Path, disk: SimulatedFiles = files, last: int = change) -> bool:
            return disk.changes > last

        files.changes, files.crash_when = 0, stops
        try:
            start_node(files, **KEYS)
        except CrashPoint:
            is_through = False
        else:
            is_through = True
        node, _, _ = start_node(files.crash(random.Random(change)), **KEYS)
        answer = Exchange(node).ask(produce_request("t", again), 9)
        assert isinstance(answer, ProduceResponse)
        (partition,) = answer.responses[0].partition_responses
        assert (partition.error_code, partition.base_offset) == (0, RECORDS + 4)
        if is_through:
            return
    raise AssertionError("no start came to its end")


@pytest.mark.parametrize("damage", [emptied, cut_at_a_batch, removed, all_removed])
def test_committed_offsets_are_a_log_too(damage: Damage) -> None:
    files, node = lived()
    for offset in range(3, 6):
        commit(node, "g", {0: offset}, topic="t")
    end = partition_of(node, "__consumer_offsets").log.log_end_offset
    node.stop()
    damage(files, OFFSETS)
    node, _, clock = start_node(files, **KEYS)
    pass_time(node, clock, 3_000)
    log = partition_of(node, "__consumer_offsets").log
    assert log.recovery.gap is not None
    assert log.log_end_offset >= end
    assert not commit(node, "g", {0: 9}, topic="t")
    assert committed(node, "g", topic="t") == 9
    node.stop()
    node, _, clock = start_node(files, **KEYS)
    pass_time(node, clock, 3_000)
    assert committed(node, "g", topic="t") == 9


@pytest.mark.parametrize("damage", [cut_at_a_batch, torn])
def test_a_metadata_log_that_became_shorter_refuses_the_start(damage: Damage) -> None:
    files, node = lived()
    node.stop()
    damage(files, DATA / "__cluster_metadata-0")
    assert found(files)
    with pytest.raises(MetadataError, match="`ottla log verify --repair /data`"):
        start_node(files, **KEYS)


def test_in_page_cache_a_power_cut_makes_a_gap_and_no_promise_is_said_to_be_broken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Below the high watermark that was written down consumers may have been; what they committed stays theirs."""
    files, node = lived(ottla_acks_all="page-cache")
    node.services.log_manager.checkpoints.write_high_watermarks()
    files.kill()
    emptied(files)
    with caplog.at_level(logging.WARNING):
        node, _, _ = start_node(files, **KEYS)
    (line,) = [one for one in caplog.records if "are gone" in one.getMessage()]
    assert line.levelno == logging.WARNING
    assert produced_at(node) == RECORDS


def test_checkpoints_that_no_log_can_have_reached_are_refused_and_mended() -> None:
    files, node = lived()
    node.stop()
    row = b"t 0 %d" % RECORDS
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        rows = [line for line in files.read_bytes(DATA / name).splitlines()[2:] if b"__ottla" not in line]
        lines = [b"0", b"%d" % len(rows), *(b"t 0 9223372036854775806" if one == row else one for one in rows), b""]
        files.write_atomically(DATA / name, b"\n".join(lines))
    node, _, _ = start_node(files, **KEYS)
    assert node.services.catalog.partition("t", 0) is None
    files.kill()
    repair(files)
    node, _, _ = start_node(files, **KEYS)
    assert produced_at(node) == RECORDS


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_missing_first_log_is_said_after_a_kill_too(is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    files, node = lived()
    if is_clean:
        node.stop()
    else:
        files.kill()
    first, second, *_ = logs(files)
    files.unlink(first)
    assert any("put the files before it back" in problem for problem in found(files))
    node, _, clock = start_node(files, **KEYS)
    (line,) = [one.getMessage() for one in caplog.records if "the files before it are missing" in one.getMessage()]
    assert f"{PLACE}: the log began at offset 0" in line
    assert list(values_from(node, int(second.stem))) == list(range(int(second.stem), RECORDS))
    pass_time(node, clock, 61_000)
    files.kill()
    caplog.clear()
    assert not found(files)
    start_node(files, clock, **KEYS)
    assert "are missing" not in caplog.text, "it was said, and the log begins there now"


def test_what_retention_frees_is_never_called_lost(caplog: pytest.LogCaptureFixture) -> None:
    """However far it has come when the broker is killed, and when the next start is."""
    for call in range(0, 400, 3):
        node, files, clock = start_node(**KEYS)
        make_topic(node, "t", retention_bytes="2000", file_delete_delay_ms="1000")
        for _ in range(RECORDS):
            Exchange(node).ask(produce_request("t", batch(value=b"v" * 200)), 9)
        partition = partition_of(node, "t")

        def stops(kind: str, path: Path, disk: SimulatedFiles = files, last: int = files.changes + call) -> bool:
            return disk.changes > last

        files.crash_when = stops
        is_through = True
        try:
            partition.log.retention.apply(clock.wall_ms())
            pass_time(node, clock, 20_000, step_ms=5_000)
        except BaseException:
            is_through = False
        files.kill()
        for _ in range(2):  # the first of the two starts tidies up, and dies as well
            assert not [line for line in found(files) if "put the files" in line]
            node, _, _ = start_node(files, clock, **KEYS)
            assert "files before it are missing" not in caplog.text
            files.kill()
        if is_through:
            assert partition.log.log_start_offset > 0
            return
    raise AssertionError("retention never came to its end")
