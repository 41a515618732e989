"""The sessions of ShareFetch on a node without a loop: epochs, connections, limits, and records that are renewed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.share_nodes import LOCK_MS, Reader, ShareNode, acquired, data_of

from ottla.broker.peer import Peer
from ottla.protocol.api.share_fetch import AcknowledgeType, ShareFetchRequest
from ottla.protocol.errors import ErrorCode, KafkaError

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
    code = ErrorCode.INVALID_RECORD_STATE if says_so else ErrorCode.INVALID_REQUEST
    assert data.acknowledge_error_code == code
