"""PLAIN, with Kafka's messages."""

from __future__ import annotations

import pytest

from ottla.broker.security.sasl.mechanism import SaslFailure
from ottla.broker.security.sasl.plain import PlainServer, PlainUsers

USERS = PlainUsers({"alice": "a secret", "ünï": "pässword"})


@pytest.mark.parametrize(
    ("token", "user"),
    [
        (b"\0alice\0a secret", "alice"),
        (b"alice\0alice\0a secret", "alice"),
        ("\0ünï\0pässword".encode(), "ünï"),
    ],
)
def test_the_right_password_is_the_user(token: bytes, user: str) -> None:
    assert PlainServer(USERS).evaluate(token) == (b"", user, None, False)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0a secre", "Authentication failed: Invalid username or password"),
        (b"\0alice\0A secret", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0a secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0a secret", "Authentication failed: username not specified"),
        (b"bob\0alice\0a secret", "Authentication failed: Client requested an authorization id that is different"),
        (b"alice\0a secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0a secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\xff\xfe\0\xff\0\xff", "Authentication failed: Invalid username or password"),
    ],
)
def test_anything_else_fails_with_kafkas_message(token: bytes, message: str) -> None:
    with pytest.raises(SaslFailure) as failure:
        PlainServer(USERS).evaluate(token)
    assert failure.value.message is not None
    assert failure.value.message.startswith(message)


def test_passwords_are_not_kept() -> None:
    assert "a secret" not in repr(vars(USERS))
