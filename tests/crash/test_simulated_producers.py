"""The simulator's producers ask no more of a broker than Kafka gives: the last five batches remembered, of a topic that
is there.
"""

from __future__ import annotations

import random
from typing import cast
from uuid import uuid4

import pytest
from kit.clock import ManualClock
from kit.simulator.clients import Answered, Line
from kit.simulator.model import Model, PartitionModel, Stored, Violation
from kit.simulator.producers import IdempotentProducer, PlainProducer, Values
from kit.simulator.topic_model import TopicModel
from kit.simulator.transactional_producers import TransactionalProducer
from kit.simulator.transactions import TransactionModel, Transactions

from ottla.broker.transactions.shard import END_WAIT_MS
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.api.find_coordinator import FindCoordinatorResponse
from ottla.protocol.api.init_producer_id import InitProducerIdResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request
from ottla.protocol.records.batch import parse_header
from ottla.storage.producers.producer_entry import REMEMBERED_BATCHES


class ScriptedLine:
    """A connection whose answers the test gives."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Request, Answered]] = []
        self.sent: list[int] = []
        """First sequences of the batches, as they came."""

    def send(self, request: Request, version: int, then: Answered) -> None:
        if isinstance(request, ProduceRequest):
            records = request.topic_data[0].partition_data[0].records
            assert records is not None
            self.sent.append(parse_header(records).base_sequence)
        self.waiting.append((request, then))

    def answer(self, code: ErrorCode = ErrorCode.NONE, base_offset: int = -1) -> None:
        """Answer the oldest batch."""
        answer = ProduceResponse.PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset)
        of_topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[answer])
        self.waiting.pop(0)[1](ProduceResponse(responses=[of_topic]))

    def take_sent(self) -> list[int]:
        """What was sent since this was asked last."""
        sent, self.sent = self.sent, []
        return sent


class Client:
    """The producer, with its own line and a partition."""

    def __init__(self) -> None:
        model, topic = Model(), TopicModel("t", uuid4(), {}, [PartitionModel()])
        model.topics["t"] = topic
        self.line = ScriptedLine()
        self._producer = IdempotentProducer(model, Values(random.Random(3)), topic, 0, 1)
        self.send()
        self.line.waiting.pop(0)[1](InitProducerIdResponse(producer_id=7, producer_epoch=0))

    def send(self, times: int = 1) -> list[int]:
        for _ in range(times):
            self._producer.send(cast("Line", self.line), 0)
        return self.line.take_sent()

    def reconnect(self) -> None:
        self._producer.reconnect()
        self.line = ScriptedLine()


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def overtaken(client: Client) -> tuple[Client, list[int]]:
    """Three of four batches were answered by an error, the fourth was acknowledged; the four first sequences."""
    first = client.send(4)
    for _ in range(3):
        client.line.answer(ErrorCode.REQUEST_TIMED_OUT)
    client.line.answer(base_offset=6)
    return client, first


def test_it_has_as_many_batches_in_flight_as_a_broker_remembers(client: Client) -> None:
    assert len(client.send(20)) == REMEMBERED_BATCHES


def test_a_batch_that_was_acknowledged_before_an_earlier_one_counts_until_that_is_acknowledged(
    overtaken: tuple[Client, list[int]],
) -> None:
    """The simulator's seed 5001311: with six on their way the broker did not know the first one any more."""
    client, first = overtaken
    sent = client.send(20)
    assert sent[:3] == first[:3]
    assert len(set(first) | set(sent)) == REMEMBERED_BATCHES


def test_once_the_earlier_ones_are_acknowledged_it_goes_on(overtaken: tuple[Client, list[int]]) -> None:
    client, _ = overtaken
    client.send(20)
    for offset in (0, 2, 4):
        client.line.answer(base_offset=offset * 100)
    assert len(client.send(20)) == REMEMBERED_BATCHES - 1  # the new one of before is still under way


def test_a_restart_makes_it_send_again_what_was_not_acknowledged_and_nothing_else(
    overtaken: tuple[Client, list[int]],
) -> None:
    client, first = overtaken
    before = client.send(20)
    client.reconnect()
    assert client.send() == before
    assert first[3] not in before


def test_it_calls_a_gap_before_its_oldest_batch_a_broken_promise(overtaken: tuple[Client, list[int]]) -> None:
    client, _ = overtaken
    client.send(20)
    with pytest.raises(Violation, match="may not go on"):
        client.line.answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_an_answer_that_comes_after_its_topic_was_created_again_promises_nothing() -> None:
    model, topic = Model(), TopicModel("t", uuid4(), {}, [PartitionModel()])
    model.topics["t"] = topic
    line = ScriptedLine()
    PlainProducer(model, Values(random.Random(3)), random.Random(4)).send(cast(Line, line), 0)
    model.note_topic_gone("t")
    again = model.topics["t"] = TopicModel("t", uuid4(), {}, [PartitionModel()])
    line.answer(base_offset=0)
    assert not again.partitions[0].promised
    assert not again.partitions[0].written


class TransactionalClient:
    """A transactional producer of before KIP-890, which waits for the answer to its first AddPartitionsToTxn."""

    def __init__(self) -> None:
        self.model, self.topic = Model(), TopicModel("t", uuid4(), {}, [PartitionModel()])
        self.model.topics["t"] = self.topic
        self.known = Transactions(self.model)
        self._line = ScriptedLine()
        chance = random.Random(3)
        self._clock = ManualClock()
        self.producer = TransactionalProducer(self.known, Values(chance), chance, self._clock, "tx", is_new=False)
        coordinator = FindCoordinatorResponse.Coordinator(key="tx", node_id=1, host="", port=1, error_code=0)
        for answer in (
            FindCoordinatorResponse(coordinators=[coordinator]),
            InitProducerIdResponse(producer_id=7, producer_epoch=2),
        ):
            self.producer.act(cast("Line", self._line))
            self._line.waiting.pop(0)[1](answer)
        self.producer.act(cast("Line", self._line))

    def end_after(self, waited_ms: int) -> TransactionModel:
        """Write, and end the transaction; the answer to its end comes after `waited_ms`."""
        (transaction,) = set(self.known.by_value.values())
        self._answer_add(ErrorCode.NONE)
        self.producer.act(cast("Line", self._line))
        self._line.answer(base_offset=0)
        self.producer.act(cast("Line", self._line))
        request, answered = self._line.waiting.pop(0)
        assert isinstance(request, EndTxnRequest)
        self._clock.advance(waited_ms)
        answered(EndTxnResponse())
        return transaction

    def fence(self) -> None:
        self._answer_add(ErrorCode.PRODUCER_FENCED)

    def _answer_add(self, code: ErrorCode) -> None:
        request, answered = self._line.waiting.pop(0)
        assert isinstance(request, AddPartitionsToTxnRequest)
        result = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
            partition_index=0, partition_error_code=code
        )
        of_topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
        answered(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[of_topic]))


def test_it_is_not_fenced_before_its_timeout() -> None:
    client = TransactionalClient()
    with pytest.raises(Violation, match="is fenced after 0 ms, without another producer"):
        client.fence()


def end_one_before(client: TransactionalClient, producer: tuple[int, int]) -> None:
    """An ended transaction with records in the topic, whose markers a power cut may have taken."""
    before = client.known.begin("tx", producer, 90_000, 0)
    before.places.add(("t", client.topic.id, 0))
    client.known.over(before)
    client.known.exempt_all(client.topic, 0)


def test_one_whose_last_marker_a_power_cut_may_have_taken_may_be_fenced_in_its_next_transaction() -> None:
    """The simulator's seed 797338307623: the broker finds the former transaction open, and ends it by its timeout."""
    client = TransactionalClient()
    end_one_before(client, (7, 2))
    client.fence()
    assert client.producer.is_fenced


def test_what_a_power_cut_took_from_an_older_epoch_fences_nobody() -> None:
    client = TransactionalClient()
    end_one_before(client, (7, 1))
    with pytest.raises(Violation, match="is fenced after 0 ms, without another producer"):
        client.fence()


HELD_AT = 4


def held_up(client: TransactionalClient) -> TransactionModel:
    """A transaction with a record at `HELD_AT`, beyond which a reader gets nothing."""
    one = client.known.begin("tx", (7, 2), 90_000, 0)
    client.known.by_value[b"v"] = one
    client.topic.partitions[0].note(HELD_AT, Stored(b"k", b"v"), survives_power=True)
    return one


def look(client: TransactionalClient) -> None:
    client.known.require_over(client.topic, 0, HELD_AT, client.known.over_count)


def test_one_whose_end_was_answered_holds_no_reader_up() -> None:
    client = TransactionalClient()
    client.known.over(held_up(client))
    with pytest.raises(Violation, match="which was over"):
        look(client)


def test_one_whose_end_was_answered_late_may_hold_readers_up() -> None:
    """The simulator's seed 111: the disk was full, so the coordinator answered without a marker."""
    client = TransactionalClient()
    client.known.over_late(held_up(client))
    look(client)


def test_once_the_next_transaction_is_accepted_it_holds_no_reader_up() -> None:
    client = TransactionalClient()
    client.known.over_late(held_up(client))
    client.known.begun_next(client.known.begin("tx", (7, 3), 90_000, 0))
    with pytest.raises(Violation, match="which was over"):
        look(client)


def test_once_another_producer_has_begun_it_holds_no_reader_up() -> None:
    client = TransactionalClient()
    client.known.over_late(held_up(client))
    client.known.begun_anew("tx")
    with pytest.raises(Violation, match="which was over"):
        look(client)


@pytest.mark.parametrize(("waited_ms", "is_late"), [(END_WAIT_MS - 1, False), (END_WAIT_MS, True)])
def test_an_answer_to_an_end_is_late_after_the_time_that_the_coordinator_waits_for_markers(
    waited_ms: int, is_late: bool
) -> None:
    client = TransactionalClient()
    transaction = client.end_after(waited_ms)
    assert transaction.is_over
    assert transaction.may_lack_markers == is_late


@pytest.mark.parametrize("is_deleted", [True, False])
def test_an_offset_that_went_with_its_topic_says_nothing_about_its_transaction(is_deleted: bool) -> None:
    """The simulator's seed 22961456979: the topic was deleted and created again, and had no stable offset."""
    client = TransactionalClient()
    known, place = client.known, ("group", "t", 0)
    transaction = known.begin("tx", (7, 2), 90_000, 0)
    transaction.offsets[place] = known.next_offset(place)
    known.offsets_pending(transaction)
    known.commit_asked(transaction)
    known.committed(transaction, "its end was answered")
    check = known.stable_offset_check(place)
    if is_deleted:
        client.model.note_topic_gone("t")
        check(place, -1)
    else:
        with pytest.raises(Violation, match="-1 is the stable offset"):
            check(place, -1)
