"""Reads a topic to its end with librdkafka, which knows nothing of how it was written."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, TopicPartition


def values_of(bootstrap: str, topic: str, *, is_committed: bool = True) -> list[bytes]:
    """The values that a reader sees now, sorted; with `is_committed` one that is read_committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # an end is known when a fetch finds nothing
            "isolation.level": "read_committed" if is_committed else "read_uncommitted",
        }
    )
    try:
        partitions = consumer.list_topics(topic, 60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        found = []
        left = set(partitions)
        while left:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is None:
                found.append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left.discard(message.partition())
        return sorted(found)
    finally:
        consumer.close()
