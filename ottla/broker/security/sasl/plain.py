"""PLAIN (RFC 4616): a name and a password, in one token. The users are in the listener's JAAS entry, as in Kafka.

A comparison takes the same time for a user that does not exist, and for passwords of any length.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping

from ottla.broker.security.sasl.mechanism import SaslFailure, Step

_WRONG = "Authentication failed: Invalid username or password"


class PlainUsers:
    """The users of one listener: their passwords are kept as keyed digests only."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = os.urandom(32)
        self._nobody = os.urandom(32)
        self._digests = {name: self._digest(password) for name, password in passwords.items()}

    def has(self, name: str) -> bool:
        """Whether this user exists."""
        return name in self._digests

    def is_right(self, name: str, password: str) -> bool:
        """Whether this user exists and has that password."""
        digest = self._digests.get(name, self._nobody)
        return hmac.compare_digest(self._digest(password), digest)

    def _digest(self, password: str) -> bytes:
        return hashlib.blake2b(password.encode(errors="surrogatepass"), key=self._key, digest_size=32).digest()


class PlainServer:
    """One login (Kafka's PlainSaslServer, with its messages)."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def evaluate(self, token: bytes) -> Step:
        """The only token: authorization id, name and password, separated by NUL."""
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            message = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise SaslFailure(message, message)
        authorization_id, name, password = parts
        for part, what in ((name, "username"), (password, "password")):
            if not part:
                message = f"Authentication failed: {what} not specified"
                raise SaslFailure(message, message)
        if not self._users.is_right(name, password):
            raise SaslFailure(_WRONG, _WRONG, user=name if self._users.has(name) else None)
        if authorization_id not in ("", name):
            message = "Authentication failed: Client requested an authorization id that is different from username"
            raise SaslFailure(message, message)
        return Step(b"", name)
