"""The lag of a real consumer group, as Prometheus scrapes it."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from kit.broker import BrokerProcess
from prometheus_client.parser import text_string_to_metric_families

RECORDS = 10
READ = 4
WAIT_S = 30.0


def lags(http: str) -> dict[tuple[str, str, str], float]:
    """`ottla_group_lag` by group, topic and partition."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=WAIT_S) as answer:
        text = answer.read().decode()
    return {
        (sample.labels["group"], sample.labels["topic"], sample.labels["partition"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "ottla_group_lag"
    }


def test_the_lag_of_a_group_is_scraped_while_it_reads(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, overrides={"ottla.http.listener": "127.0.0.1:0", "num.partitions": "1"}) as broker:
        found = re.search(r"health and metrics at http://(\S+) ", broker.output)
        assert found is not None
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(WAIT_S) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["orders"])
        read: list[Message] = []
        while len(read) < READ:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            read.append(message)
        assert lags(found[1]) == {}
        consumer.commit(offsets=[TopicPartition("orders", 0, READ)], asynchronous=False)
        assert lags(found[1]) == {("billing", "orders", "0"): RECORDS - READ}
        consumer.close()
        assert lags(found[1]) == {("billing", "orders", "0"): RECORDS - READ}
