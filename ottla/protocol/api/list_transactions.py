"""ListTransactions (key 66), versions 0-2: the transactional ids of this coordinator (KIP-664).

Versions: 1 filters by the duration of a transaction (KIP-994) · 2 by a regular expression (KIP-1152).
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Int16, Int32, Int64, NullableString, String


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The filters; one that is empty, null or, for the duration, negative matches all."""

    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = since("1+", default=-1)
    transactional_id_pattern: NullableString = since("2+", default=None)


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    """The transactional ids, and the state names in the filters that are unknown."""

    class TransactionState(Struct):
        """A transactional id."""

        transactional_id: String
        producer_id: Int64
        transaction_state: String

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String]
    transaction_states: list[TransactionState]


def refused(request: ListTransactionsRequest, version: int, code: ErrorCode, message: str) -> ListTransactionsResponse:
    """Refuse the request."""
    return ListTransactionsResponse(error_code=code, unknown_state_filters=[], transaction_states=[])
