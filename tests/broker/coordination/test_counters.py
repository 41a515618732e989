"""What the runtime of coordinators carries, shown on a coordinator that is not of groups: `kit.counters`.

Durable answers, loads, crashes, a full disk, the loss of the log, deadlines, and work on another topic that begins when
a record is durable: each of these is what transactions and share groups will ask of it.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.clock import ManualClock
from kit.counters import ANNOUNCEMENTS, RETRY_MS, TOPIC, TTL_MS, WRITE_TIMEOUT_MS, CounterResponse, CounterShard
from kit.counters import counters_of as make_counters
from kit.nodes import DATA, partition_of, pass_time, start_node
from kit.settings import SET, alter
from kit.settings import TOPIC as TOPIC_RESOURCE
from kit.simulated_files import CrashPoint, SimulatedFiles
from kit.topics import create, delete

from ottla.broker.coordination import shard_log
from ottla.broker.coordination.deadlines import Deadlines
from ottla.broker.coordination.loader import CoordinatorLoader
from ottla.broker.coordination.replay import LogReplay
from ottla.broker.coordination.runtime import LOAD_AT_START_BYTES, CoordinatorRuntime
from ottla.broker.coordination.shard_log import ShardLog
from ottla.broker.coordination.shard_map import RELOAD_INTERVAL_MS
from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.node import Node
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.timers import AGAIN_MS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import decode_batch, encode_batch, iter_batches
from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.records.record import Record
from ottla.storage.log.append import AppendEntry

LOG_FILE = DATA / f"{TOPIC}-0" / "00000000000000000000.log"
PRODUCE_VERSION = 13
ANNOUNCED = NewTopic(ANNOUNCEMENTS, partitions=1, replication_factor=1)


class Life:
    """A broker with counters on it; `files` of an earlier one make it a restart."""

    node: Node
    counters: CoordinatorRuntime[CounterShard]

    def __init__(self, files: SimulatedFiles | None = None, clock: ManualClock | None = None, **keys: object) -> None:
        self.files = SimulatedFiles() if files is None else files
        self.clock = ManualClock() if clock is None else clock
        self._keys: dict[str, object] = {"ottla_acks_all": "sync"} | keys
        self.partitions = 1

    def start(self, *, settle: bool = True) -> Life:
        self.node, _, _ = start_node(self.files, self.clock, **self._keys)
        services = self.node.services
        self.counters = make_counters(services, self.partitions)
        services.catalog.topic_listeners.append(self.counters.on_topics_changed)
        self.counters.open()
        if settle:
            self.pass_ms(10)
        return self

    def next(self, files: SimulatedFiles | None = None) -> Life:
        """The next life, on what is left on the disk; `files` where something was lost."""
        life = Life(self.files if files is None else files, self.clock, **self._keys)
        life.partitions = self.partitions
        return life.start()

    def restarted(self) -> Life:
        self.counters.close()
        self.node.stop()
        return self.next()

    def crashed(self, seed: int = 1) -> Life:
        return self.next(self.files.crash(random.Random(seed)))

    def pass_ms(self, ms: int) -> None:
        pass_time(self.node, self.clock, ms, step_ms=min(ms, 500))

    # Requests, begun: nothing is flushed or synced yet.

    def begin(
        self, name: str, step: Callable[[CounterShard, Pending[CounterResponse]], None]
    ) -> Pending[CounterResponse]:
        pending: Pending[CounterResponse] = Pending()
        return self.counters.run(name, pending, lambda shard: step(shard, pending))

    def add(self, name: str, amount: int = 1) -> Pending[CounterResponse]:
        return self.begin(name, lambda shard, pending: shard.add(name, amount, pending))

    def read(self, name: str) -> Pending[CounterResponse]:
        return self.begin(name, lambda shard, pending: shard.read(name, pending))

    def close(self, name: str) -> Pending[CounterResponse]:
        return self.begin(name, lambda shard, pending: shard.close(name, pending))

    # Answers, once everything that was begun is on the disk.

    def total(self, pending: Pending[CounterResponse]) -> int:
        self.node.settle()
        assert pending.done
        if pending.error is not None:
            raise pending.error
        assert pending.response is not None
        return pending.response.total

    def value(self, name: str) -> int:
        return self.total(self.read(name))

    def code(self, pending: Pending[CounterResponse]) -> ErrorCode:
        with pytest.raises(KafkaError) as refusal:
            self.total(pending)
        return refusal.value.code

    def announced(self) -> list[tuple[bytes | None, bytes | None]]:
        """(name, total) of all that was announced, in order."""
        path = DATA / f"{ANNOUNCEMENTS}-0" / "00000000000000000000.log"
        data = self.files.read_bytes(path)
        return [
            (record.key, record.value)
            for position, _ in iter_batches(data)
            for record in decode_batch(memoryview(data)[position:])
        ]


def batches_of(files: SimulatedFiles, path: Path = LOG_FILE) -> list[int]:
    """How many records each batch of a log has."""
    return [header.record_count for _, header in iter_batches(files.read_bytes(path))]


@pytest.fixture
def life() -> Life:
    life = Life().start()
    assert life.total(life.add("warm")) == 1
    return life


def failing_once(call: Callable[..., object]) -> Callable[..., object]:
    """The call, after one for which there is no memory."""
    errors = [MemoryError()]

    def fails_first(*arguments: object, **keys: object) -> object:
        if errors:
            raise errors.pop()
        return call(*arguments, **keys)

    return fails_first


# What a reply waits for ----------------------------------------------------------------------------------------------


def test_an_answer_leaves_once_its_records_are_synced_and_not_before(life: Life) -> None:
    pending = life.add("a", 5)
    life.node.services.turn.end()
    assert not pending.done
    assert life.total(pending) == 5


def test_with_the_page_cache_an_answer_leaves_at_the_end_of_the_turn() -> None:
    life = Life(ottla_acks_all="page-cache").start()
    life.total(life.add("warm"))
    pending = life.add("a", 5)
    assert not pending.done
    life.node.services.turn.end()
    assert pending.done


def test_a_read_waits_for_the_records_of_its_key_and_for_no_others(life: Life) -> None:
    life.add("a", 5)
    of_a, of_warm = life.read("a"), life.read("warm")
    life.node.services.turn.end()
    assert not of_a.done
    assert of_warm.done
    assert life.total(of_a) == 5


def test_the_steps_of_a_turn_are_one_batch_and_one_write(life: Life) -> None:
    life.add("a", 5)
    life.add("b", 6)
    life.close("a")
    writes = sum(call == "pwritev" and path == LOG_FILE for call, path in life.files.history)
    life.node.services.turn.end()
    assert sum(call == "pwritev" and path == LOG_FILE for call, path in life.files.history) == writes + 1
    assert batches_of(life.files) == [1, 4]


def test_steps_of_a_turn_that_do_not_fit_into_a_batch_are_in_several_and_none_is_divided(life: Life) -> None:
    shard = life.counters.shards.ready("warm")
    names = ["x" * 2_000 + str(number) for number in range(8)]
    for name in names:
        life.add(name)
    life.node.settle()
    assert alter(life.node, TOPIC_RESOURCE, TOPIC, ("max.message.bytes", SET, "10000"))[0] is ErrorCode.NONE
    before = len(batches_of(life.files))
    closed = [life.close(name) for name in names]  # two records each
    assert [life.total(pending) for pending in closed] == [1] * 8
    sizes = batches_of(life.files)[before:]
    assert sizes[:4] == [4] * 4
    assert not shard.is_dead


def test_a_disk_that_takes_long_is_answered_in_time_and_the_record_counts_all_the_same(life: Life) -> None:
    pending = life.add("a", 5)
    life.node.services.turn.end()
    life.clock.advance(WRITE_TIMEOUT_MS)
    life.node.services.timers.run_due(life.clock.monotonic_ms())
    assert pending.done
    assert life.code(pending) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert life.value("a") == 5


def test_each_answer_that_waits_for_a_slow_disk_is_given_in_time(life: Life) -> None:
    pending = life.add("a", 5)
    life.node.services.turn.end()
    for _ in range(3):
        life.clock.advance(WRITE_TIMEOUT_MS)
        life.node.services.timers.run_due(life.clock.monotonic_ms())
        assert isinstance(pending.error, KafkaError)
        assert pending.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        pending = life.read("a")


# The topic -----------------------------------------------------------------------------------------------------------


def test_the_topic_is_made_on_first_need_as_it_was_defined() -> None:
    life = Life()
    life.partitions = 3
    life.start()
    assert TOPIC not in life.node.services.catalog.topics
    pendings = [life.add(name) for name in ("a", "b", "c")]
    assert [life.total(pending) for pending in pendings] == [1, 1, 1]
    topic = life.node.services.catalog.topics[TOPIC]
    assert len(topic.partitions) == 3
    assert topic.config.cleanup_policy == ("compact",)


def test_keys_are_spread_over_partitions_and_found_again() -> None:
    life = Life()
    life.partitions = 4
    life.start()
    for number in range(20):
        life.total(life.add(f"c{number}", number))
    assert len({life.counters.shards.partition_of(f"c{number}") for number in range(20)}) == 4
    life = life.restarted()
    assert [life.value(f"c{number}") for number in range(20)] == list(range(20))


def test_a_coordinator_is_prepared_for_clients_unless_its_partition_is_offline(life: Life) -> None:
    answers: list[KafkaError | None] = []
    life.counters.prepare("a", answers.append)
    life.files.fail("fdatasync", f"*{TOPIC}-0/*|*/ottla-redo.log", error=errno.EIO)
    assert life.code(life.add("a")) is ErrorCode.NOT_COORDINATOR
    life.counters.prepare("a", answers.append)
    assert answers[0] is None
    assert answers[1] is not None
    assert answers[1].code is ErrorCode.COORDINATOR_NOT_AVAILABLE


# Loads ---------------------------------------------------------------------------------------------------------------


def test_a_clean_restart_keeps_what_was_counted(life: Life) -> None:
    life.total(life.add("a", 5))
    life.total(life.add("a", 2))
    life = life.restarted()
    assert (life.value("a"), life.value("warm"), life.value("none")) == (7, 1, 0)


def test_while_a_large_log_loads_requests_are_refused_and_then_served() -> None:
    life = Life(ottla_acks_all="page-cache").start()
    life.total(life.add("warm"))
    log = partition_of(life.node, TOPIC).log
    while log.size_bytes < 3 * LOAD_AT_START_BYTES:
        for number in range(100):
            life.add(f"{number:01000}")
        life.node.settle()
    expected = life.value(f"{7:01000}")
    life.counters.close()
    life.node.stop()
    again = Life(life.files, life.clock, ottla_acks_all="page-cache").start(settle=False)
    assert again.counters.shards.loads_under_way == 1
    assert again.code(again.read(f"{7:01000}")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    pass_time(again.node, again.clock, 100, step_ms=1)
    assert again.value(f"{7:01000}") == expected


def test_records_of_unknown_types_are_skipped_and_said(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    strange = Record(0, 0, b"\x00\x07later", b"x", ())
    log = partition_of(life.node, TOPIC).log
    log.append([AppendEntry(memoryview(encode_batch([strange])), PRODUCE_VERSION)], life.clock.wall_ms())
    life = life.restarted()
    assert life.value("warm") == 1
    assert "records of type 7" in caplog.text


# Crashes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_takes_nothing_that_was_answered(life: Life, seed: int) -> None:
    for _ in range(5):
        life.total(life.add("a", 1))
    unsynced = life.add("a", 1)
    life.node.services.turn.end()
    assert not unsynced.done
    life = life.crashed(seed)
    assert life.value("a") in {5, 6}
    assert life.value("warm") == 1


def count_and_close(life: Life) -> bool:
    """A counter's whole life, which the machine may not live to see; whether the count was answered."""
    try:
        assert life.total(life.add("a", 3)) == 3
    except CrashPoint:
        return False
    try:
        assert life.total(life.close("a")) == 3
        life.pass_ms(3 * RETRY_MS)
    except CrashPoint:
        pass
    return True


def test_a_stop_of_the_machine_at_any_call_keeps_what_was_counted_and_ends_it_in_both_phases_or_none() -> None:
    stops = range(100)
    for stop in stops:
        life = Life().start()
        life.total(life.add("warm"))
        create(life.node, ANNOUNCED)
        life.files.crash_at = life.files.calls + 1 + stop
        was_answered = count_and_close(life)
        if life.files.calls < life.files.crash_at:
            break  # it has lived to the end
        life.files.crash_at = None
        after = life.crashed(stop)
        after.pass_ms(3 * RETRY_MS)
        announced, left = set(after.announced()), after.value("a")
        assert announced <= {(b"a", b"3")}
        assert not after.counters.shards.ready("a").machine.closing
        assert not (announced and left), f"call {stop}: closed, and counted on"
        assert announced or left == 3 or not was_answered, f"call {stop}: what was answered is gone"
    assert 5 < stop < stops[-1]


# A failing disk, a lost log ------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_and_the_counters_are_back_with_what_was_answered(life: Life) -> None:
    life.total(life.add("a", 5))
    full = life.files.fail("pwritev", f"*{TOPIC}-0/*", error=errno.ENOSPC, times=None)
    assert life.code(life.add("a", 6)) is ErrorCode.NOT_COORDINATOR
    life.pass_ms(3 * RELOAD_INTERVAL_MS)
    assert life.code(life.read("a")) is ErrorCode.NOT_COORDINATOR
    life.files.heal(full)
    life.pass_ms(30_000)
    assert life.value("a") == 5
    assert life.total(life.add("a", 2)) == 7


def test_a_batch_that_the_log_does_not_take_refuses_all_steps_of_the_turn(life: Life) -> None:
    life.total(life.add("a", 5))
    full = life.files.fail("pwritev", f"*{TOPIC}-0/*", error=errno.ENOSPC, times=None)
    added = [life.add("a", 6), life.add("b"), life.add("warm")]
    assert [life.code(pending) for pending in added] == [ErrorCode.NOT_COORDINATOR] * 3
    life.files.heal(full)
    life.pass_ms(30_000)
    assert [life.value(name) for name in ("a", "b", "warm")] == [5, 0, 1]


def test_records_for_whose_append_there_is_no_memory_refuse_all_steps_of_the_turn(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept, they would wait for ever, with all that are written after them."""
    life.total(life.add("a", 5))

    def no_memory(*_: object) -> None:
        raise MemoryError

    added = [life.add("a", 6), life.add("b")]
    with monkeypatch.context() as broken:
        broken.setattr(ShardLog, "flush", no_memory)
        assert [life.code(pending) for pending in added] == [ErrorCode.NOT_COORDINATOR] * 2
    life.pass_ms(30_000)
    assert [life.value(name) for name in ("a", "b")] == [5, 0]
    assert life.total(life.add("a", 2)) == 7


def test_a_record_that_cannot_be_written_refuses_the_steps_of_the_turn_before_it(life: Life) -> None:
    added = [life.add("a", 5), life.add("b", 1 << 64)]
    assert [life.code(pending) for pending in added] == [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR]
    life.pass_ms(3 * RELOAD_INTERVAL_MS)
    assert [life.value(name) for name in ("a", "b", "warm")] == [0, 0, 1]


def test_a_failed_sync_is_answered_with_an_error_and_ends_the_shard(life: Life) -> None:
    life.files.fail("fdatasync", f"*{TOPIC}-0/*|*/ottla-redo.log", error=errno.EIO)
    waiting = [life.add("a", 5), life.read("a")]
    assert [life.code(pending) for pending in waiting] == [ErrorCode.NOT_COORDINATOR] * 2
    assert life.code(life.read("warm")) is ErrorCode.NOT_COORDINATOR


def test_a_record_that_cannot_be_written_leaves_nothing_in_memory(life: Life) -> None:
    assert life.code(life.add("warm", 1 << 64)) is ErrorCode.UNKNOWN_SERVER_ERROR
    life.pass_ms(3 * RELOAD_INTERVAL_MS)
    assert life.value("warm") == 1


def test_a_damaged_part_of_the_log_costs_what_it_held_and_no_more(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    life.total(life.add("hit", 5))
    life.total(life.add("late", 6))
    life.counters.close()
    life.node.stop()
    positions = [position for position, _ in iter_batches(life.files.read_bytes(LOG_FILE))]
    file = life.files.open(LOG_FILE, writable=True)
    file.pwritev([b"\xff"], positions[1] + 70)
    file.fdatasync()
    file.close()
    life = life.next()
    assert (life.value("warm"), life.value("hit"), life.value("late")) == (1, 0, 6)
    assert f"{TOPIC}-0" in caplog.text


def test_a_deleted_topic_takes_its_counters_along_and_is_created_again(life: Life) -> None:
    shard = life.counters.shards.ready("warm")
    delete(life.node, TOPIC)
    assert shard.is_dead
    assert life.value("warm") == 0
    assert life.total(life.add("warm", 9)) == 9
    assert life.restarted().value("warm") == 9


def test_records_for_which_there_was_no_memory_are_refused_and_the_counters_are_back(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.total(life.add("a", 2))
    waiting = life.add("a", 3)
    with monkeypatch.context() as short:
        short.setattr(shard_log, "BatchBuilder", failing_once(BatchBuilder))
        assert life.code(waiting) is ErrorCode.NOT_COORDINATOR
    life.pass_ms(5 * RELOAD_INTERVAL_MS)
    assert life.value("a") == 2
    assert life.total(life.add("a", 4)) == 6


def test_records_whose_sync_could_not_be_requested_for_want_of_memory_are_synced_by_the_load(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load waits until they are durable, and nothing is appended meanwhile."""
    syncer = life.node.services.syncer
    waiting = life.add("a", 3)
    with monkeypatch.context() as short:
        short.setattr(syncer, "request", failing_once(syncer.request))
        assert life.code(waiting) is ErrorCode.NOT_COORDINATOR
    life.pass_ms(5 * RELOAD_INTERVAL_MS)
    assert life.value("a") == 3


# Time ----------------------------------------------------------------------------------------------------------------


def test_a_counter_expires_and_does_not_come_back(life: Life) -> None:
    life.pass_ms(TTL_MS // 2)
    life.total(life.add("young", 2))
    life.pass_ms(TTL_MS // 2)
    assert (life.value("warm"), life.value("young")) == (0, 2)
    life = life.crashed()
    assert (life.value("warm"), life.value("young")) == (0, 2)


def test_a_deadline_goes_on_over_a_restart_and_a_reload(life: Life) -> None:
    life.pass_ms(TTL_MS // 2)
    life = life.restarted()
    life.files.fail("pwritev", f"*{TOPIC}-0/*", error=errno.ENOSPC)
    assert life.code(life.add("a")) is ErrorCode.NOT_COORDINATOR
    life.pass_ms(TTL_MS // 4)
    assert life.value("warm") == 1
    life.pass_ms(TTL_MS // 4)
    assert life.value("warm") == 0


@pytest.mark.parametrize("place", [(CounterShard, "finish"), (Deadlines, "take_due")])
def test_a_deadline_for_which_there_was_no_memory_passes_after_a_load(
    life: Life, monkeypatch: pytest.MonkeyPatch, place: tuple[type, str]
) -> None:
    """The deadline is taken by then, and the state may be torn: a member that has died would never be removed."""
    monkeypatch.setattr(*place, failing_once(getattr(*place)))
    shard = life.counters.shards.ready("warm")
    life.pass_ms(TTL_MS + 500)
    assert shard.is_dead
    life.pass_ms(5 * RELOAD_INTERVAL_MS)
    assert life.value("warm") == 0
    assert life.crashed().value("warm") == 0


@pytest.mark.parametrize("step", ["read", "feed", "step"])
def test_a_load_for_which_there_was_no_memory_is_begun_again(
    life: Life, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    log = partition_of(life.node, TOPIC).log
    while log.size_bytes < 3 * LOAD_AT_START_BYTES:
        for number in range(100):
            life.add(f"{number:01000}")
        life.node.settle()
    life.counters.close()
    life.node.stop()
    again = Life(life.files, life.clock).start(settle=False)
    monkeypatch.setattr(LogReplay, step, failing_once(getattr(LogReplay, step)))
    again.pass_ms(20 * RELOAD_INTERVAL_MS)
    assert again.value("warm") == 1
    assert "counters cannot be loaded: no memory was left" in caplog.text


def test_a_reload_for_which_there_is_no_memory_is_tried_again(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    life.counters.shards.ready("warm").die(OSError("a test"))
    monkeypatch.setattr(CoordinatorLoader, "start", failing_once(CoordinatorLoader.start))
    with pytest.raises(MemoryError):
        life.pass_ms(RELOAD_INTERVAL_MS + 500)
    life.pass_ms(4 * AGAIN_MS)
    assert life.value("warm") == 1


# Work on another topic -----------------------------------------------------------------------------------------------


def test_what_a_record_announces_elsewhere_begins_when_it_is_durable(life: Life) -> None:
    create(life.node, ANNOUNCED)
    closing = life.close("warm")
    life.node.services.turn.end()
    assert life.announced() == []
    assert life.code(life.add("warm")) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert life.total(closing) == 1
    assert life.announced() == [(b"warm", b"1")]
    assert life.total(life.add("warm")) == 1


def test_what_was_durable_and_not_announced_is_announced_by_the_next_life(life: Life) -> None:
    create(life.node, ANNOUNCED)
    full = life.files.fail("pwritev", f"*{ANNOUNCEMENTS}-0/*", error=errno.ENOSPC, times=None)
    assert life.total(life.close("warm")) == 1
    assert life.announced() == []
    life.files.heal(full)
    life = life.crashed()
    assert life.announced() == [(b"warm", b"1")]
    life = life.crashed(2)
    assert life.announced() == [(b"warm", b"1")]


def test_a_partition_that_is_not_there_is_tried_again(life: Life) -> None:
    assert life.total(life.close("warm")) == 1
    life.pass_ms(3 * RETRY_MS)
    create(life.node, ANNOUNCED)
    life.pass_ms(2 * RETRY_MS)
    assert life.announced() == [(b"warm", b"1")]
