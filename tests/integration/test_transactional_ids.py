"""What a producer with a transactional id meets as long as there are no transactions: an end, whose name misleads.

The clients take TRANSACTIONAL_ID_AUTHORIZATION_FAILED as final. Other codes, UNSUPPORTED_VERSION for one, are nearer to
the truth, and confluent-kafka asks for ever. docs/compatibility.md says it; this goes when there are transactions.
"""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError
from kit.broker import BrokerProcess

LINE = "has transactional id 'mine': there are no transactions yet, and it is refused"


def test_confluent_kafka_ends_in_a_fatal_error(own_broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": own_broker.bootstrap, "transactional.id": "mine"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(30)
    error = refused.value.args[0]
    assert (error.code(), error.fatal(), error.retriable()) == (
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        True,
        False,
    )
    with pytest.raises(KafkaException) as ended:
        producer.produce("t", b"value")
    assert ended.value.args[0].code() == KafkaError._FATAL
    assert LINE in own_broker.output
    idempotent = Producer({"bootstrap.servers": own_broker.bootstrap, "enable.idempotence": True})
    idempotent.produce("t", b"value")
    assert idempotent.flush(30) == 0


async def test_aiokafka_says_so_at_once(own_broker: BrokerProcess) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=own_broker.bootstrap, transactional_id="mine")
    try:
        with pytest.raises(TransactionalIdAuthorizationFailed):
            await producer.start()
    finally:
        await producer.stop()


def test_kafka_python_says_so_at_once(own_broker: BrokerProcess) -> None:
    producer = KafkaProducer(bootstrap_servers=own_broker.bootstrap, transactional_id="mine")
    try:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close(5)
