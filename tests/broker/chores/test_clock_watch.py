"""A whole broker under a wall clock that jumps: nothing acknowledged goes because of it, and what waits is said."""

from __future__ import annotations

import logging
import re

import pytest
from kit.cleaning import records_of
from kit.clock import ManualClock
from kit.group_requests import commit, committed
from kit.nodes import DATA, ask, partition_of, pass_time, start_node
from kit.simulated_files import SimulatedFiles
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.node import Node
from ottla.broker.telemetry.exposition import Exposition
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.storage.formats.clock_checkpoint import read_known_time
from ottla.storage.formats.layout import CLOCK_FILE
from ottla.storage.log.append import AppendEntry, AppendResult
from ottla.storage.log.log import Log

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CHORES = {
    "log_retention_check_interval_ms": 1_000,
    "offsets_retention_check_interval_ms": 1_000,
    "producer_id_expiration_check_interval_ms": 1_000,
    "log_cleaner_backoff_ms": 1_000,
}


class Ignored:
    def appended(self, index: int, result: AppendResult) -> None:
        assert not result.error_code


def topic(node: Node, name: str = "t", **configs: str) -> Log:
    pairs = [(key.replace("_", "."), value) for key, value in configs.items()]
    node.services.catalog.create_topics([NewTopic(name, partitions=1, configs=pairs)], lambda _: None)
    node.settle()
    return partition_of(node, name).log


def append(node: Node, count: int, *, name: str = "t", key: bytes | None = None, value: bytes | None = b"v") -> None:
    """Records stamped now, each in a batch of its own, of one idempotent producer."""
    log = partition_of(node, name).log
    for _ in range(count):
        known = log.producers.get(7)
        batch = encode_batch(
            [Record(0, node.services.clock.wall_ms(), key, value, ())],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0 if known is None else known.last_sequence + 1,
        )
        partition_of(node, name).gather(AppendEntry(memoryview(batch), 9), Ignored(), 0)
        node.settle()


def jump(clock: ManualClock, ms: int) -> None:
    clock.set_wall(clock.wall_ms() + ms)


def scraped(node: Node) -> dict[str, float]:
    text = Exposition(node.services, node.cleaner).render().decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        if family.name.startswith("ottla_clock")
        for sample in family.samples
    }


def test_a_clock_that_jumps_30_days_ahead_for_seconds_erases_nothing() -> None:
    node, files, clock = start_node(**CHORES)
    log = topic(node, segment_bytes="1024")  # retention.ms is 7 days by default
    append(node, 30)
    assert len(log.segments) == 3
    assert commit(node, "g", {0: 5}) == 0
    pass_time(node, clock, 5_000)
    jump(clock, 30 * DAY_MS)
    pass_time(node, clock, 20_000)
    jump(clock, -30 * DAY_MS)
    pass_time(node, clock, 120_000)
    assert (log.log_start_offset, log.log_end_offset) == (0, 30)
    assert len(records_of(log)) == 30
    assert not [name for name in files.list_directory(DATA / "t-0") if name.endswith(".deleted")]
    assert log.producers.get(7) is not None
    assert committed(node, "g") == 5


def compacted(node: Node) -> Log:
    return topic(
        node,
        cleanup_policy="compact",
        segment_bytes="1024",
        min_cleanable_dirty_ratio="0.0",
        file_delete_delay_ms="60000",
    )


def cleaned(node: Node, clock: ManualClock) -> None:
    """Fill the active segment, and let the cleaner take what is before it."""
    append(node, 20, key=b"filler", value=b"v" * 100)
    pass_time(node, clock, 5_000)
    while node.cleaner.is_busy:
        pass_time(node, clock, 10, step_ms=10)


def has_tombstone(log: Log) -> bool:
    return any(record.key == b"gone" for record in records_of(log))


def test_tombstones_outlive_the_jump_and_go_when_their_time_is_over() -> None:
    node, _, clock = start_node(**CHORES)
    log = compacted(node)
    append(node, 1, key=b"gone", value=None)
    cleaned(node, clock)  # which sets its delete horizon, a day from now
    jump(clock, 30 * DAY_MS)
    cleaned(node, clock)
    jump(clock, -30 * DAY_MS)
    cleaned(node, clock)
    assert has_tombstone(log)
    pass_time(node, clock, DAY_MS, step_ms=HOUR_MS)
    cleaned(node, clock)
    assert not has_tombstone(log)


@pytest.mark.parametrize("jump_ms", [-30 * DAY_MS, 30 * DAY_MS])
def test_a_tombstone_that_is_met_while_the_clock_is_wrong_is_kept_as_long_as_any(jump_ms: int) -> None:
    node, _, clock = start_node(**CHORES)
    log = compacted(node)
    append(node, 1, key=b"gone", value=None)
    jump(clock, jump_ms)
    cleaned(node, clock)
    jump(clock, -jump_ms)
    cleaned(node, clock)
    assert has_tombstone(log)
    pass_time(node, clock, DAY_MS, step_ms=HOUR_MS)
    cleaned(node, clock)
    assert not has_tombstone(log)


def test_records_younger_than_the_compaction_lag_outlive_the_jump() -> None:
    node, _, clock = start_node(**CHORES)
    log = topic(
        node,
        cleanup_policy="compact",
        segment_bytes="1024",
        min_cleanable_dirty_ratio="0.0",
        min_compaction_lag_ms=str(7 * DAY_MS),
    )
    append(node, 60, key=b"k", value=b"v" * 100)
    jump(clock, 30 * DAY_MS)
    pass_time(node, clock, 20_000)
    jump(clock, -30 * DAY_MS)
    pass_time(node, clock, 20_000)
    assert len(records_of(log)) == 60


def test_retention_by_size_goes_on() -> None:
    node, _, clock = start_node(**CHORES)
    log = topic(node, segment_bytes="1024", retention_bytes="2000")
    append(node, 60)
    jump(clock, 30 * DAY_MS)
    pass_time(node, clock, 3_000)
    assert 0 < log.log_start_offset < 60


def test_retention_by_time_goes_on_as_if_the_clock_had_not_jumped() -> None:
    node, _, clock = start_node(**CHORES)
    log = topic(node, segment_bytes="1024", retention_ms=str(2 * HOUR_MS))
    append(node, 20)
    jump(clock, 30 * DAY_MS)
    pass_time(node, clock, HOUR_MS + HOUR_MS // 2, step_ms=60_000)
    assert log.log_start_offset == 0
    pass_time(node, clock, HOUR_MS, step_ms=60_000)
    assert log.log_start_offset == 20


@pytest.mark.parametrize("jump_ms", [-30 * DAY_MS, 30 * DAY_MS])
def test_what_is_committed_by_a_wrong_clock_expires_when_its_time_is_over(jump_ms: int) -> None:
    node, _, clock = start_node(**CHORES)
    topic(node)
    jump(clock, jump_ms)
    pass_time(node, clock, 1_000)
    assert commit(node, "g", {0: 5}) == 0
    jump(clock, -jump_ms)
    pass_time(node, clock, 6 * DAY_MS, step_ms=HOUR_MS)
    assert committed(node, "g") == 5
    pass_time(node, clock, 2 * DAY_MS, step_ms=HOUR_MS)
    assert committed(node, "g") == -1


def test_one_error_line_says_what_waits_and_how_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    node, _, clock = start_node(**CHORES)
    topic(node)
    with caplog.at_level(logging.WARNING, "ottla"):
        jump(clock, 30 * DAY_MS)
        pass_time(node, clock, 10_000)
        (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
        said = line.getMessage()
        assert "30.0 days ahead" in said
        assert re.search("retention.ms.*offsets.*producer ids", said)
        assert "`ottla log trust-clock`" in said
        assert "for 1.0 days (ottla.clock.trust.after.ms)" in said
        caplog.clear()
        jump(clock, -30 * DAY_MS)
        pass_time(node, clock, 10_000)
        (back,) = caplog.records
        assert "is back" in back.getMessage()


def test_the_metric_shows_the_jump_and_its_end() -> None:
    node, _, clock = start_node(**CHORES)
    assert scraped(node) == {"ottla_clock_suspect": 0, "ottla_clock_jump_seconds": 0, "ottla_clock_trust_seconds": 0}
    jump(clock, 2 * DAY_MS)
    pass_time(node, clock, 1_000)
    shown = scraped(node)
    assert (shown["ottla_clock_suspect"], shown["ottla_clock_jump_seconds"]) == (1, 2 * 86_400)
    assert shown["ottla_clock_trust_seconds"] == 86_400
    jump(clock, -2 * DAY_MS)
    pass_time(node, clock, 1_000)
    assert scraped(node)["ottla_clock_suspect"] == 0


def test_keys_change_while_the_broker_runs_and_no_wait_is_a_release() -> None:
    node, _, clock = start_node(**CHORES)
    log = topic(node)
    append(node, 3)
    jump(clock, 30 * DAY_MS)
    pass_time(node, clock, 5_000)
    assert log.log_start_offset == 0
    alter = IncrementalAlterConfigsRequest
    config = alter.AlterableConfig(name="ottla.clock.trust.after.ms", config_operation=0, value="0")
    resource = alter.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    ask(node, alter(resources=[resource], validate_only=False), 1)
    pass_time(node, clock, 5_000)
    assert log.log_start_offset == 3


def test_a_clock_that_goes_on_where_it_jumped_to_is_believed_after_the_time_of_the_key() -> None:
    node, _, clock = start_node(**CHORES, ottla_clock_trust_after_ms=HOUR_MS)
    log = topic(node)
    append(node, 3)
    jump(clock, 30 * DAY_MS)
    pass_time(node, clock, HOUR_MS - 60_000, step_ms=30_000)
    assert log.log_start_offset == 0
    pass_time(node, clock, 120_000)
    assert log.log_start_offset == 3


def test_a_suspend_of_30_days_is_no_jump() -> None:
    node, _, clock = start_node(**CHORES)
    log = topic(node)
    append(node, 3)
    clock.suspend(30 * DAY_MS)
    pass_time(node, clock, 5_000)
    assert log.log_start_offset == 3


def waiting(files: SimulatedFiles) -> int:
    """Files that are still to be unlinked."""
    return sum(name.endswith(".deleted") for name in files.list_directory(DATA / "t-0"))


def test_files_of_deleted_segments_wait_by_the_monotonic_clock() -> None:
    node, files, clock = start_node(**CHORES, ottla_clock_jump_max_ms=-1)
    topic(node, retention_ms="1000", file_delete_delay_ms="60000")
    append(node, 3)
    pass_time(node, clock, 5_000)
    assert waiting(files)
    jump(clock, DAY_MS)
    pass_time(node, clock, 5_000)
    assert waiting(files)
    jump(clock, -2 * DAY_MS)
    pass_time(node, clock, 60_000)
    assert not waiting(files)


def test_files_of_cleaned_segments_wait_by_the_monotonic_clock() -> None:
    node, files, clock = start_node(**CHORES)
    compacted(node)
    append(node, 20, key=b"filler", value=b"v" * 100)
    cleaned(node, clock)
    pass_time(node, clock, 2_000)
    assert waiting(files)
    jump(clock, DAY_MS)
    pass_time(node, clock, 5_000)
    assert waiting(files)
    jump(clock, -2 * DAY_MS)
    pass_time(node, clock, 60_000)
    assert not waiting(files)


# --- over restarts ---------------------------------------------------------------------------------------------------


def filled(clock: ManualClock | None = None) -> tuple[Node, SimulatedFiles, ManualClock]:
    node, files, clock = start_node(clock=clock, **CHORES)
    topic(node)
    append(node, 3)
    pass_time(node, clock, 1_000)
    return node, files, clock


def start_of(files: SimulatedFiles, clock: ManualClock) -> int:
    """Where the log starts after a life of ten seconds on these files."""
    node, _, _ = start_node(files, clock, **CHORES)
    pass_time(node, clock, 10_000)
    return partition_of(node, "t").log.log_start_offset


def test_a_restart_in_the_middle_of_a_jump_goes_on_waiting() -> None:
    node, files, clock = filled()
    jump(clock, 30 * DAY_MS)
    pass_time(node, clock, 400_000)
    node.stop()
    assert start_of(files, clock) == 0


def test_a_kill_in_the_middle_of_a_jump_forgets_nothing() -> None:
    node, files, clock = filled()
    jump(clock, 30 * DAY_MS)
    pass_time(node, clock, 2_000)
    del node
    assert start_of(files.successor(), clock) == 0


def test_a_broker_that_was_off_for_30_days_while_the_machine_ran_deletes_at_once() -> None:
    node, files, clock = filled()
    node.stop()
    clock.advance(30 * DAY_MS)
    assert start_of(files, clock) == 3


def test_after_a_boot_a_clock_that_is_30_days_ahead_erases_nothing_at_once(caplog: pytest.LogCaptureFixture) -> None:
    node, files, clock = filled()
    node.stop()
    clock.reboot(off_ms=30 * DAY_MS)
    assert start_of(files, clock) == 0
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert "Either the machine was off that long, or its clock is wrong" in line
    assert "`ottla log trust-clock`" in line


def test_a_board_that_starts_in_1970_keeps_everything_and_believes_the_time_when_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, files, clock = filled()
    was_ms = clock.wall_ms()
    node.stop()
    clock.reboot()
    clock.set_wall(5_000)
    node, _, _ = start_node(files, clock, **CHORES)
    pass_time(node, clock, 30_000)
    assert node.services.clock_trust.is_suspect
    jump(clock, was_ms)
    pass_time(node, clock, 10_000)
    assert not node.services.clock_trust.is_suspect
    assert partition_of(node, "t").log.log_start_offset == 0
    assert partition_of(node, "t").log.producers.get(7) is not None
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_a_board_has_stamped_with_1970_is_as_old_as_it_is(is_restarted: bool) -> None:
    node, files, clock = filled()
    was_ms = clock.wall_ms()
    node.stop()
    clock.reboot()
    clock.set_wall(5_000)
    node, files, _ = start_node(files, clock, **CHORES)
    log = topic(node, "new", segment_ms="1000")
    append(node, 3, name="new")
    pass_time(node, clock, 700_000, step_ms=10_000)
    append(node, 3, name="new")
    if is_restarted:
        node.stop()
        node, files, _ = start_node(files, clock, **CHORES)
        log = partition_of(node, "new").log
    jump(clock, was_ms)
    pass_time(node, clock, 6 * DAY_MS, step_ms=HOUR_MS)
    assert len(records_of(log)) == 6
    pass_time(node, clock, 2 * DAY_MS, step_ms=HOUR_MS)
    assert records_of(log) == []


def test_a_producer_that_was_seen_in_1970_expires_when_its_time_is_over() -> None:
    node, _, clock = filled()
    producers = partition_of(node, "t").log.producers
    was_ms = clock.wall_ms()
    clock.set_wall(5_000)
    pass_time(node, clock, 1_000)
    append(node, 1)
    jump(clock, was_ms)
    pass_time(node, clock, DAY_MS - HOUR_MS, step_ms=HOUR_MS)
    assert producers.get(7) is not None
    pass_time(node, clock, 2 * HOUR_MS, step_ms=HOUR_MS)
    assert producers.get(7) is None


def test_a_directory_without_the_file_goes_by_the_times_of_its_files() -> None:
    files, clock = SimulatedFiles(), ManualClock()
    files.now_ms = clock.wall_ms()
    node, _, _ = start_node(files, clock, **CHORES)
    topic(node)
    append(node, 3)
    node.stop()
    files.unlink(DATA / CLOCK_FILE)
    clock.advance(30 * DAY_MS)
    assert start_of(files, clock) == 0


def test_a_broken_file_is_said_and_the_start_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    node, files, clock = filled()
    node.stop()
    files.write_atomically(DATA / CLOCK_FILE, b"version=1\nwall_ms=x\n")
    assert start_of(files, clock) == 0
    assert any(CLOCK_FILE in record.getMessage() for record in caplog.records)
    assert read_known_time(files, DATA) is not None, "the next write makes it whole"


def test_what_is_known_is_written_every_five_minutes_and_at_a_stop() -> None:
    node, files, clock = filled()
    pass_time(node, clock, 310_000)
    known = read_known_time(files, DATA)
    assert known is not None
    assert clock.wall_ms() - known.wall_ms < 300_000
    node.stop()
    known = read_known_time(files, DATA)
    assert known is not None
    assert (known.wall_ms, known.boot_ms, known.boot_id) == (clock.wall_ms(), clock.boot_ms(), clock.boot_id())
