"""Sends encoded batches to the leaders of their partitions: the blocking driver of `ottla.client_core.send_queues`.

Up to MAX_IN_FLIGHT requests per broker are in flight, each with at most one batch of a partition, so that one sync of
the broker's disk serves many. The core decides what responses mean and what is sent again. Batches have a producer id
and sequences (KIP-98): a broker that has a batch already reports that and keeps it once; it remembers MAX_IN_FLIGHT of
them. If a broker has forgotten the producer, a new producer id is used for the rest.

A task fails after `kafka.delivery.timeout.ms` without any progress, counted from the first request: it waits for a
broker that is away when the task begins, as for one that stops later. A permanent refusal ends the task immediately,
with WriteFailed. A batch that is too large for its topic is split, and later batches of the topic are smaller; only a
single record that is too large ends the task. The broker does not recognise batches of an earlier attempt of the task,
so a retried task writes its records again: at least once. With a transaction, the next attempt knows what was committed
(ottla.spark.exactly_once)."""

from __future__ import annotations

import logging
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.client_core.partition_queue import PartitionQueue, ProducerIdentity, QueuedBatch
from ottla.client_core.send_queues import LAST_VERSION_WITH_TOPIC_NAMES, SendQueues
from ottla.client_core.send_results import Result, SendResult, SendRules
from ottla.client_core.transaction_questions import LAST_OLD_PRODUCE_VERSION
from ottla.protocol.api import ApiKey
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, seal_batch
from ottla.protocol.records.compression import Compression
from ottla.protocol.types import ZERO_UUID
from ottla.spark.cluster import Cluster, Retriable
from ottla.spark.errors import BrokerUnavailable, ProtocolFailure, WriteFailed
from ottla.spark.patience import Patience
from ottla.spark.splitting import smaller_batch_bytes, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.arrow.encoder import Body
    from ottla.spark.client_options import ClientSettings
    from ottla.spark.option_values import Address
    from ottla.spark.options import TopicPartition
    from ottla.spark.producer_options import ProducerSettings
    from ottla.spark.transaction import Transaction

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 5
_ZSTD_SINCE = 7

_HINTS = {
    ErrorCode.INVALID_TIMESTAMP: "; the topic's message.timestamp.after.max.ms and ...before.max.ms bound the times",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "; the broker does not let this client write there",
}


class Batch(QueuedBatch):
    """Encoded records of one partition. `created_ms` is the timestamp of records without one."""

    __slots__ = ("body", "created_ms", "timestamps_ms", "topic")

    queue: PartitionQueue[Batch]

    def __init__(self, topic: str, body: Body, created_ms: int) -> None:
        super().__init__()
        self.topic = topic
        self.body = body
        self.created_ms = created_ms
        self.record_count = body.record_count
        self.timestamps_ms = body.timestamps_ms or (created_ms, created_ms)
        self.is_closed = True

    @property
    def size_bytes(self) -> int:
        """The size of the batch, compressed; before it is sealed, the most that it can be."""
        return HEADER_BYTES + len(self.body.records) if self.sealed is None else len(self.sealed)


class _Sent(NamedTuple):
    """A request in flight."""

    address: Address
    batches: list[Batch]


class Sender:
    """Writes for one task. Not for several threads; `close` it when done. The clock's functions are for tests."""

    def __init__(
        self,
        client: ClientSettings,
        producer: ProducerSettings,
        transaction: Transaction | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._settings = producer
        self._patience = Patience(producer.delivery_timeout_ms, client.retry_backoff_ms, monotonic, sleep)
        self._transaction = transaction
        self._attributes = int(producer.compression) | (0 if transaction is None else TRANSACTIONAL_BIT)
        self._cluster = Cluster(client, persistent=False) if transaction is None else transaction.cluster
        # Responses come in the order of the requests, so other requests than Produce need connections of their own
        # while these have some in flight. A task begins with such requests, and goes on with their connection.
        self._lines = Cluster(client, persistent=False)
        self._leaders: dict[str, dict[int, Address]] = {}
        self._queues: SendQueues[Batch, Address] = SendQueues(
            SendRules(
                is_idempotent=producer.is_idempotent,
                max_in_flight=MAX_IN_FLIGHT,
                max_request_bytes=producer.max_request_bytes,
                backoff=self._patience.backoff,
                raises_epochs=False,
                goes_on_after_loss=transaction is None,
                never_retried=frozenset({ErrorCode.CORRUPT_MESSAGE}),
                is_transactional=transaction is not None,
            ),
            seal=self._seal,
            split=self._split,
            leader_of=lambda topic, partition: self._leaders[topic].get(partition),
            topic_id=lambda topic: ZERO_UUID,  # a writer means the name
            may_write=lambda address: True,
            may_go=None if transaction is None else transaction.may_write,
        )
        self._queues.wants_identity = producer.is_idempotent
        if transaction is not None:
            self._queues.identify(transaction.identity)
        self._batch_bytes: dict[str, int] = {}
        """How large batches may be, of topics that have refused one as too large."""
        self._by_place: dict[TopicPartition, PartitionQueue[Batch]] = {}
        self._in_flight: deque[_Sent] = deque()
        self._unacknowledged = 0
        """The number of records that were passed to `send` and are not acknowledged."""
        self._problem: Exception | None = None
        """A failure since the last acknowledgement that may pass."""
        self._give_up_at = 0.0
        self.acknowledged = 0
        """The number of records that brokers have acknowledged."""

    @property
    def has_requests_in_flight(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._in_flight)

    def commit(self) -> None:
        """Wait as `flush`, and commit the transaction."""
        assert self._transaction is not None
        self.flush()
        self._transaction.commit(spare=self._lines)

    def close(self) -> None:
        """Close every connection; records that are not acknowledged may or may not be in the log."""
        self._cluster.close()
        self._lines.close()

    def find(self, topics: Iterable[str]) -> None:
        """Look up topics, those that are not known yet in one request. Before anything else is called about them.

        The broker may create them, if its configuration allows that. Raises BrokerUnavailable, and WriteFailed for a
        topic that may not be written to, or does not exist. That fails in seconds: unlike a broker that is away, it is
        a mistake in the query. Many topics may take longer, so the attempts are counted since one of them was found.
        """
        missing = [topic for topic in topics if topic not in self._leaders]
        attempts_left = self._client.offset_retries
        while missing:
            try:
                found = self._patience.answer(partial(self._cluster.partition_leaders, missing, may_create=True))
            except ProtocolFailure as problem:
                raise WriteFailed(f"cannot write to {problem}") from None
            self._leaders |= found
            missing = [topic for topic in missing if topic not in found]
            attempts_left = self._client.offset_retries if found else attempts_left - 1
            if missing and attempts_left < 0:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                said = f"the broker answered {unknown.name} ({unknown.message})"
                raise WriteFailed(f"cannot write to topic {missing[0]}: {said}")
            if missing:
                self._patience.sleep(self._client.offset_retry_interval_ms / 1000)

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        return len(self._leaders[topic])

    def batch_bytes(self, topic: str) -> int:
        """Return the batch size for a topic: `kafka.batch.size`, or less if the topic has refused a batch."""
        return self._batch_bytes.get(topic, self._settings.batch_bytes)

    def send(self, batches: Sequence[Batch]) -> None:
        """Send batches, each partition's in the given order; return when they are in flight or acknowledged.

        Raises WriteFailed or BrokerUnavailable, for these or earlier ones.
        """
        if self._queues.wants_identity:
            self._patience.answer(self._identify)
        for batch in batches:
            batch.queue = self._queue(batch)
            self._queues.seal(batch)
            batch.queue.waiting.append(batch)
            self._queues.activate(batch.queue)
            self._unacknowledged += batch.record_count
        while self._queues.has_waiting:
            self._step()

    def flush(self) -> None:
        """Wait until everything that was sent is acknowledged. Raises WriteFailed or BrokerUnavailable."""
        while self._unacknowledged:
            self._step()

    # Questions --------------------------------------------------------------------------------------------------

    def _identify(self) -> None:
        self._queues.identify(ProducerIdentity(*self._cluster.init_producer_id()))

    def _queue(self, batch: Batch) -> PartitionQueue[Batch]:
        place = (batch.topic, batch.body.partition)
        queue = self._by_place.get(place)
        if queue is None:
            self._check_partition(*place)
            queue = self._by_place[place] = PartitionQueue(*place)
            if self._transaction is not None:
                self._transaction.will_write(*place)
        return queue

    def _find_leaders(self) -> None:
        """Look up the leaders of the unacknowledged batches; a deleted topic ends the task."""
        topics = sorted({queue.topic for queue in self._queues.active})
        try:
            found = self._cluster.partition_leaders(topics, may_create=False)
        except ProtocolFailure as problem:
            raise Retriable(str(problem)) from None
        for topic in topics:
            if topic not in found:
                raise WriteFailed(f"topic {topic} was deleted while it was written to")
        self._leaders |= found
        for queue in self._queues.active:
            self._check_partition(queue.topic, queue.partition)
        self._queues.needs_metadata = False

    def _check_partition(self, topic: str, partition: int) -> None:
        if partition not in self._leaders[topic]:
            raise WriteFailed(f"topic {topic} has no partition {partition}")

    # Sending ----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Send all batches that may be sent now; if there are none, receive a response; else pause.

        Raises WriteFailed for a permanent refusal, and for a failure that does not pass in time.
        """
        try:
            if self._queues.needs_metadata:
                self._find_leaders()
            if self._queues.wants_identity:
                self._identify()
            if self._transaction is not None:
                self._transaction.add_partitions()
        except (OSError, Retriable) as problem:
            self._note(problem)
            self._patience.pause(self._patience.backoff.pause_s(1))
            return
        if requests := self._queues.gather(self._patience.monotonic()):
            for address, batches in requests.items():
                self._transmit(address, batches)
        elif self._in_flight:
            self._receive(self._in_flight.popleft())
        else:
            self._patience.pause(self._queues.wake_at - self._patience.monotonic())

    def _transmit(self, address: Address, batches: list[Batch]) -> None:
        self._queues.sent(address)
        try:
            connection = self._lines.connection(address, spare=self._cluster)
            version = connection.version(ApiKey.PRODUCE, at_most=self._newest_produce())
            if self._settings.compression is Compression.ZSTD and version < _ZSTD_SINCE:
                raise WriteFailed(f"{address} does not take zstd, which Kafka does since 2.1")
            request = self._queues.produce_request(
                batches,
                acks=self._settings.acks,
                timeout_ms=self._client.request_timeout_ms,
                ids={},
                transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            )
            if self._transaction is not None:
                self._transaction.has_written()
            connection.send(request, version)
            self._in_flight.append(_Sent(address, batches))
        except OSError as problem:
            self._lose(address, batches, problem)

    def _newest_produce(self) -> int:
        """Return the newest version with topic names; in the older protocol of transactions, one of that."""
        is_old = self._transaction is not None and self._transaction.is_old
        return LAST_OLD_PRODUCE_VERSION if is_old else LAST_VERSION_WITH_TOPIC_NAMES

    def _receive(self, sent: _Sent) -> None:
        """Receive the response to the oldest request."""
        try:
            connection = self._lines.connection(sent.address)
            response = connection.parse(connection.receive(), ProduceResponse)
        except OSError as problem:
            self._lose(sent.address, sent.batches, problem)
            return
        self._take(self._queues.answered(sent.address, sent.batches, response, self._patience.monotonic()))

    def _lose(self, address: Address, batches: list[Batch], problem: OSError) -> None:
        """Drop a broken connection, and with it all requests in flight on it."""
        self._lines.drop(address)
        named = problem if isinstance(problem, BrokerUnavailable) else BrokerUnavailable(f"{address}: {problem}")
        self._note(named)
        lost = [batches, *(sent.batches for sent in self._in_flight if sent.address == address)]
        self._in_flight = deque(sent for sent in self._in_flight if sent.address != address)
        error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(problem))
        for each in lost:
            self._take(self._queues.lost(address, each, error, self._patience.monotonic()))

    def _take(self, results: Iterable[SendResult[Batch]]) -> None:
        """Count acknowledged records, note batches that are sent again, raise WriteFailed for the others."""
        passing: Retriable | None = None
        for batch, result, _, answer in results:
            if result is Result.APPENDED:
                self.acknowledged += batch.record_count
                self._unacknowledged -= batch.record_count
                self._problem = None
                continue
            if result is Result.SPLIT:
                continue
            if answer is None:
                if result is Result.GIVEN_UP:
                    raise ProtocolFailure(f"{batch.queue}: the broker left the partition out of its answer")
                continue  # its connection was lost, which is noted
            code = ErrorCode.of(answer.error_code)
            said = f"{batch.queue}: the broker answered {code.name} ({answer.error_message or code.message})"
            if result is Result.RETRIED:
                passing = Retriable(said)
            elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count == 1:
                raise WriteFailed(self._too_large(batch))
            else:
                replaced = None if self._transaction is None else self._transaction.refused(code, said)
                raise replaced or WriteFailed(f"{said}{_HINTS.get(code, '')}")
        if passing is not None:
            self._note(passing)

    def _split(self, batch: Batch) -> list[Batch]:
        """Return smaller batches with the records of one that is too large; none for a single record."""
        limit = min(self.batch_bytes(batch.topic), smaller_batch_bytes(batch.body))
        parts = []
        for index, body in enumerate(split(batch.body, limit)):
            part = Batch(batch.topic, body, batch.created_ms)
            part.queue = batch.queue
            part.serial = (*batch.serial, index)
            parts.append(part)
        if parts:
            self._batch_bytes[batch.topic] = limit
            logger.info(
                "%s: a batch of %d bytes is too large for the topic and is split", batch.queue, batch.size_bytes
            )
        return parts

    def _too_large(self, batch: Batch) -> str:
        """Return the message for a record that is too large for its topic."""
        limit = self._cluster.topic_config(batch.topic, "max.message.bytes")
        return (
            f"{batch.queue}: a record of {batch.size_bytes} bytes is larger than the topic's max.message.bytes"
            f"{'' if limit is None else f' {limit}'}; raise that of topic {batch.topic}, or write smaller records"
        )

    def _seal(self, batch: Batch) -> bytearray:
        base_timestamp, max_timestamp = batch.timestamps_ms
        return seal_batch(
            batch.body.records,
            base_offset=0,
            leader_epoch=-1,
            attributes=self._attributes,
            last_offset_delta=batch.record_count - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=batch.queue.identity.producer_id,
            producer_epoch=batch.queue.identity.epoch,
            base_sequence=batch.sequence,
            record_count=batch.record_count,
            level=self._settings.compression_level,
        )

    # Patience ---------------------------------------------------------------------------------------------------

    def _note(self, problem: Exception) -> None:
        """Remember a failure that may pass; raise WriteFailed or BrokerUnavailable after the delivery timeout."""
        if self._problem is None:
            self._give_up_at = self._patience.give_up_at()
        self._problem = problem
        logger.info("%s; sending again", problem)
        if self._patience.monotonic() >= self._give_up_at:
            raise self._patience.ending(f"{self._unacknowledged} records not written", problem) from None
