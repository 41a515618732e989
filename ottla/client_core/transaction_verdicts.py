"""The meaning of the error codes of a transaction: continue, retry, abort, or end the producer. And the two exceptions.

The rules are those of Kafka's TransactionManager and of KIP-1050. A fenced producer was replaced by another one with
its transactional id; several codes report that. An error of one partition or one group ends the transaction; an error
of the transactional id ends the producer.
"""

from __future__ import annotations

from enum import Enum, auto

from ottla.protocol.errors import ErrorCode, KafkaError


class AbortableTransactionError(KafkaError):
    """The transaction cannot be committed. Abort it; after that the producer may begin another one.

    `code` is that of the failure, which is the `__cause__` if there is one.
    """


class FatalTransactionError(KafkaError):
    """The producer cannot continue: another one with its transactional id has taken over (PRODUCER_FENCED), or the
    broker does not let it write. Close it. A new one ends the transaction that this one may have left open.

    `code` is that of the failure, which is the `__cause__` if there is one.
    """


class Verdict(Enum):
    """The meaning of an answer."""

    DONE = auto()
    AGAIN = auto()
    """Send the request again, after a pause."""
    MOVED = auto()
    """Find the coordinator, and send the request again."""
    LOST_ID = auto()
    """The coordinator does not know the producer id (any more): abort, and continue under another one."""
    ABORTABLE = auto()
    FATAL = auto()


_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_LOST_ID = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_FATAL = _FENCED | {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
_FATAL_FOR_BATCHES = _FATAL - {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
"""The fatal codes of a Produce. An old epoch there may come from a transaction that timed out: the answer to the abort
shows whether the producer is fenced."""


def verdict_of(code: ErrorCode) -> Verdict:
    """Return the meaning of a code for the transactional id itself: other codes end the producer."""
    if code is ErrorCode.TRANSACTION_ABORTABLE:
        return Verdict.ABORTABLE
    found = verdict_of_part(code)
    return Verdict.FATAL if found is Verdict.ABORTABLE else found


def verdict_of_part(code: ErrorCode) -> Verdict:
    """Return the meaning of a code for a partition or a group: other codes end the transaction."""
    if code is ErrorCode.NONE:
        return Verdict.DONE
    if code in _MOVED:
        return Verdict.MOVED
    if code in _LOST_ID:
        return Verdict.LOST_ID
    if code.retriable or code is ErrorCode.BROKER_NOT_AVAILABLE:
        return Verdict.AGAIN
    return Verdict.FATAL if code in _FATAL else Verdict.ABORTABLE


def verdict_of_batch(code: ErrorCode) -> Verdict:
    """Return the meaning of the code of a batch that was given up; it is not retried."""
    if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        return Verdict.LOST_ID
    return Verdict.FATAL if code in _FATAL_FOR_BATCHES else Verdict.ABORTABLE


def failure_of(verdict: Verdict, cause: KafkaError) -> KafkaError:
    """Return the exception for the program."""
    code = ErrorCode.PRODUCER_FENCED if verdict is Verdict.FATAL and cause.code in _FENCED else cause.code
    failure: KafkaError
    if verdict is Verdict.FATAL:
        message = code.message if code is ErrorCode.PRODUCER_FENCED else cause.message
        failure = FatalTransactionError(code, f"the producer cannot continue: {message}")
    else:
        failure = AbortableTransactionError(code, f"the transaction cannot be committed: {cause.message}")
    failure.__cause__ = cause
    return failure
