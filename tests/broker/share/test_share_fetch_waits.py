"""A ShareFetch that waits: for records, for its deadline, for a worker; who is woken, and who gets what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.share_nodes import LOCK_MS, WAIT_MS, Reader, ShareNode, acquired, data_of
from kit.share_requests import delete_records_before
from kit.topics import delete
from kit.workers import HeldWorkers

from ottla.broker.partitions.partition import Partition
from ottla.broker.runtime.timers import AGAIN_MS
from ottla.broker.share.delayed_share_fetch import DelayedShareFetch
from ottla.broker.share.in_flight import InFlightRecords
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.segment.slice import LogSlice

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


@pytest.fixture
def broker() -> ShareNode:
    return ShareNode()


@pytest.fixture
def reader(broker: ShareNode) -> Reader:
    return Reader(broker)


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_a_member_that_waits_gets_a_record_as_it_is_produced(broker: ShareNode, reader: Reader) -> None:
    pending = reader.begin_wait()
    broker.produce(1)
    assert pending.done
    assert acquired(reader.answer(pending)) == [(0, 0, 1)]


def test_a_member_that_waits_gets_what_another_one_releases(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1)
    other = Reader(broker, "b")
    other.take()
    pending = reader.begin_wait()
    other.acknowledge((0, 0, [RELEASE]))
    assert acquired(reader.answer(pending)) == [(0, 0, 2)]


def test_a_member_that_waits_gets_what_another_one_had_for_too_long(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1)
    Reader(broker, "b").take()
    pending = reader.begin_wait(2 * LOCK_MS)
    broker.pass_ms(LOCK_MS - 1)
    assert not pending.done
    broker.pass_ms(1)
    assert pending.done
    assert acquired(reader.answer(pending)) == [(0, 0, 2)]


def test_a_member_that_waits_gets_new_records_as_others_make_room(broker: ShareNode, reader: Reader) -> None:
    broker.set("share.partition.max.record.locks", "1")
    broker.produce(1, 1)
    other = Reader(broker, "b")
    other.take(max_records=1)
    pending = reader.begin_wait()
    other.acknowledge((0, 0, [ACCEPT]))
    assert acquired(reader.answer(pending)) == [(1, 1, 1)]


def test_nothing_comes_within_the_wait_and_the_answer_is_empty(broker: ShareNode, reader: Reader) -> None:
    pending = reader.begin_wait()
    broker.pass_ms(WAIT_MS - 1)
    assert not pending.done
    broker.pass_ms(1)
    assert pending.done
    assert reader.answer(pending).responses == []


def test_a_record_wakes_one_member_and_the_next_one_the_next(broker: ShareNode) -> None:
    readers = [Reader(broker, name) for name in "abc"]
    waiting = [reader.begin_wait() for reader in readers]
    for number in range(3):
        broker.produce(1)
        assert [pending.done for pending in waiting] == [index <= number for index in range(3)]
    for number, (reader, pending) in enumerate(zip(readers, waiting, strict=True)):
        assert acquired(reader.answer(pending)) == [(number, number, 1)]


def test_a_record_wakes_no_member_but_the_first(broker: ShareNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand who look in vain would cost a second."""
    readers = [Reader(broker, name) for name in "abc"]
    waiting = [reader.begin_wait() for reader in readers]
    tries: list[DelayedShareFetch] = []
    try_again = DelayedShareFetch.try_again

    def counted(self: DelayedShareFetch) -> None:
        tries.append(self)
        try_again(self)

    monkeypatch.setattr(DelayedShareFetch, "try_again", counted)
    broker.produce(1)
    assert [pending.done for pending in waiting] == [True, False, False]
    assert len(tries) == 1


def test_a_lock_that_was_made_shorter_ends_before_an_older_one(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1, 1)
    reader.take(max_records=1)
    broker.set("share.record.lock.duration.ms", "1000")
    other = Reader(broker, "b")
    assert other.take() == [(1, 1, 1)]
    broker.pass_ms(1_000)
    assert Reader(broker, "c").take() == [(1, 1, 2)]
    broker.pass_ms(LOCK_MS)
    assert other.take()[0] == (0, 0, 2)


def test_a_lock_whose_end_found_no_memory_ends_a_second_later(
    broker: ShareNode, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No member gets the records otherwise until another one changes something."""
    broker.produce(1)
    assert reader.take() == [(0, 0, 1)]
    time_out, errors = InFlightRecords.time_out, [MemoryError()]

    def fails_first(records: InFlightRecords, now_ms: float, most_deliveries: int) -> Any:
        if errors:
            raise errors.pop()
        return time_out(records, now_ms, most_deliveries)

    monkeypatch.setattr(InFlightRecords, "time_out", fails_first)
    with pytest.raises(MemoryError):
        broker.pass_ms(LOCK_MS + 500)
    waiting = Reader(broker, "b").begin_wait(10 * AGAIN_MS)
    assert not waiting.done
    broker.pass_ms(2 * AGAIN_MS)
    assert waiting.done


def test_records_that_come_together_go_to_all_who_wait(broker: ShareNode) -> None:
    readers = [Reader(broker, name) for name in "abc"]
    waiting = [reader.begin_wait(max_records=1) for reader in readers]
    broker.produce(1, 1, 1)
    got = [acquired(reader.answer(pending)) for reader, pending in zip(readers, waiting, strict=True)]
    assert sorted(got) == [[(0, 0, 1)], [(1, 1, 1)], [(2, 2, 1)]]


def test_a_member_waits_for_as_many_bytes_as_it_asks_for(broker: ShareNode, reader: Reader) -> None:
    pending = reader.begin_wait(min_bytes=150)
    broker.produce(1)
    assert not pending.done
    broker.produce(1, 1)
    assert pending.done
    assert acquired(reader.answer(pending))[0] == (0, 0, 1)


def test_too_few_bytes_are_given_when_the_wait_is_over(broker: ShareNode, reader: Reader) -> None:
    pending = reader.begin_wait(min_bytes=10_000)
    broker.produce(1)
    broker.pass_ms(WAIT_MS)
    assert acquired(reader.answer(pending)) == [(0, 0, 1)]


def test_a_member_that_wants_more_bytes_does_not_keep_them_from_the_next(broker: ShareNode) -> None:
    a, b = Reader(broker, "a"), Reader(broker, "b")
    greedy, modest = a.begin_wait(min_bytes=10_000), b.begin_wait()
    broker.produce(1)
    assert (greedy.done, modest.done) == (False, True)


def test_a_member_that_went_away_takes_no_record_with_it(broker: ShareNode) -> None:
    a, b = Reader(broker, "a"), Reader(broker, "b")
    gone, waiting = a.begin_wait(), b.begin_wait()
    gone.cancel()
    a.peer.end()
    broker.produce(1)
    assert acquired(b.answer(waiting)) == [(0, 0, 1)]


def test_a_topic_that_is_deleted_meanwhile_is_an_error_at_once(broker: ShareNode, reader: Reader) -> None:
    pending = reader.begin_wait()
    delete(broker.node, "t")
    data = data_of(reader.answer(pending))
    assert data is not None
    assert data.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.KAFKA_STORAGE_ERROR)
    broker.pass_ms(10)
    assert broker.coordinator.state_count == 0


def test_a_right_that_is_taken_away_meanwhile_is_an_error(broker: ShareNode, reader: Reader) -> None:
    pending = reader.begin_wait()
    broker.deny("t")
    broker.produce(1)
    data = data_of(reader.answer(pending))
    assert data is not None
    assert data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.deny()
    assert Reader(broker, "b").take() == [(0, 0, 1)]


def test_an_answer_that_waits_ends_with_its_session(broker: ShareNode, reader: Reader) -> None:
    pending = reader.begin_wait()
    again = Reader(broker)
    again.fetch()
    broker.produce(1)
    assert refused(lambda: reader.answer(pending)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert again.take() == [(0, 0, 1)]


def test_a_session_that_has_ended_keeps_no_share_partition_in_use(broker: ShareNode, reader: Reader) -> None:
    """Its request that waited noted it again when its time was over, for ever."""
    pending = reader.begin_wait()
    again = Reader(broker)
    again.fetch()
    broker.pass_ms(WAIT_MS)
    assert refused(lambda: reader.answer(pending)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    again.close()
    assert broker.counts() == (0, 0, 1)


# --- a worker reads --------------------------------------------------------------------------------------------------


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in the page cache."""
    read = Partition.read

    def read_cold(self: Partition, offset: int, max_bytes: int, *more: Any, **named: Any) -> LogSlice:
        piece = read(self, offset, max_bytes, *more, **named)
        return LogSlice(None, piece.length, load=piece.read_blocking) if piece.length else piece

    monkeypatch.setattr(Partition, "read", read_cold)


@pytest.fixture
def workers() -> HeldWorkers:
    return HeldWorkers()


@pytest.fixture
def slow(workers: HeldWorkers, cold: None) -> ShareNode:
    broker = ShareNode(workers=workers)
    Reader(broker, "first").fetch()  # the topic of states is made
    workers.holds = True
    return broker


def work(broker: ShareNode, workers: HeldWorkers) -> None:
    while workers.jobs:
        workers.run_next()
        broker.node.settle()


def meanwhile(workers: HeldWorkers, change: Callable[[], object]) -> None:
    """Something changes, with workers of its own, while those that read are held."""
    jobs = list(workers.jobs)
    workers.jobs.clear()
    workers.holds = False
    change()
    workers.holds = True
    workers.jobs.extend(jobs)


def test_what_is_not_in_memory_is_read_by_a_worker(slow: ShareNode, workers: HeldWorkers) -> None:
    slow.produce(2)
    reader = Reader(slow)
    pending = reader.begin_fetch()
    slow.node.settle()
    assert not pending.done
    work(slow, workers)
    assert acquired(reader.answer(pending)) == [(0, 1, 1)]


def test_one_worker_at_a_time_reads_a_share_partition(slow: ShareNode, workers: HeldWorkers) -> None:
    slow.produce(1, 1)
    a, b = Reader(slow, "a"), Reader(slow, "b")
    first, second = a.begin_fetch(max_records=1), b.begin_wait(max_records=1)
    assert len(workers.jobs) == 1
    workers.run_next()
    slow.node.settle()
    assert (first.done, second.done) == (True, False)
    work(slow, workers)
    assert (acquired(a.answer(first)), acquired(b.answer(second))) == ([(0, 0, 1)], [(1, 1, 1)])


def test_records_are_not_acquired_for_a_session_that_ended_while_a_worker_read(
    slow: ShareNode, workers: HeldWorkers
) -> None:
    slow.produce(1)
    a, b = Reader(slow, "a"), Reader(slow, "b")
    gone = a.begin_fetch()
    slow.node.settle()
    a.peer.end()
    gone.cancel()
    work(slow, workers)
    pending = b.begin_fetch()
    work(slow, workers)
    assert acquired(b.answer(pending)) == [(0, 0, 1)]


def test_a_member_that_began_again_while_a_worker_read_gets_its_records_once(
    slow: ShareNode, workers: HeldWorkers
) -> None:
    slow.produce(1)
    gone = (before := Reader(slow)).begin_fetch()
    slow.node.settle()
    again = Reader(slow)
    pending = again.begin_wait()
    work(slow, workers)
    assert acquired(before.answer(gone)) == []
    assert acquired(again.answer(pending)) == [(0, 0, 1)]


def test_records_that_were_deleted_while_a_worker_read_them_are_not_given(
    slow: ShareNode, workers: HeldWorkers
) -> None:
    """With the records the list of their aborted transactions is deleted: they would be given as committed ones."""
    slow.produce(2, 1)
    reader = Reader(slow)
    pending = reader.begin_fetch()
    slow.node.settle()
    meanwhile(workers, lambda: delete_records_before(slow.node, 2))
    work(slow, workers)
    assert acquired(reader.answer(pending)) == []
    pending = reader.begin_fetch()
    work(slow, workers)
    assert acquired(reader.answer(pending)) == [(2, 2, 1)]


def test_what_a_worker_read_of_a_topic_that_is_gone_is_not_given(slow: ShareNode, workers: HeldWorkers) -> None:
    slow.produce(1)
    reader = Reader(slow)
    pending = reader.begin_fetch()
    slow.node.settle()
    meanwhile(workers, lambda: delete(slow.node, "t"))
    work(slow, workers)
    data = data_of(reader.answer(pending))
    assert data is not None
    assert data.error_code != ErrorCode.NONE
    assert data.acquired_records == []


def test_a_disk_that_fails_is_an_error_of_the_partition(
    slow: ShareNode, workers: HeldWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.produce(1)
    reader = Reader(slow)
    pending = reader.begin_fetch()

    def fails(self: LogSlice) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(LogSlice, "read_blocking", fails)
    work(slow, workers)
    data = data_of(reader.answer(pending))
    assert data is not None
    assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
