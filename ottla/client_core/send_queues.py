"""A producer's queues, one per partition: which batches to send now, and what to do with their results.

The driver fills queues and calls `activate`, asks `gather` for the batches to send, writes a request with them
(`produce_request`) and calls `sent`. With the result of the request it calls `answered`, `lost` or `refused`, which
return a `SendResult` for each batch. Further tasks of the driver are in `needs_metadata`, `wants_identity` (then
`identify`) and `wake_at`. Nothing here waits, and each call gets the time.

Order and exactly-once within a partition (KIP-98, KIP-360): batches carry sequences. When one fails, no batch of its
partition is sent until all batches in flight are answered; then all of them are sent again in the old order. After a
batch that was refused permanently, the later ones move up. A batch that was given up although the broker may have it
leaves an unknown gap: later batches keep their sequences, and only if the broker refuses them is the epoch raised and
counting begins at 0 again. A lost connection is such an unclear answer for each batch on it: they are sent again with
the same sequences, and the broker reports those that it had already.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar
from uuid import UUID

from ottla.client_core.cluster_view import STALE_METADATA
from ottla.client_core.partition_queue import (
    NO_IDENTITY,
    NO_SEQUENCE,
    B,
    PartitionQueue,
    ProducerIdentity,
)
from ottla.client_core.send_results import LOST_IDENTITY, UNKNOWN_OUTCOME, Result, SendResult, SendRules
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.types import ZERO_UUID

N = TypeVar("N", bound=Hashable)
"""The driver's key of a broker: a node id, or an address."""

LAST_VERSION_WITH_TOPIC_NAMES = 12
"""The version of Produce after which topics have ids instead."""
_LARGEST_EPOCH = 2**15 - 1


class SendQueues(Generic[B, N]):
    """See the module.

    `seal` encodes a batch, with the identity of its queue and its own sequence. `split` returns the parts of a batch
    that is too large for its topic, none if it cannot be split. `leader_of` returns a partition's leader, None while it
    has none. `may_write` returns whether the leader accepts bytes now; if not, it arranges that it will. `may_go` holds
    a partition's batches back until it is part of the transaction. `chance` spreads the pauses of the rules' backoff.
    """

    def __init__(
        self,
        rules: SendRules,
        *,
        seal: Callable[[B], bytearray],
        split: Callable[[B], list[B]],
        leader_of: Callable[[str, int], N | None],
        topic_id: Callable[[str], UUID],
        may_write: Callable[[N], bool],
        may_go: Callable[[str, int], bool] | None = None,
        chance: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self.identity = NO_IDENTITY
        self.wants_identity = False
        """Whether a new producer id is needed: queues without one wait for it."""
        self.needs_metadata = False
        """Whether a partition's leader is unknown or has changed. Reset by the driver."""
        self.is_hurried = False
        """Whether a caller waits (flush, close, a full buffer): batches do not linger."""
        self.wake_at = math.inf
        """The time of the next `gather` at the latest, set by the last call."""
        self.may_have_more = False
        """Whether another `gather` may find more immediately: the last one left batches for another request, or a
        request was refused since."""
        self.requests_in_flight = 0
        """The number of requests that wait for an answer."""
        self._rules = rules
        self._seal = seal
        self._split = split
        self._leader_of = leader_of
        self._topic_id = topic_id
        self._may_write = may_write
        self._may_go = may_go
        self._chance = chance
        self._active: dict[PartitionQueue[B], None] = {}
        self._in_flight: dict[N, int] = defaultdict(int)
        self._throttled_until: dict[N, float] = {}

    @property
    def has_waiting(self) -> bool:
        """Whether there is a batch to be sent, for the first time or again."""
        return any(queue.waiting or queue.failed for queue in self._active)

    @property
    def active(self) -> list[PartitionQueue[B]]:
        """The queues with something to send or in flight, as of the last `gather` that found nothing to send."""
        return list(self._active)

    def activate(self, queue: PartitionQueue[B]) -> None:
        """Include a queue that has a batch now in `gather`."""
        self._active[queue] = None

    def identify(self, identity: ProducerIdentity) -> None:
        """Use a new identity, in queues that have none or want another."""
        self.identity = identity
        self.wants_identity = False

    # Out --------------------------------------------------------------------------------------------------------

    def gather(self, now: float) -> dict[N, list[B]]:
        """Take at most one batch of each queue, grouped by leaders that can take a request now.

        Call it until it returns nothing, or `may_have_more` is false: a leader may take several requests.
        """
        requests: dict[N, list[B]] = {}
        sizes: dict[N, int] = defaultdict(int)
        self.wake_at = math.inf
        self.may_have_more = False
        for queue in self._active:
            if not self._may_send(queue, now):
                continue
            leader = self._leader_of(queue.topic, queue.partition)
            if leader is None:
                self.needs_metadata = True
                continue
            topic_id = self._topic_id(queue.topic)
            if queue.in_flight and (queue.leader, queue.topic_id) != (leader, topic_id):
                continue  # the old leader's answers first, or sequences would overtake each other
            if self._in_flight[leader] >= self._rules.max_in_flight or self._is_throttled(leader, now):
                continue
            if not self._may_write(leader):
                continue
            batch = queue.waiting[0]
            size_bytes = batch.size_bytes
            if sizes[leader] and sizes[leader] + size_bytes > self._rules.max_request_bytes:
                self.may_have_more = True
                continue
            sizes[leader] += size_bytes
            queue.waiting.popleft()
            if queue.waiting:
                self.may_have_more = True
            queue.in_flight.append(batch)
            queue.go_to(leader, topic_id)
            requests.setdefault(leader, []).append(batch)
        # Queues that were served go to the end, so that a full request does not starve the rest.
        for batches in requests.values():
            for batch in batches:
                del self._active[batch.queue]
                self._active[batch.queue] = None
        if not requests:
            for queue in [queue for queue in self._active if queue.is_idle]:
                del self._active[queue]
        return requests

    def is_clear(self, queue: PartitionQueue[B], leader: N, topic_id: UUID, now: float) -> bool:
        """Whether `gather` would send the next batch of this queue immediately, and nothing else.

        It need not linger, and is the only one of its queue, which may be active or not. `leader` and `topic_id` are
        the current ones, and the leader accepts bytes. The answer is also False where `gather` has more to decide.
        """
        active = self._active
        if active and (self.requests_in_flight or queue.failed or len(active) > 1 or queue not in active):
            return False
        if self.needs_metadata or self.wants_identity or self._may_go is not None or now < queue.not_before:
            return False
        if self._throttled_until and self._is_throttled(leader, now):
            return False
        if queue.leader != leader or queue.topic_id is not topic_id:
            return False
        return queue.identity is not NO_IDENTITY or not self._rules.is_idempotent

    def sent_alone(self, batch: B, leader: N) -> None:
        """Count the request of a batch that was alone, with its sequence, as `gather` and `sent` do.

        It was written when its queue `is_clear`, in this step.
        """
        queue = batch.queue
        self._active[queue] = None
        queue.waiting.clear()
        queue.in_flight.append(batch)
        self._in_flight[leader] += 1
        self.requests_in_flight += 1

    def _may_send(self, queue: PartitionQueue[B], now: float) -> bool:
        if not queue.waiting or (queue.in_flight and queue.is_unsettled):
            return False
        if self._rules.is_idempotent and queue.in_flight and not queue.may_overtake(queue.waiting[0]):
            return False
        if now < queue.not_before:
            self._wake(queue.not_before)
            return False
        if self._rules.is_idempotent and queue.identity == NO_IDENTITY and self.wants_identity:
            return False
        if self._may_go is not None and not self._may_go(queue.topic, queue.partition):
            return False
        batch = queue.waiting[0]
        if batch.is_closed or self.is_hurried or now >= batch.linger_until:
            return True
        self._wake(batch.linger_until)
        return False

    def _is_throttled(self, leader: N, now: float) -> bool:
        until = self._throttled_until.get(leader)
        if until is not None and now < until:
            self._wake(until)
            return True
        return False

    def _wake(self, when: float) -> None:
        self.wake_at = min(self.wake_at, when)

    def seal(self, batch: B) -> bytearray:
        """Assign a batch a sequence, if it has none, and return its bytes: the same ones until it gets another."""
        if self._rules.is_idempotent:
            if self._rules.is_transactional:
                batch.queue.follow(self.identity)
            batch.queue.number(batch, self.identity)
        if batch.sealed is None:
            batch.sealed = self._seal(batch)
        return batch.sealed

    def records_of(self, batch: B) -> bytearray:
        """Return the bytes of a batch of `gather` for its request, and count it as sent once more."""
        batch.attempts += 1
        return self.seal(batch)

    def produce_request(
        self,
        batches: Sequence[B],
        *,
        acks: int,
        timeout_ms: int,
        ids: Mapping[str, UUID],
        transactional_id: str | None = None,
    ) -> ProduceRequest:
        """Return the request with batches of `gather`, each counted as sent once more. `ids` by topic."""
        by_topic: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
        for batch in batches:
            data = ProduceRequest.PartitionProduceData(index=batch.queue.partition, records=self.records_of(batch))
            by_topic.setdefault(batch.queue.topic, []).append(data)
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(name=topic, topic_id=ids.get(topic, ZERO_UUID), partition_data=data)
                for topic, data in by_topic.items()
            ],
        )

    def sent(self, leader: N) -> None:
        """Count a request that waits for an answer."""
        self._in_flight[leader] += 1
        self.requests_in_flight += 1

    # Results ----------------------------------------------------------------------------------------------------

    def answered(
        self,
        leader: N,
        batches: Sequence[B],
        response: ProduceResponse,
        now: float,
        names_by_id: Mapping[UUID, str] | None = None,
    ) -> list[SendResult[B]]:
        """Return each batch's result from the answer to its request; `names_by_id` for answers without topic names."""
        self._answer_came(leader)
        if response.throttle_time_ms > 0:
            self._throttled_until[leader] = now + response.throttle_time_ms / 1000
        waiting = {(batch.queue.topic, batch.queue.partition): batch for batch in batches}
        results: list[SendResult[B]] = []
        for topic in response.responses:
            name = topic.name if names_by_id is None else names_by_id.get(topic.topic_id, "")
            for answer in topic.partition_responses:
                batch = waiting.pop((name, answer.index), None)
                if batch is None:
                    continue
                if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    results.append(self._appended(batch, answer))
                    continue
                code = ErrorCode.of(answer.error_code)
                error = KafkaError(code, _explain(batch.queue, answer, code))
                results.append(self._failed(batch, error, now, code in UNKNOWN_OUTCOME, answer))
        for batch in waiting.values():
            silent = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer lacks this partition")
            results.append(self._failed(batch, silent, now, True))
        return results

    def appended(self, leader: N, batch: B) -> bool:
        """Note that the only batch of a request was appended, as `answered` does; return whether `gather` may find
        more.
        """
        self._in_flight[leader] -= 1
        self.requests_in_flight -= 1
        if not batch.queue.appended(batch):
            self._active.pop(batch.queue, None)
        return bool(self._active)

    def assume_appended(self, batches: Sequence[B]) -> list[SendResult[B]]:
        """Return the results of batches that get no answer (acks=0)."""
        return [self._appended(batch, None) for batch in batches]

    def lost(self, leader: N, batches: Sequence[B], error: KafkaError, now: float) -> list[SendResult[B]]:
        """Return the results of batches whose connection ended before the answer came: the broker may have them."""
        self._answer_came(leader)
        return [self._failed(batch, error, now, True) for batch in batches]

    def refused(
        self, batches: Sequence[B], error: KafkaError, now: float, *, is_unknown: bool = False
    ) -> list[SendResult[B]]:
        """Return the results of batches that could not be sent: the broker does not have them, unless `is_unknown`."""
        self.may_have_more = True
        return [self._failed(batch, error, now, is_unknown) for batch in batches]

    def expire(self, batch: B) -> None:
        """Remove an expired batch from its queue; the answer to one in flight is awaited, but it is not retried."""
        queue = batch.queue
        if batch in queue.in_flight:
            return
        queue.note_given_up(batch)
        if batch in queue.waiting:
            queue.waiting.remove(batch)
        if batch in queue.failed:
            queue.failed.remove(batch)
        queue.settle()

    def _answer_came(self, leader: N) -> None:
        self._in_flight[leader] -= 1
        self.requests_in_flight -= 1

    def _appended(self, batch: B, answer: ProduceResponse.PartitionProduceResponse | None) -> SendResult[B]:
        batch.queue.appended(batch)
        return SendResult(batch, Result.APPENDED, None, answer)

    def _failed(
        self,
        batch: B,
        error: KafkaError,
        now: float,
        is_unknown: bool,
        answer: ProduceResponse.PartitionProduceResponse | None = None,
    ) -> SendResult[B]:
        """Queue a batch again, whole or in parts, or give it up; `is_unknown`: the broker may have it."""
        queue = batch.queue
        queue.in_flight.remove(batch)
        batch.maybe_appended |= is_unknown
        if error.code in STALE_METADATA:
            self.needs_metadata = True
        if error.code == ErrorCode.MESSAGE_TOO_LARGE and not batch.is_finished and (parts := self._split(batch)):
            batch.maybe_appended = False
            queue.note_given_up(batch)  # the batches after it move up
            self._put_back(queue, parts)
            result = Result.SPLIT
        elif not batch.is_finished and self._is_to_be_retried(batch, error.code):
            queue.failures += 1
            queue.not_before = now + self._rules.backoff.pause_s(queue.failures, self._chance())
            self._put_back(queue, [batch])
            result = Result.RETRIED
        else:
            queue.note_given_up(batch)
            result = Result.GIVEN_UP
        queue.settle()
        return SendResult(batch, result, error, answer)

    def _put_back(self, queue: PartitionQueue[B], batches: list[B]) -> None:
        queue.failed += batches
        queue.failed.sort(key=lambda failed: failed.serial)

    def _is_to_be_retried(self, batch: B, code: ErrorCode) -> bool:
        """Whether to send a batch again; this also replaces the identity, which some refusals require."""
        queue = batch.queue
        if batch.attempts > self._rules.retries:
            return False
        if self._rules.is_transactional and code in LOST_IDENTITY:
            return False  # the transaction has to be aborted
        if self._rules.is_idempotent and code in LOST_IDENTITY:
            self._change_identity(queue, by_epoch=code == ErrorCode.UNKNOWN_PRODUCER_ID)
            return True
        if self._rules.is_idempotent and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if self._has_earlier(queue, batch) or queue.rewind_to is not None:
                return True  # an earlier batch failed, so this one had to be refused
            if self._rules.is_transactional:
                return False
            self._change_identity(queue, by_epoch=True)
            # Without such a gap the broker has lost acknowledged records, which must be reported.
            return self._rules.goes_on_after_loss or queue.unknown_gap is not None
        return code.retriable and code not in self._rules.never_retried

    def _has_earlier(self, queue: PartitionQueue[B], batch: B) -> bool:
        """Whether a batch that was sent before this one is in flight or will be retried."""
        others = [*queue.failed, *queue.in_flight]
        return any(other.serial < batch.serial and other.sequence != NO_SEQUENCE for other in others)

    def _change_identity(self, queue: PartitionQueue[B], *, by_epoch: bool) -> None:
        """Let a queue continue under another identity, once no batch of it is in flight.

        Raising the epoch needs no broker (KIP-360); for an id that was fenced, or has no epoch left, a new one is
        requested.
        """
        if queue.wants_new_identity:
            return
        queue.wants_new_identity = True
        if queue.identity not in (self.identity, NO_IDENTITY):
            return  # the producer has another identity already, only this queue has not
        if by_epoch and self._rules.raises_epochs and self.identity.epoch < _LARGEST_EPOCH:
            if not self.wants_identity:
                self.identity = ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1)
        else:
            self.wants_identity = True


def _explain(queue: PartitionQueue[B], answer: ProduceResponse.PartitionProduceResponse, code: ErrorCode) -> str:
    """Return a message with the partition, the broker's message, and the records that it names if that says more."""
    message = f"{queue}: {answer.error_message or code.message}"
    named = [
        f"record {refused.batch_index}: {refused.batch_index_error_message or 'refused'}"
        for refused in answer.record_errors[:3]
    ]
    if len(named) == 1 and answer.record_errors[0].batch_index_error_message == answer.error_message:
        return message
    return f"{message} ({'; '.join(named)})" if named else message
