"""A librdkafka producer at a fixed rate and librdkafka consumers at the end of its topic, in processes of their own.

    python benchmarks/tail_clients.py HOST:PORT TOPIC CONSUMERS RATE WARM SECONDS

Prints what `tails.c` prints: the line "begin" after WARM seconds, "end" after SECONDS more, then deliveries, answers
(as many: librdkafka does not report them), and the p50 and p99 of the time from `produce` to `poll` in microseconds.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

RECORD_BYTES = 100


def produce(address: str, topic: str, rate: int, end_ns: int) -> None:
    """Send a record that carries its time `rate` times a second until `end_ns` of the monotonic clock."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "all"})
    interval_ns = 1_000_000_000 // rate
    due_ns = time.monotonic_ns()
    while due_ns < end_ns:
        due_ns += interval_ns
        wait_ns = due_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        producer.produce(topic, time.monotonic_ns().to_bytes(8, "big").ljust(RECORD_BYTES))
        producer.poll(0)
    producer.flush(5)


def consume(address: str, topic: str, begin_ns: int, end_ns: int, elapsed_us: list[float]) -> None:
    """Add the time that each record took, of those that were sent from `begin_ns` on."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "tails", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    while (now_ns := time.monotonic_ns()) < end_ns:
        message = consumer.poll((end_ns - now_ns) / 1e9)
        if message is None or message.error():
            continue
        sent_ns = int.from_bytes(message.value()[:8], "big")
        if sent_ns >= begin_ns:
            elapsed_us.append((time.monotonic_ns() - sent_ns) / 1e3)
    consumer.close()


def main() -> None:
    address, topic = sys.argv[1:3]
    consumers, rate = int(sys.argv[3]), int(sys.argv[4])
    begin_ns = time.monotonic_ns() + int(float(sys.argv[5]) * 1e9)
    end_ns = begin_ns + int(float(sys.argv[6]) * 1e9)
    elapsed_us: list[float] = []
    sender = multiprocessing.get_context("fork").Process(target=produce, args=(address, topic, rate, end_ns))
    sender.start()
    readers = [
        threading.Thread(target=consume, args=(address, topic, begin_ns, end_ns, elapsed_us)) for _ in range(consumers)
    ]
    for reader in readers:
        reader.start()
    time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9))
    print("begin", flush=True)
    time.sleep(max(0.0, (end_ns - time.monotonic_ns()) / 1e9))
    print("end", flush=True)
    sender.join()
    for reader in readers:
        reader.join()
    elapsed_us.sort()
    count = len(elapsed_us)
    if not count:
        sys.exit("no record came")
    print(f"{count} {count} {elapsed_us[count // 2]:.1f} {elapsed_us[count * 99 // 100]:.1f}")


if __name__ == "__main__":
    main()
