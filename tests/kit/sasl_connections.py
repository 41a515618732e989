"""Clients of a SASL listener on a whole node without sockets, time or a disk: frames in, frames out."""

from __future__ import annotations

import struct
from typing import Any

from kit.clock import ManualClock
from kit.nodes import ask, start_node
from kit.transport import FakeTransport, feed

from ottla.broker.net.connections import Connections
from ottla.broker.node import Node
from ottla.protocol.api import REGISTRY
from ottla.protocol.api.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.message import Request, decode, encode
from ottla.scram import NUMBERS, salted_password

LISTENER = "SASL_PLAINTEXT"
PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a secret" user_bob="b";'
ALICE = b"\0alice\0a secret"


class SaslNode:
    """A node with a listener that offers PLAIN (alice, bob) and both SCRAM (carol, password "c")."""

    def __init__(self, **keys: object) -> None:
        self.node: Node
        self.clock: ManualClock
        keys = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
            "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl_jaas_config": PLAIN_USERS,
        } | keys
        self.node, _, self.clock = start_node(None, None, **keys)
        ask(self.node, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion("carol", "c")]), 0)
        self.connections = Connections(self.node.services, self.node.dispatcher, doors=self.node.doors)

    def connect(self) -> SaslClient:
        """A client that has connected."""
        return SaslClient(self)

    def pass_time(self, ms: int) -> None:
        """Let so much time pass, and run what is due."""
        self.clock.advance(ms)
        self.node.run_due()
        self.node.settle()


class SaslClient:
    """One connection to it."""

    def __init__(self, at: SaslNode) -> None:
        self._at = at
        self._correlation_id = 0
        self.connection = at.connections.protocol(LISTENER)
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)
        self.peer = self.connection.peer

    @property
    def is_closed(self) -> bool:
        return self.transport.closed

    def send_frame(self, content: bytes) -> None:
        """A frame, as its content is."""
        self.send(struct.pack(">i", len(content)) + content)

    def send(self, content: bytes) -> None:
        """Bytes as they are."""
        feed(self.connection, content)
        self._at.node.run_due()
        self._at.node.settle()

    def send_request(self, request: Request, version: int) -> None:
        self._correlation_id += 1
        header = encode_request_header(type(request).message_key, version, self._correlation_id, "client")
        self.send_frame(header + encode(request, version))

    def frames(self) -> list[bytes]:
        """What has come since the last call."""
        found, view = [], bytes(self.transport.written)
        self.transport.written.clear()
        while view:
            (size,) = struct.unpack_from(">i", view)
            found.append(view[4 : 4 + size])
            view = view[4 + size :]
        return found

    def answer(self, key: int, version: int) -> Any:
        """The one answer that has come, to a request of this API."""
        (frame,) = self.frames()
        _, position = decode_response_header(key, version, frame)
        return decode(REGISTRY[key].response, frame, version, position)

    def ask(self, request: Request, version: int) -> Any:
        """Send a request; its answer."""
        self.send_request(request, version)
        return self.answer(type(request).message_key, version)

    def log_in(self, token: bytes = ALICE, mechanism: str = "PLAIN", version: int = 2) -> Any:
        """The answer to the last token of a login by PLAIN."""
        assert self.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), version)


def upsertion(
    name: str, password: str, mechanism: str = "SCRAM-SHA-256", iterations: int = 4096, salt: bytes = b"salt"
) -> AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    """A request to set a credential, as Kafka's clients make it."""
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name,
        mechanism=NUMBERS[mechanism],
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, iterations),
    )
