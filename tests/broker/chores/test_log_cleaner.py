"""The cleaner on a whole node: what it chooses, when, and what becomes of it."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.cleaning import records_of
from kit.clock import ManualClock
from kit.nodes import DATA, ask, partition_of, pass_time, start_node
from kit.transactional import end_transaction, put_transactional

from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition
from ottla.broker.telemetry.exposition import Exposition
from ottla.config.topic import TopicConfig
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.control import ControlType
from ottla.protocol.records.record import Record
from ottla.storage.formats.checkpoint import read_offsets
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.log.append import AppendEntry, AppendResult

BACKOFF_MS = 15_000
SMALL = [("cleanup.policy", "compact"), ("segment.bytes", "1024"), ("file.delete.delay.ms", "1000")]
ONE = TopicPartition("t", 0)


class Ignored:
    def appended(self, index: int, result: AppendResult) -> None:
        assert not result.error_code


def topic(node: Node, *configs: tuple[str, str], name: str = "t") -> Partition:
    all_configs = list((dict(SMALL) | dict(configs)).items())
    node.services.catalog.create_topics([NewTopic(name, partitions=1, configs=all_configs)], lambda _: None)
    node.settle()
    partition = node.services.catalog.topics[name].partitions[0]
    assert partition is not None
    return partition


def produce(node: Node, partition: Partition, keys: list[int], value: bytes = b"v" * 100) -> None:
    for key in keys:
        stamp_ms = node.services.clock.wall_ms()
        batch = encode_batch([Record(0, stamp_ms, b"%d" % key, value, ())])
        partition.gather(AppendEntry(memoryview(batch), 9), Ignored(), 0)
        node.services.turn.end()
        node.settle()


def pass_backoff(node: Node, clock: ManualClock, times: int = 1) -> None:
    """Until the cleaner looks, and long enough for what it finds."""
    for _ in range(times):
        quiet = 0
        pass_time(node, clock, BACKOFF_MS)
        for _ in range(20_000):
            node.run_due()
            node.settle()
            quiet = 0 if node.cleaner.is_busy else quiet + 1
            if quiet > 5:
                break


def keys_of(partition: Partition) -> list[bytes | None]:
    return [record.key for record in records_of(partition.log)]


def test_a_dirty_log_is_cleaned_at_the_next_look_and_the_checkpoint_says_how_far() -> None:
    node, files, clock = start_node()
    partition = topic(node)
    produce(node, partition, [1, 2, 3] * 20)
    active = partition.log.segments[-1].base_offset
    pass_backoff(node, clock)
    assert sorted(key or b"" for key in keys_of(partition)[:3]) == [b"1", b"2", b"3"]
    assert len(records_of(partition.log)) == 3 + 60 - active
    assert read_offsets(files, DATA / "cleaner-offset-checkpoint") == {ONE: active}
    assert node.cleaner.figures.cleanings == 1
    node.stop()


def test_before_the_first_swap_the_recovery_point_is_on_disk_beyond_all_that_is_cleaned() -> None:
    """A start takes offsets that are missing beyond it for lost ones (`missing_offsets.py`)."""
    node, files, clock = start_node(log_flush_offset_checkpoint_interval_ms=3_600_000)
    partition = topic(node)
    produce(node, partition, [1, 2, 3] * 20)
    active = partition.log.segments[-1].base_offset
    assert ONE not in read_offsets(files, DATA / "recovery-point-offset-checkpoint")
    files.history.clear()
    pass_backoff(node, clock)
    names = [path.name for call, path in files.history if call == "rename"]
    assert names.index("recovery-point-offset-checkpoint.tmp") < names.index(f"{0:020}.log.cleaned")
    assert read_offsets(files, DATA / "recovery-point-offset-checkpoint")[ONE] >= active
    node.stop()


def test_a_log_is_left_alone_until_it_is_dirty_enough() -> None:
    node, _, clock = start_node()
    partition = topic(node, ("min.cleanable.dirty.ratio", "0.6"))
    produce(node, partition, list(range(40)))
    pass_backoff(node, clock)
    assert node.cleaner.figures.cleanings == 1  # all of it was dirty
    produce(node, partition, list(range(20)))
    pass_backoff(node, clock)
    assert node.cleaner.figures.cleanings == 1
    assert 0.2 < node.cleaner.figures.max_dirty_ratio < 0.6
    produce(node, partition, list(range(60)))
    pass_backoff(node, clock)
    assert node.cleaner.figures.cleanings == 2
    node.stop()


def test_an_overdue_log_is_cleaned_however_clean() -> None:
    node, _, clock = start_node()
    partition = topic(node, ("min.cleanable.dirty.ratio", "1.0"), ("max.compaction.lag.ms", "60000"))
    produce(node, partition, [1] * 30)
    pass_backoff(node, clock)
    assert node.cleaner.figures.cleanings == 0
    pass_backoff(node, clock, times=4)
    assert node.cleaner.figures.cleanings == 1
    node.stop()


def test_young_records_are_safe() -> None:
    node, _, clock = start_node()
    partition = topic(node, ("min.compaction.lag.ms", "3600000"))
    produce(node, partition, [1] * 30)
    pass_backoff(node, clock, times=2)
    assert len(records_of(partition.log)) == 30
    clock.advance(3_600_000)
    pass_backoff(node, clock)
    assert len(records_of(partition.log)) < 10
    node.stop()


def test_sealed_segments_that_nobody_synced_are_synced_first() -> None:
    node, _, clock = start_node(ottla_acks_all="page-cache")
    partition = topic(node)
    partition.log.on_roll = None  # as if the syncs of the rolls had still to come
    produce(node, partition, [1] * 30)
    assert partition.log.synced_offset == 0
    pass_backoff(node, clock, times=2)
    assert partition.log.synced_offset == 30
    assert len(records_of(partition.log)) < 10
    node.stop()


@pytest.mark.parametrize("looks", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_in_page_cache_no_record_goes_for_a_committed_one_whose_marker_a_power_cut_may_take(
    seed: int, looks: int
) -> None:
    node, files, clock = start_node(ottla_acks_all="page-cache")
    partition = topic(node)
    produce(node, partition, [1])
    put_transactional(partition, 7, key=b"1")
    produce(node, partition, [2] * 12)  # the segments with both are sealed, and synced
    end_transaction(partition, 7, ControlType.COMMIT)
    node.services.turn.end()
    assert partition.last_stable_offset == partition.log.log_end_offset > partition.log.synced_offset > 2

    pass_backoff(node, clock, times=looks)
    assert (keys_of(partition).count(b"1") == 1) == (looks == 2)  # the second look finds the marker on the disk
    again = partition_of(start_node(files.crash(random.Random(seed)), clock, ottla_acks_all="page-cache")[0], "t")
    is_committed = not again.log.transactions.open_count
    assert keys_of(again).count(b"1") >= 1 if is_committed else keys_of(again)[:2] == [b"1", b"1"]


def test_a_cleaning_that_was_asked_for_waits_for_markers_to_be_on_disk() -> None:
    node, _, clock = start_node(ottla_acks_all="page-cache", log_cleaner_enable=False)
    partition = topic(node)
    produce(node, partition, [1])
    put_transactional(partition, 7, key=b"1")
    produce(node, partition, [2] * 12)
    end_transaction(partition, 7, ControlType.COMMIT)
    node.services.turn.end()
    reported = node.cleaner.ask("t")[ONE]
    pass_backoff(node, clock)
    assert (reported.state, reported.rounds, keys_of(partition).count(b"1")) == ("done", 1, 1)
    node.stop()


def test_a_cleaner_that_is_off_cleans_what_is_asked_for_only() -> None:
    node, _, clock = start_node(log_cleaner_enable=False)
    partition = topic(node)
    produce(node, partition, [1] * 30)
    pass_backoff(node, clock)
    assert len(records_of(partition.log)) == 30
    reported = node.cleaner.ask("t")[ONE]
    pass_backoff(node, clock)
    assert (reported.state, reported.rounds) == ("done", 1)
    assert reported.records_removed == 30 - len(records_of(partition.log)) > 20
    node.stop()


def test_asking_for_a_clean_log_removes_tombstones_whose_time_is_over() -> None:
    node, _, clock = start_node()
    partition = topic(node, ("delete.retention.ms", "1000"))
    produce(node, partition, [1] * 10)
    partition.gather(
        AppendEntry(memoryview(encode_batch([Record(0, clock.wall_ms(), b"1", None, ())])), 9), Ignored(), 0
    )
    node.services.turn.end()
    node.settle()
    produce(node, partition, [2] * 20)
    pass_backoff(node, clock)
    assert keys_of(partition)[:2] == [b"1", b"2"]
    reported = node.cleaner.ask("t")[ONE]
    pass_backoff(node, clock)
    assert reported.state == "done"
    assert b"1" not in keys_of(partition)
    node.stop()


def test_what_there_is_nothing_to_clean_of_is_done_at_once() -> None:
    node, _, clock = start_node()
    partition = topic(node)
    produce(node, partition, [1])
    reported = node.cleaner.ask("t")[ONE]
    pass_backoff(node, clock)
    assert (reported.state, reported.rounds) == ("done", 0)
    assert "no sealed segment" in reported.message
    node.stop()


def test_more_keys_than_the_map_takes_are_cleaned_in_several_rounds() -> None:
    node, _, clock = start_node(log_cleaner_dedupe_buffer_size=2048)
    partition = topic(node, ("min.cleanable.dirty.ratio", "0"))
    produce(node, partition, list(range(200)) * 2)
    pass_backoff(node, clock, times=3)
    figures = node.cleaner.figures
    assert figures.cleanings > 3
    active = partition.log.segments[-1].base_offset
    kept = [record for record in records_of(partition.log) if record.offset < active]
    assert len({record.key for record in kept}) == 200
    assert len(kept) == 200
    node.stop()


def test_a_log_that_cannot_be_cleaned_is_said_once_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    node, files, clock = start_node()
    partition = topic(node)
    other = topic(node, name="u")
    produce(node, partition, [1] * 30)
    produce(node, other, [1] * 30)
    size_bytes = partition.log.size_bytes
    damaged = files.open(partition.log.segments[1].file.path, writable=True)
    damaged.pwritev([b"\xff"], 65)
    with caplog.at_level(logging.ERROR):
        pass_backoff(node, clock, times=4)
    assert len([record for record in caplog.records if "t-0 cannot be compacted" in record.message]) == 1
    assert list(node.cleaner.uncleanable) == [partition.log]
    assert partition.log.error is None
    assert partition.log.size_bytes == size_bytes
    assert len(records_of(other.log)) < 10
    scraped = Exposition(node.services, node.cleaner).render().decode()
    manager = "kafka_log_logcleanermanager"
    assert f'{manager}_uncleanable_partitions_count{{logDirectory="/data"}} 1.0' in scraped
    assert f'{manager}_uncleanable_bytes{{logDirectory="/data"}} {float(size_bytes)}' in scraped
    assert "ottla_log_cleaner_cleanings_total 1.0" in scraped
    assert "ottla_log_cleaner_failures_total 1.0" in scraped
    assert node.cleaner.ask("t")[ONE].state == "waiting"
    pass_backoff(node, clock)
    assert node.cleaner.asked[ONE].state == "failed"
    assert not [path for path in files.written_state() if path.endswith((".cleaned", ".swap"))]
    node.stop()


def test_a_full_disk_keeps_the_log_as_it_is_and_it_is_cleaned_later(caplog: pytest.LogCaptureFixture) -> None:
    node, files, clock = start_node()
    partition = topic(node)
    produce(node, partition, [*range(30), *range(0, 30, 2), *range(100, 110)])
    files.fail("pwritev", "*.log.cleaned", 28, times=1)
    pass_backoff(node, clock)
    assert len(records_of(partition.log)) == 55
    assert (partition.log.error, node.cleaner.figures.cleanings, node.cleaner.figures.failed) == (None, 0, 1)
    assert not [path for path in files.written_state() if path.endswith(".cleaned")]
    pass_backoff(node, clock, times=6)
    assert node.cleaner.figures.cleanings == 1
    node.stop()


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        ("open", "*"),
        ("open", "*.cleaned"),
        ("open", "*checkpoint*"),
        ("pread", "*/t-0/*.log"),
        ("pwritev", "*.timeindex.cleaned"),
        ("fdatasync", "*.index.cleaned"),
        ("sync_directory", "*"),
    ],
)
@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_process_without_descriptors_leaves_the_log_sound_and_it_is_cleaned_later(
    call: str, pattern: str, skip: int
) -> None:
    node, files, clock = start_node()
    partition = topic(node)
    produce(node, partition, [*range(30), *range(0, 30, 2), *range(100, 110)])
    lacking = files.fail(call, pattern, errno.EMFILE, skip=skip, times=None)
    pass_backoff(node, clock)
    assert partition.log.error is None
    assert node.services.log_manager.directories[0].is_online
    for seed in range(3):  # whatever is on disk now, a start makes sense of it
        later, _, _ = start_node(files.crash(random.Random(seed)))
        found = records_of(partition_of(later, "t").log)
        assert {record.key: record.value for record in found} == {
            record.key: record.value for record in records_of(partition.log)
        }
    files.heal(lacking)
    pass_backoff(node, clock, times=8)
    assert partition.log.error is None
    assert node.cleaner.uncleanable == {}
    assert node.cleaner.figures.cleanings == 1
    assert len(records_of(partition.log)) < 55
    assert not [path for path in files.written_state() if path.endswith((".cleaned", ".swap"))]
    node.stop()


def test_a_failed_sync_of_the_cleaner_takes_the_directory_offline() -> None:
    node, files, clock = start_node()
    partition = topic(node)
    produce(node, partition, [1] * 30)
    files.fail("fdatasync", "*.log.cleaned", 5)
    pass_backoff(node, clock)
    assert partition.log.error is not None
    assert node.services.log_manager.directories[0].is_offline
    assert len(records_of(partition.log)) == 30  # reads go on


def test_a_topic_deleted_while_it_is_cleaned_goes_in_peace() -> None:
    node, files, clock = start_node(log_cleaner_io_max_bytes_per_second=2000)
    partition = topic(node)
    produce(node, partition, [1] * 60)
    pass_time(node, clock, BACKOFF_MS)
    assert node.cleaner.is_cleaning(partition.log)
    node.services.catalog.delete_topics(["t"], lambda _: None)
    node.settle()
    pass_backoff(node, clock, times=5)
    assert not node.cleaner.is_cleaning(partition.log)
    assert not node.services.log_manager.directories[0].is_offline
    assert not [path for path in files.written_state() if "/t-0" in path]
    node.stop()


def test_a_topic_that_is_not_to_be_compacted_any_more_loses_no_record_to_a_cleaning_under_way() -> None:
    node, files, clock = start_node(log_cleaner_io_max_bytes_per_second=2000)
    partition = topic(node)
    produce(node, partition, [1] * 60)
    pass_time(node, clock, BACKOFF_MS)
    assert node.cleaner.is_cleaning(partition.log)
    assert len(records_of(partition.log)) == 60
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="cleanup.policy", config_operation=0, value="delete")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
    ask(node, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    pass_backoff(node, clock, times=5)
    assert not node.cleaner.is_cleaning(partition.log)
    assert len(records_of(partition.log)) == 60
    assert not [path for path in files.written_state() if path.endswith((".cleaned", ".swap"))]
    node.stop()


def test_a_stop_in_the_middle_leaves_nothing_behind() -> None:
    node, files, clock = start_node(log_cleaner_io_max_bytes_per_second=2000)
    partition = topic(node)
    produce(node, partition, [1] * 60)
    pass_time(node, clock, BACKOFF_MS)
    assert node.cleaner.is_cleaning(partition.log)
    node.stop()
    assert not [path for path in files.written_state() if path.endswith((".cleaned", ".swap"))]


def test_the_rate_bounds_how_fast_it_goes() -> None:
    node, _, clock = start_node(log_cleaner_io_max_bytes_per_second=1000)
    partition = topic(node)
    produce(node, partition, [1] * 60)
    pass_time(node, clock, BACKOFF_MS)
    for _ in range(50):
        node.run_due()
        node.settle()
    assert node.cleaner.is_cleaning(partition.log)
    pass_time(node, clock, 100_000)
    assert node.cleaner.figures.cleanings == 1
    node.stop()


def test_the_smallest_rate_is_a_wait_and_not_the_end_of_the_cleaner() -> None:
    node, _, clock = start_node(log_cleaner_io_max_bytes_per_second="5e-324")
    produce(node, topic(node), [1] * 60)
    pass_time(node, clock, BACKOFF_MS)
    assert node.cleaner.is_busy
    for _ in range(100):  # turns of a day, in each of which it may take one step
        pass_time(node, clock, 86_400_000, step_ms=86_400_000)
    assert node.cleaner.figures.cleanings == 1
    node.stop()


def test_retention_applies_to_a_compacted_log_that_says_delete_too() -> None:
    node, _, clock = start_node(log_retention_check_interval_ms=1000)
    partition = topic(node, ("cleanup.policy", "compact,delete"), ("retention.ms", "100000"))
    produce(node, partition, list(range(30)))
    pass_backoff(node, clock)
    assert node.cleaner.figures.cleanings == 1
    assert partition.log.log_start_offset == 0
    clock.advance(100_000)
    pass_backoff(node, clock)
    assert partition.log.log_start_offset == 30
    node.stop()


def test_the_log_goes_on_after_a_restart_where_it_was_clean(tmp_path: Path) -> None:
    node, files, clock = start_node()
    partition = topic(node)
    produce(node, partition, [1, 2] * 20)
    pass_backoff(node, clock)
    held = records_of(partition.log)
    clean_offset = node.services.log_manager.checkpoints.clean_offset_of("t", 0)
    node.stop()
    again, _, clock = start_node(files, clock)
    log = again.services.log_manager.get("t", 0)
    assert log is not None
    assert records_of(log) == held
    assert again.services.log_manager.checkpoints.clean_offset_of("t", 0) == clean_offset
    pass_backoff(again, clock)
    assert again.cleaner.figures.cleanings == 0
    again.stop()


def test_a_log_in_a_directory_that_is_offline_is_not_read_again_and_again() -> None:
    node, files, clock = start_node()
    partition = topic(node)
    produce(node, partition, [1] * 60)
    node.services.log_manager.directories[0].mark_offline(OSError(errno.EIO, "Input/output error"))
    files.history.clear()
    pass_backoff(node, clock, times=3)
    assert node.cleaner.figures.failed == 0
    assert not [path for call, path in files.history if call.startswith("pread") or call in ("open", "unlink")]


def test_segments_that_go_while_a_worker_looks_at_their_log_do_not_make_it_uncleanable() -> None:
    node, files, clock = start_node()
    configs = {"cleanup.policy": "compact,delete", "file.delete.delay.ms": "0", "max.compaction.lag.ms": "60000"}
    produce(node, topic(node, *configs.items()), [1] * 60)
    node.stop()
    node, _, clock = start_node(files, clock)  # what the segments' first records say is not known any more
    partition = node.services.catalog.topics["t"].partitions[0]
    assert partition is not None
    run = node.services.workers.run

    def late(work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        node.services.workers.run = run  # type: ignore[method-assign]  # the first piece of work only
        partition.log.delete_records(30)
        partition.log.retention.apply(node.services.clock.wall_ms())
        partition.log.retention.unlink_due(node.services.clock.wall_ms() + 1)
        run(work, done)

    clock.advance(BACKOFF_MS)
    node.services.workers.run = late  # type: ignore[method-assign]  # a worker that is slow to begin
    node.cleaner.step()
    assert node.services.workers.run == run
    assert node.cleaner.uncleanable == {}
    pass_backoff(node, clock)
    assert node.cleaner.figures.cleanings == 1


def test_a_requested_log_whose_segments_go_while_a_worker_looks_at_it_is_cleaned_at_the_next_look() -> None:
    node, _, clock = start_node(log_cleaner_enable=False)
    partition = topic(node, ("cleanup.policy", "compact,delete"))
    produce(node, partition, [1] * 60)
    run = node.services.workers.run

    def overtaken(work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        node.services.workers.run = run  # type: ignore[method-assign]  # the first piece of work only

        def late(result: object, error: BaseException | None) -> None:
            partition.log.delete_records(30)
            partition.log.retention.apply(node.services.clock.wall_ms())
            done(result, error)

        run(work, late)

    node.services.workers.run = overtaken  # type: ignore[method-assign]  # its result comes late
    reported = node.cleaner.ask("t")[ONE]
    pass_backoff(node, clock)
    assert (reported.state, reported.rounds) == ("done", 1)
    node.stop()


@pytest.mark.parametrize("obstacle", ["policy", "offline"])
def test_a_request_that_has_become_impossible_ends(obstacle: str) -> None:
    """`ottla log clean` waits for the end."""
    node, _, clock = start_node(log_cleaner_enable=False)
    partition = topic(node)
    produce(node, partition, [1] * 60)
    reported = node.cleaner.ask("t")[ONE]
    if obstacle == "policy":
        partition.configure(TopicConfig.resolve({"cleanup.policy": "delete"}, node.services.config))
    else:
        node.services.log_manager.directories[0].mark_offline(OSError(errno.EIO, "Input/output error"))
    pass_backoff(node, clock)
    assert reported.state == "failed"
    assert (
        reported.message
        == {
            "policy": "its cleanup.policy is delete",
            "offline": "its log directory is offline",
        }[obstacle]
    )
