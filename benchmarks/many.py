"""The cost of many partitions, idle connections and producer ids for a broker.

python benchmarks/many.py                        10,000 partitions, 2,000 connections, 20,000 producer ids
python benchmarks/many.py --partitions 2000 --only partitions
python benchmarks/many.py --tree CHECKOUT        another version

partitions    made by CreateTopics (100 each); a record to each (`acks=all`, answered one request after the other);
              a clean stop after that, and one of a broker without new records; starts after a stop and a kill
connections   resident memory of each that has asked for ApiVersions and Metadata, as a client does that connects
producers     resident memory of each producer id that a partition remembers, after one batch of each

`scripts/bench --check` compares the latter two with a bound.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import frames
from held import CannotMeasure, Figure, Options, Section, at_most
from servers import resident_mb
from startup import Broker, cpu_seconds

from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import Request, encode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

PARTITIONS_OF_A_TOPIC = 100
PRODUCE_VERSION = 9
METADATA_VERSION = 12
IN_FLIGHT = 5
STAMP_MS = 1_700_000_000_000
KINDS = ("partitions", "connections", "producers")
HELD_CONNECTIONS, HELD_PRODUCERS = 4_000, 40_000
"""The number of each that `scripts/bench` creates: with few, the broker's fixed memory would count more."""
CONNECTION, PRODUCER = "memory: idle connection", "memory: producer id"
AT_MOST = {CONNECTION: at_most(2_000), PRODUCER: at_most(300)}
"""Bytes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--producers", type=int, default=20_000)
    parser.add_argument("--acks", default="sync", help="ottla.acks.all (default %(default)s)")
    parser.add_argument("--only", default=",".join(KINDS), help="which, with commas between (default: all)")
    parser.add_argument("--tree", type=Path, help="a checkout whose broker runs")
    options = parser.parse_args()
    if options.tree is not None:
        os.environ["PYTHONPATH"] = str(options.tree)
    measures: dict[str, Callable[[Path], object]] = {
        "partitions": lambda place: partitions(place, options.partitions, options.acks),
        "connections": lambda place: connections(place, options.connections),
        "producers": lambda place: producers(place, options.producers),
    }
    for kind in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="ottla-many-", dir=os.environ.get("OTTLA_BENCH_DIRECTORY")) as name:
            measures[kind](Path(name))


def show(what: str, figure: float, unit: str) -> None:
    """Print one row immediately: all rows take a minute."""
    print(f"{what:<56}{figure:>10,.1f} {unit}", flush=True)


class Client:
    """One connection with up to `IN_FLIGHT` requests in flight."""

    def __init__(self, broker: Broker) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port))

    def ask(self, requests: list[tuple[Request, int]]) -> list[bytes]:
        """Send requests, and return the answers, in order."""
        answers: list[bytes] = []
        for number, (request, version) in enumerate(requests):
            key = request.message_key
            self.socket.sendall(
                frames.framed(encode_request_header(key, version, number, "bench"), encode(request, version))
            )
            if number >= IN_FLIGHT - 1:
                answers.append(self._answer())
        while len(answers) < len(requests):
            answers.append(self._answer())
        return answers

    def _answer(self) -> bytes:
        (left,) = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))
        return self.socket.recv(left, socket.MSG_WAITALL)


def create(client: Client, topics: int, partitions: int = PARTITIONS_OF_A_TOPIC) -> None:
    """Create the topics t0, t1, ..."""
    wanted = [
        CreateTopicsRequest.CreatableTopic(
            name=f"t{number}", num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        for number in range(topics)
    ]
    for one in wanted:
        client.ask([(CreateTopicsRequest(topics=[one], timeout_ms=60_000), 5)])


def produce(topic: str, partition: int, batch: bytes) -> tuple[Request, int]:
    """A request of one batch."""
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics), PRODUCE_VERSION


def show_end(what: str, broker: Broker) -> None:
    """Stop it: seconds until it has ended, and its CPU seconds for that."""
    pid = broker.process.pid
    begun_s, begun_cpu_s = time.perf_counter(), cpu_seconds(pid)
    broker.process.send_signal(signal.SIGTERM)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    show(what, time.perf_counter() - begun_s, "s")
    show("    CPU", cpu_seconds(pid) - begun_cpu_s, "s")
    broker.process.wait()


def partitions(place: Path, count: int, acks: str) -> None:
    """See the module."""
    broker = Broker(place, acks)
    client = Client(broker)
    topics = count // PARTITIONS_OF_A_TOPIC
    begun_s = time.perf_counter()
    create(client, topics)
    show(f"{count:,} partitions are made", time.perf_counter() - begun_s, "s")
    show("resident memory then", resident_mb(broker.process.pid), "MB")
    batch, _ = frames.batch_of(170)
    wanted = [produce(f"t{topic}", index, batch) for topic in range(topics) for index in range(PARTITIONS_OF_A_TOPIC)]
    begun_s, begun_cpu_s = time.perf_counter(), cpu_seconds(broker.process.pid)
    client.ask(wanted)
    show("a first record to each", time.perf_counter() - begun_s, "s")
    show("    CPU", cpu_seconds(broker.process.pid) - begun_cpu_s, "s")
    show_end("stop", broker)
    broker = Broker(place, acks)
    show("start after that", broker.ready_s, "s")
    show_end("stop where nothing was written", broker)
    broker = Broker(place, acks)
    broker.end(signal.SIGKILL)
    broker = Broker(place, acks)
    show("start after a kill", broker.ready_s, "s")
    broker.end(signal.SIGKILL)


def connections(place: Path, count: int) -> float:
    """See the module; bytes of each."""
    broker = Broker(place, "page-cache")
    hello: list[tuple[Request, int]] = [
        (ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.1.0"), 3),
        (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t0")]), METADATA_VERSION),
    ]
    opened = [Client(broker) for _ in range(10)]
    create(opened[0], 1, 1)
    for client in opened:
        client.ask(list(hello))
    before_mb = resident_mb(broker.process.pid)
    show("an idle broker", before_mb, "MB")
    for _ in range(count):
        client = Client(broker)
        client.ask(list(hello))
        opened.append(client)
    each_bytes = (resident_mb(broker.process.pid) - before_mb) * 1e6 / count
    show("an idle connection", each_bytes, "bytes")
    broker.end(signal.SIGKILL)
    return each_bytes


def producers(place: Path, count: int) -> float:
    """See the module; bytes of each."""
    broker = Broker(place, "page-cache")
    client = Client(broker)
    create(client, 1, 1)

    def batches(first: int, last: int) -> list[tuple[Request, int]]:
        records = [Record(0, STAMP_MS, b"k", b"v")]
        return [
            produce("t0", 0, bytes(encode_batch(records, producer_id=number, producer_epoch=0, base_sequence=0)))
            for number in range(first, last)
        ]

    client.ask(batches(0, count // 10))
    before_mb = resident_mb(broker.process.pid)
    answers = client.ask(batches(count // 10, count))
    if b"\0\0" not in answers[-1]:
        sys.exit(f"refused: {answers[-1]!r}")
    remembered = count - count // 10
    each_bytes = (resident_mb(broker.process.pid) - before_mb) * 1e6 / remembered
    show("a producer id", each_bytes, "bytes")
    broker.end(signal.SIGKILL)
    return each_bytes


def print_memory(names: Sequence[str], _: Options) -> list[Figure]:
    """Measure and print these rows."""
    held = []
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if CONNECTION in names and most != resource.RLIM_INFINITY and most < 2 * HELD_CONNECTIONS:
        raise CannotMeasure(f"a process may have {most} descriptors here, {HELD_CONNECTIONS} connections need more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(few, 2 * HELD_CONNECTIONS), most))
    with tempfile.TemporaryDirectory(prefix="ottla-many-", dir=os.environ.get("OTTLA_BENCH_DIRECTORY")) as folder:
        place = Path(folder)
        if CONNECTION in names:
            held.append(Figure(CONNECTION, connections(place / "1", HELD_CONNECTIONS), AT_MOST[CONNECTION], "bytes"))
        if PRODUCER in names:
            held.append(Figure(PRODUCER, producers(place / "2", HELD_PRODUCERS), AT_MOST[PRODUCER], "bytes"))
    return held


SECTION = Section(list(AT_MOST), print_memory)

if __name__ == "__main__":
    main()
