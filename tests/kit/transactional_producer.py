"""A transactional producer without a wire, over a model of its coordinator: a test decides what the model sees, and
what of its answers arrives.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kit.transaction_model import ModelPartition, Place, TransactionModel

from ottla.client_core.partition_queue import PartitionQueue, QueuedBatch
from ottla.client_core.retries import Backoff
from ottla.client_core.send_queues import SendQueues
from ottla.client_core.send_results import Result, SendResult, SendRules
from ottla.client_core.transaction_questions import Step
from ottla.client_core.transactions import Phase, Transactions
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Request
from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.types import ZERO_UUID

LOST = KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection ended")
PLACES = [("t", 0), ("t", 1)]
BACKOFF = Backoff(100, 1000)


class Batch(QueuedBatch):
    queue: PartitionQueue[Batch]

    def __init__(self, queue: PartitionQueue[Batch], values: list[bytes]) -> None:
        super().__init__()
        self.queue = queue
        self.values = values
        self.record_count = len(values)
        self.is_closed = True

    @property
    def size_bytes(self) -> int:
        return 100


def sealed(batch: Batch) -> bytearray:
    builder = BatchBuilder()
    for value in batch.values:
        builder.append(0, None, value, ())
    producer_id, epoch = batch.queue.identity
    return builder.seal(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=batch.sequence, is_transactional=True
    )


class Producer:
    """A driver without a wire. Requests and questions wait until `deliver` and `ask` let the model see them."""

    def __init__(self, model: TransactionModel) -> None:
        self.model = model
        self.now = 0.0
        self.state = Transactions("id", 1000, BACKOFF)
        self.queues: SendQueues[Batch, int] = SendQueues(
            SendRules(True, 5, 10_000, BACKOFF, is_transactional=True),
            seal=sealed,
            split=lambda batch: [],
            leader_of=lambda topic, index: 1,
            topic_id=lambda topic: ZERO_UUID,
            may_write=lambda leader: True,
            may_go=self.state.may_write,
        )
        self.by_place: dict[Place, PartitionQueue[Batch]] = {place: PartitionQueue(*place) for place in PLACES}
        self.unfinished: list[Batch] = []
        self.requests: deque[tuple[list[Batch], ProduceRequest]] = deque()
        self.versions = {Step.INITIALIZE: 5, Step.ADD_PARTITIONS: 3, Step.ADD_OFFSETS: 4, Step.COMMIT_OFFSETS: 5}

    # What the program does ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin, raising the epoch first where the protocol changed."""
        self.state.speak(self.model.version)
        self.finish()
        self.state.begin()

    def put(self, place: Place, values: list[bytes]) -> None:
        queue = self.by_place[place]
        batch = Batch(queue, values)
        queue.waiting.append(batch)
        self.unfinished.append(batch)
        self.queues.activate(queue)
        self.state.will_write(*place)

    def abort(self) -> None:
        self.state.abort()
        self.give_up()

    def give_up(self) -> None:
        given_up, self.unfinished = self.unfinished, []
        for batch in given_up:
            batch.is_finished = True
            self.queues.expire(batch)
        if any(batch.attempts for batch in given_up):
            self.state.raise_epoch()

    # What the network does ------------------------------------------------------------------------------------------

    def send(self) -> None:
        self.queues.identify(self.state.identity)
        while requests := self.queues.gather(self.now):
            batches = requests[1]
            request = self.queues.produce_request(batches, acks=-1, timeout_ms=1, ids={}, transactional_id="id")
            self.queues.sent(1)
            self.state.has_written()
            self.requests.append((batches, request))

    def deliver(self, code: ErrorCode = ErrorCode.NONE, is_seen: bool = True, is_answered: bool = True) -> None:
        """Let the leader see the oldest request, or refuse it, or lose it or its answer with all that are behind it."""
        if not self.requests:
            return
        batches, request = self.requests.popleft()
        said = []
        for data in request.topic_data[0].partition_data if is_seen and not code else ():
            found, offset = self.model.partitions["t", data.index].append(memoryview(data.records or b""))
            said.append((data.index, found, offset))
        if code:
            said = [(data.index, code, -1) for data in request.topic_data[0].partition_data]
        if not (is_seen and is_answered):
            self.take(self.queues.lost(1, batches, LOST, self.now))
            for others, _ in self.requests:
                self.take(self.queues.lost(1, others, LOST, self.now))
            self.requests.clear()
            return
        answers = [
            ProduceResponse.PartitionProduceResponse(index=index, error_code=found, base_offset=offset)
            for index, found, offset in said
        ]
        topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=answers)
        self.take(self.queues.answered(1, batches, ProduceResponse(responses=[topic]), self.now))

    def take(self, results: list[SendResult[Batch]]) -> None:
        for batch, result, error, _ in results:
            if result is not Result.RETRIED and batch in self.unfinished:
                batch.is_finished = True
                self.unfinished.remove(batch)
                if result is Result.GIVEN_UP and error is not None:
                    self.state.batch_failed(error)
        self.look()

    def look(self) -> None:
        """What a driver does after anything that may have changed the state."""
        if self.state.phase in (Phase.FAILED, Phase.ENDED):
            self.give_up()
        if self.state.phase is Phase.COMMITTING:
            self.state.is_drained = not self.unfinished and not self.queues.requests_in_flight
        elif self.state.phase is Phase.ABORTING:
            self.state.is_drained = not self.queues.requests_in_flight

    def ask(self, code: ErrorCode = ErrorCode.NONE, is_seen: bool = True, is_answered: bool = True) -> None:
        """Ask the next question; refuse it with a code that passes, or lose it or its answer."""
        self.look()
        question = self.state.next_question(self.now)
        if question is None:
            return
        self.state.sent(question)
        version = min(self.versions.get(question.step, 5), question.at_most)
        request = question.make(version)
        if code:
            self.state.answered(question, self.refusal(request, code), version, self.now)
        elif is_seen:
            answer = self.model.answer(request)
            if is_answered:
                self.state.answered(question, answer, version, self.now)
        if not code and not (is_seen and is_answered):
            self.state.lost(question, LOST, self.now)
        self.look()

    @staticmethod
    def refusal(request: Request, code: ErrorCode) -> Any:
        module = __import__(type(request).__module__, fromlist=["refused"])
        return module.refused(request, 3, code, "")

    def finish(self) -> None:
        """Let everything that is under way end well, or in a failure."""
        for _ in range(1000):
            self.look()
            self.send()
            before = self.state.phase
            self.ask()
            if self.requests:
                self.deliver()
            elif not self.state.has_questions and not self.queues.has_waiting and self.state.phase is before:
                return
            self.now += 0.5
        raise AssertionError(f"the producer does not come to an end: it {self.state.phase.value}")


def started(version: int = 2, last_epoch: int = 2**15 - 2) -> Producer:
    partitions = {place: ModelPartition(leader=1) for place in PLACES}
    producer = Producer(TransactionModel(partitions, version, last_epoch))
    producer.finish()
    assert producer.state.phase is Phase.READY
    return producer
