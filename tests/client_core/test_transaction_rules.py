"""The rules of a transactional producer's state, one by one."""

from __future__ import annotations

import math

import pytest
from kit.transaction_model import ModelPartition, TransactionModel
from kit.transactional_producer import BACKOFF, PLACES, Producer, started

from ottla.client_core.partition_queue import NO_IDENTITY, ProducerIdentity
from ottla.client_core.transaction_questions import Offsets, Step
from ottla.client_core.transaction_verdicts import AbortableTransactionError, FatalTransactionError
from ottla.client_core.transactions import Phase, Transactions
from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdResponse
from ottla.protocol.errors import ErrorCode, KafkaError


def opened(version=2, **options):
    producer = started(version, **options)
    producer.begin()
    return producer


def steps_of(producer, count=10):
    """The steps that are asked for until there is nothing to ask."""
    steps = []
    for _ in range(count):
        producer.look()
        question = producer.state.next_question(producer.now)
        if question is None:
            break
        version = min(producer.versions.get(question.step, 5), question.at_most)
        steps.append((question.step, version))
        producer.state.sent(question)
        producer.state.answered(question, producer.model.answer(question.make(version)), version, producer.now)
        producer.send()
        producer.deliver()
    return steps


def test_in_the_new_protocol_only_the_end_is_asked_for_and_gives_the_next_epoch():
    producer = opened(version=2)
    producer.put(("t", 0), [b"v"])
    producer.send()
    producer.deliver()
    producer.state.commit()
    assert steps_of(producer) == [(Step.END, 5)]
    assert producer.state.identity == ProducerIdentity(1, 1)
    assert producer.model.partitions["t", 0].visible == [b"v"]


def test_in_the_old_protocol_partitions_and_groups_are_added_first():
    producer = opened(version=1)
    producer.put(("t", 0), [b"v"])
    producer.send()
    assert not producer.requests  # held back until the partition is part of the transaction
    producer.state.send_offsets(Offsets("g", {("in", 0): (7, "", -1)}))
    producer.state.commit()
    assert steps_of(producer) == [
        (Step.ADD_PARTITIONS, 3),
        (Step.ADD_OFFSETS, 4),
        (Step.COMMIT_OFFSETS, 4),
        (Step.END, 4),
    ]
    assert producer.state.identity == ProducerIdentity(1, 0)
    assert producer.model.committed == {("in", 0): 7}


def test_a_partition_that_is_new_while_others_are_added_is_added_next():
    producer = opened(version=1)
    producer.put(("t", 0), [b"v"])
    question = producer.state.next_question(0.0)
    producer.put(("t", 1), [b"w"])
    producer.state.answered(question, producer.model.answer(question.make(3)), 3, 0.0)
    assert [producer.state.may_write(*place) for place in PLACES] == [True, False]
    assert steps_of(producer, 1) == [(Step.ADD_PARTITIONS, 3)]
    assert [producer.state.may_write(*place) for place in PLACES] == [True, True]


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_without_anything_ends_without_a_question(version):
    producer = opened(version)
    producer.state.commit()
    assert steps_of(producer) == []
    assert producer.state.phase is Phase.READY
    producer.begin()
    producer.abort()
    assert steps_of(producer) == []
    assert producer.state.phase is Phase.READY


def test_after_a_failure_the_old_protocol_raises_the_epoch_behind_the_abort():
    producer = opened(version=1)
    producer.put(("t", 0), [b"v"])
    producer.ask()
    producer.send()
    producer.deliver(ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(AbortableTransactionError) as failed:
        producer.state.commit()
    assert failed.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert isinstance(failed.value.__cause__, KafkaError)
    producer.abort()
    assert [step for step, _ in steps_of(producer)] == [Step.END, Step.INITIALIZE]
    assert producer.state.identity == ProducerIdentity(1, 1)


def test_a_broker_that_cannot_raise_epochs_ends_a_producer_after_a_failure():
    partitions = {place: ModelPartition(leader=1) for place in PLACES}
    producer = Producer(TransactionModel(partitions, 0))
    producer.versions[Step.INITIALIZE] = 2
    producer.finish()
    producer.begin()
    producer.put(("t", 0), [b"v"])
    producer.ask()
    producer.send()
    producer.deliver(ErrorCode.MESSAGE_TOO_LARGE)
    producer.abort()
    producer.finish()
    with pytest.raises(FatalTransactionError, match=r"before Kafka 2\.5"):
        producer.begin()


def test_batches_given_up_by_an_abort_count_for_no_other_epoch():
    producer = opened(version=1)
    producer.put(("t", 0), [b"v"])
    producer.ask()
    producer.send()
    producer.abort()  # with a batch under way
    assert producer.state.next_question(0.0) is None  # which is waited for
    producer.deliver()
    assert [step for step, _ in steps_of(producer)] == [Step.END, Step.INITIALIZE]


def test_what_may_not_have_begun_is_aborted_without_a_complaint():
    producer = opened(version=1)
    producer.put(("t", 0), [b"v"])
    producer.ask(is_seen=False)  # AddPartitionsToTxn, lost on its way
    producer.abort()
    producer.now += 10
    assert [step for step, _ in steps_of(producer)] == [Step.END]
    assert producer.state.phase is Phase.READY


def test_an_end_whose_answer_was_lost_is_asked_for_again():
    producer = opened(version=2)
    producer.put(("t", 0), [b"v"])
    producer.send()
    producer.deliver()
    producer.state.commit()
    producer.ask(is_answered=False)
    assert producer.state.phase is Phase.COMMITTING
    producer.now += 10
    assert steps_of(producer) == [(Step.END, 5)]
    assert producer.state.phase is Phase.READY
    assert producer.model.partitions["t", 0].visible == [b"v"]


def test_another_protocol_begins_under_another_epoch():
    producer = opened(version=1)
    producer.state.commit()
    producer.finish()
    producer.model.version = 2
    assert not producer.state.speak(2)
    assert [step for step, _ in steps_of(producer)] == [Step.INITIALIZE]
    assert producer.state.speak(2)
    assert not producer.state.is_old


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_a_producer_id_that_the_coordinator_forgot_is_asked_for_anew(code):
    producer = opened(version=1)
    producer.put(("t", 0), [b"v"])
    producer.ask(code)
    assert producer.state.phase is Phase.FAILED
    producer.abort()
    question = producer.state.next_question(0.0) or (producer.look(), producer.state.next_question(0.0))[1]
    assert question.step is Step.INITIALIZE
    assert (question.make(5).producer_id, question.make(5).producer_epoch) == (1, 0)
    assert question.make(2).producer_id == -1


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_is_at_its_end(code):
    producer = opened(version=2)
    producer.put(("t", 0), [b"v"])
    producer.send()
    producer.deliver()
    producer.state.commit()
    producer.ask(code)
    for refused in (producer.state.begin, producer.state.commit, producer.state.abort, producer.state.refuse_records):
        with pytest.raises(FatalTransactionError) as ended:
            refused()
        assert ended.value.code is ErrorCode.PRODUCER_FENCED


def test_an_old_epoch_in_a_produce_is_aborted_and_the_abort_tells_who_is_fenced():
    producer = opened(version=2)
    producer.put(("t", 0), [b"v"])
    producer.send()
    producer.deliver()
    producer.model.time_out()
    producer.put(("t", 0), [b"w"])
    producer.send()
    producer.deliver()
    assert producer.state.phase is Phase.FAILED
    producer.abort()
    producer.finish()
    assert producer.state.phase is Phase.ENDED


def test_an_unknown_member_ends_the_transaction_and_not_the_producer():
    producer = opened(version=2)
    producer.state.send_offsets(Offsets("g", {("in", 0): (7, "", -1)}, generation=3, member_id="m"))
    question = producer.state.next_question(0.0)
    assert question.group_id == "g"
    asked = question.make(5)
    assert (asked.generation_id_or_member_epoch, asked.member_id) == (3, "m")
    assert question.make(2).member_id == ""
    producer.state.answered(question, Producer.refusal(asked, ErrorCode.ILLEGAL_GENERATION), 5, 0.0)
    with pytest.raises(AbortableTransactionError) as failed:
        producer.state.commit()
    assert failed.value.code is ErrorCode.ILLEGAL_GENERATION


def test_offsets_that_pass_are_asked_for_again_alone():
    producer = opened(version=2)
    offsets = Offsets("g", {("in", 0): (7, "", -1), ("in", 1): (8, "", -1)})
    producer.state.send_offsets(offsets)
    question = producer.state.next_question(0.0)
    answer = Producer.refusal(question.make(5), ErrorCode.NONE)
    answer.topics[0].partitions[1].error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    producer.state.answered(question, answer, 5, 0.0)
    assert producer.state.next_question(0.0) is None
    assert producer.state.wake_at == pytest.approx(0.1)
    again = producer.state.next_question(producer.state.wake_at)
    assert [one.partition_index for one in again.make(5).topics[0].partitions] == [1]


def test_markers_that_are_being_written_are_waited_for_a_short_time():
    producer = opened(version=1)
    producer.put(("t", 0), [b"v"])
    pauses = []
    for _ in range(3):
        producer.ask(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert producer.state.next_question(producer.now) is None
        pauses.append(round(producer.state.wake_at - producer.now, 3))
        producer.now = producer.state.wake_at
    assert pauses == [0.02, 0.04, 0.08]


def test_calls_at_the_wrong_time_are_refused():
    state = started().state
    for call, doing in [(state.commit, "commit"), (state.abort, "abort"), (state.refuse_records, "send records")]:
        with pytest.raises(RuntimeError, match=f"cannot {doing}: it has no transaction"):
            call()
    with pytest.raises(RuntimeError, match="cannot send offsets"):
        state.send_offsets(Offsets("g", {}))
    state.begin()
    with pytest.raises(RuntimeError, match="cannot begin a transaction: it is in a transaction"):
        state.begin()


@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_TRANSACTION_TIMEOUT]
)
def test_who_gets_no_producer_id_is_at_its_end(code):
    state = Transactions("id", 1000, BACKOFF)
    question = state.next_question(0.0)
    state.answered(question, InitProducerIdResponse(error_code=code, producer_epoch=-1), 5, 0.0)
    with pytest.raises(FatalTransactionError) as ended:
        state.begin()
    assert ended.value.code is code
    assert state.identity == NO_IDENTITY
    assert state.next_question(math.inf) is None


def test_an_abort_that_has_to_be_aborted_ends_the_producer():
    producer = opened(version=2)
    producer.put(("t", 0), [b"v"])
    producer.send()
    producer.deliver()
    producer.abort()
    producer.look()
    question = producer.state.next_question(0.0)
    assert question.make(5) == EndTxnRequest(transactional_id="id", producer_id=1, producer_epoch=0, committed=False)
    producer.state.answered(question, EndTxnResponse(error_code=ErrorCode.TRANSACTION_ABORTABLE), 5, 0.0)
    assert producer.state.phase is Phase.ENDED
