"""What a SASL mechanism is on the broker's side: tokens in, tokens out (Java's `SaslServer`).

A mechanism knows its users, and neither requests nor connections. One server object serves one login.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.broker.runtime.pending import Pending


class SaslFailure(Exception):
    """The login failed. `message` is what the client gets, None for Kafka's general one; `detail` is for the log only,
    and neither shows whether a user exists (to the client) nor any secret.
    """

    def __init__(
        self, detail: str, message: str | None = None, *, auth_bytes: bytes = b"", user: str | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.message = message
        self.auth_bytes = auth_bytes
        """A last token for the client, where the mechanism has one for failures."""
        self.user = user
        """Whose login it would have been, for the audit log: a user that exists. Another name may be a password that
        was typed in the wrong place.
        """


class Step(NamedTuple):
    """The answer to a token. `user` is who the client is, once that is proved; None while more tokens have to come.

    `expires_at_ms` is the wall time at which what it has shown ends (a token's expiry), None for never.
    """

    token: bytes
    user: str | None = None
    expires_at_ms: float | None = None
    is_token: bool = False
    """Whether it came by a delegation token, which may not make another one."""


class MechanismServer(Protocol):
    """The broker's side of one login."""

    def evaluate(self, token: bytes) -> Step | Pending[Step]:
        """The answer to a token, at once or later. Raises SaslFailure."""
