"""The time from the start of a broker's process to its first accepted record, and the broker's memory then.

The requests are those of a producer that starts: Metadata for a topic that does not exist, which creates it, then
Produce with acks=all, again and again until the broker has the topic and accepts the record.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass

import frames
import servers
from workloads import ACKS_ALL, TOPIC

from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode

METADATA_VERSION = 9
TIMEOUT_S = 60


@dataclass(frozen=True)
class FirstProduce:
    """Milliseconds from the process's start until it listens, and to the first accepted record; idle memory in MB."""

    listens_ms: float
    accepted_ms: float
    memory_mb: float


def first_produce(server: servers.Server) -> FirstProduce:
    """Measure a server that has just begun to listen; exit if it accepts nothing within a minute."""
    memory_mb = servers.resident_mb(server.pid)
    batch, _ = frames.batch_of(170)
    produce = frames.produce_exchange(TOPIC, batch, ACKS_ALL)
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=True)
    metadata = frames.framed(encode_request_header(3, METADATA_VERSION, 0, "bench"), encode(request, METADATA_VERSION))
    begun = time.perf_counter()
    with socket.create_connection((server.host, server.port)) as connection:
        while time.perf_counter() - begun < TIMEOUT_S:
            _exchange(connection, metadata)
            answer = _exchange(connection, produce.frame)
            if answer[produce.error_at : produce.error_at + 2] == b"\0\0":
                elapsed = time.perf_counter() - begun
                return FirstProduce(server.ready_seconds * 1e3, (server.ready_seconds + elapsed) * 1e3, memory_mb)
            time.sleep(servers.LOOK_AGAIN_S)
    raise SystemExit(f"{server.name} accepted no record within {TIMEOUT_S} s")


def _exchange(connection: socket.socket, frame: bytes) -> bytes:
    """One request and its whole answer, length included."""
    connection.sendall(frame)
    answer = b""
    while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
        more = connection.recv(65536)
        if not more:
            raise SystemExit("the broker hung up on the first requests")
        answer += more
    return answer
