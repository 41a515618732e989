"""A broker whose process may open few files: connections that find no room see an end, the others are served."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kit.broker import BrokerProcess

from ottla.broker.connections import REFUSALS_SAID_EVERY_MS
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode

DESCRIPTORS = 200
ROOM = DESCRIPTORS - DESCRIPTORS // 2 - 64


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    prefix = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh"]
    process = BrokerProcess(tmp_path / "data", prefix=prefix).start()
    yield process
    process.stop()


def connect(broker: BrokerProcess) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", broker.port))
    one.settimeout(30)
    return one


def is_served(one: socket.socket) -> bool:
    body = encode_request_header(18, 0, 1, "few") + encode(ApiVersionsRequest(), 0)
    try:
        one.sendall(struct.pack(">i", len(body)) + body)
        return len(one.recv(4)) == 4
    except ConnectionError:
        return False


def test_who_finds_no_room_sees_an_end_and_the_others_are_served(broker: BrokerProcess) -> None:
    began = time.monotonic()
    sockets = [connect(broker) for _ in range(150)]
    served = [one for one in sockets if is_served(one)]
    assert len(served) == ROOM
    assert all(is_served(one) for one in served)
    served.pop().close()
    while not is_served(again := connect(broker)):  # until the broker has noticed that one has gone
        again.close()
    for one in (*sockets, again):
        one.close()
    lines = [line for line in broker.output.splitlines() if "refused" in line]
    assert lines
    assert f"RLIMIT_NOFILE={DESCRIPTORS}" in lines[0]
    assert len(lines) <= 1 + (time.monotonic() - began) * 1000 / REFUSALS_SAID_EVERY_MS
    assert "Traceback" not in broker.output


def test_more_partitions_than_files_may_be_open_are_written_at_once_and_all_is_acknowledged(tmp_path: Path) -> None:
    """Every log with unsynced records keeps its file open. Those that find no descriptor are refused and come again,
    syncs that need one wait; a line says what to raise, and no disk is blamed.
    """
    partitions = 2 * DESCRIPTORS
    prefix = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh"]
    process = BrokerProcess(tmp_path / "data", prefix=prefix).start()
    try:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic("t", partitions)])["t"].result(60)
        producer = Producer({"bootstrap.servers": process.bootstrap, "linger.ms": 300})
        outcomes: Counter[str] = Counter()
        for partition in range(partitions):
            producer.produce("t", b"x", partition=partition, on_delivery=lambda error, _: outcomes.update([str(error)]))
        producer.flush(60)
        assert outcomes == {"None": partitions}
    finally:
        process.stop()
    lines = [line for line in process.output.splitlines() if " ERROR " in line or " WARNING " in line]
    assert len(lines) == 1
    assert f"this process may have {DESCRIPTORS} open (RLIMIT_NOFILE); `ulimit -n`" in lines[0]
