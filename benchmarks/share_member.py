"""One consumer of `share_consumers.py` in its own process: the bundled clients, and confluent-kafka's ShareConsumer.

It reads until all consumers of its group together have the wanted number of records, and prints one line of JSON with
its CPU time and the broker's since a first part of them, which is not measured. Each consumer counts its records in its
place of a file that all of them have mapped. With a latency row it reads records one by one, which it sends itself by a
plain socket, and prints the milliseconds at the median and at the 99th percentile.
"""

from __future__ import annotations

import json
import mmap
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal

from client_costs import LATENCY_WARM_UP, PlainProducer
from servers import cpu_seconds

Mode = Literal["implicit", "explicit"]
POLL_MS = 100
WAIT_BEFORE_S = 0.003
"""Before a record is sent: the request of the program for it waits at the broker by then."""
COUNT = struct.Struct("<q")

Poll = Callable[[], int]
"""Take the next records, process them, and return their number."""


class Counts:
    """The numbers of records that each consumer of a group has read, in a mapped file."""

    def __init__(self, path: Path, place: int) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._at = place * COUNT.size
        self._mine = 0

    def add(self, count: int) -> None:
        """Add records to this consumer's count."""
        self._mine += count
        COUNT.pack_into(self._map, self._at, self._mine)

    @property
    def total(self) -> int:
        """The records of all consumers."""
        return sum(count for (count,) in COUNT.iter_unpack(self._map))


def consumer(address: str, topic: str, group: str) -> tuple[Poll, Callable[[], None], Callable[[], object]]:
    """A bundled Consumer that commits by itself: its poll, its close, and the receive of a single record."""
    from ottla import Consumer

    opened = Consumer(address, group_id=group, auto_offset_reset="earliest").__enter__()
    opened.subscribe([topic])

    def poll() -> int:
        return sum(1 for found in opened.getmany(timeout_ms=POLL_MS).values() for record in found if record.value)

    return poll, opened.close, opened.getone


def share_consumer(
    address: str, topic: str, group: str, mode: Mode
) -> tuple[Poll, Callable[[], None], Callable[[], object]]:
    """The same of a bundled ShareConsumer; in explicit mode each record is accepted."""
    from ottla import ShareConsumer

    opened = ShareConsumer(address, group_id=group, share_acknowledgement_mode=mode).__enter__()
    opened.subscribe([topic])

    def implicit() -> int:
        return sum(1 for found in opened.getmany(timeout_ms=POLL_MS).values() for record in found if record.value)

    def explicit() -> int:
        count, accept = 0, opened.acknowledge
        for found in opened.getmany(timeout_ms=POLL_MS).values():
            for record in found:
                if record.value:
                    accept(record)
                    count += 1
        return count

    def receive() -> object:
        record = opened.getone()
        if mode == "explicit":
            opened.acknowledge(record)
        return record

    return (explicit if mode == "explicit" else implicit), opened.close, receive


def confluent(address: str, topic: str, group: str, mode: str) -> tuple[Poll, Callable[[], None], Callable[[], object]]:
    """The same of confluent-kafka's ShareConsumer."""
    from confluent_kafka import ShareConsumer

    quiet = {"log_level": 3}  # it warns that it is a preview
    opened = ShareConsumer(
        {"bootstrap.servers": address, "group.id": group, "share.acknowledgement.mode": mode, **quiet}
    )
    opened.subscribe([topic])
    is_explicit = mode == "explicit"

    def take(messages: list[Any]) -> int:
        for message in messages:
            if message.error() is not None:
                sys.exit(f"confluent-kafka: {message.error()}")
            message.value()
            if is_explicit:
                opened.acknowledge(message)
        return len(messages)

    def receive() -> None:
        while not take(opened.poll(timeout=1)):
            pass

    return lambda: take(opened.poll(timeout=POLL_MS / 1000)), opened.close, receive


CLIENTS: dict[str, Callable[[str, str, str], tuple[Poll, Callable[[], None], Callable[[], object]]]] = {
    "Consumer": consumer,
    "ShareConsumer, implicit": partial(share_consumer, mode="implicit"),
    "ShareConsumer, explicit": partial(share_consumer, mode="explicit"),
    "confluent-kafka, implicit": partial(confluent, mode="implicit"),
    "confluent-kafka, explicit": partial(confluent, mode="explicit"),
}


def read(poll: Poll, counts: Counts, warm: int, records: int, broker: int) -> dict[str, float]:
    """Read until all consumers together have `warm + records` records; the figures of the last `records`."""
    while counts.total < warm:
        counts.add(poll())
    first, began, cpu, broker_cpu = counts.total, time.perf_counter(), time.process_time(), cpu_seconds(broker)
    while counts.total < warm + records:
        counts.add(poll())
    return {
        "records": counts.total - first,
        "began": began,
        "ended": time.perf_counter(),
        "cpu": time.process_time() - cpu,
        "broker_cpu": cpu_seconds(broker) - broker_cpu,
    }


def wait(receive: Callable[[], object], producer: PlainProducer, records: int) -> dict[str, float]:
    """Receive records one by one at the end of the log; the time from the send of each until the program has it.

    Another thread sends them, a moment after the program has begun to wait.
    """
    times = []
    sent: SimpleQueue[float] = SimpleQueue()
    may_send: SimpleQueue[bool] = SimpleQueue()

    def send() -> None:
        while may_send.get():
            time.sleep(WAIT_BEFORE_S)  # from outside nothing shows that the request waits
            sent.put(time.perf_counter())
            producer.send()
            producer.await_answer()

    receive()  # the one that made the topic
    sender = Thread(target=send)
    sender.start()
    for _ in range(LATENCY_WARM_UP + records):
        may_send.put(True)
        receive()
        times.append((time.perf_counter() - sent.get()) * 1000)
    may_send.put(False)
    sender.join()
    times = sorted(times[LATENCY_WARM_UP:])
    return {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100]}


def main() -> None:
    client, address, topic, group, path, place, warm, records, broker = sys.argv[1:]
    producer = None if path else PlainProducer(address, topic)
    poll, close, receive = CLIENTS[client](address, topic, group)
    if producer is None:
        found = read(poll, Counts(Path(path), int(place)), int(warm), int(records), int(broker))
    else:
        found = wait(receive, producer, int(records))
    print(json.dumps(found), flush=True)
    close()


if __name__ == "__main__":
    main()
