"""Transactions whose record is as large as the log takes: what can be begun can be ended."""

from __future__ import annotations

import pytest
from kit.settings import SET, TOPIC, alter
from kit.transaction_life import TransactionalProducer, TransactionLife, begun, tried

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
