"""The results of a batch that was sent, the errors that decide them, and a producer's rules for them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, NamedTuple

from ottla.client_core.partition_queue import B
from ottla.client_core.retries import Backoff
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.protocol.api.produce import ProduceResponse

UNKNOWN_OUTCOME = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors after which it is unknown whether the broker has the batch."""
LOST_IDENTITY = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""Errors after which an idempotent producer continues under another identity; the batch was not appended."""


@dataclass(frozen=True, slots=True)
class SendRules:
    """The rules of a producer. `retries` is how often one batch may be sent again."""

    is_idempotent: bool
    max_in_flight: int
    max_request_bytes: int
    backoff: Backoff
    retries: int = 2**31 - 1
    raises_epochs: bool = True
    """True: continue under the next epoch where that is enough (KIP-360); else ask for a new producer id each time."""
    goes_on_after_loss: bool = False
    """After the broker has lost acknowledged batches: send later ones nevertheless, or give them up with an error."""
    never_retried: frozenset[ErrorCode] = frozenset()
    is_transactional: bool = False
    """True: the identity changes only between transactions, for all queues together, and never because of a batch."""


class Result(Enum):
    """The result of a batch."""

    APPENDED = auto()
    """The broker has it."""
    RETRIED = auto()
    """It is in its queue again."""
    SPLIT = auto()
    """Its parts are in its queue instead."""
    GIVEN_UP = auto()
    """It will not be sent again."""


class SendResult(NamedTuple, Generic[B]):
    """The result of a batch, and its error. `answer` is the broker's answer for it, if there was one."""

    batch: B
    result: Result
    error: KafkaError | None = None
    answer: ProduceResponse.PartitionProduceResponse | None = None
