"""The cache lines and instructions of a request for a broker that finds the processor's caches cold.

    scripts/bench-lines                    counts of this tree, by workload
    scripts/bench-lines --against TREE     beside those of another checkout or commit

Between two requests of one client the processor does other work, on a shared machine for other guests too. So the lines
that the broker touches for a request come from memory, or from a distant cache. Valgrind's cachegrind simulates
that: before each turn a megabyte is copied, which removes the broker's lines from the simulated caches. The misses that
follow are the lines that the turn touched: of code, and of data. Unlike times, the counts do not depend on the load of
the machine; they differ from run to run by less than 1 %. They do not include the kernel, uvloop, and the bytes of the
records (copies and checksums).

The broker is a node in this process and one connection of it, which gets frames; its answers go to a socket. The count
is the difference of two runs of different length, minus the same difference of two runs without frames.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from typing import Any

import frames
from held import CannotMeasure, Figure, Options, Section, at_most
from tabulate import tabulate
from versions import HELP, version

from ottla.protocol.records.checksum import crc32c

HERE = Path(__file__).parent
TOPIC = "bench"
ACKS_ALL = -1
WARM_TURNS = 80
TURNS = (50, 250)
FETCHED_BATCHES = 500
EVICTED_BYTES = 1 << 20
CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=524288,8,64")
"""Two levels as near to a processor's first two as cachegrind has them; the copy is twice the second."""
PRODUCER_ID = 1000
_CRC, _CRC_AT = struct.Struct(">I"), 17
_PRODUCER, _PRODUCER_AT = struct.Struct(">qhi"), 43
OF_RECORDS = re.compile(r"memcpy|memmove|crc32c_hw|crc32c_sw")
"""Functions that read the records' bytes, and the bytes that clear the caches."""
IDEMPOTENT = "produce 16 KB, 5 in flight, idempotent"
SESSION = "fetch 64 KB, in a session of one partition"
LARGE = "produce 1 MB, received in two parts"
TAIL = "a record to a consumer that waits at the end"
"""The Produce, the answer to the Fetch that was parked, and the consumer's next Fetch, which parks."""
SESSION_TAIL = "a record to a consumer that waits in a session"
WITH_ACLS = "produce 100 B, 1 in flight, with 1,000 ACLs"
"""Two of them are the client's."""
TRANSACTION = "a transaction of 100 records"
TRANSACTION_WITH_QUOTAS = "a transaction of 100 records, under quotas of bytes and time"
TRANSACTIONS = "a transaction of 100 records, of 10 producers at once"
"""Its Produce, which adds the partition, and its EndTxn. Together: the Produces are one turn, the ends another."""
ROUNDS = {
    f"a record to each of {count} partitions, {acks_all}": (acks_all, count)
    for count in (16, 64)
    for acks_all in ("page-cache", "sync")
}
"""One Produce; with `sync` also the round of syncs and the answer, without the hand-over to a thread and back."""
SPREAD = "produce to 10 of 30 partitions, idempotent"
"""Batches of 2 KB, to other partitions each time, as Java's producer and franz-go send them."""
SPREAD_OVER, SPREAD_TO, SPREAD_VERSION = 30, 10, 13
ACLS = 1_000
WITH_QUOTAS = "produce 100 B, 1 in flight, under quotas of bytes and time"
"""They are so high that no request waits."""
HIGH = 1e15
PART_BYTES = 600_000
"""About the number of bytes of a large frame in one read of a socket: the second read ends with the frame."""
SMALL = "produce 100 B, 1 in flight"
WITH_ACLS_ROW = f"instructions: {WITH_ACLS}"
ACLS_AT_MOST = at_most(1.03)
"""The ratio to the instructions without ACLs: a bound of `scripts/bench --check`."""
WORKLOADS = {
    "produce 16 KB, 5 in flight": (16_384, 5, False),
    IDEMPOTENT: (16_384, 5, False),
    SMALL: (170, 1, False),
    WITH_ACLS: (170, 1, False),
    WITH_QUOTAS: (170, 1, False),
    LARGE: (1_000_000, 1, False),
    "fetch 64 KB, 1 in flight": (65_536, 1, True),
    SESSION: (65_536, 1, True),
    TAIL: (170, 1, False),
    SESSION_TAIL: (170, 1, False),
    TRANSACTION: (11_000, 1, False),
    TRANSACTION_WITH_QUOTAS: (11_000, 1, False),
    TRANSACTIONS: (11_000, 10, False),
    SPREAD: (2_000, 1, False),
    **{name: (170, count, False) for name, (_, count) in ROUNDS.items()},
}


class _Transport(asyncio.Transport):
    """A connection's transport over a socket that accepts everything immediately."""

    def __init__(self, taker: socket.socket) -> None:
        super().__init__({"socket": taker, "peername": ("192.0.2.7", 4242), "sockname": ("192.0.2.1", 9092)})

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: no bytes ever wait to be written."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Do nothing: the caller that feeds it ends the turn, which resumes."""

    def resume_reading(self) -> None:
        """See above."""

    def writelines(self, list_of_data: Any) -> None:
        raise RuntimeError("the broker did not send by itself")


def turns(workload: str, count: int, *, is_idle: bool) -> None:
    """`count` turns with cold caches; the process that cachegrind watches. An idle one stops before the broker."""
    size_bytes, _, is_fetch = WORKLOADS[workload]
    batch, _ = frames.batch_of(size_bytes)
    produce = frames.produce_exchange(TOPIC, batch, ACKS_ALL).frame
    nowhere = memoryview(bytearray(len(produce)))
    full, cleared = bytearray(EVICTED_BYTES), memoryview(bytearray(EVICTED_BYTES))
    with _broker(has_acls=workload == WITH_ACLS, has_quotas=workload == WITH_QUOTAS) as (node, connect):
        connection = connect()

        def place(data: bytes) -> int:
            connection.get_buffer(-1)[: len(data)] = data
            return len(data)

        def run(length: int) -> None:
            connection.buffer_updated(length)
            if node.services.turn.has_work:
                node.services.turn.end()

        def in_parts(data: bytes, *, is_counted: bool) -> None:
            """Receive a large frame as the loop does, in parts; the part that is not counted is discarded."""
            start = 0
            while start < len(data):
                room = connection.get_buffer(-1) if is_counted else nowhere
                length = min(PART_BYTES, len(data) - start, len(room))
                room[:length] = data[start : start + length]
                start += length
                cleared[:] = full
                if is_counted:
                    run(length)

        for _ in range(FETCHED_BATCHES if is_fetch else WARM_TURNS):
            if workload == LARGE:
                in_parts(produce, is_counted=True)
            else:
                run(place(produce))
            node.settle()
        if workload == SESSION:
            run(place(frames.session_fetch(node.services.catalog.topics[TOPIC].id, len(batch), 0, 0, 0)))
        asked = _asked(workload, node)
        if workload == LARGE:
            for _ in range(count):
                in_parts(produce, is_counted=not is_idle)
            asked = []
        for data in asked[:WARM_TURNS]:
            run(place(data))
        for number in range(count if asked else 0):
            length = place(asked[(WARM_TURNS + number) % FETCHED_BATCHES])
            cleared[:] = full
            if not is_idle:
                run(length)


def tail_turns(workload: str, count: int, *, is_idle: bool) -> None:
    """As `turns`: one record after the other to a consumer with its own connection."""
    batch, _ = frames.batch_of(WORKLOADS[workload][0])
    produce, fetch = frames.produce_exchange(TOPIC, batch, ACKS_ALL).frame, frames.fetch_exchange(TOPIC, len(batch))
    full, cleared = bytearray(EVICTED_BYTES), memoryview(bytearray(EVICTED_BYTES))
    with _broker() as (node, connect):
        producer, consumer = connect(), connect()

        def asked(number: int) -> bytes:
            if workload == TAIL:
                return _at(fetch, number)
            topic_id = node.services.catalog.topics[TOPIC].id
            session_id = next((session.id for session in node.services.fetch_sessions), 0)
            return frames.session_fetch(topic_id, len(batch), session_id, number, number)

        for number in range(WARM_TURNS + count):
            for connection, data in ((consumer, asked(number)), (producer, produce)):
                connection.get_buffer(-1)[: len(data)] = data
                if number >= WARM_TURNS:
                    cleared[:] = full
                if number < WARM_TURNS or not is_idle:
                    connection.buffer_updated(len(data))
                    if node.services.turn.has_work:
                        node.services.turn.end()


def transaction_turns(workload: str, count: int, *, is_idle: bool) -> None:
    """As `turns`: `count` transactions, one per producer at the same time, each producer with its own partition."""
    _, producers, _ = WORKLOADS[workload]
    with _broker(partitions=producers, has_quotas=workload == TRANSACTION_WITH_QUOTAS) as (node, connect):
        connections = [connect() for _ in range(producers)]

        def run(requests: list[bytes], *, is_counted: bool) -> None:
            if not is_counted:
                return
            cleared[:] = full
            for connection, data in zip(connections, requests, strict=True):
                connection.get_buffer(-1)[: len(data)] = data
                connection.buffer_updated(len(data))
            node.services.turn.end()

        full, cleared = bytearray(EVICTED_BYTES), memoryview(bytearray(EVICTED_BYTES))
        rounds = list(islice(_transactions(node, producers), (WARM_TURNS + count) // producers))
        for number, (produces, ends) in enumerate(rounds):
            is_counted = not is_idle or number < WARM_TURNS // producers
            run(produces, is_counted=is_counted)
            run(ends, is_counted=is_counted)
        committed = node.services.metrics.transactions.committed
    if committed != (WARM_TURNS if is_idle else WARM_TURNS + count):
        raise RuntimeError(f"{committed} transactions were committed")


def round_turns(workload: str, count: int, *, is_idle: bool) -> None:
    """As `turns`: one Produce after the other to some partitions, each with its round of syncs."""
    from partition_rounds import exchange_of

    acks_all, partitions = ROUNDS[workload]
    produce = exchange_of(TOPIC, partitions).frame
    full, cleared = bytearray(EVICTED_BYTES), memoryview(bytearray(EVICTED_BYTES))
    with _broker(partitions=partitions, acks_all=acks_all) as (node, connect):
        connection = connect()
        for number in range(WARM_TURNS + count):
            connection.get_buffer(-1)[: len(produce)] = produce
            cleared[:] = full
            if number < WARM_TURNS or not is_idle:
                connection.buffer_updated(len(produce))
                node.services.turn.end()
                node.services.syncer.run_all()
        metrics = node.services.metrics
    if acks_all == "sync" and metrics.sync_rounds["redo"].rounds < count * (not is_idle):
        raise RuntimeError("the redo log was not used: the directory of the benchmark may be in memory")


def spread_turns(workload: str, count: int, *, is_idle: bool) -> None:
    """As `turns`: one Produce after the other to some of the partitions, others each time."""
    size_bytes, _, _ = WORKLOADS[workload]
    full, cleared = bytearray(EVICTED_BYTES), memoryview(bytearray(EVICTED_BYTES))
    with _broker(partitions=SPREAD_OVER) as (node, connect):
        connection = connect()
        produces = list(islice(_spread(node.services.catalog.topics[TOPIC].id, size_bytes), WARM_TURNS + count))
        for number, produce in enumerate(produces):
            connection.get_buffer(-1)[: len(produce)] = produce
            cleared[:] = full
            if number < WARM_TURNS or not is_idle:
                connection.buffer_updated(len(produce))
                if node.services.turn.has_work:
                    node.services.turn.end()
        partitions = node.services.catalog.topics[TOPIC].partitions
        _, records = frames.batch_of(size_bytes)
        stored = sum(partition.log.log_end_offset for partition in partitions) // records
    if stored != SPREAD_TO * (WARM_TURNS if is_idle else WARM_TURNS + count):
        raise RuntimeError(f"{stored} batches were stored")


def _spread(topic_id: uuid.UUID, size_bytes: int) -> Iterator[bytes]:
    """Frames of Produce requests of one idempotent producer."""
    from ottla.protocol.api.produce import ProduceRequest
    from ottla.protocol.headers import encode_request_header
    from ottla.protocol.message import encode

    batch, records = frames.batch_of(size_bytes)
    chosen, sequences = random.Random(0), [0] * SPREAD_OVER
    for number in count_from():
        wanted = []
        for index in chosen.sample(range(SPREAD_OVER), SPREAD_TO):
            content = _of_producer(batch, PRODUCER_ID, 0, sequences[index])
            sequences[index] += records
            wanted.append(ProduceRequest.PartitionProduceData(index=index, records=content))
        topic = ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=wanted)
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=30_000, topic_data=[topic])
        yield frames.framed(encode_request_header(0, SPREAD_VERSION, number, "bench"), encode(request, SPREAD_VERSION))


def _transactions(node: Any, producers: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """The requests of one transaction of each producer: first those with its records, then those that end it."""
    from transactions import END_VERSION, PRODUCE_VERSION, batches_of, frame

    from ottla.protocol.api.end_txn import EndTxnRequest
    from ottla.protocol.api.init_producer_id import InitProducerIdRequest
    from ottla.protocol.api.produce import ProduceRequest

    coordinator, ids = node.services.transactions.get(), [f"bench-{number}" for number in range(producers)]
    answers = []
    for transactional_id in ids:
        coordinator.prepare(transactional_id, lambda _: None)
        node.settle()
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answers.append(coordinator.init_producer_id(request))
        node.settle()
    owners = [answer.response.producer_id for answer in answers]
    (batch,), _ = batches_of(100)
    for epoch in count_from(answers[0].response.producer_epoch):  # each end raises it
        produces, ends = [], []
        for number, (transactional_id, producer_id) in enumerate(zip(ids, owners, strict=True)):
            records = _of_producer(bytes(batch), producer_id, epoch, 0)
            data = ProduceRequest.PartitionProduceData(index=number, records=records)
            produce = ProduceRequest(
                transactional_id=transactional_id,
                acks=ACKS_ALL,
                timeout_ms=30_000,
                topic_data=[ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])],
            )
            end = EndTxnRequest(
                transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True
            )
            produces.append(frame(produce, PRODUCE_VERSION))
            ends.append(frame(end, END_VERSION))
        yield produces, ends


def _asked(workload: str, node: Any) -> list[bytes]:
    """The requests of the turns, one after the other."""
    size_bytes, in_flight, is_fetch = WORKLOADS[workload]
    batch, records = frames.batch_of(size_bytes)
    if workload == IDEMPOTENT:
        sends = (_of_producer(batch, PRODUCER_ID, 0, number * records) for number in range(FETCHED_BATCHES * in_flight))
        whole = (frames.produce_exchange(TOPIC, content, ACKS_ALL).frame for content in sends)
        return [b"".join(islice(whole, in_flight)) for _ in range(FETCHED_BATCHES)]
    if workload == SESSION:
        topic_id = node.services.catalog.topics[TOPIC].id
        (session_id,) = [session.id for session in node.services.fetch_sessions]
        return [
            frames.session_fetch(topic_id, len(batch), session_id, number, number * records)
            for number in range(1, FETCHED_BATCHES)
        ]
    if is_fetch:
        fetch = frames.fetch_exchange(TOPIC, len(batch))
        return [_at(fetch, number * records) for number in range(FETCHED_BATCHES)]
    return [frames.produce_exchange(TOPIC, batch, ACKS_ALL).frame * in_flight] * FETCHED_BATCHES


@contextlib.contextmanager
def _broker(
    *, has_acls: bool = False, has_quotas: bool = False, partitions: int = 1, acks_all: str = "page-cache"
) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """A node with a topic, and a function that creates a connection; all answers go to one socket."""
    from ottla.broker.catalog.catalog import NewTopic
    from ottla.broker.net.connections import Connections
    from ottla.broker.node import Node
    from ottla.broker.requests import dispatch
    from ottla.config.broker import BrokerConfig
    from ottla.storage.files import os_file
    from ottla.storage.files.residency import ResidencyProbe

    # Valgrind does not know cachestat(2), and the pages are in memory.
    ResidencyProbe.is_resident = lambda *_: True  # type: ignore[method-assign]  # stands in for what valgrind lacks
    os_file.RESIDENT_FOR_NS = 1 << 60  # type: ignore[misc]  # under valgrind half a second passes quickly
    dispatch.LONG_TURN_MS = 1 << 60  # and each turn is long
    ours, theirs = socket.socketpair()
    reader = subprocess.Popen(["cat"], stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
    theirs.close()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        settings = {"log.dirs": directory, "ottla.acks.all": acks_all}
        if has_acls:
            settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        node = Node(BrokerConfig.of(settings))
        node.start()
        node.services.catalog.create_topics([NewTopic(TOPIC, partitions)], lambda _: None)
        if has_acls:
            node.services.catalog.settings.create_acls(_acls(), lambda _: None)
        if has_quotas:
            rates = {"producer_byte_rate": HIGH, "consumer_byte_rate": HIGH, "request_percentage": HIGH}
            node.services.quotas.change({(("user", None),): rates})
        node.settle()
        connections = Connections(node.services, node.dispatcher, sends_maps=True)

        def connect() -> Any:
            connection = connections.protocol("PLAINTEXT")
            connection.connection_made(_Transport(ours))
            return connection

        yield node, connect
    ours.close()
    reader.wait()


def _acls() -> list[Any]:
    from ottla.broker.metadata.acls import Acl
    from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType

    may = (AclOperation.READ, AclOperation.WRITE)
    kind, whole, allow = ResourceType.TOPIC, PatternType.LITERAL, PermissionType.ALLOW
    own = [Acl(kind, TOPIC, whole, "User:ANONYMOUS", "*", one, allow) for one in may]
    others = range(ACLS - len(own))
    return own + [Acl(kind, f"topic-{at}", whole, f"User:user-{at % 100}", "*", may[at % 2], allow) for at in others]


def _at(exchange: frames.Exchange, offset: int) -> bytes:
    frame = bytearray(exchange.frame)
    frame[exchange.offset_at : exchange.offset_at + 8] = offset.to_bytes(8, "big")
    return bytes(frame)


def _of_producer(batch: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    """`batch` as one of an idempotent producer, with base sequence `sequence`."""
    content = bytearray(batch)
    _PRODUCER.pack_into(content, _PRODUCER_AT, producer_id, epoch, sequence)
    _CRC.pack_into(content, _CRC_AT, crc32c(memoryview(content)[_CRC_AT + _CRC.size :]))
    return bytes(content)


def counted(tree: Path, workload: str, count: int, *, is_idle: bool) -> tuple[int, int, int]:
    """(instructions, lines of code, lines of data) of a whole process."""
    here = tree / "benchmarks"  # its own: this file knows where the broker's parts are in its version
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(tree), str(here), os.environ.get("PYTHONPATH")))),
        "PYTHONHASHSEED": "0",
    }
    with tempfile.NamedTemporaryFile(prefix="ottla-bench-") as out:
        words = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", *CACHES, f"--cachegrind-out-file={out.name}"]
        words += [sys.executable, str(here / "cold_lines.py"), "--inside", workload, "--turns", str(count)]
        if is_idle:
            words.append("--idle")
        done = subprocess.run(words, env=environment, cwd=tree, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{workload}: {done.stderr[-2000:]}")
        text = Path(out.name).read_text()
    found = re.search(r"^events: (.*)$", text, re.MULTILINE)
    assert found
    columns = found[1].split()
    wanted = [columns.index(name) for name in ("Ir", "ILmr", "DLmr", "DLmw")]
    sums = [0, 0, 0, 0]
    is_counted = False
    for line in text.splitlines():
        if line.startswith("fn="):
            is_counted = not OF_RECORDS.search(line)
        elif is_counted and line[:1].isdigit():
            numbers = line.split()[1:]
            for place, column in enumerate(wanted):
                sums[place] += int(numbers[column]) if column < len(numbers) else 0
    return sums[0], sums[1], sums[2] + sums[3]


def per_turn(tree: Path, workload: str) -> tuple[float, ...]:
    """The cost of a turn: instructions, lines of code, lines of data."""
    few, many = TURNS
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = [
            pool.submit(counted, tree, workload, count, is_idle=is_idle) for is_idle in (False, True) for count in TURNS
        ]
        less, more, idle_less, idle_more = (result.result() for result in results)
    return tuple(
        ((b - a) - (d - c)) / (many - few) for a, b, c, d in zip(less, more, idle_less, idle_more, strict=True)
    )


def print_acls(names: Sequence[str], _: Options) -> list[Figure]:
    """Count and print the cost of a request with 1,000 ACLs, beside one without ACLs."""
    if shutil.which("valgrind") is None:
        raise CannotMeasure(f"{WITH_ACLS_ROW}: needs valgrind (Debian: apt-get install valgrind)")
    plain, secured = (per_turn(HERE.parent.resolve(), workload)[0] for workload in (SMALL, WITH_ACLS))
    print(f"{SMALL}: {plain:,.0f} instructions; with {ACLS:,} ACLs {secured:,.0f}: {secured / plain:.3f} times them")
    return [Figure(WITH_ACLS_ROW, secured / plain, ACLS_AT_MOST)]


SECTION = Section([WITH_ACLS_ROW], print_acls)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=version, help=HELP)
    parser.add_argument("--only", default="", help="count only workloads whose name contains this")
    for hidden in ("--inside", "--turns"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--idle", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        count = int(options.turns)
        if options.inside in (TAIL, SESSION_TAIL):
            tail_turns(options.inside, count, is_idle=options.idle)
        elif options.inside in (TRANSACTION, TRANSACTION_WITH_QUOTAS, TRANSACTIONS):
            transaction_turns(options.inside, count, is_idle=options.idle)
        elif options.inside == SPREAD:
            spread_turns(options.inside, count, is_idle=options.idle)
        elif options.inside in ROUNDS:
            round_turns(options.inside, count, is_idle=options.idle)
        else:
            turns(options.inside, count, is_idle=options.idle)
        return 0
    if shutil.which("valgrind") is None:
        sys.exit("This needs valgrind (Debian: apt-get install valgrind).")
    trees = {"this": HERE.parent.resolve()}
    if options.against is not None:
        trees["other"] = options.against
    rows = []
    for workload in WORKLOADS:
        if options.only not in workload:
            continue
        for name, tree in trees.items():
            if tree != HERE.parent.resolve() and f'"{workload}"' not in (tree / "benchmarks/cold_lines.py").read_text():
                continue  # it came later than that tree
            instructions, code, data = per_turn(tree, workload)
            rows.append([workload if name == "this" else "", name, instructions, code, data, code + data])
        print(f"done: {workload}", file=sys.stderr)
    headers = ["a turn of", "tree", "instructions", "lines of code", "lines of data", "lines"]
    print(tabulate(rows, headers=headers, floatfmt=",.0f"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
