"""A librdkafka producer at a fixed rate and librdkafka consumers at the end of its topic, each in its own process.

    python benchmarks/tail_clients.py HOST:PORT TOPIC CONSUMERS RATE WARM SECONDS

Prints the same as `tails.c`: the line "begin" after WARM seconds, when each consumer has got a record, "end" after
SECONDS more, then deliveries between the two lines, answers (the same number: librdkafka does not report them), and the
p50 and p99 of the time from `produce` to `poll` in microseconds. Times are those of all records that were sent between
the two lines. The program waits for them after the end, up to DRAIN_S; a record that has not arrived by then counts
with its time until then.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

RECORD_BYTES = 100
READY_S = 60
DRAIN_S = 10
POLL_S = 0.1


@dataclass
class Arrivals:
    """The records of one consumer: when each was sent, and when it arrived, in nanoseconds of the monotonic clock."""

    has_begun: threading.Event = field(default_factory=threading.Event)
    records: list[tuple[int, int]] = field(default_factory=list)


def produce(address: str, topic: str, rate: int, has_ended: Event, report: Connection) -> None:
    """Send `rate` records a second until the end, each with its time as value; then report the times of all."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "all"})
    interval_ns = 1_000_000_000 // rate
    due_ns = time.monotonic_ns()
    sent: list[int] = []
    while not has_ended.is_set():
        due_ns += interval_ns
        wait_ns = due_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        sent.append(time.monotonic_ns())
        producer.produce(topic, sent[-1].to_bytes(8, "big").ljust(RECORD_BYTES))
        producer.poll(0)
    report.send(sent)
    producer.flush(DRAIN_S)


def consume(address: str, topic: str, found: Arrivals, has_ended: threading.Event) -> None:
    """Read records from the end of the topic on, until `has_ended` is set."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "tails", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    while not has_ended.is_set():
        message = consumer.poll(POLL_S)
        if message is None or message.error():
            continue
        found.records.append((int.from_bytes(message.value()[:8], "big"), time.monotonic_ns()))
        found.has_begun.set()
    consumer.close()


def elapsed_us(sent: Iterable[int], found: Sequence[tuple[int, int]], now_ns: int) -> list[float]:
    """The time of each record to one consumer; for records that have not arrived, the time until now."""
    came_ns = dict(found)
    return [(came_ns.get(sent_ns, now_ns) - sent_ns) / 1e3 for sent_ns in sent]


def main() -> None:
    address, topic = sys.argv[1:3]
    consumers, rate = int(sys.argv[3]), int(sys.argv[4])
    warm_s, seconds = float(sys.argv[5]), float(sys.argv[6])
    began = time.monotonic()
    context = multiprocessing.get_context("fork")
    has_ended, is_over = context.Event(), threading.Event()
    heard, report = context.Pipe(duplex=False)
    sender = context.Process(target=produce, args=(address, topic, rate, has_ended, report))
    sender.start()
    each = [Arrivals() for _ in range(consumers)]
    readers = [threading.Thread(target=consume, args=(address, topic, found, is_over), daemon=True) for found in each]
    for reader in readers:
        reader.start()
    for found in each:
        if not found.has_begun.wait(max(0.0, began + READY_S - time.monotonic())):
            has_ended.set()
            sys.exit(f"a consumer got no record within {READY_S} s")
    time.sleep(max(0.0, began + warm_s - time.monotonic()))
    begin_ns = time.monotonic_ns()
    print("begin", flush=True)
    time.sleep(seconds)
    end_ns = time.monotonic_ns()
    print("end", flush=True)
    has_ended.set()
    wanted = [sent_ns for sent_ns in heard.recv() if begin_ns <= sent_ns < end_ns]
    until = time.monotonic() + DRAIN_S
    while time.monotonic() < until and any(found.records[-1][0] < wanted[-1] for found in each):
        time.sleep(POLL_S)
    is_over.set()
    now_ns = time.monotonic_ns()
    sender.join()
    for reader in readers:
        reader.join()
    times_us = sorted(one for found in each for one in elapsed_us(wanted, found.records, now_ns))
    count = sum(begin_ns <= came_ns < end_ns for found in each for _, came_ns in found.records)
    print(f"{count} {count} {times_us[len(times_us) // 2]:.1f} {times_us[len(times_us) * 99 // 100]:.1f}")


if __name__ == "__main__":
    main()
