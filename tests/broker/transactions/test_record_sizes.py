"""Transactions whose record is as large as the log takes: what can be begun can be ended."""

from __future__ import annotations

import pytest
from kit.settings import SET, TOPIC, alter
from kit.transaction_life import TIMEOUT_MS, TransactionalProducer, TransactionLife, begun, tried

from ottla.broker.transactions.state import MAX_EPOCH
from ottla.protocol.errors import ErrorCode


@pytest.fixture
def life() -> TransactionLife:
    return TransactionLife()


@pytest.mark.parametrize("is_last_epoch", [False, True])
def test_a_transaction_whose_record_just_fits_can_be_ended_too(life: TransactionLife, is_last_epoch: bool) -> None:
    begun(life, "first").end()
    assert alter(life.node, TOPIC, "__transaction_state", ("max.message.bytes", SET, "1000"))[0] is ErrorCode.NONE
    transactions = life.node.services.transactions.get()
    codes = set()
    for length in range(650, 950):
        producer = TransactionalProducer(life, "i" * length)
        codes.add(tried(producer.init))
        if producer.producer_id < 0:
            continue
        shard = transactions.shards.ready(producer.transactional_id)
        if is_last_epoch:
            known = shard.transactions[producer.transactional_id]
            shard.transactions[producer.transactional_id] = known._replace(producer_epoch=MAX_EPOCH - 1)
            producer.epoch = MAX_EPOCH - 1
        codes.add(tried(producer.produce))
        if transactions.open_count:
            producer.end()
        assert not shard.is_dead
    assert codes == {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize("how", ["commit", "timeout", "successor", "restart"])
def test_what_was_begun_can_be_ended_when_the_log_takes_only_smaller_records_by_then(
    life: TransactionLife, how: str
) -> None:
    """Its shard is not unloaded for it: that would end the service for all other ids, and again after each load."""
    large, other = begun(life, "i" * 2000), begun(life, "other")
    assert alter(life.node, TOPIC, "__transaction_state", ("max.message.bytes", SET, "1000"))[0] is ErrorCode.NONE
    shard = life.node.services.transactions.get().shards.ready(other.transactional_id)
    if how == "commit":
        large.end()
    elif how == "timeout":
        life.pass_ms(2 * TIMEOUT_MS)
    elif how == "successor":
        assert tried(TransactionalProducer(life, large.transactional_id).init) is ErrorCode.CONCURRENT_TRANSACTIONS
        life.node.settle()
    else:
        life = life.restarted()
        shard = life.node.services.transactions.get().shards.ready(other.transactional_id)
        life.pass_ms(2 * TIMEOUT_MS)
    assert not shard.is_dead
    assert life.state(large.transactional_id) == ("CompleteCommit" if how == "commit" else "CompleteAbort")
    assert tried(TransactionalProducer(life, large.transactional_id).init) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert tried(TransactionalProducer(life, "small").init) is ErrorCode.NONE
