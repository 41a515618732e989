"""Error codes that only newer clients know, and their replacements for older ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.runtime.pending import Pending
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

R = TypeVar("R")

FENCED_BEFORE: Final = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
"""PRODUCER_FENCED came with KIP-588."""
ABORTABLE_BEFORE: Final = {ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE}
"""TRANSACTION_ABORTABLE came with KIP-890."""


def replaced(error: KafkaError, codes: Mapping[ErrorCode, ErrorCode]) -> KafkaError:
    """The error with the code that replaces its own."""
    return KafkaError(codes.get(error.code, error.code), error.message)


def with_codes(pending: Pending[R], codes: Mapping[ErrorCode, ErrorCode]) -> Pending[R]:
    """The same answer; if it is an error, with the code that replaces its own."""
    if not codes:
        return pending
    translated: Pending[R] = Pending(parks=pending.parks, is_cold=pending.is_cold)
    translated.on_cancel(pending.cancel)

    def done(answer: Pending[R]) -> None:
        if isinstance(answer.error, KafkaError):
            translated.fail(replaced(answer.error, codes))
        elif answer.error is not None:
            translated.fail(answer.error)
        else:
            translated.complete(answer.response)

    pending.then(done)
    return translated
