"""A broker whose process may open few files: connections that find no room see an end, the others are served."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kit.broker import BrokerDidNotStart, BrokerProcess

from ottla.broker.net.connections import REFUSALS_SAID_EVERY_MS
from ottla.broker.runtime.descriptors import LEAST_DESCRIPTORS, shares_of
from ottla.config.broker import BrokerConfig
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode

DESCRIPTORS = 200
ROOM = 75


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

    How many of the requests come in one turn is up to the client, so that it may take more than one attempt to be
    without a descriptor.
    """
    raise_it = f"this process may have {DESCRIPTORS} open (RLIMIT_NOFILE); `ulimit -n`"
    partitions = 2 * DESCRIPTORS
    prefix = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh"]
    process = BrokerProcess(tmp_path / "data", prefix=prefix).start()
    try:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic("t", partitions)])["t"].result(60)
        producer = Producer({"bootstrap.servers": process.bootstrap, "linger.ms": 300})
        outcomes: Counter[str] = Counter()
        for attempt in range(1, 21):
            for partition in range(partitions):
                producer.produce(
                    "t", b"x", partition=partition, on_delivery=lambda error, _: outcomes.update([str(error)])
                )
            producer.flush(60)
            assert outcomes == {"None": attempt * partitions}
            if raise_it in process.output:
                break
    finally:
        process.stop()
    lines = [line for line in process.output.splitlines() if " ERROR " in line or " WARNING " in line]
    assert len(lines) == 2
    assert f"RLIMIT_NOFILE={DESCRIPTORS} leaves room for {ROOM} connections" in lines.pop(0)
    assert raise_it in lines[0]


def limited(descriptors: int) -> list[str]:
    return ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]


@pytest.mark.parametrize("descriptors", [LEAST_DESCRIPTORS, 120])
def test_a_start_with_few_descriptors_says_how_many_connections_there_may_be_and_serves_them(
    descriptors: int, tmp_path: Path
) -> None:
    room = shares_of(BrokerConfig.of(), descriptors).connections
    assert room >= 20
    with BrokerProcess(tmp_path / "data", prefix=limited(descriptors)) as broker:
        warned = f"RLIMIT_NOFILE={descriptors} leaves room for {room} connections beside"
        assert len([line for line in broker.output.splitlines() if warned in line and "`ulimit -n`" in line]) == 1
        sockets = [connect(broker) for _ in range(room)]
        assert all(map(is_served, sockets))
        for one in sockets:
            one.close()
        # What logs hold open leaves them their descriptors.
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", descriptors)])["t"].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50})
        for partition in range(descriptors):
            producer.produce("t", b"x", partition=partition)
            producer.flush(60)
        del producer, admin
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) <= descriptors - room + 8


def test_a_start_with_fewer_than_the_least_ends_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BrokerDidNotStart) as refused:
        BrokerProcess(tmp_path / "data", prefix=limited(LEAST_DESCRIPTORS - 1)).start()
    assert "cannot start: RLIMIT_NOFILE=63: a broker needs 64 at least; `ulimit -n` before it" in str(refused.value)
    assert "Traceback" not in str(refused.value)
