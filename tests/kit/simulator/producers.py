"""Simulated producers: plain ones that send and forget what was refused, idempotent ones that never give up."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from kit.simulator.model import Model, Stored, Violation
from kit.simulator.topic_model import TopicModel

from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

if TYPE_CHECKING:
    from uuid import UUID

    from kit.simulator.clients import Line

PRODUCE_VERSION = 9
INIT_PRODUCER_ID_VERSION = 4
MOST_UNSETTLED = 5
"""From a producer's oldest unacknowledged batch to its newest: brokers remember so many."""
REFUSED_FOR_NOW = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.MESSAGE_TOO_LARGE)
"""What is answered where a right, or a setting, may be another one for the next batch."""
KEYS = [b"a", b"b", b"c"]


class Values:
    """Values that are never the same twice, so that a stored record tells who sent it and when."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._numbers = count(1)
        self.on_drawn: Callable[[bytes], None] = lambda _: None
        """Called with each value, just before it is sent for the first time."""
        self.stamp_of: Callable[[int], int] = lambda now_ms: now_ms
        """The timestamp that a producer gives a record now."""

    def records(self, topic: TopicModel, now_ms: int) -> list[Record]:
        """A few records for `topic`, tombstones among them where it is compacted."""
        chance = self._chance
        drawn = []
        for offset in range(chance.choice((1, 1, 1, 2, 3, 6))):
            value = b"%d " % next(self._numbers) * chance.choice((1, 1, 4, 30, 80))
            self.on_drawn(value)
            is_tombstone = topic.is_compacted and chance.random() < 0.15
            drawn.append(
                Record(offset, self.stamp_of(now_ms), chance.choice(KEYS), None if is_tombstone else value, ())
            )
        return drawn


def produce_request(topic: str, index: int, records: bytes | bytearray, acks: int) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=index, records=records)
    of_topic = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[of_topic])


def _answer(response: Response) -> ProduceResponse.PartitionProduceResponse:
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def note_acknowledged(
    model: Model,
    topic: str,
    topic_id: UUID,
    answer: ProduceResponse.PartitionProduceResponse,
    records: list[Record],
    acks: int,
) -> None:
    """Remember the acknowledgement of a batch. A deleted topic promises nothing, nor does a new one of its name in its
    place: the answer may come by another connection than that of the deletion, and after it. While a topic is replaced,
    the answer may be of either.
    """
    known = model.topics.get(topic)
    base_offset = answer.base_offset
    is_replaced = topic in model.deleting and topic in model.creating
    if known is None or known.id != topic_id or is_replaced or base_offset < 0:
        return
    partition = known.partitions[answer.index]
    for number, record in enumerate(records):
        stored = Stored(record.key, record.value)
        partition.note(base_offset + number, stored, survives_power=acks == -1 and known.syncs)
        partition.note_timestamp(
            base_offset + number, known.stored_timestamp(record.timestamp, answer.log_append_time_ms)
        )


def note_sent(topic: TopicModel, index: int, records: list[Record]) -> None:
    known = topic.partitions[index]
    for record in records:
        if record.value is None:
            known.tombstones.add(record.key or b"")
            known.doubtful[record.key or b""] += 1
        else:
            known.sent.add(record.value)


class PlainProducer:
    """Sends a batch with any acks, and never again."""

    def __init__(self, model: Model, values: Values, chance: random.Random) -> None:
        self._model = model
        self._values = values
        self._chance = chance

    def send(self, line: Line, now_ms: int) -> None:
        """Produce one batch to some partition."""
        if not self._model.topics:
            return
        topic = self._model.topics[self._chance.choice(sorted(self._model.topics))]
        index = self._chance.randrange(len(topic.partitions))
        records = self._values.records(topic, now_ms)
        acks = self._chance.choice((-1, -1, -1, 1, 0))
        self._send(line, topic, index, records, acks)

    def send_to(self, line: Line, topic: TopicModel, index: int, acks: int, now_ms: int) -> None:
        """Produce one batch to this partition."""
        self._send(line, topic, index, self._values.records(topic, now_ms), acks)

    def _send(self, line: Line, topic: TopicModel, index: int, records: list[Record], acks: int) -> None:
        note_sent(topic, index, records)
        name = topic.name

        def answered(response: Response) -> None:
            answer = _answer(response)
            if answer.error_code == ErrorCode.NONE:
                note_acknowledged(self._model, name, topic.id, answer, records, acks)

        request = produce_request(name, index, encode_batch(records), acks)
        line.send(request, PRODUCE_VERSION, answered if acks else None)


@dataclass
class Batch:
    """A batch of an idempotent producer, kept until it and all before it are acknowledged."""

    sequence: int
    records: list[Record]
    is_acknowledged: bool = False


class IdempotentProducer:
    """One producer id, one partition, up to five batches in flight, sent again until they are acknowledged.

    A batch may be acknowledged before an earlier one, whose answer was an error though it is stored: the broker did not
    sync in time. It counts among the five until the earlier one is acknowledged, too. Otherwise the broker, which
    remembers five, would not know any more that it has the earlier one, and refuse it.
    """

    def __init__(self, model: Model, values: Values, topic: TopicModel, index: int, line: int) -> None:
        self._model = model
        self._values = values
        self.topic = topic.name
        self.line = line
        self._topic_id = topic.id
        self._index = index
        self.place = topic.name, index
        self._producer_id = -1
        self._sequence = 0
        self._unsettled: deque[Batch] = deque()
        """The oldest is not acknowledged, those behind it may be."""
        self._in_flight = 0
        self._life = 0
        self._is_asking = False
        self._must_resend = False
        self._was_refused = False
        """Whether a batch was refused that may be accepted later: the first one of a producer may have any sequence."""

    @property
    def is_over(self) -> bool:
        """Whether its topic is gone."""
        topic = self._model.topics.get(self.topic)
        return topic is None or topic.id != self._topic_id or self.topic in self._model.deleting

    def reconnect(self) -> None:
        """The broker has restarted: answers of before will never come."""
        self._life += 1
        self._in_flight = 0
        self._is_asking = False
        self._must_resend = bool(self._unsettled)

    def send(self, line: Line, now_ms: int) -> None:
        """Go on: ask for a producer id, send again what was not acknowledged, or send something new."""
        topic = self._model.topics.get(self.topic)
        if topic is None or self.is_over:
            return
        if self._producer_id < 0:
            self._ask_for_id(line)
        elif self._must_resend:
            if self._in_flight == 0:
                self._must_resend = False
                for batch in self._unsettled:
                    if not batch.is_acknowledged:
                        self._post(line, batch)
        elif len(self._unsettled) < MOST_UNSETTLED:
            records = self._values.records(topic, now_ms)
            note_sent(topic, self._index, records)
            for number, record in enumerate(records):
                if record.value is not None:
                    topic.partitions[self._index].once[record.value] = (self, self._sequence + number)
            batch = Batch(self._sequence, records)
            self._sequence += len(records)
            self._unsettled.append(batch)
            self._post(line, batch)

    def _ask_for_id(self, line: Line) -> None:
        if self._is_asking:
            return
        self._is_asking = True
        life = self._life

        def answered(response: Response) -> None:
            assert isinstance(response, InitProducerIdResponse)
            if response.error_code == ErrorCode.NONE:
                self._model.note_producer_id(response.producer_id)
                if life == self._life:
                    self._producer_id = response.producer_id
            if life == self._life:
                self._is_asking = False

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        line.send(request, INIT_PRODUCER_ID_VERSION, answered)

    def _post(self, line: Line, batch: Batch) -> None:
        self._in_flight += 1
        content = encode_batch(
            batch.records, producer_id=self._producer_id, producer_epoch=0, base_sequence=batch.sequence
        )
        line.send(produce_request(self.topic, self._index, content, -1), PRODUCE_VERSION, self._on_answer(batch))

    def _refuse_gap(self, batch: Batch) -> None:
        """The broker has not got what came before `batch`, or does not know any more that it has got `batch`.

        A broken promise, unless an earlier batch was refused for itself, and a later one was not; or a power cut may
        take records away; or the cleaner has taken the earlier batches of the producer: then Kafka, too, remembers the
        last one only.
        """
        topic = self._model.topics.get(self.topic)
        if topic is not None and topic.always_syncs and not topic.is_compacted and not self._was_refused:
            raise Violation(
                f"{self.topic}-{self._index}: producer {self._producer_id} may not go on at sequence "
                f"{batch.sequence}, though everything before was acknowledged"
            )
        if topic is not None:
            known = topic.partitions[self._index]
            known.once = {value: by for value, by in known.once.items() if by[0] is not self}
        self._producer_id, self._sequence, self._was_refused = -1, 0, False
        self._unsettled.clear()
        self._life += 1
        self._in_flight = 0

    def _on_answer(self, batch: Batch) -> Callable[[Response], None]:
        life = self._life

        def answered(response: Response) -> None:
            if life != self._life:
                return
            self._in_flight -= 1
            answer = _answer(response)
            if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                note_acknowledged(self._model, self.topic, self._topic_id, answer, batch.records, -1)
                batch.is_acknowledged = True
                while self._unsettled and self._unsettled[0].is_acknowledged:
                    self._unsettled.popleft()
                return
            self._was_refused |= answer.error_code in REFUSED_FOR_NOW
            if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._unsettled[0] is batch:
                self._refuse_gap(batch)
            self._must_resend = True

        return answered
