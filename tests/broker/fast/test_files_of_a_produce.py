"""How many of our files one plain Produce enters, from the bytes received to the answer handed to the socket.

Each is code that the processor has to fetch again after it did something else (`scripts/bench-lines`).
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.exchange import batch, make_topic, produce_request
from kit.transport import FakeTransport

import ottla
from ottla.broker.net.connection import READS_ALONE
from ottla.broker.net.connections import Connections
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode

OURS = str(Path(ottla.__file__).parent)
VERSION = 9
FAST = {
    "/broker/net/connection.py": "takes what was read, and gives the answer to the socket",
    "/broker/fast/hot_path.py": "knows whether what was learnt still holds",
    "/broker/fast/produce_templates.py": "finds the template, and encodes the answer",
    "/broker/partitions/appending.py": "knows what a stored batch lets consumers see",
    "/storage/log/log_append.py": "looks at the header, gives offsets, checks the producer, writes",
    "/storage/log/append_plan.py": "knows when a segment is full and what its indexes get; with log_append.py too long",
    "/storage/files/os_file.py": "is the only door to the file",
}
"""The files that a Produce may enter on the fast path, and what each is there for."""

SLOW = {
    **{path: why for path, why in FAST.items() if path != "/broker/fast/hot_path.py"},
    "/broker/net/pipeline.py": "says which requests start in this turn",
    "/broker/net/reply_queue.py": "keeps replies in the order of their requests",
    "/broker/net/buffers.py": "leaves received bytes alone until the turn ends, since batches are views of them",
    "/broker/runtime/turn.py": "collects the batches of all connections for one append",
    "/broker/runtime/in_flight_request.py": "is the request until its reply is there",
    "/broker/runtime/pending.py": "is the answer that comes when the batch is stored",
    "/broker/runtime/metrics.py": "counts and times the request",
    "/broker/runtime/steps.py": "lets others run in between where an answer is long; this one is a single step",
    "/storage/files/clock.py": "gives the time: of the request, the turn, the deadline, the log append",
    "/broker/requests/dispatch.py": "decodes, and calls the handler",
    "/broker/requests/gate.py": "asks version and right, counts, frames the answer",
    "/broker/context.py": "is what the handler is given beside the request",
    "/broker/api/produce.py": "is the handler",
    "/broker/catalog/topic.py": "finds topic and partition",
    "/protocol/headers.py": "is the header of request and response",
    "/protocol/message.py": "finds the code generated for the message",
    "/protocol/primitives.py": "steps over tagged fields, for the header",
    "/storage/log/append.py": "is the result of one of the batches",
    # The request is learnt: this is not repeated.
    "/broker/fast/hot_path.py": "learns the request",
    "/broker/fast/produce_template.py": "is what is learnt",
}
"""Those of the slow path. None is a helper for one function; ten would be few, and each of these is one idea."""


class Producer:
    """A client of a real node, by a real socket."""

    def __init__(self, directory: Path) -> None:
        self.node = Node(BrokerConfig.of({"log.dirs": str(directory), "ottla.acks.all": "page-cache"}))
        self.node.start()
        make_topic(self.node, "t")
        self.ours, self.theirs = socket.socketpair()
        connections = Connections(self.node.services, self.node.dispatcher, sends_maps=True)
        self.connection: Any = connections.protocol("PLAINTEXT")
        self.connection.connection_made(FakeTransport(raw=self.ours))

    def produce(self) -> set[str]:
        """Produce a small batch; the files of ours that this entered."""
        content = encode_request_header(0, VERSION, 1, "test") + encode(produce_request("t", batch()), VERSION)
        frame = struct.pack(">i", len(content)) + content
        self.connection.get_buffer(-1)[: len(frame)] = frame
        entered: set[str] = set()
        turn = self.node.services.turn

        def note(frame: Any, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(OURS):
                entered.add(frame.f_code.co_filename.removeprefix(OURS))

        sys.setprofile(note)
        try:
            self.connection.buffer_updated(len(frame))
            if turn.has_work:
                turn.end()
        finally:
            sys.setprofile(None)
        assert len(self.theirs.recv(1 << 16)) > 40
        return entered

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()
        self.node.stop()


@pytest.fixture
def producer(tmp_path: Path) -> Iterator[Producer]:
    producer = Producer(tmp_path)
    yield producer
    producer.close()


def test_a_produce_on_the_fast_path_enters_few_files(producer: Producer) -> None:
    for _ in range(READS_ALONE + 3):
        entered = producer.produce()
    assert sorted(entered - FAST.keys()) == []
    assert len(FAST) <= 7


def test_a_produce_on_the_slow_path_enters_few_files(producer: Producer) -> None:
    producer.produce()  # what is compiled for the first one is not counted
    producer.connection.peer.hot_path = None
    entered = producer.produce()
    assert "/broker/api/produce.py" in entered
    assert sorted(entered - SLOW.keys()) == []
    assert sorted(SLOW.keys() - entered) == [], "a file that is not entered any more"
    assert len(SLOW) <= 26
