"""The client's side of SASL: one conversation per mechanism, over the tokens that the requests carry.

A conversation is a generator: it yields a token for the broker, is sent the broker's answer to it, and returns when the
broker has given every proof that the mechanism requires. `SaslFailed` says in one line why it ended otherwise. It does
not know how tokens are sent (`handshake.py`), and random numbers are passed in: the nonce of SCRAM.

Sources: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM), RFC 7628 (OAUTHBEARER), KIP-48 (`tokenauth`).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from ottla.scram import LEAST_ITERATIONS, client_key, digest_of, keys_of, salted_password

PLAIN = "PLAIN"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)

MOST_ITERATIONS = 1_000_000
"""The most that a broker may ask for: each costs time, and the broker is not trusted yet. Kafka's limit is 16,384."""
SHOWN_CHARACTERS = 500
"""The most characters of a broker's error message that are shown."""

Conversation = Generator[bytes, bytes, None]

_BEARER_TOKEN = re.compile(r"[-a-zA-Z0-9._~+/]+=*")
_EXTENSION_NAME = re.compile(r"[a-zA-Z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")
_NO_CHANNEL_BINDING = "n,,"


class SaslFailed(Exception):
    """The conversation has failed: the broker refused, or sent a message that no honest broker sends. One line."""


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials and the mechanism of a login. `username` and `password` for PLAIN and SCRAM; `token` for
    OAUTHBEARER.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The extensions that OAUTHBEARER sends with the token (KIP-342)."""
    is_delegation_token: bool = False
    """Whether username and password are a delegation token's id and its HMAC (KIP-48); with SCRAM only."""

    @property
    def who(self) -> str:
        """The mechanism and the user, for messages."""
        if self.mechanism == OAUTHBEARER:
            return f"the {self.mechanism} login"
        kind = "delegation token" if self.is_delegation_token else "user"
        return f"the {self.mechanism} login of {kind} {self.username!r}"


def converse(login: Login, nonce: str) -> Conversation:
    """Return the conversation of a login. `nonce` is fresh printable ASCII without commas, used by SCRAM.

    The conversation raises SaslFailed.
    """
    if login.mechanism == PLAIN:
        return _plain(login)
    if login.mechanism in SCRAM:
        return _scram(login, nonce)
    return _oauthbearer(login)


def problem_of(login: Login) -> str:
    """Return why a login is impossible, in words; an empty text if it is not."""
    if login.mechanism == OAUTHBEARER:
        if not _BEARER_TOKEN.fullmatch(login.token):
            return "the token is no bearer token: it is empty, or has other characters than letters, digits and -._~+/="
        for name, value in login.extensions.items():
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                return f"the extension {name!r} has a name that is not of letters, or a value that is not printable"
        return ""
    if not login.username:
        return "the user has no name"
    if not login.password:
        return "the password is empty"
    return "user and password may not contain NUL" if "\0" in login.username + login.password else ""


def _plain(login: Login) -> Conversation:
    yield f"\0{login.username}\0{login.password}".encode()


def _scram(login: Login, nonce: str) -> Conversation:
    name = login.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}{',tokenauth=true' if login.is_delegation_token else ''}"
    server_first = _text((yield (_NO_CHANNEL_BINDING + first).encode()))
    whole_nonce, salt, iterations = _server_first(server_first, nonce)
    salted = salted_password(login.mechanism, login.password, salt, iterations)
    keys = keys_of(login.mechanism, salted)
    final = f"c={base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={whole_nonce}"
    said = f"{first},{server_first},{final}".encode()
    signature = digest_of(login.mechanism, keys.stored_key, said)
    proof = bytes(a ^ b for a, b in zip(client_key(login.mechanism, salted), signature, strict=True))
    server_final = _text((yield f"{final},p={base64.b64encode(proof).decode()}".encode()))
    _check_server(server_final, digest_of(login.mechanism, keys.server_key, said))


def _server_first(message: str, nonce: str) -> tuple[str, bytes, int]:
    """The nonce, the salt and the iterations of `r=...,s=...,i=...`, after which there may be extensions."""
    _check_for_error(message)
    fields = message.split(",")
    if len(fields) < 3 or [one[:2] for one in fields[:3]] != ["r=", "s=", "i="]:
        raise SaslFailed("the broker's first SCRAM message is not r=...,s=...,i=...")
    whole_nonce, salt, iterations = (one[2:] for one in fields[:3])
    if not whole_nonce.startswith(nonce) or whole_nonce == nonce:
        raise SaslFailed("the broker's nonce does not continue this client's: the message belongs to another login")
    if not iterations.isascii() or not iterations.isdecimal() or len(iterations) > len(str(MOST_ITERATIONS)):
        raise SaslFailed(f"the broker asks for {iterations[:20]!r} iterations of SCRAM")
    if not LEAST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS:
        raise SaslFailed(
            f"the broker asks for {iterations} iterations of SCRAM; this client does {LEAST_ITERATIONS} to "
            f"{MOST_ITERATIONS}"
        )
    return whole_nonce, _base64(salt), int(iterations)


def _check_server(message: str, signature: bytes) -> None:
    """Check the broker's signature: only a server that knows the password, or the keys stored for it, can make it."""
    _check_for_error(message)
    verifier, _, _ = message.partition(",")
    if not verifier.startswith("v=") or not hmac.compare_digest(_base64(verifier[2:]), signature):
        raise SaslFailed("the broker could not prove that it knows this user: its SCRAM signature is wrong")


def _check_for_error(message: str) -> None:
    if message.startswith("e="):
        raise SaslFailed(f"the broker says {one_line(message[2:])}")


def _oauthbearer(login: Login) -> Conversation:
    extensions = "".join(f"{name}={value}\x01" for name, value in login.extensions.items())
    problem = yield f"n,,\x01auth=Bearer {login.token}\x01{extensions}\x01".encode()
    if problem:
        yield b"\x01"  # RFC 7628: the client acknowledges the failure, and the broker then ends the conversation
        raise SaslFailed(f"the broker refuses the token: {one_line(_text(problem))}")


def _text(token: bytes) -> str:
    try:
        return bytes(token).decode()
    except UnicodeDecodeError:
        raise SaslFailed("the broker's SASL message is not text") from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise SaslFailed("the broker's SCRAM message has something that is not base64") from None


def one_line(text: str) -> str:
    """Return a broker's message as one printable line of bounded length."""
    shown = "".join(character if character.isprintable() else " " for character in text[:SHOWN_CHARACTERS])
    return " ".join(shown.split())
