"""A transactional producer's state: what it may do now, its next request to a coordinator, and the effect of answers.

The driver calls `begin`, `send_offsets`, `commit` and `abort` for the program, `will_write` when a partition gets a
batch, and `next_question` until that returns none. It passes the result of a question to `answered` or `lost`. There is
one question at a time. When no batch of the transaction is in flight or waits, the driver sets `is_drained`: only then
is EndTxn sent. Nothing here waits, and each call gets the time.

The states are those of Kafka's TransactionManager (KIP-98, 360, 447, 890). After a failure that allows an abort, the
producer continues under its next epoch, so that late writes of the old transaction cannot become part of the new one.
The answer to EndTxn contains that epoch; in the old protocol InitProducerId returns it afterwards. An EndTxn whose
answer was lost is sent again, and coordinators recognize it. A fenced producer cannot continue: another has taken over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import NoReturn, cast

from ottla.client_core import transaction_questions as questions
from ottla.client_core.partition_queue import NO_IDENTITY, ProducerIdentity
from ottla.client_core.retries import Backoff
from ottla.client_core.transaction_questions import Offsets, Partition, Question, Step
from ottla.client_core.transaction_verdicts import (
    Verdict,
    failure_of,
    verdict_of,
    verdict_of_batch,
    verdict_of_part,
)
from ottla.protocol.api.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.protocol.api.end_txn import EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdResponse
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Response

_CONCURRENT_PAUSE_MS = 20
"""CONCURRENT_TRANSACTIONS means that the markers of the last transaction are still being written, which is quick."""


class Phase(Enum):
    """The phases of a transactional producer, in words for error messages."""

    NEW = "has no producer id yet"
    READY = "has no transaction"
    OPEN = "is in a transaction"
    COMMITTING = "is committing its transaction"
    ABORTING = "is aborting its transaction"
    FAILED = "has to abort its transaction"
    ENDED = "cannot continue"


_WRITING = (Phase.OPEN, Phase.COMMITTING)
_ENDING = (Phase.COMMITTING, Phase.ABORTING)


class Transactions:
    """See the module. `chance` spreads the pauses of the backoff."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        backoff: Backoff,
        chance: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self.phase = Phase.NEW
        self.identity = NO_IDENTITY
        """The producer id and epoch of the next batch. When it changes, all sequences begin at 0."""
        self.is_old = True
        """Whether partitions and groups are added to the transaction before they are written to."""
        self.is_drained = False
        """Whether no batch of the transaction is in flight or waits; set by the driver while the transaction ends."""
        self.wake_at = math.inf
        """The time to call `next_question` again at the latest, set by the last call."""
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._backoff = backoff
        self._chance = chance
        self._failure: KafkaError | None = None
        self._new: dict[Partition, None] = {}
        """The partitions that are not added yet, including those in the current request; `_added` has the rest."""
        self._added: set[Partition] = set()
        self._offsets: list[Offsets] = []
        self._is_open = False
        """Whether the coordinator has confirmed that a partition or group belongs to the transaction."""
        self._may_be_open = False
        """Whether a request was sent that may have opened it."""
        self._needs_epoch = False
        self._is_unknown = False
        """Whether the coordinator has answered that it does not know the producer id: there is nothing to end."""
        self._can_raise_epoch = False
        self._has_begun = False
        self._asked: Question | None = None
        self._asked_partitions: list[Partition] = []
        self._failures = 0
        self._not_before = -math.inf

    # The program ------------------------------------------------------------------------------------------------

    def speak(self, transaction_version: int) -> bool:
        """Note the cluster's `transaction.version` before a transaction; return whether it can begin immediately.

        A change of the protocol raises the epoch: the phase is NEW until that is done.
        """
        self._refuse_unless(Phase.READY, doing="begin a transaction")
        was_old, self.is_old = self.is_old, transaction_version < questions.FIRST_NEW_TRANSACTION_VERSION
        if self._has_begun and was_old != self.is_old and self._can_raise_epoch:
            self.phase = Phase.NEW
        return self.phase is Phase.READY

    def begin(self) -> None:
        """Begin a transaction. Raises RuntimeError while another one is open, or the error that ended the producer."""
        self._refuse_unless(Phase.READY, doing="begin a transaction")
        self.phase = Phase.OPEN
        self._has_begun = True

    def send_offsets(self, offsets: Offsets) -> None:
        """Commit these offsets with the transaction; `is_committed` is set when their coordinator has accepted them."""
        self._refuse_unless(Phase.OPEN, doing="send offsets")
        self._offsets.append(offsets)

    def commit(self) -> None:
        """Begin to commit. Raises AbortableTransactionError when it can only be aborted."""
        self._refuse_unless(Phase.OPEN, doing="commit")
        self.phase = Phase.COMMITTING
        self.is_drained = False

    def abort(self) -> None:
        """Begin to abort; the driver gives up batches that are not in flight."""
        if self.phase is not Phase.FAILED:
            self._refuse_unless(Phase.OPEN, doing="abort")
        self.phase = Phase.ABORTING
        self.is_drained = False
        self._failure = None
        self._new.clear()
        self._offsets.clear()

    def refuse_records(self) -> NoReturn:
        """Raise the reason why records cannot be sent now: there is no transaction, or it has failed."""
        self._refuse_unless(None, doing="send records")
        raise AssertionError("records can be sent")

    def error(self) -> KafkaError:
        """Return a new exception for the failure of the transaction or the producer."""
        assert self._failure is not None
        again = type(self._failure)(self._failure.code, self._failure.message)
        again.__cause__ = self._failure.__cause__
        return again

    def _refuse_unless(self, phase: Phase | None, *, doing: str) -> None:
        if self.phase is phase:
            return
        if self._failure is not None:
            raise self.error()
        raise RuntimeError(f"the producer cannot {doing}: it {self.phase.value}")

    # Batches ----------------------------------------------------------------------------------------------------

    @property
    def takes_records(self) -> bool:
        """Whether the program may send records."""
        return self.phase is Phase.OPEN

    def will_write(self, topic: str, partition: int) -> None:
        """Note that a partition got a batch."""
        if self.is_old and (topic, partition) not in self._added:
            self._new[topic, partition] = None

    def may_write(self, topic: str, partition: int) -> bool:
        """Return whether a partition's batches may be sent now."""
        return self.phase in _WRITING and (not self.is_old or (topic, partition) in self._added)

    def has_written(self) -> None:
        """Note that batches were sent."""
        self._may_be_open = True

    def batch_failed(self, error: KafkaError) -> None:
        """Note that a batch was given up: its transaction cannot be committed."""
        verdict = verdict_of_batch(error.code)
        if self.phase in _WRITING:
            self._needs_epoch = True
            self._is_unknown |= verdict is Verdict.LOST_ID
        self._fail(Verdict.FATAL if verdict is Verdict.FATAL else Verdict.ABORTABLE, error)

    def raise_epoch(self) -> None:
        """Use another epoch for the next transaction: batches were given up, and the broker may have some of them."""
        self._needs_epoch = True

    def give_up(self, error: KafkaError) -> None:
        """Fail the transaction for a reason of the driver; it can only be aborted."""
        self._fail(Verdict.ABORTABLE, error)

    def end(self, error: KafkaError) -> None:
        """End the producer for a reason of the driver."""
        self._fail(Verdict.FATAL, error)

    # Questions --------------------------------------------------------------------------------------------------

    @property
    def has_questions(self) -> bool:
        """Whether there will be a question, or an end without one, when the current question is answered."""
        if self.phase in _WRITING and (self._new or self._offsets):
            return True
        return self.phase is Phase.NEW or (self.is_drained and self.phase in _ENDING)

    def next_question(self, now: float) -> Question | None:
        """Return the question to ask now; None while another one is unanswered, or if there is none."""
        self.wake_at = math.inf
        if self._asked is not None:
            return None
        question = self._find_question()
        if question is not None and now < self._not_before:
            self.wake_at = self._not_before
            return None
        self._asked = question
        self._asked_partitions = list(self._new)
        return question

    def _find_question(self) -> Question | None:
        if self.phase in _WRITING:
            if self._new:
                return questions.add_partitions(self._id, self.identity, self._new)
            if self._offsets:
                sent = self._offsets[0]
                if self.is_old and not sent.is_added:
                    return questions.add_offsets(self._id, self.identity, sent.group_id)
                return questions.commit_offsets(self._id, self.identity, sent, is_old=self.is_old)
        if self.is_drained and self.phase in _ENDING:
            if self._may_be_open and not self._is_unknown:
                is_commit = self.phase is Phase.COMMITTING
                return questions.end(self._id, self.identity, is_commit=is_commit, is_old=self.is_old)
            self._complete()
        if self.phase is Phase.NEW:
            return questions.initialize(self._id, self._timeout_ms, self.identity)
        return None

    def answered(self, question: Question, answer: Response, version: int, now: float) -> Verdict:
        """Process the answer to a question asked at `version`; after MOVED the driver has to find the coordinator.

        The effects are in `phase`, `identity` and `may_write`.
        """
        self._asked = None
        match question.step:
            case Step.INITIALIZE:
                verdict, code = self._take_identity(cast(InitProducerIdResponse, answer), version)
            case Step.ADD_PARTITIONS:
                verdict, code = self._take_partitions(cast(AddPartitionsToTxnResponse, answer))
            case Step.ADD_OFFSETS:
                code = ErrorCode.of(cast(AddOffsetsToTxnResponse, answer).error_code)
                verdict = verdict_of_part(code)
                self._is_open |= verdict is Verdict.DONE
                if verdict is Verdict.DONE and self._offsets:
                    self._offsets[0].is_added = True
            case Step.COMMIT_OFFSETS:
                verdict, code = self._take_offsets(cast(TxnOffsetCommitResponse, answer))
            case Step.END:
                verdict, code = self._take_end(cast(EndTxnResponse, answer))
        name = question.request.__name__.removesuffix("Request")
        self._act(verdict, KafkaError(code, f"{name}: {code.message}"), now)
        return verdict

    def lost(self, question: Question, error: KafkaError, now: float) -> None:
        """Note that a question gets no answer: the coordinator was not found or not reached, or the connection ended.

        The question is asked again, even if it may have reached the coordinator: each request may be received twice.
        """
        self._asked = None
        self._act(verdict_of_part(error.code) if question.group_id else verdict_of(error.code), error, now)

    def sent(self, question: Question) -> None:
        """Note that a question is being sent: from now on the coordinator may have acted on it."""
        if question.step in (Step.ADD_PARTITIONS, Step.ADD_OFFSETS, Step.COMMIT_OFFSETS):
            self._may_be_open = True

    # Answers ----------------------------------------------------------------------------------------------------

    def _take_identity(self, answer: InitProducerIdResponse, version: int) -> tuple[Verdict, ErrorCode]:
        code = ErrorCode.of(answer.error_code)
        verdict = verdict_of(code)
        if verdict is Verdict.DONE and self.phase is Phase.NEW:
            self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            self._can_raise_epoch = version >= questions.FIRST_VERSION_WITH_IDENTITY
            self._needs_epoch = False
            self.phase = Phase.READY
        return verdict if verdict is not Verdict.LOST_ID else Verdict.FATAL, code

    def _take_partitions(self, answer: AddPartitionsToTxnResponse) -> tuple[Verdict, ErrorCode]:
        codes = questions.codes_of(answer)
        asked = self._asked_partitions
        worst, code = _worst({place: codes.get(place, ErrorCode.UNKNOWN_SERVER_ERROR) for place in asked})
        if worst is Verdict.DONE:
            self._is_open = True
            self._added.update(asked)
            for place in asked:
                self._new.pop(place, None)
        return worst, code

    def _take_offsets(self, answer: TxnOffsetCommitResponse) -> tuple[Verdict, ErrorCode]:
        if not self._offsets:
            return Verdict.DONE, ErrorCode.NONE  # the transaction is being aborted
        codes = questions.codes_of(answer)
        sent = self._offsets[0]
        worst, code = _worst({place: codes.get(place, ErrorCode.UNKNOWN_SERVER_ERROR) for place in sent.offsets})
        for place, said in codes.items():
            if said is ErrorCode.NONE:
                self._is_open = True
                sent.offsets.pop(place, None)
        if worst is Verdict.DONE:
            sent.is_committed = True
            self._offsets.pop(0)
        return worst, code

    def _take_end(self, answer: EndTxnResponse) -> tuple[Verdict, ErrorCode]:
        code = ErrorCode.of(answer.error_code)
        verdict = verdict_of(code)
        is_abort = self.phase is Phase.ABORTING
        if is_abort and code is ErrorCode.INVALID_TXN_STATE and not self._is_open:
            verdict = Verdict.DONE  # the request that might have opened it did not arrive
        if verdict is Verdict.DONE:
            if answer.producer_id >= 0:
                self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
                self._needs_epoch = False
            self._complete()
        elif verdict is Verdict.LOST_ID:
            self._is_unknown = self._needs_epoch = True
            verdict = Verdict.DONE if is_abort else verdict
        elif verdict is Verdict.ABORTABLE and is_abort:
            verdict = Verdict.FATAL
        return verdict, code

    def _act(self, verdict: Verdict, error: KafkaError, now: float) -> None:
        if verdict is Verdict.DONE:
            self._failures = 0
            self._not_before = -math.inf
        elif verdict in (Verdict.AGAIN, Verdict.MOVED):
            self._failures += 1
            backoff = self._backoff
            if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                backoff = Backoff(_CONCURRENT_PAUSE_MS, backoff.largest_ms, backoff.spread)
            self._not_before = now + backoff.pause_s(self._failures, self._chance())
        else:
            if verdict is Verdict.LOST_ID:
                self._is_unknown = self._needs_epoch = True
            self._fail(Verdict.FATAL if verdict is Verdict.FATAL else Verdict.ABORTABLE, error)

    # Inside -----------------------------------------------------------------------------------------------------

    def _fail(self, verdict: Verdict, cause: KafkaError) -> None:
        if self.phase is Phase.ENDED or (verdict is not Verdict.FATAL and self.phase not in (*_WRITING, Phase.NEW)):
            return  # it has ended, failed already, or is being aborted
        if self.phase is Phase.NEW:
            verdict = Verdict.FATAL  # without a producer id nothing can be aborted
        self._failure = failure_of(verdict, cause)
        self.phase = Phase.ENDED if verdict is Verdict.FATAL else Phase.FAILED
        self._failures = 0
        self._not_before = -math.inf

    def _complete(self) -> None:
        """Forget the transaction: it is committed or aborted."""
        self._added.clear()
        self._new.clear()
        self._offsets.clear()
        self._is_open = self._may_be_open = self._is_unknown = False
        self.is_drained = False
        self.phase = Phase.READY
        if self._needs_epoch and self._can_raise_epoch:
            self.phase = Phase.NEW
        elif self._needs_epoch:
            reason = (
                "the broker, one before Kafka 2.5, cannot raise the epoch of a producer whose transaction has failed"
            )
            self._fail(Verdict.FATAL, KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason))


def _worst(codes: dict[Partition, ErrorCode]) -> tuple[Verdict, ErrorCode]:
    """Return the most serious verdict of all partitions, and its code."""
    found = [(verdict_of_part(code), code) for code in codes.values() if code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    nothing = (Verdict.ABORTABLE, ErrorCode.UNKNOWN_SERVER_ERROR)
    return max(found, key=lambda one: _GRAVITY.index(one[0]), default=nothing)


_GRAVITY = (Verdict.DONE, Verdict.AGAIN, Verdict.MOVED, Verdict.ABORTABLE, Verdict.LOST_ID, Verdict.FATAL)
