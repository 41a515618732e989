"""Interceptors: every record gets an id in a header on its way out, and the log tells where it went and who read it.

The sending and reading code does not know of it. An interceptor that raises is logged and does not stop anything.

python examples/tracing.py [HOST:PORT]
"""

from __future__ import annotations

import itertools
import sys

from ottla import Admin, Consumer, Producer
from ottla.client import ConsumerInterceptor, ProducerInterceptor, ProducerRecord, RecordMetadata, RecordTooLarge
from ottla.client.interceptors import ConsumedRecords

TOPIC = "example-tracing"


class Stamp(ProducerInterceptor):
    """Gives each record an id, and counts what arrived and what did not."""

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        self.arrived = self.failed = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Add the id."""
        return record._replace(headers=(*record.headers, ("trace", b"%d" % next(self.ids))))

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Count."""
        if error is None:
            self.arrived += 1
        else:
            self.failed += 1


class Report(ConsumerInterceptor):
    """Prints the id of each record that the program reads."""

    def on_consume(self, records: ConsumedRecords) -> ConsumedRecords:
        """Print, and change nothing."""
        for partition, some in records.items():
            for record in some:
                trace = dict(record.headers)["trace"] or b""
                print(f"record {trace.decode()} read at {partition.topic}-{partition.partition}:{record.offset}")
        return records


def main(broker: str) -> None:
    """Send three records and one that is too large, and read."""
    with Admin(broker) as admin:
        admin.create_topic(TOPIC, partitions=1)
    stamp = Stamp()
    with Producer(broker, interceptors=[stamp], max_request_size=1000) as producer:
        for value in (b"a", b"b", b"c"):
            producer.send(TOPIC, value)
        try:
            producer.send_and_wait(TOPIC, bytes(2000))
        except RecordTooLarge as refused:
            print(f"refused: {refused.code.name}")
    print(f"{stamp.arrived} arrived, {stamp.failed} failed")
    with Consumer(broker, interceptors=[Report()], auto_offset_reset="earliest") as consumer:
        consumer.assign_topics(TOPIC)
        for record in consumer:
            if record.offset == 2:
                break
    with Admin(broker) as admin:
        admin.delete_topics([TOPIC])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
