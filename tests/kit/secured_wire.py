"""Raw frames over a socket as a user: `Wire` after a login by SASL PLAIN or SCRAM."""

from __future__ import annotations

import base64
import hashlib

from kit.wire import Wire

from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest
from ottla.scram import client_key, digest_of, salted_password

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def plain_login(port: int, user: str, password: str) -> Wire:
    """A connection of this user. Raises PermissionError where the broker refuses."""
    wire = Wire(port)
    _handshake(wire, "PLAIN")
    _authenticate(wire, f"\0{user}\0{password}")
    return wire


def scram_login(port: int, user: str, password: str, mechanism: str, *, is_token: bool = False) -> Wire:
    """The same by SCRAM; `is_token` says that the user is a delegation token."""
    wire = Wire(port)
    _handshake(wire, mechanism)
    bare = f"n={user},r=nonce" + (",tokenauth=true" if is_token else "")
    first = _authenticate(wire, f"n,,{bare}")
    nonce, salt, iterations = (part.partition("=")[2] for part in first.split(","))
    key = client_key(mechanism, salted_password(mechanism, password, base64.b64decode(salt), int(iterations)))
    without_proof = f"c=biws,r={nonce}"
    stored_key = hashlib.new(HASHES[mechanism], key).digest()
    signature = digest_of(mechanism, stored_key, f"{bare},{first},{without_proof}".encode())
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(key, signature, strict=True))).decode()
    _authenticate(wire, f"{without_proof},p={proof}")
    return wire


def _handshake(wire: Wire, mechanism: str) -> None:
    if code := wire.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code:
        raise PermissionError(f"no {mechanism}: error {code}")


def _authenticate(wire: Wire, token: str) -> str:
    answer = wire.call(SaslAuthenticateRequest(auth_bytes=token.encode()), 2)
    if answer.error_code:
        wire.socket.close()
        raise PermissionError(f"refused: {answer.error_message}")
    return bytes(answer.auth_bytes).decode()
