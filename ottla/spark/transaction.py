"""A task's transaction: the blocking driver of `ottla.client_core.transactions`, for one transaction.

`begin` fences every earlier user of the transactional id: the coordinator ends what that one has left open before it
answers, so afterwards each of its transactions is committed or aborted for good. Requests go to the coordinator, which
is looked up first and whenever it may have moved. Each is repeated for `kafka.delivery.timeout.ms` without an answer;
an EndTxn whose answer was lost is sent again, and the coordinator recognises it.

A task whose EndTxn gets no answer fails without knowing how its transaction ended. The next attempt of the task finds
out, from its mark (ottla.spark.progress)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.client_core.retries import Backoff
from ottla.client_core.transaction_verdicts import Verdict
from ottla.client_core.transactions import Phase, Transactions
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.spark.cluster import Cluster, Retriable, check
from ottla.spark.errors import BrokerUnavailable, ProtocolFailure, WriteFailed
from ottla.spark.option_values import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client_core.partition_queue import ProducerIdentity
    from ottla.client_core.transaction_questions import Question
    from ottla.protocol.message import Request
    from ottla.spark.patience import Patience

logger = logging.getLogger(__name__)

_FEATURE = "transaction.version"
_TRANSACTION_KEY = 1  # of FindCoordinator
_FIRST_VERSION_WITH_KEYS = 4
_LONGEST_BACKOFF_MS = 1000

_REPLACED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""The codes of a transaction that somebody else has ended: another attempt, or the coordinator after the timeout."""


class Transaction:
    """See the module. Not for several threads; the caller closes `cluster`."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int, patience: Patience) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._patience = patience
        backoff = Backoff(patience.backoff.first_ms, max(patience.backoff.first_ms, _LONGEST_BACKOFF_MS))
        self._state = Transactions(transactional_id, timeout_ms, backoff)
        self._coordinator: Address | None = None

    # The task ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """End what earlier users of the id have left open, and begin a transaction.

        Nothing is sent for the second part: a transaction is open from its first record on. Raises WriteFailed,
        BrokerUnavailable or ProtocolFailure.
        """
        self._ask_while(lambda: self._state.phase is Phase.NEW, "no producer id")
        connection = self.cluster.connection(self._address())
        self._state.speak(connection.features.get(_FEATURE, 0))
        self._state.begin()

    def commit(self, spare: Cluster) -> None:
        """Commit; all batches are acknowledged. `spare` has connections that may be used. Raises as `begin`.

        After an error the result is unknown, unless it says that the transaction was ended by others.
        """
        self._state.commit()
        self._state.is_drained = True
        self._ask_while(lambda: self._state.phase is Phase.COMMITTING, "no answer to EndTxn", spare)

    def abort(self) -> None:
        """Abort if that takes one attempt: it only spares readers the time-out. Nothing is raised.

        Only for a transaction without a batch in flight, or of a cluster that gives each transaction its own epoch:
        elsewhere a late batch would open the next transaction.
        """
        if self._state.phase is not Phase.OPEN:
            return
        self._state.abort()
        self._state.is_drained = True
        question = self._state.next_question(self._patience.monotonic())
        if question is not None:
            try:
                problem = self._ask(question, self.cluster)
            except ProtocolFailure as failed:
                problem = failed
            if problem is not None:
                logger.info("the transaction of %s is left to its time-out: %s", self.transactional_id, problem)

    # The sender -------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and epoch of the batches."""
        return self._state.identity

    @property
    def is_old(self) -> bool:
        """Whether partitions are added to the transaction before they are written to (before KIP-890)."""
        return self._state.is_old

    def will_write(self, topic: str, partition: int) -> None:
        """Note that a partition gets batches."""
        self._state.will_write(topic, partition)

    def may_write(self, topic: str, partition: int) -> bool:
        """Return whether a partition's batches may be sent."""
        return self._state.may_write(topic, partition)

    def has_written(self) -> None:
        """Note that batches were sent."""
        self._state.has_written()

    def add_partitions(self) -> None:
        """Add the noted partitions to the transaction, where the cluster requires that."""
        self._ask_while(lambda: self._state.phase is Phase.OPEN and self._state.has_questions, "no partition added")

    def refused(self, code: ErrorCode, said: str) -> WriteFailed | None:
        """Return the error for a batch whose code says that others have ended the transaction; else None."""
        return self._replaced(said) if code in _REPLACED else None

    # Questions --------------------------------------------------------------------------------------------------

    def _ask_while(self, is_wanted: Callable[[], bool], missing: str, spare: Cluster | None = None) -> None:
        give_up_at = self._patience.give_up_at()
        while is_wanted():
            question = self._state.next_question(self._patience.monotonic())
            if question is None:
                if is_wanted():
                    self._patience.pause(self._state.wake_at - self._patience.monotonic())
                continue
            problem = self._ask(question, spare)
            if problem is None:
                give_up_at = self._patience.give_up_at()
            elif self._patience.monotonic() >= give_up_at:
                raise self._patience.ending(f"{self.transactional_id}: {missing}", problem)
        if self._state.phase in (Phase.FAILED, Phase.ENDED):
            raise self._failure()

    def _ask(self, question: Question, spare: Cluster | None) -> Exception | None:
        """Ask once; return why the question has to be asked again, or None. Raises ProtocolFailure."""
        try:
            address = self._address()
            connection = self.cluster.connection(address, spare=spare)
            self._state.sent(question)
            answer, version = connection.call(question.make, question.response, question.at_most)
        except (OSError, Retriable) as problem:
            if self._coordinator is not None:
                self.cluster.drop(self._coordinator)
                if not isinstance(problem, BrokerUnavailable):
                    problem = BrokerUnavailable(f"{self._coordinator}: {problem}")
            self._coordinator = None
            lost = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(problem))
            self._state.lost(question, lost, self._patience.monotonic())
            return problem
        verdict = self._state.answered(question, answer, version, self._patience.monotonic())
        if verdict is Verdict.MOVED:
            self._coordinator = None
        if verdict not in (Verdict.AGAIN, Verdict.MOVED):
            return None
        code = ErrorCode.of(getattr(answer, "error_code", 0))
        name = question.request.__name__.removesuffix("Request")
        return Retriable(
            f"the broker answered {code.name} ({code.message}) to {name}" if code else f"{name} is refused"
        )

    def _address(self) -> Address:
        if self._coordinator is None:
            self._coordinator = self._found()
        return self._coordinator

    def _found(self) -> Address:
        def request(version: int) -> Request:
            if version >= _FIRST_VERSION_WITH_KEYS:
                return FindCoordinatorRequest(key_type=_TRANSACTION_KEY, coordinator_keys=[self.transactional_id])
            if not version:
                raise ProtocolFailure("exactlyOnceName needs a broker with transactions, Kafka 0.11 or later")
            return FindCoordinatorRequest(key_type=_TRANSACTION_KEY, key=self.transactional_id)

        response = self.cluster.ask_anyone(request, FindCoordinatorResponse)
        check(ErrorCode.of(response.error_code), f"transactional id {self.transactional_id}")
        for one in response.coordinators:
            if one.key == self.transactional_id:
                check(ErrorCode.of(one.error_code), f"transactional id {self.transactional_id}")
                return Address(one.host, one.port)
        if response.coordinators or not response.host:
            raise ProtocolFailure(f"transactional id {self.transactional_id}: the broker named no coordinator")
        return Address(response.host, response.port)

    # Errors -----------------------------------------------------------------------------------------------------

    def _failure(self) -> WriteFailed:
        failure = self._state.error()
        cause = failure.__cause__ if isinstance(failure.__cause__, KafkaError) else failure
        if cause.code in _REPLACED:
            return self._replaced(f"the broker answered {cause.code.name}")
        hints = {
            ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
                f"; kafka.transaction.timeout.ms {self._timeout_ms} is more than its transaction.max.timeout.ms"
            ),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "; the user needs WRITE of this transactional id",
        }
        said = f"the broker answered {cause.code.name} ({cause.message})"
        return WriteFailed(f"transactional id {self.transactional_id}: {said}{hints.get(cause.code, '')}")

    def _replaced(self, said: str) -> WriteFailed:
        return WriteFailed(
            f"transactional id {self.transactional_id}: {said}: another attempt of the task has taken over, or the task"
            f" took longer than kafka.transaction.timeout.ms {self._timeout_ms}"
        )
