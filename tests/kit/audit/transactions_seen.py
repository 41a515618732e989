"""What a broker shows of transactions from outside: open ones, ends of partitions, and the movers' committed offsets.

Asked with kafka-python's administrator, which knows ListTransactions, DescribeTransactions and DescribeProducers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import kafka
from confluent_kafka import OFFSET_INVALID, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from kafka.admin import OffsetSpec
from kafka.protocol.consumer import IsolationLevel
from kit.audit.ledger import Place
from kit.audit.moving import GROUP, INPUT
from kit.audit.producers import QUICK_CONFLUENT
from kit.audit.reading import ANSWER_S

IDLE = ("Empty", "CompleteCommit", "CompleteAbort")
"""States in which no transaction is open."""


@contextmanager
def administrator(bootstrap: str) -> Iterator[Any]:
    """kafka-python's administrator, for a few questions."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap, retry_backoff_ms=20, reconnect_backoff_ms=20)
    try:
        yield admin
    finally:
        admin.close()


def committed_offsets(bootstrap: str) -> dict[int, int]:
    """The movers' offset of each partition of the input. Raises KafkaException where one is pending."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK_CONFLUENT})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)], require_stable=True).values()
    found = answer.result(ANSWER_S).topic_partitions
    return {one.partition: one.offset for one in found if one.topic == INPUT and one.offset != OFFSET_INVALID}


def ends_of(bootstrap: str, places: Sequence[Place]) -> tuple[dict[Place, int], dict[Place, int]]:
    """The high watermark and the last stable offset of each partition."""
    with administrator(bootstrap) as admin:
        return _ends(admin, places)


def what_is_open(bootstrap: str) -> list[str]:
    """Everything that holds readers up, in words: transactions that the coordinator has open, those that a log has, and
    partitions whose last stable offset is below the high watermark.
    """
    with administrator(bootstrap) as admin:
        found = [
            f"{one.transactional_id}: {one.state.value}"
            for listed in admin.list_transactions().values()
            for one in listed
            if one.state.value not in IDLE
        ]
        topics = admin.describe_topics(None)
        places = [(topic["name"], one["partition_index"]) for topic in topics for one in topic["partitions"]]
        described = admin.describe_producers([kafka.TopicPartition(*place) for place in places])
        for where, state in described.items():
            for producer in state.active_producers:
                if producer.current_transaction_start_offset >= 0:
                    since = producer.current_transaction_start_offset
                    found.append(f"{where.topic}-{where.partition}: producer {producer.producer_id} since {since}")
        high_watermarks, stable = _ends(admin, places)
    for (topic, partition), high_watermark in high_watermarks.items():
        if stable[topic, partition] < high_watermark:
            found.append(f"{topic}-{partition}: stable up to {stable[topic, partition]} of {high_watermark}")
    return found


def _ends(admin: Any, places: Sequence[Place]) -> tuple[dict[Place, int], dict[Place, int]]:
    asked = {kafka.TopicPartition(*place): OffsetSpec.LATEST for place in places}
    high_watermarks, stable = (
        {
            (where.topic, where.partition): one.offset
            for where, one in admin.list_partition_offsets(asked, level).items()
        }
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    )
    return high_watermarks, stable
