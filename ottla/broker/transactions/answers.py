"""DescribeTransactions and ListTransactions: transactional ids, for administrators.

Both show only what a crash cannot undo (`JointAnswer`). Sources: KIP-664, KIP-994 (duration), KIP-1152 (pattern).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.broker.coordination.writes import JointAnswer
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.steps import Pace
from ottla.broker.transactions.state import state_name
from ottla.protocol.api.describe_transactions import DescribeTransactionsResponse, refused_id
from ottla.protocol.api.list_transactions import ListTransactionsResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.transaction import TransactionStatus

if TYPE_CHECKING:
    from ottla.broker.coordination.shard_map import ShardMap
    from ottla.broker.runtime.steps import Steps
    from ottla.broker.transactions.shard import TransactionShard
    from ottla.broker.transactions.state import TopicPartition, Transaction
    from ottla.protocol.api.describe_transactions import DescribeTransactionsRequest
    from ottla.protocol.api.list_transactions import ListTransactionsRequest

Described = DescribeTransactionsResponse.TransactionState
STATES = frozenset(map(state_name, TransactionStatus))


def describe_transactions(
    shards: ShardMap[TransactionShard], request: DescribeTransactionsRequest
) -> Pending[DescribeTransactionsResponse]:
    """Each requested transactional id; TRANSACTIONAL_ID_NOT_FOUND for unknown ones."""
    pending: Pending[DescribeTransactionsResponse] = Pending()
    response = DescribeTransactionsResponse(transaction_states=[])
    joint = JointAnswer(pending, response)
    for transactional_id in request.transactional_ids:
        response.transaction_states.append(_describe(shards, transactional_id, joint))
    joint.seal()
    return pending


def _describe(
    shards: ShardMap[TransactionShard], transactional_id: str, joint: JointAnswer[DescribeTransactionsResponse]
) -> Described:
    if not transactional_id:
        return refused_id(transactional_id, ErrorCode.INVALID_REQUEST)
    if not shards.is_adopted:
        return refused_id(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    try:
        shard = shards.ready(transactional_id)
    except KafkaError as error:
        return refused_id(transactional_id, error.code)
    joint.rest_on(shard, transactional_id)
    known = shard.transactions.get(transactional_id)
    if known is None:
        return refused_id(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return Described(
        transactional_id=transactional_id,
        transaction_state=known.state_name,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=_topics(known.partitions),
    )


def _topics(partitions: Iterable[TopicPartition]) -> list[DescribeTransactionsResponse.TopicData]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [
        DescribeTransactionsResponse.TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()
    ]


def list_transactions(
    shards: ShardMap[TransactionShard],
    request: ListTransactionsRequest,
    now_ms: int,
    may_see: Callable[[str], bool],
) -> Steps[Pending[ListTransactionsResponse]]:
    """The transactional ids that pass all filters and that the client may see. Unknown states in a filter are returned
    as such, and match nothing. Raises KafkaError.
    """
    from ottla.broker.runtime.regular_expressions import compile_expression  # RE2 is large, and few requests need it

    pending: Pending[ListTransactionsResponse] = Pending()
    pattern = request.transactional_id_pattern
    expression = compile_expression(pattern) if pattern else None
    active = shards.all_ready()
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    response = ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in STATES], transaction_states=[]
    )

    def passes(known: Transaction) -> bool:
        return (
            (not producer_ids or known.producer_id in producer_ids)
            and (not states or known.state_name in states)
            and (request.duration_filter < 0 or now_ms - known.start_ms > request.duration_filter)
            and (expression is None or expression.fullmatch(known.transactional_id) is not None)
            and may_see(known.transactional_id)
        )

    joint = JointAnswer(pending, response)
    pace = Pace()
    for shard in active:
        for known in list(shard.transactions.values()):
            if passes(known):
                response.transaction_states.append(
                    ListTransactionsResponse.TransactionState(
                        transactional_id=known.transactional_id,
                        producer_id=known.producer_id,
                        transaction_state=known.state_name,
                    )
                )
            if pace.is_up():
                yield
        joint.rest_on(shard, None)
    joint.seal()
    return pending
