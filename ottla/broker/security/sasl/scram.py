"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as in Kafka's ScramSaslServer.

    C: n,,n=alice,r=CNONCE                        S: r=CNONCE+SNONCE,s=SALT,i=4096
    C: c=biws,r=CNONCE+SNONCE,p=PROOF             S: v=SIGNATURE

A user that does not exist also gets a salt, always the same one, and fails at the proof like a wrong password. Channel
binding is not offered: the flags `n` and `y` are accepted, `p` is refused. An authorization id may only be the name
itself. librdkafka before 2.6.1 repeats its own nonce in front of the final one. That is accepted, as in Kafka 3.9: the
broker's nonce is in it, and the proof covers it. The extension `tokenauth=true` means that the name is the id of a
delegation token (KIP-48).

Why there is no library for it: docs/decisions/scram-server.md.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.security.sasl.mechanism import SaslFailure, Step
from ottla.scram import LEAST_ITERATIONS, as_salt, digest_of, proves

_NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_VALUE = r"[\x01-\x2B\x2D-\x7F]+"
_NONCE = r"[\x21-\x2B\x2D-\x7E]+"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>(?:,[A-Za-z]+={_VALUE})*))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>[A-Za-z0-9/+=]*),r=(?P<nonce>{_NONCE})(?:,[A-Za-z]+={_VALUE})*?)"
    r",p=(?P<proof>[A-Za-z0-9/+=]+)"
)
LONGEST_MESSAGE_BYTES = 8192
"""A message has some hundred bytes; a longer one is refused unread."""


class ScramCredential(NamedTuple):
    """The stored credential of a user; `user` is the user after a login: the name itself, or the owner of a token."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    user: str
    expires_at_ms: float | None = None
    is_token: bool = False

    def __repr__(self) -> str:
        return f"ScramCredential(of {self.user!r})"


FindCredential = Callable[[str, str, bool], ScramCredential | None]
"""Finds one by mechanism, name, and whether the name is that of a delegation token."""


class MadeUp:
    """Credentials for users that do not exist: no client can log in with one, and two requests see the same salt.

    The key is drawn at each start. So salts of users that do not exist change with a restart, and an attacker can
    notice that (docs/security.md).
    """

    def __init__(self) -> None:
        self._secret = os.urandom(32)

    def credential(self, mechanism: str, name: str) -> ScramCredential:
        """The same salt for the same name. Called for users that exist, too, so that the time does not show them."""
        seed = digest_of(mechanism, self._secret, f"{mechanism} {name}".encode(errors="surrogatepass"))
        return ScramCredential(as_salt(seed), os.urandom(len(seed)), os.urandom(len(seed)), LEAST_ITERATIONS, "")


class ScramServer:
    """One login. A message out of order is a failure, like a malformed one."""

    def __init__(self, mechanism: str, find: FindCredential, made_up: MadeUp) -> None:
        self._mechanism = mechanism
        self._find = find
        self._made_up = made_up
        self._credential: ScramCredential | None = None
        self._exists = False
        self._header = self._first_bare = self._server_first = self._nonce = self._repeated_nonce = ""

    def evaluate(self, token: bytes) -> Step:
        """The first message of the client, then its final one."""
        if len(token) > LONGEST_MESSAGE_BYTES:
            raise SaslFailure(f"a SCRAM message of {len(token)} bytes")
        try:
            message = token.decode("ascii")
        except UnicodeDecodeError:
            raise SaslFailure("a SCRAM message that is not ASCII") from None
        if self._credential is None:
            return self._first(message)
        return self._final(message, self._credential)

    def _first(self, message: str) -> Step:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise SaslFailure("a malformed first SCRAM message, or one that asks for channel binding")
        name = _unescaped(match["name"])
        made_up = self._made_up.credential(self._mechanism, name)
        found = self._find(self._mechanism, name, "tokenauth=true" in match["extensions"].split(",")[1:])
        authorization_id = match["authorization_id"]
        if authorization_id is not None and _unescaped(authorization_id) != name:
            text = "Authentication failed: Client requested an authorization id that is different from username"
            raise SaslFailure(text, text)
        self._exists = found is not None
        self._credential = credential = made_up if found is None else found
        self._header, self._first_bare = match["header"], match["bare"]
        self._nonce = match["nonce"] + base64.b64encode(os.urandom(24)).decode()
        self._repeated_nonce = match["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return Step(self._server_first.encode())

    def _final(self, message: str, credential: ScramCredential) -> Step:
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None:
            raise SaslFailure("a malformed final SCRAM message")
        if not hmac.compare_digest(_decoded(match["binding"]), self._header.encode()):
            raise SaslFailure("the final SCRAM message is bound to another first one")
        if match["nonce"] not in (self._nonce, self._repeated_nonce):  # no secret: the client got it
            raise SaslFailure("the final SCRAM message has another nonce: it belongs to another login")
        auth_message = f"{self._first_bare},{self._server_first},{match['without_proof']}".encode()
        is_proved = proves(self._mechanism, credential.stored_key, auth_message, _decoded(match["proof"]))
        if not (is_proved and self._exists):
            raise SaslFailure("no such user, or a wrong password", user=credential.user or None)
        signature = digest_of(self._mechanism, credential.server_key, auth_message)
        return Step(b"v=" + base64.b64encode(signature), credential.user, credential.expires_at_ms, credential.is_token)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslFailure("a SCRAM message with broken base64") from None
