"""A broker that may have 160 MB of memory, and 200 clients that want it all: it lives, and serves the others.

The limit is RLIMIT_DATA, which counts what is not a file's; who may not have more gets a MemoryError, so one in the
broker's log fails the test. With `OTTLA_TEST_CGROUP` (a directory of a cgroup hierarchy, with the memory controller, in
which the tests may make others) it is a cgroup's limit, and who takes more is killed. docs/limits.md says what fits.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import socket
import struct
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kit.broker import BrokerProcess
from kit.exchange import batch, produce_request

from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.message import Request, decode, encode

MB = 1_000_000
MEMORY_BYTES = 160 * MB
BATCHES = 80
"""Of almost a megabyte each."""
GREEDY = 200
SETTINGS = {"ottla.acks.all": "page-cache"}
ITSELF = ["env"]
"""A prefix that changes nothing, for a broker whose memory is nobody else's: it is not forked."""
PRODUCE_VERSION, NEW_FETCH = 9, 12


@pytest.fixture
def prefix() -> Iterator[list[str]]:
    """What is put before the broker's command, so that it gets no more memory."""
    parent = os.environ.get("OTTLA_TEST_CGROUP")
    if not parent:
        yield ["sh", "-c", f'ulimit -d {MEMORY_BYTES // 1024}; exec "$@"', "sh"]
        return
    group = Path(parent) / f"ottla-test-{os.getpid()}"
    group.mkdir()
    try:
        is_v2 = (group / "memory.max").exists()
        (group / ("memory.max" if is_v2 else "memory.limit_in_bytes")).write_text(str(MEMORY_BYTES))
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        group.rmdir()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped broker's directory with a topic of `BATCHES`, to be copied: to make it takes long."""
    directory = tmp_path_factory.mktemp("filled") / "data"
    with BrokerProcess(directory, SETTINGS) as process:
        fill(process, BATCHES, 2_000, 480)
    return directory


@pytest.fixture
def broker(filled: Path, tmp_path: Path, prefix: list[str]) -> Iterator[BrokerProcess]:
    shutil.copytree(filled, tmp_path / "data")
    with BrokerProcess(tmp_path / "data", SETTINGS, prefix=prefix) as process:
        yield process
    shutil.rmtree(tmp_path / "data")


def fill(broker: BrokerProcess, batches: int, records: int, value_bytes: int) -> None:
    """Produce batches of so many records to a new topic `t`."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 1)])["t"].result(60)
    del admin
    client = Client(broker)
    for _ in range(batches):  # each is made: a broker that gets them faster keeps more memory for later
        client.ask(produce_request("t", batch(records, value=bytes(value_bytes)), acks=1), PRODUCE_VERSION)
    client.socket.close()


class Client:
    """A socket; `reads` it, or has a small window and leaves its answers at the broker."""

    def __init__(self, broker: BrokerProcess, *, reads: bool = True, timeout_s: float = 60) -> None:
        self.socket = socket.socket()
        if not reads:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(timeout_s)
        self.socket.connect(("127.0.0.1", broker.port))

    def send(self, request: Request, version: int) -> None:
        body = encode_request_header(request.message_key, version, 1, "greedy") + encode(request, version)
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self) -> bytes:
        (length,) = struct.unpack(">i", self._take(4))
        return self._take(length)

    def ask(self, request: Request, version: int) -> bytes:
        self.send(request, version)
        return self.receive()

    def fetch(self, version: int, offset: int, max_bytes: int = MB) -> FetchResponse.PartitionData:
        body = self.ask(fetch(offset, max_bytes), version)
        _, position = decode_response_header(FetchRequest.message_key, version, body)
        return decode(FetchResponse, body, version, position).responses[0].partitions[0]

    def _take(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            piece = self.socket.recv(length - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return bytes(data)


def fetch(offset: int, max_bytes: int) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[wanted])
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=(1 << 31) - 1, session_epoch=-1, topics=[topic])


def drop_from_page_cache(directory: Path) -> None:
    for path in directory.rglob("*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory_of(broker: BrokerProcess) -> int:
    """Bytes of memory that are not a file's."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


@pytest.mark.parametrize(
    ("versions", "is_cold"),
    [([0, 2], False), ([3], True), ([4, NEW_FETCH], True), ([NEW_FETCH], False)],
    ids=["converted", "converted-cold", "as-it-is-cold", "as-it-is"],
)
def test_200_greedy_readers_do_not_kill_a_broker_of_160_mb(
    broker: BrokerProcess, versions: list[int], is_cold: bool
) -> None:
    """For old clients, records are converted, one by one: that takes memory, and most of the time of these tests."""
    if is_cold:
        drop_from_page_cache(broker.directory)
    greedy = [Client(broker, reads=False) for _ in range(GREEDY)]
    for one, version in zip(greedy, cycle(versions), strict=False):
        one.send(fetch(0, (1 << 31) - 1), version)
    others = Client(broker)
    end = 0
    highest = 0
    for _ in range(100):
        highest = max(highest, memory_of(broker))
        answer = others.ask(produce_request("t", batch(10), acks=1), PRODUCE_VERSION)
        _, position = decode_response_header(ProduceRequest.message_key, PRODUCE_VERSION, answer)
        assert position
        end = others.fetch(NEW_FETCH, end).high_watermark
    old = Client(broker)
    assert len(old.fetch(2, 0).records or b"") > 0
    assert len(old.fetch(4, 0).records or b"") > 0
    highest = max(highest, memory_of(broker))
    assert highest < MEMORY_BYTES
    for one in greedy:
        one.socket.close()
    assert others.fetch(NEW_FETCH, end).error_code == 0
    assert "MemoryError" not in broker.output
    assert "Traceback" not in broker.output
    assert "smaller than usual: " in broker.output


@pytest.fixture
def unlimited(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", SETTINGS, prefix=ITSELF) as process:
        fill(process, 10, 9_000, 100)
        yield process


def test_a_broker_without_any_memory_left_goes_on_once_its_clients_are_gone(
    unlimited: BrokerProcess,
) -> None:
    """The system gives it no more, whatever it asks for: connections end, but neither the process nor its loop."""
    drop_from_page_cache(unlimited.directory)
    found = re.search(r"VmData:\s+(\d+) kB", Path(f"/proc/{unlimited.pid}/status").read_text())
    assert found
    no_limit = resource.RLIM_INFINITY
    resource.prlimit(unlimited.pid, resource.RLIMIT_DATA, (int(found[1]) * 1024 + 10 * MB, no_limit))
    greedy = [Client(unlimited, reads=False) for _ in range(GREEDY)]
    for one in greedy:
        with contextlib.suppress(OSError):
            one.send(fetch(0, (1 << 31) - 1), NEW_FETCH)
    for _ in range(30):
        with contextlib.suppress(OSError, AssertionError):  # to accept a connection needs memory, too
            other = Client(unlimited, timeout_s=1)
            with other.socket:
                other.ask(produce_request("t", batch(9_000, value=bytes(100)), acks=1), PRODUCE_VERSION)
    for one in greedy:
        one.socket.close()
    resource.prlimit(unlimited.pid, resource.RLIMIT_DATA, (no_limit, no_limit))
    client = Client(unlimited)
    answer = client.ask(produce_request("t", batch(10), acks=1), PRODUCE_VERSION)
    assert decode_response_header(ProduceRequest.message_key, PRODUCE_VERSION, answer)
    assert len(client.fetch(NEW_FETCH, 0).records or b"") > 0
    assert len(client.fetch(2, 0).records or b"") > 0
    assert "no memory left" in unlimited.output
