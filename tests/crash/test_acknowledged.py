"""What was acknowledged survives also where two things go wrong: a kill and then a power cut, a failed write and then
one, a failing disk in the middle of a sync, a stop while a sync runs.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.logs import NOW_MS, append, append_values, disk, open_test_log, stored, sync
from kit.logs import batch as one_batch
from kit.nodes import DATA, ask_for, partition_of, pass_time, start_node
from kit.simulated_disk import PAGE_BYTES
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.protocol.api.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.segment.damage import checksum_matches
from ottla.storage.segment.scan import walk


def answer_of(response: object) -> ProduceResponse.PartitionProduceResponse:
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def killed(files: SimulatedFiles) -> SimulatedFiles:
    """The process is gone, the machine goes on: everything written is seen, nothing more is synced."""
    files.crash_at = None
    files.release_locks()
    return files


# -- a segment that was taken back


@pytest.mark.parametrize("seed", range(20))
def test_a_segment_that_a_failed_append_left_does_not_cut_off_what_was_acknowledged_later(seed: int) -> None:
    files = disk()
    log = open_test_log(files, {"segment.bytes": "1024"})
    sync(log)
    # The second batch rolls, the third fails: all is taken back, and two names were made and unlinked.
    rule = files.fail("pwritev", "*2.log", errno.ENOSPC)
    results = append(log, one_batch(b"a" * 900), one_batch(b"b" * 900), one_batch(b"c" * 900))
    assert {result.error_code for result in results} == {ErrorCode.KAFKA_STORAGE_ERROR}
    files.heal(rule)
    for number in range(4):
        append_values(log, b"%d" % number)  # small: they stay in the first segment
    sync(log)
    assert log.synced_offset == 4
    after = files.crash(random.Random(seed))
    again = open_test_log(after, {"segment.bytes": "1024"}, was_clean=False)
    assert stored(again) == {number: b"%d" % number for number in range(4)}


# -- a kill, then a power cut


def kill_then_cut(prepare: Callable[[SimulatedFiles], None], call: int, seed: int) -> None:
    files = SimulatedFiles()
    files.crash_at = call
    with contextlib.suppress(CrashPoint):
        prepare(files)
    killed(files)
    node, _, clock = start_node(files, ManualClock())
    if "t" not in node.services.catalog.topics:
        make_topic(node, "t")
    answer = answer_of(Exchange(node).ask(produce_request("t", batch(3)), 9))
    assert answer.error_code == ErrorCode.NONE
    after = files.crash(random.Random(seed))
    node, _, _ = start_node(after, clock)
    assert partition_of(node, "t").high_watermark == answer.base_offset + 3


def first_start(files: SimulatedFiles) -> None:
    node, _, _ = start_node(files)
    make_topic(node, "t")


def calls_of_the_first_start() -> int:
    files = SimulatedFiles()
    first_start(files)
    return files.calls


@pytest.mark.parametrize("part", range(4))
def test_what_is_acknowledged_after_a_kill_survives_a_power_cut(part: int) -> None:
    """Names that the killed process made and had no time to sync are synced before anything is acknowledged."""
    for call in range(1 + part, calls_of_the_first_start() + 1, 4):
        for seed in range(3):
            kill_then_cut(first_start, call, seed)


# -- a disk that fails in the middle


def test_a_log_that_fails_while_its_sync_runs_answers_everybody_who_waits() -> None:
    node, files, _ = start_node()
    make_topic(node, "t")
    client, other = Exchange(node), Exchange(node)
    client.send(produce_request("t", batch(1)), 9)
    client.end_turn()  # its sync is under way
    latest = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[latest])
    other.send(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
    files.fail("pwritev", "*/t-0/*.log", errno.EIO)
    third = Exchange(node)
    third.send(produce_request("t", batch(1)), 9)
    third.end_turn()
    node.settle()
    assert answer_of(third.reply()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert answer_of(client.reply()).error_code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
    assert other.replies(), "ListOffsets waits for ever"


# -- flush.messages


def test_flush_messages_acknowledges_nothing_that_its_sync_does_not_cover() -> None:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", flush_messages="1")
    first, second = Exchange(node), Exchange(node)
    first.send(produce_request("t", batch(1)), 9)
    first.end_turn()
    second.send(produce_request("t", batch(1)), 9)
    second.end_turn()
    log = partition_of(node, "t").log
    assert not first.replies()
    assert not second.replies()
    node.services.syncer.run_one()  # type: ignore[attr-defined]  # covers the first batch only
    node.services.turn.end()
    assert log.synced_offset == 1
    assert len(first.replies()) == 1
    assert not second.replies()
    node.settle()
    assert len(second.replies()) == 1


# -- stopping


def test_a_stop_while_a_sync_runs_is_clean() -> None:
    files, clock = SimulatedFiles(), ManualClock()
    posted: list[Callable[[], None]] = []
    values = {"log.dirs": str(DATA), "num.recovery.threads.per.data.dir": 1}
    node = Node(BrokerConfig.of(values), clock=clock, files=files, post=posted.append)
    node.start()
    outcomes: list[object] = []
    node.services.catalog.create_topics([NewTopic("t", 1)], outcomes.extend)
    while not outcomes:
        node.run_due()
        while posted:
            posted.pop(0)()
    client = Exchange(node)
    client.send(produce_request("t", batch(1), acks=1), 9)
    client.end_turn()
    assert client.replies()
    node.stop()
    again, _, _ = start_node(files, clock)
    assert again.services.log_manager.was_clean
    assert partition_of(again, "t").high_watermark == 1


# -- deleted records


def delete_before_last(node: Node) -> int:
    """Delete all but the last of six records, each in a segment of its own."""
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=5)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[wanted])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)
    got = ask_for(DeleteRecordsResponse, node, request, 2).topics[0].partitions[0]
    assert got.error_code == ErrorCode.NONE
    return int(got.low_watermark)


@pytest.mark.parametrize("seed", range(10))
def test_a_checkpoint_in_the_middle_of_retention_does_not_bring_deleted_records_back(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, files, clock = start_node(log_segment_bytes=1024)
    make_topic(node, "t")
    client = Exchange(node)
    for _ in range(6):
        client.ask(produce_request("t", batch(1, value=b"v" * 900)), 9)
    assert delete_before_last(node) == 5
    log = partition_of(node, "t").log
    real_sync = files.sync_directory

    def cut_at_the_last_segment(path: Path) -> None:
        if path == log.directory and len(log.segments) == 1:
            monkeypatch.setattr(files, "sync_directory", real_sync)
            node.services.log_manager.checkpoints.write_log_start_offsets()  # the chore, in its thread
            raise CrashPoint
        real_sync(path)

    monkeypatch.setattr(files, "sync_directory", cut_at_the_last_segment)
    with pytest.raises(CrashPoint):
        log.retention.apply(clock.wall_ms())
    again, _, _ = start_node(files.crash(random.Random(seed)), clock, log_segment_bytes=1024)
    assert partition_of(again, "t").log_start_offset == 5


@pytest.mark.parametrize("suffix", ["log", "index"])
def test_a_rename_that_fails_in_retention_does_not_bring_deleted_records_back(suffix: str) -> None:
    node, files, clock = start_node(log_segment_bytes=1024)
    make_topic(node, "t")
    client = Exchange(node)
    for _ in range(6):
        client.ask(produce_request("t", batch(1, value=b"v" * 900)), 9)
    assert delete_before_last(node) == 5
    log = partition_of(node, "t").log
    files.fail("rename", f"*/t-0/*4.{suffix}", errno.ENOSPC, times=1)
    log.retention.apply(clock.wall_ms())
    log.retention.apply(clock.wall_ms())
    node.services.log_manager.checkpoints.write_log_start_offsets()
    again, _, _ = start_node(killed(files), clock, log_segment_bytes=1024)
    assert partition_of(again, "t").log_start_offset == 5


def test_a_directory_sync_that_fails_in_retention_is_not_tried_again() -> None:
    node, files, clock = start_node(log_segment_bytes=1024)
    make_topic(node, "t")
    client = Exchange(node)
    for _ in range(6):
        client.ask(produce_request("t", batch(1, value=b"v" * 900)), 9)
    delete_before_last(node)
    log = partition_of(node, "t").log
    files.fail("sync_directory", "*/t-0", errno.EIO)
    log.retention.apply(clock.wall_ms())
    assert log.error is not None
    assert node.services.log_manager.directories[0].is_offline


def test_retention_makes_room_on_a_full_disk() -> None:
    files = disk()
    log = open_test_log(files, {"segment.bytes": "1024", "retention.ms": "1000"})
    for _ in range(5):
        append_values(log, b"v" * 900)
        sync(log)
    files.capacity_bytes = sum(map(len, files.written_state().values()))
    log.retention.apply(NOW_MS + 10_000)
    log.retention.unlink_due(NOW_MS + 10_000_000)
    assert sum(map(len, files.written_state().values())) < files.capacity_bytes


# -- a start on a disk that fails


def test_a_directory_that_takes_no_leader_epoch_does_not_keep_the_broker_from_starting() -> None:
    """The epoch is written with the first sync of its records: what is produced there is refused, and nothing else."""
    files, clock = SimulatedFiles(), ManualClock()
    dirs = {"log_dirs": "/one,/two"}
    node, _, _ = start_node(files, clock, **dirs)
    make_topic(node, "t", 4)
    homes = [Path(partition_of(node, "t", index).log.directory).parent for index in range(4)]
    assert len(set(homes)) == 2
    killed(files)
    files.fail("*", "/two/*/leader-epoch-checkpoint*", errno.EIO, times=None)
    again, _, _ = start_node(files, clock, **dirs)
    for index, home in enumerate(homes):
        answer = answer_of(Exchange(again).ask(produce_request("t", batch(1), partition=index), 9))
        assert answer.error_code == (ErrorCode.NONE if home == Path("/one") else ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.mark.parametrize("seed", range(15))
def test_a_recovery_point_above_the_end_of_a_damaged_log_vouches_for_nothing(seed: int) -> None:
    node, files, clock = start_node()
    make_topic(node, "t")
    for _ in range(5):
        Exchange(node).ask(produce_request("t", batch(1)), 9)
    pass_time(node, clock, 61_000, step_ms=61_000)  # checkpoints
    segment = partition_of(node, "t").log.segments[0]
    size = segment.size_bytes // 5
    segment.file.pwritev([bytes(size)], 2 * size)
    segment.file.fdatasync()
    node, _, _ = start_node(killed(files), clock)
    log = partition_of(node, "t").log
    assert log.recovery.gap == (2, 5)
    Exchange(node).send(produce_request("t", batch(1, value=b"w" * 3 * PAGE_BYTES)), 9)
    node.services.turn.end()  # written and not synced
    node, _, _ = start_node(files.crash(random.Random(seed)), clock)
    for segment in partition_of(node, "t").log.segments:
        for position, header in walk(segment.file.pread, 0, segment.size_bytes):
            assert checksum_matches(segment.file, position, header)


# -- bugs


def test_a_bug_in_one_completion_leaves_no_other_log_with_a_sync_that_never_ends() -> None:
    node, _, _ = start_node()
    make_topic(node, "t", 2)
    first, second = Exchange(node), Exchange(node)
    first.send(produce_request("t", batch()), 9)
    second.send(produce_request("t", batch(), partition=1), 9)
    node.services.turn.flush()

    def broken(error: BaseException | None) -> None:
        raise ValueError("a bug")

    node.services.syncer.request(partition_of(node, "t").log, broken)
    node.settle()
    assert answer_of(second.reply()).error_code == ErrorCode.NONE
