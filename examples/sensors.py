"""Readings of sensors as JSON: written and averaged with the blocking client, in a program without an event loop.

python examples/sensors.py [HOST:PORT]
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict

from ottla import Admin, Consumer, Producer

TOPIC = "example-sensors"
READINGS = [("north", 18.5), ("south", 24.0), ("north", 19.5), ("south", 25.0), ("east", 21.0)]


def main(broker: str) -> None:
    """Create the topic, write, read everything back, and clean up."""
    with Admin(broker) as admin:
        admin.create_topic(TOPIC, partitions=3)

    with Producer(broker, key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode()) as out:
        for sensor, celsius in READINGS:
            out.send(TOPIC, {"celsius": celsius}, key=sensor)  # a sensor's readings stay in one partition, in order

    readings: dict[str, list[float]] = defaultdict(list)
    with Consumer(
        broker, auto_offset_reset="earliest", key_deserializer=bytes.decode, value_deserializer=json.loads
    ) as consumer:
        ends = consumer.end_offsets(consumer.assign_topics(TOPIC))
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for records in consumer.getmany(timeout_ms=1000).values():
                for record in records:
                    readings[record.key].append(record.value["celsius"])

    for sensor, taken in sorted(readings.items()):
        print(f"{sensor}: {sum(taken) / len(taken):.1f} C of {len(taken)} readings")

    with Admin(broker) as admin:
        admin.delete_topics([TOPIC])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
