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
FAST_FILES, SLOW_FILES = 8, 26


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
    assert len(entered) <= FAST_FILES, sorted(entered)


def test_a_produce_on_the_slow_path_enters_few_files(producer: Producer) -> None:
    producer.produce()  # what is compiled for the first one is not counted
    producer.connection.peer.hot_path = None
    entered = producer.produce()
    assert "/broker/api/produce.py" in entered
    assert len(entered) <= SLOW_FILES, sorted(entered)
