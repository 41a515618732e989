"""ShareFetch on a node without a loop: what a member gets, when, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest
from kit.nodes import partition_of
from kit.share_nodes import LOCK_MS, WAIT_MS, Reader, ShareNode, acquired, data_of
from kit.topics import delete
from kit.transactional import end_transaction, put_transactional
from kit.workers import HeldWorkers

from ottla.broker.partitions.partition import Partition
from ottla.broker.peer import Peer
from ottla.broker.security.quotas.request_quota import RequestQuota
from ottla.protocol.api.share_fetch import AcknowledgeType, AcquireMode, ShareFetchRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.control import ControlType
from ottla.storage.segment.slice import LogSlice

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
HOUR_MS = 3_600_000
STAMP_MS = 1_700_000_000_000


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


def error_of(reader: Reader, partition: int = 0, **fields: Any) -> ErrorCode:
    """The code that a ShareFetch has for a partition."""
    data = data_of(reader.fetch(**fields), partition)
    assert data is not None
    assert data.acquired_records == []
    return ErrorCode.of(data.error_code)


# --- where a group begins --------------------------------------------------------------------------------------------


def test_a_group_begins_at_the_end_unless_it_says_otherwise() -> None:
    broker = ShareNode(reset="latest")
    broker.produce(3)
    reader = Reader(broker)
    assert reader.take() == []
    broker.produce(2)
    assert reader.take() == [(3, 4, 1)]


def test_a_group_may_begin_with_the_first_record_that_is_in_the_log(broker: ShareNode, reader: Reader) -> None:
    broker.produce(3, 3)
    partition_of(broker.node, "t").log.delete_records(2)
    assert reader.take() == [(2, 2, 1), (3, 5, 1)]


@pytest.mark.parametrize(("reset", "first_offset"), [("by_duration:PT1H", 2), ("by_duration:PT3H", 0)])
def test_a_group_may_begin_with_the_records_of_the_last_hour(reset: str, first_offset: int) -> None:
    broker = ShareNode(reset=reset)
    broker.clock.set_wall(STAMP_MS)
    broker.produce(1, 1)
    broker.clock.set_wall(STAMP_MS + 2 * HOUR_MS)
    found = partition_of(broker.node, "t")
    assert found.high_watermark == 2
    broker.produce_at(STAMP_MS + 2 * HOUR_MS, 1)
    assert Reader(broker).take()[0][0] == first_offset


def test_where_no_record_is_young_enough_a_group_begins_at_the_end() -> None:
    broker = ShareNode(reset="by_duration:PT1S")
    broker.produce(2)
    broker.clock.set_wall(STAMP_MS + HOUR_MS)
    assert Reader(broker).take() == []
    state = broker.state()
    assert state is not None
    assert state.start_offset == 2


def test_where_a_group_began_counts_after_a_restart(broker: ShareNode) -> None:
    broker = ShareNode(reset="latest")
    broker.produce(3)
    Reader(broker).fetch()
    broker.produce(2)
    again = broker.restarted()
    assert Reader(again).take() == [(3, 4, 1)]


# --- records ---------------------------------------------------------------------------------------------------------


def test_the_answer_has_the_batches_of_what_was_acquired_and_no_more(broker: ShareNode, reader: Reader) -> None:
    broker.produce(2, 2, 2)
    response = reader.fetch(max_records=3)
    data = data_of(response)
    assert data is not None
    assert acquired(response) == [(0, 1, 1), (2, 3, 1)]
    assert [header.base_offset for _, header in iter_batches(data.records or b"")] == [0, 2]
    assert response.acquisition_lock_timeout_ms == LOCK_MS


def test_under_a_record_limit_no_more_records_are_given(broker: ShareNode, reader: Reader) -> None:
    broker.produce(4)
    limit = {"max_records": 3, "share_acquire_mode": AcquireMode.RECORD_LIMIT}
    assert reader.take(**limit) == [(0, 2, 1)]
    assert reader.take(**limit) == [(3, 3, 1)]


def test_the_limit_of_records_is_over_all_partitions(broker: ShareNode) -> None:
    broker.produce(2)
    broker.produce(2, partition=1)
    reader = Reader(broker, partitions=(0, 1))
    limit = {"max_records": 3, "share_acquire_mode": AcquireMode.RECORD_LIMIT}
    first = reader.fetch(**limit)
    assert sorted(acquired(first, 0) + acquired(first, 1)) == [(0, 0, 1), (0, 1, 1)]
    assert len(acquired(second := reader.fetch(**limit), 0) + acquired(second, 1)) == 1


def test_small_batches_come_as_entries_of_the_batch_size(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1, 1, 1, 1, 1)
    assert reader.take(batch_size=2) == [(0, 1, 1), (2, 3, 1), (4, 4, 1)]


def test_no_more_records_are_in_flight_than_the_group_allows(broker: ShareNode, reader: Reader) -> None:
    broker.set("share.partition.max.record.locks", "2")
    broker.produce(1, 1, 1)
    assert reader.take(max_records=2) == [(0, 0, 1), (1, 1, 1)]
    assert reader.take() == []
    assert reader.take((0, 1, [ACCEPT])) == [(2, 2, 1)]


def test_no_member_gets_what_another_one_has(broker: ShareNode) -> None:
    broker.produce(1, 1, 1)
    a, b = Reader(broker, "a"), Reader(broker, "b")
    assert a.take(max_records=2) == [(0, 0, 1), (1, 1, 1)]
    assert b.take() == [(2, 2, 1)]
    assert a.take() == []


def test_groups_do_not_know_of_each_other(broker: ShareNode) -> None:
    broker.set("share.auto.offset.reset", "earliest", group="h")
    broker.produce(2)
    assert Reader(broker, group="g").take() == Reader(broker, group="h").take() == [(0, 1, 1)]


def test_a_record_that_was_delivered_as_often_as_it_may_be_comes_no_more(broker: ShareNode, reader: Reader) -> None:
    broker.set("share.delivery.count.limit", "2")
    broker.produce(1, 1)
    assert reader.take(max_records=1) == [(0, 0, 1)]
    assert reader.take((0, 0, [RELEASE]), max_records=1) == [(0, 0, 2)]
    assert reader.take((0, 0, [RELEASE]), max_records=1) == [(1, 1, 1)]


def test_records_that_are_deleted_meanwhile_are_passed_over(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1, 1, 1)
    assert reader.take(max_records=1) == [(0, 0, 1)]
    partition_of(broker.node, "t").log.delete_records(2)
    assert reader.take() == [(2, 2, 1)]
    assert reader.take((0, 2, [ACCEPT, GAP, ACCEPT])) == []


# --- acknowledgements with a fetch -----------------------------------------------------------------------------------


def test_what_is_acknowledged_is_answered_when_it_is_durable_and_not_before(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1, 1)
    reader.take(max_records=1)
    pending = reader.begin_fetch((0, 0, [ACCEPT]))
    broker.turn()
    assert not pending.done
    assert acquired(reader.answer(pending)) == [(1, 1, 1)]
    again = broker.crashed()
    assert Reader(again).take() == [(1, 1, 1)]


def test_what_was_delivered_and_not_acknowledged_comes_again_after_a_crash(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1, 1)
    assert reader.take() == [(0, 0, 1), (1, 1, 1)]
    again = broker.crashed()
    assert Reader(again).take() == [(0, 0, 1), (1, 1, 1)], "an acquisition is not written"


def test_a_partition_that_was_only_acknowledged_is_in_the_answer(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1)
    reader.take()
    data = data_of(reader.fetch((0, 0, [ACCEPT])))
    assert data is not None
    assert (data.error_code, data.acknowledge_error_code, data.acquired_records) == (0, 0, [])


def test_a_wrong_acknowledgement_does_not_wait_and_changes_nothing(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1)
    reader.take()
    data = data_of(reader.answer(reader.begin_fetch((0, 3, [ACCEPT]), max_wait_ms=WAIT_MS)))
    assert data is not None
    assert data.acknowledge_error_code == ErrorCode.INVALID_REQUEST
    assert reader.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE


def test_acknowledgements_of_a_partition_that_is_named_twice_all_count(broker: ShareNode, reader: Reader) -> None:
    """Those that came first were dropped, and answered as if they counted."""
    broker.produce(1, 1)
    reader.take()
    request = reader.fetch_request((0, 0, [ACCEPT]))
    request.topics[0].partitions.extend(reader.fetch_request((1, 1, [ACCEPT])).topics[0].partitions)
    reader.fetch(topics=request.topics)
    state = broker.state()
    assert state is not None
    assert state.start_offset == 2


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


# --- sessions --------------------------------------------------------------------------------------------------------


def test_the_partitions_of_a_session_are_named_once(broker: ShareNode) -> None:
    reader = Reader(broker, partitions=(0, 1))
    reader.fetch()
    broker.produce(1)
    broker.produce(1, partition=1)
    response = reader.fetch()
    assert acquired(response, 0) == acquired(response, 1) == [(0, 0, 1)]


def test_a_partition_that_is_forgotten_is_not_read(broker: ShareNode) -> None:
    reader = Reader(broker, partitions=(0, 1))
    reader.fetch()
    broker.produce(1)
    broker.produce(1, partition=1)
    forgotten = [ShareFetchRequest.ForgottenTopic(topic_id=reader.topic_id, partitions=[0])]
    response = reader.fetch(forgotten_topics_data=forgotten)
    assert (acquired(response, 0), acquired(response, 1)) == ([], [(0, 0, 1)])


@pytest.mark.parametrize("epoch", [1, 3, 77])
def test_an_epoch_out_of_turn_is_refused_and_the_session_goes_on(reader: Reader, epoch: int) -> None:
    reader.fetch()
    reader.fetch()
    request = reader.fetch_request(share_session_epoch=epoch)
    refusal = reader.broker.begin(request, 2, reader.peer)
    assert refused(lambda: reader.answer(refusal)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    reader.fetch()


def test_without_a_session_a_later_epoch_is_refused(reader: Reader) -> None:
    reader.epoch = 5
    assert refused(reader.fetch) is ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize(("group", "member_id"), [("", "a"), ("g", "")])
def test_group_and_member_are_needed(broker: ShareNode, group: str, member_id: str) -> None:
    assert refused(Reader(broker, member_id, group=group).fetch) is ErrorCode.INVALID_REQUEST


def test_a_new_session_has_nothing_to_acknowledge(reader: Reader) -> None:
    assert refused(lambda: reader.fetch((0, 0, [ACCEPT]))) is ErrorCode.INVALID_REQUEST


def test_a_new_session_ends_the_one_before_and_keeps_what_it_had_until_it_ends(
    broker: ShareNode, reader: Reader
) -> None:
    broker.produce(1)
    reader.take()
    again = Reader(broker)
    assert again.take() == []
    again.epoch = -1
    again.fetch()
    assert Reader(broker, "b").take() == [(0, 0, 2)]


def test_the_final_epoch_acknowledges_releases_the_rest_and_reads_nothing(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1, 1, 1)
    reader.take(max_records=2)
    reader.epoch = -1
    data = data_of(reader.fetch((0, 0, [ACCEPT])))
    assert data is not None
    assert (data.acknowledge_error_code, data.acquired_records) == (0, [])
    assert broker.counts() == (0, 0, 1)
    assert Reader(broker, "b").take() == [(1, 1, 2), (2, 2, 1)]


def test_the_end_of_a_connection_releases_what_its_member_had(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1)
    reader.take()
    waiting = (other := Reader(broker, "b")).begin_wait()
    reader.peer.end()
    broker.node.settle()
    assert acquired(other.answer(waiting)) == [(0, 0, 2)]


def test_the_end_of_an_older_connection_leaves_the_session_alone(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1)
    reader.take()
    before, reader.peer = reader.peer, Peer()
    reader.fetch()
    before.end()
    assert reader.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE


def test_no_more_sessions_are_kept_than_the_broker_allows() -> None:
    broker = ShareNode(group_share_max_share_sessions=2)
    a, b = Reader(broker, "a"), Reader(broker, "b")
    a.fetch()
    b.fetch()
    assert refused(Reader(broker, "c").fetch) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    Reader(broker, "a").fetch()
    b.close()
    Reader(broker, "c").fetch()


def test_a_share_partition_that_no_session_has_is_forgotten_and_its_state_is_not(
    broker: ShareNode, reader: Reader
) -> None:
    broker.produce(1, 1)
    reader.take(max_records=1)
    reader.acknowledge((0, 0, [ACCEPT]))
    reader.close()
    assert broker.counts() == (0, 0, 1)
    assert Reader(broker, "b").take() == [(1, 1, 1)]


# --- renewing --------------------------------------------------------------------------------------------------------


def test_a_member_may_have_more_time_with_a_record(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1)
    reader.take()
    broker.pass_ms(LOCK_MS - 1)
    assert reader.take((0, 0, [RENEW]), is_renew_ack=True) == []
    broker.pass_ms(LOCK_MS - 1)
    assert reader.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE


@pytest.mark.parametrize("limit", ["max_records", "max_bytes", "min_bytes", "max_wait_ms"])
def test_a_request_that_renews_may_acquire_nothing(broker: ShareNode, reader: Reader, limit: str) -> None:
    broker.produce(1)
    reader.take()
    renewing: dict[str, Any] = {"is_renew_ack": True, limit: 1}
    assert refused(lambda: reader.fetch((0, 0, [RENEW]), **renewing)) is ErrorCode.INVALID_REQUEST
    reader.epoch = 1
    reader.fetch()


@pytest.mark.parametrize("says_so", [True, False])
def test_records_are_renewed_only_where_request_and_group_allow_it(
    broker: ShareNode, reader: Reader, says_so: bool
) -> None:
    if says_so:
        broker.set("share.renew.acknowledge.enable", "false")
    broker.produce(1)
    reader.take()
    data = data_of(reader.fetch((0, 0, [RENEW]), is_renew_ack=says_so))
    assert data is not None
    assert data.acknowledge_error_code == ErrorCode.INVALID_REQUEST


# --- committed records -----------------------------------------------------------------------------------------------


def test_records_of_an_open_transaction_wait_for_its_end(broker: ShareNode, reader: Reader) -> None:
    broker.set("share.isolation.level", "read_committed")
    partition = partition_of(broker.node, "t")
    put_transactional(partition, 7)
    pending = reader.begin_wait()
    end_transaction(partition, 7, ControlType.COMMIT)
    broker.node.settle()
    assert acquired(reader.answer(pending))[0] == (0, 0, 1)


def test_aborted_records_are_not_delivered_to_a_group_that_reads_committed_ones(
    broker: ShareNode, reader: Reader
) -> None:
    broker.set("share.isolation.level", "read_committed")
    partition = partition_of(broker.node, "t")
    put_transactional(partition, 7, 2)
    put_transactional(partition, 8, 1)
    end_transaction(partition, 7, ControlType.ABORT)
    end_transaction(partition, 8, ControlType.COMMIT)
    broker.produce(1)
    put_transactional(partition, 7, 1)
    end_transaction(partition, 7, ControlType.COMMIT)
    broker.node.settle()
    offsets = {offset for first, last, _ in reader.take() for offset in range(first, last + 1)}
    assert offsets.isdisjoint({0, 1}), "they are aborted"
    assert {2, 5, 6} <= offsets, "of another producer, of none, and of the same one later"


def test_a_group_that_reads_everything_gets_aborted_and_open_records(broker: ShareNode, reader: Reader) -> None:
    partition = partition_of(broker.node, "t")
    put_transactional(partition, 7)
    end_transaction(partition, 7, ControlType.ABORT)
    broker.node.settle()
    put_transactional(partition, 7)
    broker.node.settle()
    assert [first for first, _, _ in reader.take()] == [0, 1, 2]


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


def test_what_a_worker_read_of_a_topic_that_is_gone_is_not_given(slow: ShareNode, workers: HeldWorkers) -> None:
    slow.produce(1)
    reader = Reader(slow)
    pending = reader.begin_fetch()
    slow.node.settle()
    workers.holds = False
    jobs = list(workers.jobs)
    workers.jobs.clear()
    delete(slow.node, "t")
    workers.jobs.extend(jobs)
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


# --- errors and rights -----------------------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist_is_an_error_at_once(broker: ShareNode, reader: Reader) -> None:
    reader.topic_id = UUID(int=99)
    assert error_of(reader, max_wait_ms=WAIT_MS) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_partition_that_does_not_exist_is_an_error_at_once(broker: ShareNode) -> None:
    reader = Reader(broker, partitions=(2,))
    assert error_of(reader, 2, max_wait_ms=WAIT_MS) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_may_not_be_read_is_refused_and_no_state_is_made(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1)
    broker.deny("t")
    assert error_of(reader) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.counts() == (1, 0, 0)


def test_a_right_that_is_taken_away_counts_from_the_next_request_on(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1)
    reader.take()
    broker.deny("t")
    data = data_of(reader.fetch((0, 0, [ACCEPT])))
    assert data is not None
    assert data.error_code == data.acknowledge_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.deny()
    assert reader.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE


# --- quotas ----------------------------------------------------------------------------------------------------------


class Quota:
    """Allows so many bytes in one answer, and asks for them once."""

    def __init__(self, most_bytes: int, *, allows: bool = True) -> None:
        self.most_bytes = most_bytes
        self.allows = allows
        self.charged: list[int] = []

    def fetch_bytes(self, most_bytes: int) -> int:
        return min(most_bytes, self.most_bytes)

    def may_fetch(self, size_bytes: int) -> bool:
        self.charged.append(size_bytes)
        return self.allows


def test_no_more_is_read_than_the_quota_could_ever_allow(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1, 1, 1)
    quota = Quota(200)
    reader.quota = cast("RequestQuota", quota)
    taken = reader.take()
    assert 0 < len(taken) < 3
    assert len(quota.charged) == 1
    assert 0 < quota.charged[0] <= 200


def test_over_its_quota_a_member_gets_no_record_and_others_do(broker: ShareNode, reader: Reader) -> None:
    broker.produce(1)
    reader.quota = cast("RequestQuota", Quota(1_000, allows=False))
    assert reader.take() == []
    assert Reader(broker, "b").take() == [(0, 0, 1)]


def test_an_empty_answer_costs_no_bytes(broker: ShareNode, reader: Reader) -> None:
    quota = Quota(1_000)
    reader.quota = cast("RequestQuota", quota)
    reader.fetch()
    assert quota.charged == []
