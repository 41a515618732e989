"""ShareFetch on a node without a loop: where a group begins, what a member gets, and what it may not have."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest
from kit.exchange import batch
from kit.nodes import partition_of
from kit.share_nodes import LOCK_MS, WAIT_MS, Reader, ShareNode, acquired, data_of
from kit.transactional import end_transaction, put_transactional

from ottla.broker.partitions.partition import Partition
from ottla.broker.security.quotas.request_quota import RequestQuota
from ottla.broker.share import share_fetch
from ottla.protocol.api.share_fetch import AcknowledgeType, AcquireMode
from ottla.protocol.errors import ErrorCode
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
    broker.produce_at(STAMP_MS, 1)
    broker.produce_at(STAMP_MS, 1)
    broker.clock.set_wall(STAMP_MS + 2 * HOUR_MS)
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


def test_records_are_given_once_it_is_durable_where_the_group_begins(broker: ShareNode) -> None:
    """Else a crash could let it begin elsewhere, after these records."""
    Reader(broker, partitions=(1,)).fetch()
    broker.produce(1)
    reader = Reader(broker, "b")
    pending = reader.begin_fetch()
    broker.turn()
    assert not pending.done
    assert acquired(reader.answer(pending)) == [(0, 0, 1)]


def test_it_is_durable_where_the_group_begins_though_the_first_member_is_gone() -> None:
    """Its fetch was not answered, but has begun the group's state, which another member finds."""
    broker = ShareNode(reset="latest")
    Reader(broker, partitions=(1,)).fetch()
    first, second = Reader(broker), Reader(broker, "b")
    first.begin_fetch()
    broker.turn()
    first.peer.end()
    pending = second.begin_fetch()
    broker.turn()
    assert not pending.done
    second.answer(pending)
    crashed = broker.crashed()
    crashed.produce(1)
    assert Reader(crashed).take() == [(0, 0, 1)]


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


def test_the_limit_of_bytes_is_over_all_partitions_and_allows_one_batch(broker: ShareNode) -> None:
    broker.produce(1, 1)
    broker.produce(1, 1, partition=1)
    size = len(batch())
    reader = Reader(broker, partitions=(0, 1))
    counts = []
    for limit in (size - 1, size + 1, 10 * size):
        response = reader.fetch(max_bytes=limit)
        counts.append(len(acquired(response, 0) + acquired(response, 1)))
    assert counts == [1, 1, 2]


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


def test_an_error_of_one_partition_keeps_no_records_of_another_back(broker: ShareNode) -> None:
    broker.produce(1)
    response = Reader(broker, partitions=(-1, 0, 2)).fetch(max_wait_ms=WAIT_MS)
    assert acquired(response, 0) == [(0, 0, 1)]
    codes = [data.error_code for data in (data_of(response, -1), data_of(response, 2)) if data is not None]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def test_a_batch_that_is_damaged_is_an_error_and_nothing_is_acquired(
    broker: ShareNode, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce(1)
    with monkeypatch.context() as patches:
        patches.setattr(Partition, "read", lambda *_, **__: LogSlice(memoryview(b"\xff" * 100), 100))
        assert error_of(reader) is ErrorCode.CORRUPT_MESSAGE
    assert reader.take() == [(0, 0, 1)]


def test_a_session_of_very_many_partitions_reads_others_with_each_request(
    broker: ShareNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_fetch, "PARTITIONS_PER_LOOK", 1)
    broker.produce(1)
    broker.produce(1, partition=1)
    reader = Reader(broker, partitions=(0, 1))
    first, second = reader.fetch(), reader.fetch()
    assert acquired(first, 0) + acquired(second, 0) == acquired(first, 1) + acquired(second, 1) == [(0, 0, 1)]
    assert bool(data_of(first, 0)) != bool(data_of(first, 1))


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
