"""A producer's queues against partitions that refuse sequences as Kafka does, without a socket: random faults, lost
connections and moved leaders, and every record is in its log once, in order. Then the rules one by one."""

from __future__ import annotations

import copy
import math
from collections import deque

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kit.fake_broker import FakePartition

from ottla.client_core.partition_queue import NO_IDENTITY, NO_SEQUENCE, PartitionQueue, ProducerIdentity, QueuedBatch
from ottla.client_core.retries import Backoff
from ottla.client_core.send_queues import SendQueues
from ottla.client_core.send_results import LOST_IDENTITY, Result, SendResult, SendRules
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import parse_header
from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.types import ZERO_UUID

PASSING = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CORRUPT_MESSAGE,
]
"""The broker does not have the batch, and will take it later."""
UNCLEAR = [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR]
"""It may have it."""


class Batch(QueuedBatch):
    def __init__(self, queue, values):
        super().__init__()
        self.queue = queue
        self.values = values
        self.record_count = len(values)
        self.is_closed = True

    @property
    def size_bytes(self):
        return 100 * len(self.values)


def sealed(batch):
    builder = BatchBuilder()
    for value in batch.values:
        builder.append(0, None, value, ())
    identity = batch.queue.identity
    return builder.seal(producer_id=identity.producer_id, producer_epoch=identity.epoch, base_sequence=batch.sequence)


class Producer:
    """A driver without a wire: `requests` are those that the broker has not seen, `answers` what it has said, both by
    leader, in the order of a connection."""

    def __init__(self, partitions=1, splits=True, **rules):
        self.now = 0.0
        self.partitions = [FakePartition(leader=1) for _ in range(partitions)]
        self.requests = {1: deque(), 2: deque()}
        self.answers = {1: deque(), 2: deque()}
        self.results = []
        self.writable = {1, 2}
        self.producer_ids = 7
        options = {
            "is_idempotent": True,
            "max_in_flight": 5,
            "max_request_bytes": 10_000,
            "backoff": Backoff(100, 1000),
        }
        self.queues = SendQueues(
            SendRules(**(options | rules)),
            seal=sealed,
            split=self.split if splits else lambda batch: [],
            leader_of=lambda topic, index: self.partitions[index].leader,
            topic_id=lambda topic: ZERO_UUID,
            may_write=lambda leader: leader in self.writable,
        )
        if self.queues._rules.is_idempotent:
            self.queues.identify(ProducerIdentity(self.producer_ids, 0))
        self.by_index = [PartitionQueue("t", index) for index in range(partitions)]

    @staticmethod
    def split(batch):
        half = len(batch.values) // 2
        parts = [Batch(batch.queue, values) for values in (batch.values[:half], batch.values[half:])] if half else []
        for number, part in enumerate(parts):
            part.serial = (*batch.serial, number)
        return parts

    def put(self, *values, partition=0):
        queue = self.by_index[partition]
        batch = Batch(queue, list(values))
        queue.waiting.append(batch)
        self.queues.activate(queue)
        return batch

    def send(self):
        """Write all that may go now."""
        if self.queues.wants_identity:
            self.producer_ids += 1
            self.queues.identify(ProducerIdentity(self.producer_ids, 0))
        while requests := self.queues.gather(self.now):
            for leader, batches in requests.items():
                self.write(leader, batches)
                assert len(self.requests[leader]) + len(self.answers[leader]) <= 5
            if not self.queues.may_have_more:
                assert not self.queues.gather(self.now)
                break

    def write(self, leader, batches):
        request = self.queues.produce_request(batches, acks=-1, timeout_ms=1, ids={})
        self.queues.sent(leader)
        self.requests[leader].append((batches, request))

    def put_alone(self, *values, partition=0):
        """Put a batch and send it alone, if it may be; then it is what `gather` would have taken. Return whether."""
        queue = self.by_index[partition]
        batch = Batch(queue, list(values))
        queue.waiting.append(batch)
        leader = self.partitions[partition].leader
        other, its_queues = copy.deepcopy((self.queues, self.by_index))
        is_alone = len(queue.waiting) == 1 and leader in self.writable
        if not is_alone or not self.queues.is_clear(queue, leader, ZERO_UUID, self.now):
            assert state_of(self.queues, self.by_index) == state_of(other, its_queues)
            self.queues.activate(queue)
            return False
        batch.sequence = queue.next_sequence
        queue.take_sequences(batch.record_count)
        self.queues.sent_alone(batch, leader)
        request = self.queues.produce_request([batch], acks=-1, timeout_ms=1, ids={})
        self.requests[leader].append(([batch], request))
        other.activate(its_queues[partition])
        gathered = other.gather(self.now)
        assert {to: [one.serial for one in batches] for to, batches in gathered.items()} == {leader: [batch.serial]}
        assert other.produce_request(gathered[leader], acks=-1, timeout_ms=1, ids={}) == request
        other.sent(leader)
        assert state_of(self.queues, self.by_index) == state_of(other, its_queues)
        assert (other.wake_at, other.may_have_more) == (math.inf, False)
        return True

    def deliver(self, leader=1, code=ErrorCode.NONE, is_appended=True):
        """Let the broker see a leader's oldest request; refuse it with `code`, after all the same or not."""
        if not self.requests[leader]:
            return
        batches, request = self.requests[leader].popleft()
        said = []
        for data in request.topic_data[0].partition_data:
            partition = self.partitions[data.index]
            found, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
            if partition.leader == leader:
                found, offset = partition.append(data.records) if is_appended else (code, -1)
            said.append(
                ProduceResponse.PartitionProduceResponse(
                    index=data.index, error_code=int(found or code), base_offset=offset
                )
            )
        topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=said)
        self.answers[leader].append((batches, ProduceResponse(responses=[topic])))

    def answer(self, leader=1):
        """Hand in a leader's oldest answer."""
        if self.answers[leader]:
            batches, response = self.answers[leader].popleft()
            (said, *others) = response.responses[0].partition_responses
            if not others and said.error_code == ErrorCode.NONE:
                self.queues.appended(leader, *batches)
                self.results.append(SendResult(batches[0], Result.APPENDED))
            else:
                self.results += self.queues.answered(leader, batches, response, self.now)

    def cut(self, leader=1):
        """End a leader's connection: what it has not seen, it never sees; what it has said is lost."""
        lost = [batches for batches, _ in [*self.answers[leader], *self.requests[leader]]]
        self.requests[leader].clear()
        self.answers[leader].clear()
        for batches in lost:
            self.results += self.queues.lost(leader, batches, KafkaError(ErrorCode.NETWORK_EXCEPTION), self.now)

    def finish(self):
        """Let everything that is under way end well."""
        for _ in range(1000):
            self.send()
            if not any(self.requests.values()) and not any(self.answers.values()):
                if self.queues.wake_at == math.inf and not self.queues.wants_identity:
                    return
                self.now = max(self.now, self.queues.wake_at if self.queues.wake_at < math.inf else self.now)
            for leader in (1, 2):
                self.deliver(leader)
                self.answer(leader)
        raise AssertionError("the producer does not come to an end")

    def values(self, index=0):
        return self.partitions[index].values


def state_of(queues, by_index):
    of_each = [
        [(queue.leader, queue.topic_id, queue.is_known_to_broker, queue.next_sequence)]
        + [[batch.serial for batch in held] for held in (queue.waiting, queue.in_flight, queue.failed)]
        for queue in by_index
    ]
    return of_each, [queue.partition for queue in queues.active], queues.requests_in_flight


def steps():
    leader = st.sampled_from([1, 2])
    return st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 1), st.integers(1, 4)),
            st.tuples(st.just("put alone"), st.integers(0, 1), st.integers(1, 4)),
            st.tuples(st.just("send")),
            st.tuples(st.just("deliver"), leader),
            st.tuples(st.just("refuse"), leader, st.sampled_from([*PASSING, ErrorCode.MESSAGE_TOO_LARGE])),
            st.tuples(st.just("append and refuse"), leader, st.sampled_from(UNCLEAR)),
            st.tuples(st.just("answer"), leader),
            st.tuples(st.just("cut"), leader),
            st.tuples(st.just("move"), st.integers(0, 1), leader),
            st.tuples(st.just("pass"), st.floats(0.01, 2.0)),
            st.tuples(st.just("unwritable"), leader),
            st.tuples(st.just("writable"), leader),
        ),
        max_size=60,
    )


@settings(max_examples=300, deadline=None)
@given(steps())
@example([("put", 0, 1), ("send",), ("put", 1, 1), ("refuse", 1, ErrorCode.MESSAGE_TOO_LARGE)])
def test_whatever_fails_every_record_is_there_once_and_in_order(taken):
    producer = Producer(partitions=2)
    expected = {0: [], 1: []}
    for step in taken:
        match step:
            case ("put" | "put alone", partition, count):
                values = [b"%d" % (len(expected[partition]) + number) for number in range(count)]
                expected[partition] += values
                (producer.put if step[0] == "put" else producer.put_alone)(*values, partition=partition)
            case ("send",):
                producer.send()
            case ("deliver", leader):
                producer.deliver(leader)
            case ("refuse", leader, code):
                producer.deliver(leader, code, is_appended=False)
            case ("append and refuse", leader, code):
                producer.deliver(leader, code)
            case ("answer", leader):
                producer.answer(leader)
            case ("cut", leader):
                producer.cut(leader)
            case ("move", partition, leader):
                producer.partitions[partition].leader = leader
            case ("pass", seconds):
                producer.now += seconds
            case ("unwritable", leader):
                producer.writable.discard(leader)
            case ("writable", leader):
                producer.writable.add(leader)
    producer.writable = {1, 2}
    producer.finish()
    # Records alone in their batch that were refused as too large:
    singles = [result for result in producer.results if result.result is Result.GIVEN_UP]
    assert all(result.error.code is ErrorCode.MESSAGE_TOO_LARGE for result in singles)
    refused = {(result.batch.queue.partition, value) for result in singles for value in result.batch.values}
    for partition in (0, 1):
        kept = [value for value in expected[partition] if (partition, value) not in refused]
        assert producer.values(partition) == kept
    assert all(queue.is_idle for queue in producer.by_index)
    assert producer.queues.active == []
    assert producer.queues.requests_in_flight == 0


def test_a_batch_that_is_all_there_is_may_go_alone():
    producer = Producer(partitions=2)
    assert not producer.put_alone(b"first")  # its queue has no leader and no identity yet
    producer.finish()
    assert producer.put_alone(b"0")
    assert not producer.put_alone(b"1", partition=1)  # one is in flight
    producer.finish()
    assert producer.put_alone(b"2")
    producer.finish()
    producer.put(b"3", partition=1)
    assert not producer.put_alone(b"4")  # another partition has something to send
    producer.finish()
    assert (producer.values(0), producer.values(1)) == ([b"first", b"0", b"2", b"4"], [b"1", b"3"])


def test_a_batch_does_not_go_alone_before_a_pause_is_over():
    producer = Producer()
    producer.put(b"0")
    producer.send()
    producer.deliver(code=ErrorCode.NOT_ENOUGH_REPLICAS, is_appended=False)
    producer.answer()
    assert not producer.put_alone(b"1")
    producer.finish()
    producer.by_index[0].not_before = producer.now + 1
    assert not producer.put_alone(b"2")
    producer.finish()
    assert producer.values() == [b"0", b"1", b"2"]


def test_a_batch_does_not_go_alone_while_its_leader_holds_the_client_back():
    producer = Producer()
    producer.put(b"0")
    producer.send()
    (batches, _), *_ = producer.requests[1]
    producer.requests[1].clear()
    said = ProduceResponse.PartitionProduceResponse(index=0, error_code=0, base_offset=0)
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[said])
    producer.queues.answered(1, batches, ProduceResponse(responses=[topic], throttle_time_ms=1000), producer.now)
    assert not producer.put_alone(b"1")
    producer.send()
    assert not producer.requests[1]
    producer.now += 1
    assert not producer.put_alone(b"2")  # another one waits before it
    producer.finish()
    assert producer.put_alone(b"3")


def fives(producer, batches=5):
    """Make the producer known to the broker, and have some batches in flight."""
    producer.put(b"first")
    producer.finish()
    made = [producer.put(b"%d" % number) for number in range(batches)]
    producer.send()
    return made


def test_only_one_batch_of_an_unknown_producer_is_in_flight_then_as_many_as_may_be():
    producer = Producer()
    for number in range(8):
        producer.put(b"%d" % number)
    producer.send()
    assert len(producer.requests[1]) == 1
    producer.deliver()
    producer.answer()
    producer.send()
    assert len(producer.requests[1]) == 5
    producer.finish()
    assert producer.values() == [b"%d" % number for number in range(8)]


def test_a_lost_connection_sends_each_batch_in_flight_again_with_its_sequence():
    producer = Producer()
    made = fives(producer)
    producer.deliver()
    sequences = [batch.sequence for batch in made]
    producer.cut()
    assert [(result.batch, result.result) for result in producer.results[1:]] == [(b, Result.RETRIED) for b in made]
    assert all(batch.maybe_appended for batch in made)
    assert producer.queues.needs_metadata
    producer.finish()
    assert [batch.sequence for batch in made] == sequences
    assert producer.values() == [b"first", b"0", b"1", b"2", b"3", b"4"]


def test_after_a_failure_nothing_new_goes_before_all_in_flight_has_come_back():
    producer = Producer()
    fives(producer, 3)
    producer.deliver(code=ErrorCode.NOT_ENOUGH_REPLICAS, is_appended=False)
    producer.answer()
    producer.put(b"new")
    producer.now += 10
    producer.send()
    assert len(producer.requests[1]) == 2
    producer.finish()
    assert producer.values() == [b"first", b"0", b"1", b"2", b"new"]


def test_pauses_grow_with_failures_and_end_with_a_success():
    producer = Producer(max_in_flight=1)
    producer.put(b"0")
    for pause in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        producer.send()
        producer.deliver(code=ErrorCode.NOT_ENOUGH_REPLICAS, is_appended=False)
        producer.answer()
        producer.send()
        assert not producer.requests[1]
        assert producer.queues.wake_at == pytest.approx(producer.now + pause)
        producer.now = producer.queues.wake_at
    producer.finish()
    assert producer.by_index[0].failures == 0
    assert producer.values() == [b"0"]


@pytest.mark.parametrize("raises_epochs", [True, False])
def test_a_producer_that_the_broker_has_forgotten_goes_on_from_zero(raises_epochs):
    producer = Producer(raises_epochs=raises_epochs)
    producer.put(b"0", b"1")
    producer.finish()
    batch = producer.put(b"2")
    producer.send()
    producer.partitions[0].producers.clear()
    producer.deliver(code=ErrorCode.UNKNOWN_PRODUCER_ID, is_appended=False)
    producer.answer()
    assert producer.queues.wants_identity is not raises_epochs
    producer.finish()
    assert producer.values() == [b"0", b"1", b"2"]
    header = parse_header(producer.partitions[0].batches[-1])
    expected = (7, 1) if raises_epochs else (8, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*expected, 0)
    assert batch.sequence == 0


@pytest.mark.parametrize("code", sorted(LOST_IDENTITY - {ErrorCode.UNKNOWN_PRODUCER_ID}))
def test_a_fenced_identity_waits_for_another(code):
    producer = Producer()
    producer.put(b"0")
    producer.send()
    producer.deliver(code=code, is_appended=False)
    producer.answer()
    assert producer.queues.wants_identity
    producer.now += 10
    assert producer.queues.gather(producer.now) == {}
    producer.finish()
    assert parse_header(producer.partitions[0].batches[0]).producer_id == 8


def test_epochs_run_out():
    producer = Producer()
    producer.queues.identify(ProducerIdentity(7, 2**15 - 1))
    producer.put(b"0")
    producer.send()
    producer.deliver(code=ErrorCode.UNKNOWN_PRODUCER_ID, is_appended=False)
    producer.answer()
    assert producer.queues.wants_identity


@pytest.mark.parametrize("goes_on", [True, False])
def test_acknowledged_records_that_the_broker_lost_are_reported_unless_the_producer_is_to_go_on(goes_on):
    producer = Producer(goes_on_after_loss=goes_on)
    fives(producer, 2)
    (identity,) = producer.partitions[0].producers
    producer.partitions[0].producers[identity] = (0, 0)  # a log that was cut
    producer.partitions[0].first_offsets.clear()
    producer.deliver()
    producer.answer()
    given_up = producer.results[-1]
    assert (given_up.result, given_up.error.code) == (
        Result.RETRIED if goes_on else Result.GIVEN_UP,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
    producer.finish()
    assert producer.values() == [b"first", *([b"0"] if goes_on else []), b"1"]


def test_a_batch_that_is_refused_for_good_lets_those_behind_it_move_up():
    producer = Producer()
    first, second, third = fives(producer, 3)
    producer.deliver(code=ErrorCode.INVALID_RECORD, is_appended=False)
    producer.answer()
    assert (producer.results[-1].batch, producer.results[-1].result) == (first, Result.GIVEN_UP)
    producer.finish()
    assert producer.values() == [b"first", b"1", b"2"]
    assert [second.sequence, third.sequence] == [1, 2]


def test_a_batch_given_up_while_the_broker_may_have_it_is_not_counted_out():
    """What follows keeps its sequences; only if the broker refuses them does the epoch rise."""
    for is_appended, epoch in ((True, 0), (False, 1)):
        producer = Producer()
        fives(producer, 1)
        if is_appended:
            producer.deliver()
        producer.cut()
        (batch,) = producer.by_index[0].waiting
        producer.queues.expire(batch)
        producer.put(b"next")
        producer.finish()
        assert producer.values()[-1] == b"next"
        assert parse_header(producer.partitions[0].batches[-1]).producer_epoch == epoch


@pytest.mark.parametrize("where", ["waiting", "failed", "in flight"])
def test_a_batch_whose_time_is_over_is_not_sent_again(where):
    producer = Producer()
    first, second = fives(producer, 2)
    batch = first
    if where == "waiting":
        batch = producer.put(b"late")
        for _ in range(2):
            producer.deliver()
            producer.answer()
    elif where == "failed":
        producer.deliver(code=ErrorCode.NOT_ENOUGH_REPLICAS, is_appended=False)
        producer.answer()
    else:
        batch = second
    batch.is_finished = True
    producer.queues.expire(batch)
    if where == "in flight":
        producer.cut()
    producer.finish()
    left = {"waiting": [b"0", b"1"], "failed": [b"1"], "in flight": [b"0"]}[where]
    assert producer.values() == [b"first", *left]


def test_a_batch_is_retried_as_often_as_the_rules_say():
    producer = Producer(retries=2)
    producer.put(b"0")
    for expected in (Result.RETRIED, Result.RETRIED, Result.GIVEN_UP):
        producer.now += 10
        producer.send()
        producer.deliver(code=ErrorCode.NOT_ENOUGH_REPLICAS, is_appended=False)
        producer.answer()
        assert producer.results[-1].result is expected
    producer.finish()
    assert producer.values() == []


def test_what_the_rules_never_retry_is_given_up():
    producer = Producer(never_retried=frozenset({ErrorCode.CORRUPT_MESSAGE}))
    producer.put(b"0")
    producer.send()
    producer.deliver(code=ErrorCode.CORRUPT_MESSAGE, is_appended=False)
    producer.answer()
    assert producer.results[-1].result is Result.GIVEN_UP


def test_a_batch_that_is_too_large_goes_in_parts_or_is_given_up():
    producer = Producer()
    producer.put(b"0", b"1", b"2")
    producer.send()
    producer.deliver(code=ErrorCode.MESSAGE_TOO_LARGE, is_appended=False)
    producer.answer()
    assert producer.results[-1].result is Result.SPLIT
    producer.finish()
    assert producer.values() == [b"0", b"1", b"2"]
    assert len(producer.partitions[0].batches) == 2
    whole = Producer(splits=False)
    whole.put(b"0", b"1")
    whole.send()
    whole.deliver(code=ErrorCode.MESSAGE_TOO_LARGE, is_appended=False)
    whole.answer()
    assert whole.results[-1].result is Result.GIVEN_UP


def test_a_partition_that_the_answer_leaves_out_is_unclear():
    producer = Producer()
    batch = producer.put(b"0")
    producer.send()
    batches, _ = producer.requests[1].popleft()
    (result,) = producer.queues.answered(1, batches, ProduceResponse(responses=[]), 0.0)
    assert (result.result, result.error.code) == (Result.GIVEN_UP, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert batch.maybe_appended
    assert "lacks this partition" in result.error.message


def test_a_refusal_names_partition_reason_and_records():
    producer = Producer()
    producer.put(b"0")
    producer.send()
    batches, _ = producer.requests[1].popleft()
    records = [
        ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=None)
        for index in range(5)
    ]
    said = ProduceResponse.PartitionProduceResponse(
        index=0, error_code=int(ErrorCode.INVALID_RECORD), base_offset=-1, record_errors=records, error_message="bad"
    )
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[said])
    (result,) = producer.queues.answered(1, batches, ProduceResponse(responses=[topic]), 0.0)
    assert result.error.message == "t-0: bad (record 0: refused; record 1: refused; record 2: refused)"
    assert result.answer is said


def test_a_request_takes_one_batch_of_a_partition_and_stays_below_its_size():
    producer = Producer(partitions=4, max_request_bytes=250)
    for partition in range(4):
        producer.put(b"a", partition=partition)
        producer.put(b"b", partition=partition)
    first = producer.queues.gather(0.0)
    assert [batch.queue.partition for batch in first[1]] == [0, 1]
    second = producer.queues.gather(0.0)
    assert [batch.queue.partition for batch in second[1]] == [2, 3]  # and those that had to wait come first


def test_a_batch_above_the_size_of_a_request_goes_alone():
    producer = Producer(max_request_bytes=50)
    producer.put(b"large")
    assert len(producer.queues.gather(0.0)[1]) == 1


def test_a_batch_lingers_until_its_time_or_the_hurry_of_the_program():
    producer = Producer()
    batch = producer.put(b"0")
    batch.is_closed = False
    batch.linger_until = 5.0
    assert producer.queues.gather(4.9) == {}
    assert producer.queues.wake_at == 5.0
    producer.queues.is_hurried = True
    assert producer.queues.gather(4.9) == {1: [batch]}


def test_a_broker_that_throttles_is_left_alone_for_so_long():
    producer = Producer()
    producer.put(b"0")
    producer.send()
    producer.deliver()
    batches, response = producer.answers[1].popleft()
    response.throttle_time_ms = 700
    producer.queues.answered(1, batches, response, 0.0)
    producer.put(b"1")
    assert producer.queues.gather(0.6) == {}
    assert producer.queues.wake_at == 0.7
    assert len(producer.queues.gather(0.7)) == 1


def test_without_a_leader_metadata_is_needed():
    producer = Producer()
    producer.put(b"0")
    producer.partitions[0].leader = None
    assert producer.queues.gather(0.0) == {}
    assert producer.queues.needs_metadata


def test_batches_in_flight_to_the_old_leader_come_back_before_others_go_to_the_new_one():
    producer = Producer()
    fives(producer, 2)
    producer.partitions[0].leader = 2
    producer.put(b"2")
    producer.send()
    assert not producer.requests[2]
    producer.finish()
    assert producer.values() == [b"first", b"0", b"1", b"2"]


def test_without_idempotence_there_are_no_sequences_and_the_window_opens_at_once():
    producer = Producer(is_idempotent=False)
    batches = [producer.put(b"%d" % number) for number in range(3)]
    producer.send()
    assert len(producer.requests[1]) == 3
    assert {batch.sequence for batch in batches} == {NO_SEQUENCE}
    assert producer.by_index[0].identity == NO_IDENTITY
    producer.finish()
    assert producer.values() == [b"0", b"1", b"2"]


def test_without_acknowledgements_a_batch_counts_as_appended_when_it_is_sent():
    producer = Producer(is_idempotent=False)
    batch = producer.put(b"0")
    producer.queues.gather(0.0)
    assert producer.queues.assume_appended([batch]) == [(batch, Result.APPENDED, None, None)]
    assert producer.by_index[0].is_idle


def test_what_could_not_be_sent_is_known_not_to_be_there():
    producer = Producer()
    batch = producer.put(b"0")
    producer.queues.gather(0.0)
    (result,) = producer.queues.refused([batch], KafkaError(ErrorCode.UNSUPPORTED_VERSION), 0.0)
    assert result.result is Result.GIVEN_UP
    assert not batch.maybe_appended


def test_sequences_wrap():
    producer = Producer()
    producer.put(b"0")
    producer.finish()
    producer.by_index[0].next_sequence = 2**31 - 1
    producer.partitions[0].producers[7] = (0, 2**31 - 1)
    batches = [producer.put(b"1"), producer.put(b"2")]
    producer.send()
    assert [batch.sequence for batch in batches] == [2**31 - 1, 0]
