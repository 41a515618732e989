"""ShareAcknowledge on a node without a loop: what counts, when it is answered, and what a crash leaves."""

from __future__ import annotations

import errno
from collections.abc import Callable
from uuid import UUID

import pytest
from kit.share_nodes import LOCK_MS, Reader, ShareNode

from ottla.broker.share.deliveries import RecordState, StateBatch
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode, KafkaError

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
STATE_FILES = "*/__share_group_state-0/*"


@pytest.fixture
def broker() -> ShareNode:
    """Ten records, of which no member has any."""
    broker = ShareNode()
    broker.produce(*[1] * 10)
    return broker


@pytest.fixture
def reader(broker: ShareNode) -> Reader:
    """It has all ten."""
    reader = Reader(broker)
    assert len(reader.take()) == 10
    return reader


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code


def stored(broker: ShareNode) -> tuple[int, list[StateBatch]]:
    state = broker.state()
    assert state is not None
    return state.start_offset, list(state.batches)


# --- what counts -----------------------------------------------------------------------------------------------------


def test_each_type_has_its_effect_and_all_of_it_is_stored(broker: ShareNode, reader: Reader) -> None:
    said = [(0, 1, [ACCEPT]), (2, 2, [RELEASE]), (3, 6, [REJECT, GAP, RELEASE, ACCEPT])]
    assert reader.acknowledge(*said) is ErrorCode.NONE
    assert stored(broker) == (
        2,
        [
            StateBatch(2, 2, RecordState.AVAILABLE, 1),
            StateBatch(3, 4, RecordState.ARCHIVED, 1),
            StateBatch(5, 5, RecordState.AVAILABLE, 1),
            StateBatch(6, 6, RecordState.ACKNOWLEDGED, 1),
        ],
    )
    assert Reader(broker, "b").take() == [(2, 2, 2), (5, 5, 2)]


def test_the_answer_says_how_long_records_are_kept_for_a_member(broker: ShareNode, reader: Reader) -> None:
    broker.set("share.record.lock.duration.ms", "20000")
    request = reader.acknowledge_request((0, 0, [ACCEPT]))
    answer = broker.answer(broker.begin(request, 2, reader.peer), ShareAcknowledgeResponse, 2)
    assert answer.acquisition_lock_timeout_ms == 20_000


def test_no_batch_changes_nothing_and_has_no_answer(broker: ShareNode, reader: Reader) -> None:
    before = stored(broker)
    answer = broker.answer(reader.begin_acknowledge(), ShareAcknowledgeResponse, 2)
    assert answer.responses == []
    assert stored(broker) == before


def test_what_needs_no_acknowledgement_any_more_is_no_error(broker: ShareNode, reader: Reader) -> None:
    reader.acknowledge((0, 3, [ACCEPT]))
    assert reader.acknowledge((0, 4, [ACCEPT])) is ErrorCode.NONE
    assert stored(broker)[0] == 5


def test_partitions_are_answered_one_by_one(broker: ShareNode) -> None:
    broker.produce(1, partition=1)
    reader = Reader(broker, partitions=(0, 1))
    reader.fetch()
    wrong = reader.acknowledge_request((0, 10, [ACCEPT])).topics[0].partitions
    right = reader.acknowledge_request((0, 0, [ACCEPT]), partition=1).topics[0].partitions
    topic = ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=reader.topic_id, partitions=[*wrong, *right])
    request = reader.acknowledge_request(topics=[topic])
    answer = broker.answer(broker.begin(request, 2, reader.peer), ShareAcknowledgeResponse, 2)
    codes = [(one.partition_index, ErrorCode.of(one.error_code)) for one in answer.responses[0].partitions]
    assert codes == [(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.NONE)]
    state = broker.state(1)
    assert state is not None
    assert state.start_offset == 1
    assert stored(broker)[0] == 0


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ((0, 10, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        ((10, 10, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        ((1, 0, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        ((0, 1, [ACCEPT, ACCEPT, ACCEPT]), ErrorCode.INVALID_REQUEST),
        ((0, 0, [7]), ErrorCode.INVALID_REQUEST),
        ((0, 0, []), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    broker: ShareNode, reader: Reader, said: tuple[int, int, list[int]], code: ErrorCode
) -> None:
    before = stored(broker)
    assert reader.acknowledge(said) is code
    assert stored(broker) == before
    assert reader.acknowledge((0, 9, [ACCEPT])) is ErrorCode.NONE


def test_a_member_does_not_speak_for_another_one(broker: ShareNode, reader: Reader) -> None:
    other = Reader(broker, "b")
    other.fetch()
    assert other.acknowledge((0, 0, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    assert reader.acknowledge((0, 9, [ACCEPT])) is ErrorCode.NONE


def test_what_took_too_long_is_not_acknowledged_any_more(broker: ShareNode, reader: Reader) -> None:
    broker.pass_ms(LOCK_MS)
    assert reader.acknowledge((0, 9, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    assert stored(broker) == (0, [StateBatch(0, 9, RecordState.AVAILABLE, 1)]), "a time-out counts a delivery"


def test_of_a_partition_that_no_member_reads_nothing_is_acquired(broker: ShareNode, reader: Reader) -> None:
    assert reader.acknowledge((0, 0, [ACCEPT]), partition=1) is ErrorCode.INVALID_RECORD_STATE


def test_a_topic_that_does_not_exist_or_may_not_be_read_is_refused(broker: ShareNode, reader: Reader) -> None:
    known, reader.topic_id = reader.topic_id, UUID(int=99)
    assert reader.acknowledge((0, 0, [ACCEPT])) is ErrorCode.UNKNOWN_TOPIC_ID
    reader.topic_id = known
    assert reader.acknowledge((0, 0, [ACCEPT]), partition=5) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.deny("t")
    assert reader.acknowledge((0, 0, [ACCEPT])) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.deny()
    assert reader.acknowledge((0, 9, [ACCEPT])) is ErrorCode.NONE


@pytest.mark.parametrize("request_allows", [True, False])
def test_records_are_renewed_only_where_request_and_group_allow_it(
    broker: ShareNode, reader: Reader, request_allows: bool
) -> None:
    if request_allows:
        broker.set("share.renew.acknowledge.enable", "false")
    code = ErrorCode.INVALID_RECORD_STATE if request_allows else ErrorCode.INVALID_REQUEST
    assert reader.acknowledge((0, 0, [RENEW]), is_renew_ack=request_allows) is code


def test_renewed_records_may_be_acknowledged_later_than_the_others(broker: ShareNode, reader: Reader) -> None:
    broker.pass_ms(LOCK_MS // 2)
    assert reader.acknowledge((0, 1, [RENEW]), is_renew_ack=True) is ErrorCode.NONE
    broker.pass_ms(LOCK_MS // 2)
    assert reader.acknowledge((2, 2, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    assert reader.acknowledge((0, 1, [ACCEPT])) is ErrorCode.NONE
    assert stored(broker)[0] == 2


# --- sessions --------------------------------------------------------------------------------------------------------


def test_an_acknowledgement_opens_no_session(reader: Reader) -> None:
    reader.epoch = 0
    assert refused(lambda: reader.acknowledge((0, 0, [ACCEPT]))) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_epochs_are_those_of_the_session_that_fetches(reader: Reader) -> None:
    assert reader.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE
    reader.fetch()
    reader.epoch -= 1
    assert refused(lambda: reader.acknowledge((1, 1, [ACCEPT]))) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    reader.epoch = 3
    assert reader.acknowledge((1, 1, [ACCEPT])) is ErrorCode.NONE


def test_without_a_session_nothing_is_acknowledged(broker: ShareNode, reader: Reader) -> None:
    reader.member_id = "b"
    assert refused(lambda: reader.acknowledge((0, 0, [ACCEPT]))) is ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize(("group", "member_id"), [("", "a"), ("g", ""), ("g", "m" * 37)])
def test_group_and_member_are_needed(reader: Reader, group: str, member_id: str) -> None:
    reader.group, reader.member_id = group, member_id
    assert refused(lambda: reader.acknowledge((0, 0, [ACCEPT]))) is ErrorCode.INVALID_REQUEST
    assert refused(lambda: reader.answer(reader.begin_fetch())) is ErrorCode.INVALID_REQUEST


def test_the_longest_member_id_is_good(reader: Reader) -> None:
    reader.member_id = "m" * 36
    assert refused(lambda: reader.acknowledge((0, 0, [ACCEPT]))) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_the_final_epoch_acknowledges_and_releases_the_rest(broker: ShareNode, reader: Reader) -> None:
    reader.epoch = -1
    assert reader.acknowledge((0, 7, [ACCEPT])) is ErrorCode.NONE
    assert broker.counts() == (0, 0, 1)
    assert stored(broker) == (8, [StateBatch(8, 9, RecordState.AVAILABLE, 1)])


# --- durable ---------------------------------------------------------------------------------------------------------


def test_the_answer_leaves_once_it_is_durable_and_not_before(broker: ShareNode, reader: Reader) -> None:
    pending = reader.begin_acknowledge((0, 8, [ACCEPT]))
    broker.turn()
    assert not pending.done
    broker.answer(pending, ShareAcknowledgeResponse, 2)
    assert Reader(broker.crashed()).take() == [(9, 9, 1)]


@pytest.mark.parametrize("seed", range(4))
def test_what_was_not_answered_counts_in_whole_or_not_at_all(broker: ShareNode, reader: Reader, seed: int) -> None:
    reader.acknowledge((0, 1, [ACCEPT]))
    pending = reader.begin_acknowledge((2, 8, [ACCEPT]))
    broker.turn()
    assert not pending.done
    assert Reader(broker.crashed(seed)).take()[0] in [(2, 2, 1), (9, 9, 1)]


def test_deliveries_are_counted_over_a_restart(broker: ShareNode, reader: Reader) -> None:
    reader.acknowledge((0, 9, [RELEASE]))
    broker = broker.restarted()
    assert Reader(broker).take() == [(offset, offset, 2) for offset in range(10)]


@pytest.mark.parametrize(("call", "code"), [("pwritev", errno.ENOSPC), ("fdatasync", errno.EIO)], ids=["full", "fails"])
def test_what_the_disk_does_not_take_is_an_error_and_comes_again(
    broker: ShareNode, reader: Reader, call: str, code: int
) -> None:
    reader.acknowledge((0, 0, [ACCEPT]))
    broker.files.fail(call, f"{STATE_FILES}|*/ottla-redo.log", error=code, times=None)
    assert refused(lambda: reader.acknowledge((1, 9, [ACCEPT]))) in (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
    broker.files.heal()
    first_offsets = [first_offset for first_offset, _, _ in Reader(broker.restarted()).take()]
    assert first_offsets == [*range(1, 10)] or (code == errno.EIO and first_offsets == []), "in whole or not at all"
