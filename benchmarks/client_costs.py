"""The cost of a record in the bundled client, beside confluent-kafka (librdkafka, in C): `scripts/bench-client`.

Each run is a new process, so that no client pays for another's imports, threads or garbage. It measures its own
CPU time (of all its threads, without the broker's) and the wall time, from creating the client to closing it; imports
and the values come before. Runs of a round follow each other, so that a drift of the machine affects all;
medians are printed. The broker is an Ottla with `ottla.acks.all=page-cache`, which leaves the processor to the client.

The latency rows send one record at a time and wait for its acknowledgement (acks=all, without linger: by default in
Ottla's client, by `linger.ms=0` in confluent-kafka's); or wait for one record at the end of a log, from its send by a
plain socket until the program has it. Broker and client have a processor each then: if the kernel chose, it would put
them on one or on two, which changes a round trip more than the client. Most of such a time is that of waking a sleeping
processor, which drifts: so the clients of a round run at the same time and take turns, some hundred records each. A
separate row has the time of a socket without a client.

`--instructions` counts what a client executes for each of these records (valgrind): a busy machine does not change it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import platform
import random
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import frames
import servers
from tabulate import tabulate

VALUE_BYTES = 100
BATCH_BYTES = 64 * 1024
LINGER_MS = 5
MANY = 10_000
"""How many values go into one call of `send_many`, or one Arrow array."""
LATENCY_RECORDS = 3_000
LATENCY_WARM_UP = 300
FETCH_PAUSE_S = 0.001
"""Seconds before a record is sent to a consumer: its Fetch waits at the broker by then."""
TURN_RECORDS = 300
"""The number of records that a client sends in its turn."""
COUNTED_RECORDS = 300
"""The number of additional records in the second run of a count."""
RUN_LIMIT_S = 600

Run = Callable[[str, str, int], Any]
"""(address, topic, records): returns the function or coroutine function that `measured` times."""


class Turns:
    """The turns of a process that measures a latency row beside others."""

    are_taken = False
    """Whether there are turns, because other clients run in the same round."""

    @classmethod
    def wait(cls, number: int) -> None:
        """Before record `number`: if a turn has ended, report it, and wait for a line that begins the next one."""
        if cls.are_taken and number % TURN_RECORDS == 0:
            print("turn", flush=True)
            sys.stdin.readline()


class Measured(NamedTuple):
    """CPU seconds and seconds of a run, or the milliseconds p50 and p99 of a latency row and 0."""

    cpu: float
    wall: float


def value_pool() -> list[bytes]:
    """Values of 100 bytes that look like measurements."""
    chance = random.Random(1)
    rows = (
        f'{{"sensor":{chance.randrange(1000)},"at":{1_700_000_000_000 + n},"celsius":{chance.gauss(20, 5):.3f}}}'
        for n in range(MANY)
    )
    return [row.encode().ljust(VALUE_BYTES, b" ")[:VALUE_BYTES] for row in rows]


# Producers -------------------------------------------------------------------------------------------------------


def send_blocking(address: str, topic: str, records: int) -> Callable[[], None]:
    from ottla import Producer

    values = value_pool()

    def run() -> None:
        with Producer(address, batch_size=BATCH_BYTES, linger_ms=LINGER_MS) as producer:
            send = producer.send
            for n in range(records):
                send(topic, values[n % MANY])

    return run


def send_asyncio(address: str, topic: str, records: int) -> Callable[[], Awaitable[None]]:
    from ottla.client import Producer

    values = value_pool()

    async def run() -> None:
        async with Producer(address, batch_size=BATCH_BYTES, linger_ms=LINGER_MS) as producer:
            send = producer.send
            for n in range(records):
                await send(topic, values[n % MANY])

    return run


def send_many_blocking(address: str, topic: str, records: int) -> Callable[[], None]:
    from ottla import Producer

    values = value_pool()

    def run() -> None:
        with Producer(address, batch_size=BATCH_BYTES, linger_ms=LINGER_MS) as producer:
            for _ in range(records // MANY):
                producer.send_many(topic, values)

    return run


def send_many_asyncio(address: str, topic: str, records: int) -> Callable[[], Awaitable[None]]:
    from ottla.client import Producer

    values = value_pool()

    async def run() -> None:
        async with Producer(address, batch_size=BATCH_BYTES, linger_ms=LINGER_MS) as producer:
            for _ in range(records // MANY):
                await producer.send_many(topic, values)

    return run


def send_arrow(address: str, topic: str, records: int) -> Callable[[], None]:
    import pyarrow as pa

    from ottla import Producer

    values = pa.array(value_pool(), pa.binary())

    def run() -> None:
        with Producer(address, batch_size=BATCH_BYTES, linger_ms=LINGER_MS) as producer:
            for _ in range(records // MANY):
                producer.send_many(topic, values)

    return run


def send_confluent(address: str, topic: str, records: int) -> Callable[[], None]:
    values = value_pool()

    def run() -> None:
        producer = confluent_producer(address, {"linger.ms": LINGER_MS, "batch.size": BATCH_BYTES})
        produce = producer.produce
        for n in range(records):
            while True:
                try:
                    produce(topic, values[n % MANY])
                except BufferError:
                    producer.poll(0.01)
                else:
                    break
        assert producer.flush(60) == 0

    return run


def confluent_producer(address: str, options: dict[str, Any]) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": address, "acks": "all", "enable.idempotence": True, **options})


# Consumers -------------------------------------------------------------------------------------------------------


def iterate_blocking(address: str, topic: str, records: int) -> Callable[[], None]:
    from ottla import Consumer

    def run() -> None:
        left = records
        with Consumer(address, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            for record in consumer:
                assert len(record.value or b"") == VALUE_BYTES
                left -= 1
                if not left:
                    break

    return run


def iterate_asyncio(address: str, topic: str, records: int) -> Callable[[], Awaitable[None]]:
    from ottla.client import Consumer

    async def run() -> None:
        left = records
        async with Consumer(address, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            async for record in consumer:
                assert len(record.value or b"") == VALUE_BYTES
                left -= 1
                if not left:
                    break

    return run


def getmany_blocking(address: str, topic: str, records: int) -> Callable[[], None]:
    from ottla import Consumer

    def run() -> None:
        left = records
        with Consumer(address, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            while left > 0:
                for found in consumer.getmany(timeout_ms=1000).values():
                    for record in found:
                        assert len(record.value or b"") == VALUE_BYTES
                    left -= len(found)

    return run


def getmany_asyncio(address: str, topic: str, records: int) -> Callable[[], Awaitable[None]]:
    from ottla.client import Consumer

    async def run() -> None:
        left = records
        async with Consumer(address, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            while left > 0:
                for found in (await consumer.getmany(timeout_ms=1000)).values():
                    for record in found:
                        assert len(record.value or b"") == VALUE_BYTES
                    left -= len(found)

    return run


def arrow_blocking(address: str, topic: str, records: int) -> Callable[[], None]:
    from ottla import Consumer

    importlib.import_module("ottla.client.arrow_reading")  # as all imports: not measured

    def run() -> None:
        left = records
        with Consumer(address, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            for columns in consumer.arrow():
                left -= len(columns)
                if left <= 0:
                    break

    return run


def arrow_asyncio(address: str, topic: str, records: int) -> Callable[[], Awaitable[None]]:
    from ottla.client import Consumer

    importlib.import_module("ottla.client.arrow_reading")  # as all imports: not measured

    async def run() -> None:
        left = records
        async with Consumer(address, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            async for columns in consumer.arrow():
                left -= len(columns)
                if left <= 0:
                    break

    return run


def consume_confluent(address: str, topic: str, records: int) -> Callable[[], None]:
    from confluent_kafka import Consumer, TopicPartition

    def run() -> None:
        left = records
        consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        while left > 0:
            for message in consumer.consume(500, 1):
                assert message.error() is None
                assert len(message.value()) == VALUE_BYTES
                left -= 1
        consumer.close()

    return run


# Latency ---------------------------------------------------------------------------------------------------------


def latency_blocking(address: str, topic: str, records: int) -> Callable[[], list[float]]:
    from ottla import Producer

    def run() -> list[float]:
        with Producer(address) as producer:
            return timed(lambda: producer.send_and_wait(topic, b"x" * VALUE_BYTES), records)

    return run


def latency_asyncio(address: str, topic: str, records: int) -> Callable[[], Awaitable[list[float]]]:
    from ottla.client import Producer

    async def run() -> list[float]:
        found = []
        async with Producer(address) as producer:
            for number in range(records):
                Turns.wait(number)
                began = time.perf_counter()
                await producer.send_and_wait(topic, b"x" * VALUE_BYTES)
                found.append(time.perf_counter() - began)
        return found

    return run


def latency_confluent(address: str, topic: str, records: int) -> Callable[[], list[float]]:
    producer = confluent_producer(address, {"linger.ms": 0})
    heard: list[object] = []

    def once() -> None:
        producer.produce(topic, b"x" * VALUE_BYTES, on_delivery=lambda error, _: heard.append(error))
        while not heard:
            producer.poll(1)
        assert heard.pop() is None

    return lambda: timed(once, records)


class PlainProducer:
    """Sends records one by one over a plain socket, at very little cost for the process."""

    def __init__(self, address: str, topic: str) -> None:
        from ottla import Producer

        with Producer(address) as producer:
            producer.send_and_wait(topic, b"the topic exists")
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        batch, _ = frames.batch_of(VALUE_BYTES)
        self._frame = frames.produce_exchange(topic, batch, -1).frame

    def send(self) -> None:
        self._socket.sendall(self._frame)

    def await_answer(self) -> None:
        (size,) = struct.unpack(">i", self._socket.recv(4, socket.MSG_WAITALL))
        self._socket.recv(size, socket.MSG_WAITALL)


def latency_socket(address: str, topic: str, records: int) -> Callable[[], list[float]]:
    producer = PlainProducer(address, topic)

    def once() -> None:
        producer.send()
        producer.await_answer()

    return lambda: timed(once, records)


def arrival_blocking(address: str, topic: str, records: int) -> Callable[[], list[float]]:
    from ottla import Consumer

    def run() -> list[float]:
        producer = PlainProducer(address, topic)
        with Consumer(address, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            consumer.getone()
            return arrivals(producer, consumer.getone, records)

    return run


def arrival_asyncio(address: str, topic: str, records: int) -> Callable[[], Awaitable[list[float]]]:
    from ottla.client import Consumer

    async def run() -> list[float]:
        producer = await asyncio.to_thread(PlainProducer, address, topic)
        found = []
        async with Consumer(address, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            await consumer.getone()
            for number in range(records):
                Turns.wait(number)
                await asyncio.sleep(FETCH_PAUSE_S)
                began = time.perf_counter()
                producer.send()
                await consumer.getone()
                found.append(time.perf_counter() - began)
                producer.await_answer()
        return found

    return run


def arrival_confluent(address: str, topic: str, records: int) -> Callable[[], list[float]]:
    from confluent_kafka import Consumer, TopicPartition

    def run() -> list[float]:
        producer = PlainProducer(address, topic)
        consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        while consumer.poll(1) is None:
            pass

        def once() -> None:
            message = consumer.poll(1)
            assert message is not None
            assert message.error() is None

        found = arrivals(producer, once, records)
        consumer.close()
        return found

    return run


def arrivals(producer: PlainProducer, receive: Callable[[], object], records: int) -> list[float]:
    found = []
    for number in range(records):
        Turns.wait(number)
        time.sleep(FETCH_PAUSE_S)
        began = time.perf_counter()
        producer.send()
        receive()
        found.append(time.perf_counter() - began)
        producer.await_answer()
    return found


def timed(once: Callable[[], object], records: int) -> list[float]:
    found = []
    for number in range(records):
        Turns.wait(number)
        began = time.perf_counter()
        once()
        found.append(time.perf_counter() - began)
    return found


# The run ---------------------------------------------------------------------------------------------------------

PRODUCE: dict[str, Run] = {
    "confluent-kafka produce": send_confluent,
    "send, blocking": send_blocking,
    "send, asyncio": send_asyncio,
    "send_many, blocking": send_many_blocking,
    "send_many, asyncio": send_many_asyncio,
    "send_many of Arrow, blocking": send_arrow,
}
CONSUME: dict[str, Run] = {
    "confluent-kafka consume": consume_confluent,
    "iterate, blocking": iterate_blocking,
    "iterate, asyncio": iterate_asyncio,
    "getmany, blocking": getmany_blocking,
    "getmany, asyncio": getmany_asyncio,
    "arrow, blocking": arrow_blocking,
    "arrow, asyncio": arrow_asyncio,
}
LATENCY: dict[str, Run] = {
    "confluent-kafka latency": latency_confluent,
    "latency, blocking": latency_blocking,
    "latency, asyncio": latency_asyncio,
    "latency, a socket alone": latency_socket,
}
ARRIVAL: dict[str, Run] = {
    "confluent-kafka latency of poll": arrival_confluent,
    "latency of getone, blocking": arrival_blocking,
    "latency of getone, asyncio": arrival_asyncio,
}
"""The others are compared with the first of each."""


def run_here(name: str, address: str, topic: str, records: int) -> None:
    """Measure a run, in its process, and print the result."""
    import uvloop

    prepared = {**PRODUCE, **CONSUME, **LATENCY, **ARRIVAL}[name](address, topic, records)
    began, cpu_began = time.perf_counter(), time.process_time()
    result = uvloop.run(prepared()) if asyncio.iscoroutinefunction(prepared) else prepared()
    measured = Measured(time.process_time() - cpu_began, time.perf_counter() - began)
    if result is not None:
        times = sorted(result[LATENCY_WARM_UP:])
        measured = Measured(times[len(times) // 2] * 1000, times[len(times) * 99 // 100] * 1000)
    print(json.dumps(measured))


def run_apart(name: str, address: str, topic: str, records: int) -> Measured:
    """Measure a run in a new process."""
    words = [sys.executable, __file__, name, address, topic, str(records)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=RUN_LIMIT_S, check=True)
    return Measured(*json.loads(done.stdout))


def run_in_turns(topics: dict[str, str], address: str, records: int, processor: int | None) -> dict[str, Measured]:
    """Measure latency rows, each with its topic, in processes that take turns, on one `processor` if it is given."""
    keep_to = "" if processor is None else str(processor)
    found: dict[str, Measured] = {}
    with contextlib.ExitStack() as stack:
        running: dict[str, subprocess.Popen[str]] = {}
        for name, topic in topics.items():
            words = [sys.executable, __file__, name, address, topic, str(records), keep_to]
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            running[name] = process
            assert said(process) == "turn\n"
        while running:
            for name, process in list(running.items()):
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
                line = said(process)
                if line != "turn\n":
                    found[name] = Measured(*json.loads(line))
                    del running[name]
    return found


def said(process: subprocess.Popen[str]) -> str:
    """Return the next line of a process."""
    assert process.stdout is not None
    return process.stdout.readline()


def instructions_of(name: str, address: str, records: int) -> int:
    """Count the instructions of a whole run, without those of the kernel."""
    with tempfile.NamedTemporaryFile(prefix="ottla-bench-") as out:
        words = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={out.name}"]
        words += [sys.executable, __file__, name, address, "counted", str(records)]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=True, env=environment)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    assert found
    return int(found[1].replace(",", ""))


def count_instructions(only: str) -> None:
    """Print the instructions of a record for the latency rows that have `only` in their names: two runs of each, one
    of which has more records.
    """
    if shutil.which("valgrind") is None:
        sys.exit("This needs valgrind (Debian: apt-get install valgrind).")
    rows = []
    with servers.Ottla("page-cache") as server:
        address = f"{server.host}:{server.port}"
        for name in [name for name in [*LATENCY, *ARRIVAL] if only in name]:
            fewer, more = (
                instructions_of(name, address, LATENCY_WARM_UP + count * COUNTED_RECORDS) for count in (1, 2)
            )
            rows.append([name, f"{(more - fewer) // COUNTED_RECORDS:,}"])
    heads = ["one record at a time", "instructions"]
    print(tabulate(rows, heads, tablefmt="github", disable_numparse=True, colalign=("left", "right")))


def chosen(group: dict[str, Run], wanted: Callable[[str], bool]) -> list[str]:
    """Return the wanted names, after the one that they are compared with; nothing if none is wanted."""
    names = [name for name in group if wanted(name)]
    return list(dict.fromkeys([next(iter(group)), *names])) if names else []


def compare(records: int, rounds: int, wanted: Callable[[str], bool]) -> dict[str, list[Measured]]:
    """Run the wanted rows and those that they are compared with; print both tables, and return their content."""
    with servers.Ottla("page-cache") as server:
        address = f"{server.host}:{server.port}"
        run_apart("confluent-kafka produce", address, "stored", records)
        everywhere, places = os.sched_getaffinity(0), servers.processors()
        number = 0
        found: dict[str, list[Measured]] = {}
        for _ in range(rounds):
            for group, topic in ((PRODUCE, ""), (CONSUME, "stored")):
                for name in chosen(group, wanted):
                    number += 1
                    measured = run_apart(name, address, topic or f"written-{number}", records)
                    found.setdefault(name, []).append(measured)
            if places is not None:
                server.keep_to(places[0])
            for group in (LATENCY, ARRIVAL):
                topics = {}
                for name in chosen(group, wanted):
                    number += 1
                    topics[name] = f"written-{number}"
                processor = None if places is None else places[1]
                for name, measured in run_in_turns(topics, address, LATENCY_RECORDS, processor).items():
                    found.setdefault(name, []).append(measured)
            server.keep_to(*everywhere)
    print_tables(found, records, rounds)
    return found


def print_tables(found: dict[str, list[Measured]], records: int, rounds: int) -> None:
    middle = {
        name: Measured(*(statistics.median(column) for column in zip(*runs, strict=True)))
        for name, runs in found.items()
    }
    costs, latencies = [], []
    for group in (PRODUCE, CONSUME):
        base = middle.get(next(iter(group)))
        for name in group:
            if name in middle and base is not None:
                cpu, wall = middle[name]
                spread = [base.cpu / run.cpu for run in found[name]]
                each = f"{cpu / records * 1e6:.2f}"
                ratios = f"{base.cpu / cpu:.2f}", f"{min(spread):.2f} to {max(spread):.2f}"
                costs.append([name, f"{cpu:.2f}", each, f"{wall:.2f}", *ratios])
    for group in (LATENCY, ARRIVAL):
        base_name = next(iter(group))
        for name in group:
            if name in middle:
                times = [f"{value:.3f}" for value in middle[name]]
                slower = [run.cpu / base.cpu for run, base in zip(found[name], found[base_name], strict=True)]
                latencies.append([name, *times, f"{statistics.median(slower):.2f}", f"{min(slower):.2f}"])
    print(f"{records:,} records of {VALUE_BYTES} bytes, each run a process of its own, medians of {rounds} rounds,")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, ottla.acks.all=page-cache.")
    print("CPU is the client's process alone; a ratio above 1: less CPU than confluent-kafka.")
    if costs:
        print()
        heads = ["run", "CPU s", "us/record", "wall s", "CPU ratio", "spread"]
        print(tabulate(costs, heads, tablefmt="github", disable_numparse=True, colalign=("left", *["right"] * 5)))
    if latencies:
        print()
        print(
            "A ratio is of medians, this / confluent-kafka in the same round; the last column is the least of them.\n"
        )
        heads = ["one record at a time", "p50 ms", "p99 ms", "ratio", "least"]
        print(tabulate(latencies, heads, tablefmt="github", disable_numparse=True, colalign=("left", *["right"] * 4)))


if __name__ == "__main__":
    if len(sys.argv) > 5:
        Turns.are_taken = True
        if sys.argv[5]:
            os.sched_setaffinity(0, {int(sys.argv[5])})
    run_here(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
