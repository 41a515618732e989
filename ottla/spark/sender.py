"""Brings encoded batches to the leaders of their partitions, and knows which of them are kept: a blocking producer.

While all goes well, up to MAX_IN_FLIGHT requests per broker are on their way, each with at most one batch of a
partition, so that one sync of the broker's disk serves many. When anything goes wrong (an error that may pass, a broken
connection, a leader that moved) the sender stops being clever: it drops every connection and sends what is
unacknowledged again, in order, one batch per partition at a time, until all of it is in. Batches carry a producer id
and sequences (KIP-98), so a broker that had one already says so and keeps it once; it remembers MAX_IN_FLIGHT of them.

`kafka.delivery.timeout.ms` without any progress is the end, counted from the first question on: a broker that is away
when a task begins is waited for like one that goes away later. What the broker refuses for good ends at once:
WriteFailed, and Spark fails the task. A batch of another attempt of the same task is a stranger to the broker, so a
retried task writes its records again: at least once."""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.client_core.retries import Attempts, Backoff
from ottla.protocol.api import ApiKey
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import increment_sequence, seal_batch
from ottla.protocol.records.compression import Compression
from ottla.spark.cluster import Cluster, Retriable
from ottla.spark.errors import BrokerUnavailable, ProtocolFailure, WriteFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.spark.client_options import ClientSettings
    from ottla.spark.encoder import Body
    from ottla.spark.option_values import Address
    from ottla.spark.options import TopicPartition
    from ottla.spark.producer_options import ProducerSettings

T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 5
_NAMES_TOPICS_UP_TO = 12  # Produce names topics by id from 13 on; a writer means the name
_ZSTD_SINCE = 7
_NO_PRODUCER = (-1, -1)
_LOST_IDENTITY = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""The broker and the sender disagree about what was written. Behind a failed batch that is to be expected; else the
broker has lost some, and the sender goes on as a new producer."""

_HINTS = {
    ErrorCode.MESSAGE_TOO_LARGE: "; the topic's max.message.bytes is smaller than a batch: lower kafka.batch.size",
    ErrorCode.INVALID_TIMESTAMP: "; the topic's message.timestamp.after.max.ms and ...before.max.ms bound the times",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "; the broker does not let this client write there",
}


class Batch:
    """Encoded records of one partition on their way; `sealed` is set while they have a place in the sequence.

    `created_ms` is the time of records that name none.
    """

    __slots__ = ("body", "place", "sealed", "timestamps_ms")

    def __init__(self, topic: str, body: Body, created_ms: int) -> None:
        self.place = (topic, body.partition)
        self.body = body
        self.timestamps_ms = body.timestamps_ms or (created_ms, created_ms)
        self.sealed: bytearray | None = None


class _Lost(Exception):
    """The broker does not know what this producer wrote before."""


class _Sent(NamedTuple):
    address: Address
    batches: list[Batch]


class Sender:
    """Writes for one task. Not for several threads; `close` it when done. The clock's parts are for tests."""

    def __init__(
        self,
        client: ClientSettings,
        producer: ProducerSettings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._settings = producer
        self._monotonic = monotonic
        self._sleep = sleep
        self._backoff = Backoff(client.retry_backoff_ms, client.retry_backoff_ms)
        self._cluster = Cluster(client, persistent=False)
        # Answers come in the order of the requests, so questions need connections of their own.
        self._lines = Cluster(client, persistent=False)
        self._identity: tuple[int, int] | None = None
        self._leaders: dict[str, dict[int, Address]] = {}
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._established: set[TopicPartition] = set()
        self._unacknowledged: dict[TopicPartition, deque[Batch]] = defaultdict(deque)
        self._in_flight: dict[Address, deque[list[Batch]]] = defaultdict(deque)
        self.acknowledged = 0
        """The number of records that brokers have acknowledged."""

    def close(self) -> None:
        """Close every connection; what is not acknowledged may or may not be in the log."""
        self._cluster.close()
        self._lines.close()

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; asking may create it, if the broker's configuration says so.

        Raises WriteFailed for a topic that does not exist or may not be written to, and BrokerUnavailable.
        """
        if topic not in self._leaders:
            try:
                self._leaders[topic] = self._first_leaders(topic)
            except ProtocolFailure as problem:
                raise WriteFailed(f"cannot write to topic {topic}: {problem}") from None
        return len(self._leaders[topic])

    def send(self, batches: Sequence[Batch]) -> None:
        """Send batches, each partition's in the order given; returns when they are on their way, or in.

        Raises WriteFailed or BrokerUnavailable, for these or earlier ones.
        """
        if self._identity is None:
            self._patiently(self._identify)
        for batch in batches:
            self._seal(batch)
            self._unacknowledged[batch.place].append(batch)
        try:
            for sent in self._requests(batches):
                while self._must_wait(sent):
                    self._receive(sent.address)
                self._transmit(sent)
        except (OSError, Retriable, _Lost) as problem:
            self._recover(problem)

    def flush(self) -> None:
        """Wait until everything that was sent is acknowledged. Raises WriteFailed or BrokerUnavailable."""
        try:
            self._await_all()
        except (OSError, Retriable, _Lost) as problem:
            self._recover(problem)

    def _first_leaders(self, topic: str) -> dict[int, Address]:
        """Return the leaders of a topic, which may have to be created; a name that stays unknown is an end in seconds.

        A topic that the broker does not create is a mistake in the query, other than a broker that is away.
        """
        for attempts_left in range(self._client.offset_retries, -1, -1):
            found = self._patiently(lambda: self._cluster.partition_leaders(topic, may_create=True))
            if found is not None:
                return found
            if attempts_left:
                self._sleep(self._client.offset_retry_interval_ms / 1000)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise WriteFailed(f"cannot write to topic {topic}: the broker answered {unknown.name} ({unknown.message})")

    def _patiently(self, question: Callable[[], T]) -> T:
        """Ask until there is an answer, for as long as a batch would be waited for."""
        give_up_at = self._monotonic() + self._settings.delivery_timeout_ms / 1000
        attempts = Attempts(self._backoff, give_up_at=give_up_at, last_at_the_end=True)
        while True:
            try:
                return question()
            except (BrokerUnavailable, Retriable) as problem:
                pause_s = attempts.failed(self._monotonic())
                if pause_s is None:
                    waited = f"nothing written within kafka.delivery.timeout.ms {self._settings.delivery_timeout_ms}"
                    raise _ending(waited, problem) from None
                if attempts.failures == 1:
                    logger.warning("%s; the task waits for it", problem)
            self._sleep(pause_s)

    def _identify(self) -> None:
        self._identity = self._cluster.init_producer_id() if self._settings.is_idempotent else _NO_PRODUCER
        self._sequences.clear()
        self._established.clear()

    def _seal(self, batch: Batch) -> None:
        producer_id, epoch = self._identity or _NO_PRODUCER
        sequence = self._sequences[batch.place] if producer_id >= 0 else -1
        base_timestamp, max_timestamp = batch.timestamps_ms
        batch.sealed = seal_batch(
            batch.body.records,
            base_offset=0,
            leader_epoch=-1,
            attributes=int(self._settings.compression),
            last_offset_delta=batch.body.record_count - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            record_count=batch.body.record_count,
            level=self._settings.compression_level,
        )
        if producer_id >= 0:
            self._sequences[batch.place] = increment_sequence(sequence, batch.body.record_count)

    def _requests(self, batches: Sequence[Batch]) -> Iterator[_Sent]:
        """Share batches out among requests: by leader, one per partition, as many as fit into a request."""
        waiting: dict[TopicPartition, deque[Batch]] = defaultdict(deque)
        for batch in batches:
            waiting[batch.place].append(batch)
        while waiting:
            requests: dict[Address, _Sent] = {}
            sizes: dict[Address, int] = defaultdict(int)
            for place in list(waiting):
                batch = waiting[place].popleft()
                if not waiting[place]:
                    del waiting[place]
                address = self._leader(place)
                size = len(batch.sealed or b"")
                if sizes[address] and sizes[address] + size > self._settings.max_request_bytes:
                    yield requests.pop(address)
                    sizes[address] = 0
                requests.setdefault(address, _Sent(address, [])).batches.append(batch)
                sizes[address] += size
            yield from requests.values()

    def _leader(self, place: TopicPartition) -> Address:
        topic, partition = place
        self.partition_count(topic)
        address = self._leaders[topic].get(partition)
        if address is None:
            raise WriteFailed(f"topic {topic} has no partition {partition}")
        return address

    def _must_wait(self, sent: _Sent) -> bool:
        """Say whether an answer must come first: too many are due, or a partition does not know this producer yet.

        A broker lets a producer that it does not know begin at any sequence. So were the first batch lost, the second
        would be taken for the first; nothing follows the first until it is in.
        """
        in_flight = self._in_flight[sent.address]
        if len(in_flight) >= MAX_IN_FLIGHT:
            return True
        strangers = {batch.place for batch in sent.batches} - self._established
        return bool(strangers) and any(batch.place in strangers for batches in in_flight for batch in batches)

    def _transmit(self, sent: _Sent) -> None:
        connection = self._lines.connection(sent.address)
        version = connection.version(ApiKey.PRODUCE, at_most=_NAMES_TOPICS_UP_TO)
        if self._settings.compression is Compression.ZSTD and version < _ZSTD_SINCE:
            raise WriteFailed(f"{sent.address} does not take zstd, which Kafka does since 2.1")
        topics: dict[str, ProduceRequest.TopicProduceData] = {}
        for batch in sent.batches:
            topic, partition = batch.place
            if topic not in topics:
                topics[topic] = ProduceRequest.TopicProduceData(name=topic, partition_data=[])
            data = ProduceRequest.PartitionProduceData(index=partition, records=batch.sealed)
            topics[topic].partition_data.append(data)
        request = ProduceRequest(
            acks=self._settings.acks, timeout_ms=self._client.request_timeout_ms, topic_data=list(topics.values())
        )
        connection.send(request, version)
        self._in_flight[sent.address].append(sent.batches)

    def _await_all(self) -> None:
        for address, requests in self._in_flight.items():
            while requests:
                self._receive(address)

    def _receive(self, address: Address) -> None:
        """Take the oldest answer of a broker. Raises Retriable or _Lost when a batch is to be sent again."""
        connection = self._lines.connection(address)
        response = connection.parse(connection.receive(), ProduceResponse)
        answers = {
            (topic.name, partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        problem: Exception | None = None
        for batch in self._in_flight[address].popleft():
            answer = answers.get(batch.place)
            if answer is None:
                raise ProtocolFailure(f"{_named(batch.place)}: the broker left the partition out of its answer")
            problem = self._settle(batch, answer) or problem
        if problem is not None:
            raise problem

    def _settle(self, batch: Batch, answer: ProduceResponse.PartitionProduceResponse) -> Exception | None:
        """Note an acknowledged batch, return what may pass, raise WriteFailed for what does not."""
        error = ErrorCode.of(answer.error_code)
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._established.add(batch.place)
            waiting = self._unacknowledged[batch.place]
            waiting.remove(batch)
            if not waiting:
                del self._unacknowledged[batch.place]
            self.acknowledged += batch.body.record_count
            return None
        told = f"{_named(batch.place)}: the broker answered {error.name} ({answer.error_message or error.message})"
        if error in _LOST_IDENTITY:
            return _Lost(told)
        if error.retriable and error != ErrorCode.CORRUPT_MESSAGE:
            return Retriable(told)
        if error == ErrorCode.MESSAGE_TOO_LARGE and batch.body.record_count == 1:
            size = len(batch.sealed or b"")
            raise WriteFailed(f"{told}; one record of {size} bytes is more than the topic's max.message.bytes")
        raise WriteFailed(f"{told}{_HINTS.get(error, '')}")

    def _recover(self, problem: Exception) -> None:
        """Send everything unacknowledged again, carefully, until it is in or time is up."""
        give_up_at = self._monotonic() + self._settings.delivery_timeout_ms / 1000
        while self._unacknowledged:
            logger.info("%s; sending again", problem)
            self._lines.close()
            self._in_flight.clear()
            before = self.acknowledged
            self._sleep(self._client.retry_backoff_ms / 1000)
            try:
                self._find_leaders()
                if self._identity is None:
                    self._start_anew()
                while self._unacknowledged:
                    heads = [waiting[0] for waiting in self._unacknowledged.values()]
                    for sent in self._requests(heads):
                        self._transmit(sent)
                        self._receive(sent.address)
            except _Lost as lost:
                problem = lost
                self._identity = None
            except (OSError, Retriable) as next_problem:
                problem = next_problem
            if self.acknowledged > before:
                give_up_at = self._monotonic() + self._settings.delivery_timeout_ms / 1000
            elif self._unacknowledged and self._monotonic() >= give_up_at:
                self._give_up(problem)
        self._in_flight.clear()

    def _find_leaders(self) -> None:
        """Look for the leaders of what is unacknowledged; a topic that is gone is an end, not something to wait for."""
        self._leaders.clear()
        for topic in sorted({topic for topic, _ in self._unacknowledged}):
            try:
                leaders = self._cluster.partition_leaders(topic, may_create=False)
            except ProtocolFailure as problem:
                raise Retriable(str(problem)) from None
            if leaders is None:
                raise WriteFailed(f"topic {topic} was deleted while it was written to")
            self._leaders[topic] = leaders

    def _start_anew(self) -> None:
        """Go on as a new producer, whose sequences begin at 0 with what is unacknowledged."""
        self._identify()
        for waiting in self._unacknowledged.values():
            for batch in waiting:
                self._seal(batch)

    def _give_up(self, problem: Exception) -> None:
        records = sum(batch.body.record_count for waiting in self._unacknowledged.values() for batch in waiting)
        waited = f"{records} records not written within kafka.delivery.timeout.ms {self._settings.delivery_timeout_ms}"
        raise _ending(waited, problem) from None


def _ending(waited: str, problem: Exception) -> BrokerUnavailable | WriteFailed:
    """Return what a task fails with when time is up: a broker that is not there is told apart from what it answers."""
    kind = BrokerUnavailable if isinstance(problem, BrokerUnavailable) else WriteFailed
    return kind(f"{waited}: {problem}")


def _named(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"
