"""DescribeTransactions (key 65), version 0: the state of transactional ids in the coordinator (KIP-664).

A state is one of Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int16, Int32, Int64, String


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    """The transactional ids to describe."""

    transactional_ids: list[String]


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    """The transactional ids."""

    class TopicData(Struct):
        """A topic's partitions that have no marker yet."""

        topic: String
        partitions: list[Int32]

    class TransactionState(Struct):
        """A transactional id; `transaction_start_time_ms` is -1 if no transaction was ever begun."""

        error_code: Int16 = 0
        transactional_id: String
        transaction_state: String
        transaction_timeout_ms: Int32
        transaction_start_time_ms: Int64
        producer_id: Int64
        producer_epoch: Int16
        topics: list[DescribeTransactionsResponse.TopicData]

    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState]


def refused(
    request: DescribeTransactionsRequest, version: int, code: ErrorCode, message: str
) -> DescribeTransactionsResponse:
    """Refuse every transactional id of the request."""
    return DescribeTransactionsResponse(
        transaction_states=[refused_id(transactional_id, code) for transactional_id in request.transactional_ids]
    )


def refused_id(transactional_id: str, code: ErrorCode) -> DescribeTransactionsResponse.TransactionState:
    """A transactional id with an error code; all other fields are 0 or empty, as in Kafka."""
    return DescribeTransactionsResponse.TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
