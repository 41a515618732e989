"""Bytes no client should send, surroundings no broker should meet: one clear answer each, and the others go on."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.broker import BrokerDidNotStart, BrokerProcess
from kit.wire import Wire

from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

STAMP_MS = 1_700_000_000_000


def good_batch(count: int = 3, size: int = 100) -> bytearray:
    return encode_batch([Record(i, STAMP_MS, b"k", bytes(size), ()) for i in range(count)])


def produce(wire: Wire, topic: str, records: bytes | bytearray) -> int:
    partition = ProduceRequest.PartitionProduceData(index=0, records=bytes(records))
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
    return int(wire.call(request, 9).responses[0].partition_responses[0].error_code)


def end_offset(wire: Wire, topic: str) -> int:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = FetchRequest.FetchTopic(topic=topic, partitions=[partition])
    answer = wire.call(FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[wanted]), 12)
    return int(answer.responses[0].partitions[0].high_watermark)


def create(wire: Wire, topic: str) -> None:
    wanted = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    assert wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7).topics[0].error_code == 0


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),  # a TLS client on a plaintext port
        struct.pack(">i", -5) + b"hello",
        struct.pack(">i", 0),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 200) + bytes(range(200)),
    ],
    ids=["http", "tls", "negative length", "empty frame", "huge length", "frame shorter than a header", "noise"],
)
def test_garbage_closes_its_connection_and_no_other(broker: BrokerProcess, wire: Wire, content: bytes) -> None:
    with Wire(broker.port) as hostile:
        hostile.send(content)
        assert hostile.is_closed_by_peer()
    assert wire.call(ApiVersionsRequest(), 0).error_code == 0


def test_the_log_says_in_one_line_why_a_connection_was_closed(own_broker: BrokerProcess) -> None:
    with Wire(own_broker.port) as hostile:
        hostile.send(b"GET / HTTP/1.1\r\n\r\n")
        assert hostile.is_closed_by_peer()
    own_broker.stop()
    lines = [line for line in own_broker.output.splitlines() if "127.0.0.1" in line and "clos" in line.lower()]
    assert any("socket.request.max.bytes" in line for line in lines), own_broker.output
    assert "Traceback" not in own_broker.output


@pytest.mark.parametrize(("key", "version"), [(999, 0), (3, 99), (-1, 0), (71, 0)])
def test_an_unknown_api_or_version_closes_the_connection(
    broker: BrokerProcess, wire: Wire, key: int, version: int
) -> None:
    with Wire(broker.port) as other:
        other.send_frame(struct.pack(">hhih", key, version, 1, -1) + bytes(20))
        assert other.is_closed_by_peer()
    assert wire.call(ApiVersionsRequest(), 0).error_code == 0


def flip_body(batch: bytearray) -> None:
    batch[-1] ^= 0xFF


def shorten_length(batch: bytearray) -> None:
    struct.pack_into(">i", batch, 8, len(batch) - 12 - 7)


def lengthen_length(batch: bytearray) -> None:
    struct.pack_into(">i", batch, 8, len(batch) + 100)


def hostile_length(batch: bytearray) -> None:
    struct.pack_into(">i", batch, 8, -1)


def wrong_magic(batch: bytearray) -> None:
    batch[16] = 9


def cut(batch: bytearray) -> None:
    del batch[40:]


def second_batch(batch: bytearray) -> None:
    batch += good_batch()


@pytest.mark.parametrize(
    "damage",
    [flip_body, shorten_length, lengthen_length, hostile_length, wrong_magic, cut, second_batch],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_batch_is_refused_and_nothing_of_it_is_stored(
    wire: Wire, topic: str, damage: Callable[[bytearray], None]
) -> None:
    create(wire, topic)
    broken = good_batch()
    damage(broken)
    assert produce(wire, topic, broken) in (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )
    assert end_offset(wire, topic) == 0
    assert produce(wire, topic, good_batch()) == ErrorCode.NONE
    assert end_offset(wire, topic) == 3


@pytest.mark.parametrize("count", [0, -1, 2, 4, 0x7FFFFFFF])
def test_a_count_that_does_not_match_is_refused(wire: Wire, topic: str, count: int) -> None:
    from ottla.protocol.records.batch import compute_crc

    create(wire, topic)
    broken = good_batch(3)
    struct.pack_into(">i", broken, 57, count)
    struct.pack_into(">I", broken, 17, compute_crc(memoryview(broken)))
    assert produce(wire, topic, broken) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert end_offset(wire, topic) == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "naïve"])
def test_illegal_topic_names_are_refused(wire: Wire, name: str) -> None:
    wanted = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    answer = wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    assert wire.call(request, 9).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_frame_sent_byte_by_byte_is_understood(wire: Wire) -> None:
    content = struct.pack(">ihhih", 10, 18, 0, 5, -1)
    for i in range(len(content)):
        wire.send(content[i : i + 1])
    assert struct.unpack_from(">ih", wire.read_frame()) == (5, 0)


def refusal(broker: BrokerProcess) -> str:
    """What a broker that must not start says: one line for people."""
    with pytest.raises(BrokerDidNotStart):
        broker.start()
    assert "Traceback" not in broker.output
    return broker.output


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        said = refusal(BrokerProcess(tmp_path / "data", {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}))
    assert str(port) in said
    assert "another process uses this port" in said


def test_a_second_process_on_the_same_directory_is_refused(own_broker: BrokerProcess) -> None:
    said = refusal(BrokerProcess(own_broker.directory))
    assert str(own_broker.directory) in said
    with Wire(own_broker.port) as wire:
        assert wire.call(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("num.partitions", "many"), ("log.segment.bytes", "-1"), ("listeners", "nonsense"), ("ottla.acks.all", "maybe")],
)
def test_a_wrong_value_names_the_key_and_what_is_allowed(tmp_path: Path, key: str, value: str) -> None:
    said = refusal(BrokerProcess(tmp_path / "data", {key: value}))
    assert key in said
    assert value in said


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "data"
    in_the_way.write_text("a file, where a directory should be")
    assert str(in_the_way) in refusal(BrokerProcess(in_the_way))


def test_a_directory_without_permission_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    broker = BrokerProcess(closed / "data")
    if os.geteuid() == 0:  # root may write anywhere: give that up for the test
        if shutil.which("setpriv") is None:
            pytest.skip("running as root and setpriv (util-linux) is missing: permissions cannot be shown")
        probe = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--reuid=0", "--"]
        broker.prefix = probe
    assert str(closed) in refusal(broker)


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(tmp_path: Path) -> None:
    """A file system of 6 MB in a mount namespace of the broker's own."""
    mount = 'mount -t tmpfs -o size=6m tmpfs "$0" && exec "$@"'
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path)]
    if sys.platform != "linux" or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a small file system needs Linux's user and mount namespaces (unshare)")
    broker = BrokerProcess(tmp_path / "data", {"log.segment.bytes": "1048576"}, prefix=prefix)
    with broker, Wire(broker.port) as wire:
        create(wire, "filler")
        create(wire, "victim")
        assert produce(wire, "victim", good_batch(1)) == ErrorCode.NONE
        accepted = 0
        for _ in range(200):
            code = produce(wire, "filler", good_batch(1, 100_000))
            if code != ErrorCode.NONE:
                break
            accepted += 1
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert accepted > 10
        assert end_offset(wire, "filler") == accepted
        assert end_offset(wire, "victim") == 1
        enter = ["nsenter", "--target", str(broker.pid), "--user", "--mount", "--preserve-credentials"]
        subprocess.run([*enter, "mount", "-o", "remount,size=12m", str(tmp_path)], check=True)
        deadline = time.monotonic() + 60  # the probe of full directories is a chore with an interval of its own
        while (code := produce(wire, "filler", good_batch(1, 100_000))) == ErrorCode.KAFKA_STORAGE_ERROR:
            assert time.monotonic() < deadline, "the directory did not recover"
            time.sleep(0.1)
        assert code == ErrorCode.NONE
        assert end_offset(wire, "filler") == accepted + 1
    assert "Traceback" not in broker.output
