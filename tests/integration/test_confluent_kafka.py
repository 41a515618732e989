"""confluent-kafka (librdkafka) as a judge: produce, consume by assignment, seek, times, headers, admin."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType
from kit.broker import BrokerProcess
from kit.samples import BASE_TIMESTAMP_MS, COMPRESSIONS, Sample, samples

WAIT_S = 30.0


def producer(broker: BrokerProcess, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, **settings})


def send(client: Producer, topic: str, records: list[Sample], partition: int = 0) -> list[Message]:
    delivered: list[Message] = []
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            failures.append(error)

    for r in records:
        client.produce(
            topic,
            value=r.value,
            key=r.key,
            headers=r.headers,
            timestamp=r.timestamp_ms,
            partition=partition,
            on_delivery=on_delivery,
        )
        client.poll(0)
    assert client.flush(WAIT_S) == 0
    assert failures == []
    return delivered


def consumer(broker: BrokerProcess, **settings: Any) -> Consumer:
    return Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False, **settings}
    )


def take(client: Consumer, count: int) -> list[Message]:
    got: list[Message] = []
    while len(got) < count:
        messages = client.consume(min(500, count - len(got)), WAIT_S)
        assert messages, f"{len(got)} of {count} messages came"
        for message in messages:
            assert message.error() is None, message.error()
            got.append(message)
    return got


def as_samples(messages: list[Message]) -> list[Sample]:
    return [Sample(m.key(), m.value(), m.timestamp()[1], [(k, v) for k, v in m.headers() or []]) for m in messages]


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_comes_back_as_it_was_sent(
    broker: BrokerProcess, topic: str, compression: str, idempotent: bool
) -> None:
    sent = samples()
    delivered = send(
        producer(broker, **{"compression.type": compression, "enable.idempotence": idempotent}), topic, sent
    )
    assert [m.offset() for m in delivered] == list(range(len(sent)))
    client = consumer(broker)
    client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    got = take(client, len(sent))
    client.close()
    assert as_samples(got) == sent
    assert [m.offset() for m in got] == list(range(len(sent)))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_each_level_of_acknowledgement_delivers(broker: BrokerProcess, topic: str, acks: str) -> None:
    sent = samples(50)
    send(producer(broker, acks=acks), topic, sent)
    client = consumer(broker)
    client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert as_samples(take(client, 50)) == sent
    client.close()


def test_seek_by_offset_starts_exactly_there(broker: BrokerProcess, topic: str) -> None:
    send(producer(broker, **{"compression.type": "lz4"}), topic, samples())
    client = consumer(broker)
    client.assign([TopicPartition(topic, 0, 42)])
    assert [m.offset() for m in take(client, 3)] == [42, 43, 44]
    client.seek(TopicPartition(topic, 0, 7))
    assert take(client, 1)[0].offset() == 7
    client.close()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_look_up_by_time_finds_the_record_in_the_middle_of_a_batch(
    broker: BrokerProcess, topic: str, compression: str
) -> None:
    send(producer(broker, **{"compression.type": compression}), topic, samples())
    client = consumer(broker)
    wanted = [
        (BASE_TIMESTAMP_MS - 1, 0),
        (BASE_TIMESTAMP_MS + 500_000, 50),
        (BASE_TIMESTAMP_MS + 500_001, 51),
        (BASE_TIMESTAMP_MS + 10_000_000, -1),
    ]
    for timestamp, offset in wanted:
        (found,) = client.offsets_for_times([TopicPartition(topic, 0, timestamp)], WAIT_S)
        assert found.error is None
        assert found.offset == offset, f"for {timestamp}"
    assert client.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S) == (0, 100)
    client.close()


def test_an_offset_out_of_range_is_reset_or_reported(broker: BrokerProcess, topic: str) -> None:
    send(producer(broker), topic, samples(10))
    client = consumer(broker, **{"auto.offset.reset": "earliest"})
    client.assign([TopicPartition(topic, 0, 10_000)])
    assert take(client, 1)[0].offset() == 0
    client.close()
    strict = consumer(broker, **{"auto.offset.reset": "error"})
    strict.assign([TopicPartition(topic, 0, 10_000)])
    message = strict.poll(WAIT_S)
    assert message is not None
    assert message.error() is not None
    strict.close()


def test_admin_makes_grows_describes_and_deletes_a_topic(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 3, 1, config={"retention.ms": "12345"})])[topic].result(WAIT_S)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(WAIT_S)
    assert configs["retention.ms"].value == "12345"
    assert not configs["retention.ms"].is_default
    assert configs["segment.bytes"].value == str(1 << 30)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(WAIT_S)
    assert len(admin.list_topics(topic, WAIT_S).topics[topic].partitions) == 5
    ends = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
    assert next(iter(ends.values())).result(WAIT_S).offset == 0
    admin.delete_topics([topic])[topic].result(WAIT_S)
    assert topic not in admin.list_topics(timeout=WAIT_S).topics


def test_a_topic_made_again_has_a_new_id_and_no_old_records(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    ids = []
    for _ in range(2):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)
        from confluent_kafka import TopicCollection

        described = admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT_S)
        ids.append(str(described.topic_id))
        send(producer(broker), topic, samples(3))
        client = consumer(broker)
        assert client.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S) == (0, 3)
        client.close()
        admin.delete_topics([topic])[topic].result(WAIT_S)
    assert ids[0] != ids[1]


def test_deleted_records_are_gone_and_the_start_moves(broker: BrokerProcess, topic: str) -> None:
    send(producer(broker), topic, samples(20))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(topic, 0, 5)
    result = admin.delete_records([place])[place].result(WAIT_S)
    assert result.low_watermark == 5
    client = consumer(broker)
    client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert take(client, 1)[0].offset() == 5
    client.close()


def test_everything_is_there_after_a_clean_restart(own_broker: BrokerProcess) -> None:
    sent = samples()
    send(producer(own_broker), "kept", sent)
    own_broker.restart()
    client = consumer(own_broker)
    client.assign([TopicPartition("kept", 0, OFFSET_BEGINNING)])
    assert as_samples(take(client, len(sent))) == sent
    client.close()
    assert send(producer(own_broker), "kept", sent[:1])[0].offset() == len(sent)


def test_a_message_larger_than_the_limit_is_refused_by_the_broker(broker: BrokerProcess, topic: str) -> None:
    client = producer(broker, **{"message.max.bytes": 10_000_000})
    errors: list[KafkaError] = []
    client.produce(topic, value=bytes(3_000_000), on_delivery=lambda error, _: errors.append(error))
    client.flush(WAIT_S)
    assert [e.code() for e in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
