"""Many records at once: a list is sent in one call, and read back as Arrow columns, without an object per record.

python examples/columns.py [HOST:PORT]      (needs pip install 'ottla[arrow]')
"""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.compute as pc

from ottla import Admin, Consumer, Producer
from ottla.client import RecordsNotSent

TOPIC = "example-columns"
CITIES = ("Bari", "Lyon", "Oslo")
READINGS = 30_000


def main(broker: str) -> None:
    """Write measurements of three cities, and sum them up by city and by partition."""
    with Admin(broker) as admin:
        admin.create_topic(TOPIC, partitions=2)

    with Producer(broker, compression_type="zstd") as producer:
        cities = [CITIES[number % 3].encode() for number in range(READINGS)]
        celsius = [b"%d" % (15 + number % 3 * 5 + number % 4) for number in range(READINGS)]
        sending = producer.send_many(TOPIC, celsius, keys=cities)
        try:
            sent = sending.result()
        except RecordsNotSent as failed:  # says which, and why
            sys.exit(f"{len(failed.errors)} records were not sent: {failed}")
        print(f"{len(sent)} records sent to {len(set(sent.partitions))} partitions")

    batches: list[pa.RecordBatch] = []
    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets(consumer.assign_topics(TOPIC))
        for batch in consumer.arrow(columns=["key", "value"]):
            batches.append(batch)
            if all(consumer.has_reached(partition, end) for partition, end in ends.items()):
                break

    table = pa.Table.from_batches(batches)
    readings = pa.table({"city": pc.cast(table["key"], pa.string()), "celsius": _to_numbers(table["value"])})
    for row in readings.group_by("city").aggregate([("celsius", "mean")]).sort_by("city").to_pylist():
        print(f"{row['city']}: {row['celsius_mean']:.1f} C")

    with Admin(broker) as admin:
        admin.delete_topics([TOPIC])


def _to_numbers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(pc.cast(values, pa.string()), pa.float64())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
