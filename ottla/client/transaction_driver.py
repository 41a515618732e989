"""The asyncio driver of `ottla.client_core.transactions`: its questions to a transactional producer's coordinators.

One task sends them, while there are any. Everything that may change the state ends in `changed`, which immediately
checks whether the transaction can be ended, notifies the producer, and wakes the waiting calls.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from ottla.client.cluster import Cluster
from ottla.client.coordinator import OFFSETS_LANE, Coordinator, KeyType
from ottla.client.errors import ClientClosed, ClientFailed, ClientTimeout, KafkaError
from ottla.client.producer_options import ProducerOptions
from ottla.client_core.partition_queue import ProducerIdentity
from ottla.client_core.transaction_questions import Offsets, Question
from ottla.client_core.transaction_verdicts import Verdict
from ottla.client_core.transactions import Phase, Transactions
from ottla.protocol.errors import ErrorCode, UnencodableMessage

logger = logging.getLogger(__name__)

FEATURE = "transaction.version"
CALLS = ("init", "begin", "send-offsets", "commit", "abort")
"""The calls of a program, by Kafka's names in `txn-init-time-ns-total`."""


class Batches(Protocol):
    """The part of a producer's batches that its transaction uses."""

    @property
    def are_delivered(self) -> bool:
        """Whether no batch waits or is in flight."""

    @property
    def requests_in_flight(self) -> int:
        """The number of requests that wait for an answer."""

    def identify(self, identity: ProducerIdentity) -> None:
        """Send further batches under this identity."""

    def fail(self, bug: Exception) -> None:
        """End the producer because of an unexpected exception."""

    def give_up_all(self, error: KafkaError) -> bool:
        """Give up all batches; return whether the broker may have some that it has not acknowledged."""


class TransactionDriver:
    """See the module. `on_change` is called when the state may have changed."""

    def __init__(
        self, cluster: Cluster, options: ProducerOptions, batches: Batches, on_change: Callable[[], None]
    ) -> None:
        assert options.transactional_id is not None
        self.state = Transactions(
            options.transactional_id, options.transaction_timeout_ms, options.retry_backoff, random.random
        )
        self._batches = batches
        self._on_change = on_change
        self._cluster = cluster
        self._timeout_ms = options.max_block_ms
        self._coordinator = Coordinator(cluster, options.transactional_id, KeyType.TRANSACTION)
        self._groups: dict[str, Coordinator] = {}
        self._loop = asyncio.get_running_loop()
        self._asking: asyncio.Task[None] | None = None
        self._woken: asyncio.Future[None] | None = None
        self._is_wanted = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._last: KafkaError | None = None
        """The error of the last question without an answer, for calls that time out."""
        self._unreported: Phase | None = None
        """COMMITTING or ABORTING if the program does not know the result, since its call timed out or was cancelled."""
        self._spent_ns = dict.fromkeys(CALLS, 0)
        self._is_change_due = False
        self._is_closed = False

    def stop(self) -> list[asyncio.Task[None]]:
        """Send no more questions, and end every wait; return the task that was running."""
        self._is_closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(ClientClosed("the producer was closed"))
        if self._asking is None:
            return []
        self._asking.cancel()
        return [self._asking]

    # The program's calls ----------------------------------------------------------------------------------------

    async def start(self, timeout_ms: int) -> ProducerIdentity:
        """Get the producer id. An earlier producer with this id is fenced, and its open transaction aborted."""
        with self._timed("init"):
            self._wake()
            await self._until(lambda: self.state.phase is not Phase.NEW, timeout_ms)
            self._raise_failure()
        return self.state.identity

    async def begin(self) -> None:
        """Begin a transaction, by the cluster's current protocol."""
        with self._timed("begin"):
            await self._begin()

    async def _begin(self) -> None:
        self._unreported = None
        await self._until(
            lambda: self.state.phase is not Phase.NEW, self._timeout_ms
        )  # if an earlier call was cancelled
        connection = await self._cluster.retry(lambda: self._coordinator.connection(OFFSETS_LANE), self._timeout_ms)
        if not self.state.speak(connection.features.get(FEATURE, 0)):
            self.changed()
            await self._until(lambda: self.state.phase is not Phase.NEW, self._timeout_ms)
            self._raise_failure()
        self.state.begin()
        self.changed()

    async def send_offsets(self, offsets: Offsets) -> None:
        """Commit offsets with the transaction; waits until their coordinator has accepted them."""
        with self._timed("send-offsets"):
            await self._send_offsets(offsets)

    async def _send_offsets(self, offsets: Offsets) -> None:
        self.state.send_offsets(offsets)
        self.changed()
        phases = (Phase.OPEN, Phase.COMMITTING)
        try:
            await self._until(lambda: offsets.is_committed or self.state.phase not in phases, self._timeout_ms)
        except BaseException as failed:
            late = failed if isinstance(failed, KafkaError) else ClientTimeout("sending offsets was cancelled")
            self.state.give_up(late)  # the coordinator may or may not have them, so a commit would be a guess
            self.changed()
            raise
        if not offsets.is_committed:
            self._raise_failure()
            raise RuntimeError("the transaction was aborted while its offsets were sent")

    async def commit(self) -> None:
        """Commit. After a timeout the result of the transaction is unknown; another call continues to wait for it."""
        with self._timed("commit"):
            if self._unreported is not Phase.COMMITTING:
                self.state.commit()
            await self._end(Phase.COMMITTING)

    async def abort(self) -> None:
        """Abort. After a timeout the abort continues; another call waits for it."""
        with self._timed("abort"):
            if self._unreported is not Phase.ABORTING:
                self.state.abort()
                self._discard(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted"))
            await self._end(Phase.ABORTING)

    def metrics(self) -> Mapping[str, float]:
        """Return the total time of successful calls in ns, under the names of Kafka's KafkaProducerMetrics."""
        return {f"txn-{call}-time-ns-total": spent_ns for call, spent_ns in self._spent_ns.items()}

    @contextmanager
    def _timed(self, call: str) -> Iterator[None]:
        """Count the time of a call, unless it raises."""
        began_s = self._loop.time()
        yield
        self._spent_ns[call] += round((self._loop.time() - began_s) * 1e9)

    async def _end(self, ending: Phase) -> None:
        self._unreported = ending
        self.changed()
        await self._until(lambda: self.state.phase not in (ending, Phase.NEW), self._timeout_ms)
        self._unreported = None
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self.state.phase in (Phase.FAILED, Phase.ENDED):
            raise self.state.error()

    # Changes ----------------------------------------------------------------------------------------------------

    def will_write(self, topic: str, partition: int) -> None:
        """Note that a partition has a batch; request its addition if the protocol requires that first."""
        self.state.will_write(topic, partition)
        if self.state.has_questions:
            self._wake()

    def batch_failed(self, error: KafkaError) -> None:
        """Note that a batch was given up, and accept no more records; call `changed` afterwards."""
        self.state.batch_failed(error)
        self._on_change()

    def change_soon(self) -> None:
        """Call `changed` soon, when the sender has processed its current batches."""
        if not self._is_change_due and not self._is_closed:
            self._is_change_due = True
            self._loop.call_soon(self.changed)

    def fail(self, failure: ClientFailed) -> None:
        """Note that the client itself has failed, and end every wait."""
        self.state.end(failure)
        self._wake_waiters()

    def changed(self) -> None:
        """React to a state that may have changed."""
        try:
            self._act()
        except Exception as bug:  # a transaction that waits must get it
            self._batches.fail(bug)

    def _act(self) -> None:
        self._is_change_due = False
        state = self.state
        if state.phase in (Phase.FAILED, Phase.ENDED) and not self._batches.are_delivered:
            self._discard(state.error())
        if state.phase is Phase.COMMITTING:
            state.is_drained = self._batches.are_delivered and not self._batches.requests_in_flight
        elif state.phase is Phase.ABORTING:
            state.is_drained = not self._batches.requests_in_flight
        self._batches.identify(state.identity)
        self._on_change()
        self._wake_waiters()
        if state.has_questions:
            self._wake()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _discard(self, error: KafkaError) -> None:
        if self._batches.give_up_all(error):
            self.state.raise_epoch()

    async def _until(self, is_done: Callable[[], bool], timeout_ms: int) -> None:
        """Wait for a condition; raises ClientTimeout, caused by the last failure of a question."""
        self._last = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not is_done():
                    waiter = self._loop.create_future()
                    self._waiters.add(waiter)
                    try:
                        await waiter
                    finally:
                        self._waiters.discard(waiter)
        except TimeoutError:
            why = f": {self._last.message}" if self._last is not None else ""
            raise ClientTimeout(f"the producer {self.state.phase.value}, after {timeout_ms} ms{why}") from self._last

    # Questions --------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._is_wanted = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
        if (self._asking is None or self._asking.done()) and not self._is_closed:
            self._asking = self._loop.create_task(self._answer_all(), name="ottla-transactions")

    async def _answer_all(self) -> None:
        try:
            await self._ask_all()
        except Exception as bug:  # a transaction that waits must get it
            self._batches.fail(bug)

    async def _ask_all(self) -> None:
        while self._is_wanted and not self._is_closed:
            self._is_wanted = False
            question = self.state.next_question(self._loop.time())
            if question is not None:
                await self._ask(question)
                self._is_wanted = True
            elif self.state.wake_at < math.inf:
                self._woken = self._loop.create_future()
                await asyncio.wait([self._woken], timeout=max(0.0, self.state.wake_at - self._loop.time()))
                self._is_wanted = True
            else:
                self.changed()  # the transaction may have ended without a question

    async def _ask(self, question: Question) -> None:
        coordinator = self._coordinator if question.group_id is None else self._group(question.group_id)
        try:
            connection = await coordinator.connection(OFFSETS_LANE)
            version = connection.version_for(question.request, question.at_most)
            self.state.sent(question)
            answer = await coordinator.send(connection, question.make(version), question.response, version)
        except UnencodableMessage as wrong:
            self._lost(question, KafkaError(ErrorCode.INVALID_REQUEST, str(wrong)))
        except KafkaError as failed:
            self._lost(question, failed)
        else:
            if self.state.answered(question, answer, version, self._loop.time()) is Verdict.MOVED:
                coordinator.lose("it has moved")
        self.changed()

    def _lost(self, question: Question, error: KafkaError) -> None:
        logger.info("%s: %s", question.request.__name__, error)
        self._last = error
        self.state.lost(question, error, self._loop.time())

    def _group(self, group_id: str) -> Coordinator:
        return self._groups.setdefault(group_id, Coordinator(self._cluster, group_id))
