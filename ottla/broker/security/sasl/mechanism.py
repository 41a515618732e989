"""The broker's side of a SASL mechanism: tokens in, tokens out (Java's `SaslServer`).

A mechanism knows its users, but neither requests nor connections. One server object serves one login.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.broker.runtime.pending import Pending


class SaslFailure(Exception):
    """The login failed. `message` is for the client, None for Kafka's general one; `detail` is for the log only.
    Neither contains a secret, and `message` does not show whether a user exists.
    """

    def __init__(
        self, detail: str, message: str | None = None, *, auth_bytes: bytes = b"", user: str | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.message = message
        self.auth_bytes = auth_bytes
        """A last token for the client, if the mechanism has one for failures."""
        self.user = user
        """The existing user whose login has failed, for the audit log. Any other name may be a password that was typed
        in the wrong place.
        """


class Step(NamedTuple):
    """The answer to a token. `user` is the user, once that is proved; None while more tokens have to come.

    `expires_at_ms` is the wall time at which the client's credential expires (that of a token), None for never.
    """

    token: bytes
    user: str | None = None
    expires_at_ms: float | None = None
    is_token: bool = False
    """Whether the login used a delegation token, which may not create another one."""


class MechanismServer(Protocol):
    """The broker's side of one login."""

    def evaluate(self, token: bytes) -> Step | Pending[Step]:
        """The answer to a token, immediately or later. Raises SaslFailure."""
