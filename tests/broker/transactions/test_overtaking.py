"""Batches of a producer that are in flight together: one that overtakes an earlier one, which was refused for a moment,
is out of order. If it were stored, the earlier one would be out of order in each retry.
"""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
from kit.transaction_life import TransactionalProducer, TransactionLife

from ottla.broker.transactions.admission import Admission
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.protocol.errors import ErrorCode, KafkaError


def refused(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        action()
    return error.value.code


def test_a_batch_does_not_overtake_one_that_was_refused_because_of_a_concurrent_transaction() -> None:
    life = TransactionLife(ottla_transactions_max_open=1)
    first, second = TransactionalProducer(life, "a"), TransactionalProducer(life, "b")
    first.init()
    second.init()
    first.produce(b"a")
    assert refused(lambda: second.produce(b"b0")) is ErrorCode.CONCURRENT_TRANSACTIONS
    first.end()
    second.sequences[0] = 1
    assert refused(lambda: second.produce(b"b1")) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    second.sequences[0] = 0
    second.produce(b"b0")
    second.produce(b"b1")
    second.end()
    assert life.committed() == [b"a", b"b0", b"b1"]


@pytest.mark.parametrize("version", [0, 2])
def test_a_batch_does_not_overtake_one_that_was_refused_by_a_coordinator_that_was_loading(version: int) -> None:
    life = TransactionLife()
    producer = TransactionalProducer(life, version=version)
    producer.init()
    producer.produce(b"elsewhere", index=1)
    if version < 2:
        producer.add(0)
    loading = Admission(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    with (
        patch.object(TransactionCoordinator, "admit_batches", lambda *_, **__: loading),
        patch.object(TransactionalProducer, "add", lambda *_: None),
    ):
        assert refused(lambda: producer.produce(b"0")) is ErrorCode.NOT_ENOUGH_REPLICAS
    producer.sequences[0] = 1
    assert refused(lambda: producer.produce(b"1")) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.sequences[0] = 0
    producer.produce(b"0")
    producer.produce(b"1")
    producer.end()
    assert life.committed() == [b"0", b"1"]
