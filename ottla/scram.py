"""SCRAM's keys of a password, and the proof of a login (RFC 5802, RFC 7677): for broker, clients and commands.

    salted = salted_password("SCRAM-SHA-256", "secret", salt, 4096)
    keys = keys_of("SCRAM-SHA-256", salted)        the broker stores salt, iterations and these

Passwords are taken as UTF-8 without SASLprep, as Kafka takes them (`ScramFormatter.normalize`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import NamedTuple

NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The mechanisms, with their numbers in requests and records (Kafka's `ScramMechanism.type`)."""
NAMES = {number: name for name, number in NUMBERS.items()}
LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 16384
"""The bounds for a credential that is set (Kafka's `ScramMechanism`, and `ScramControlManager.MAX_ITERATIONS`)."""
_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramKeys(NamedTuple):
    """The keys that verify the client to the broker (`stored_key`), and the broker to the client (`server_key`)."""

    stored_key: bytes
    server_key: bytes


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's SaltedPassword. Takes some milliseconds per 4096 iterations."""
    return hashlib.pbkdf2_hmac(_DIGESTS[mechanism], password.encode(), salt, iterations)


def client_key(mechanism: str, salted: bytes) -> bytes:
    """RFC 5802's ClientKey."""
    return digest_of(mechanism, salted, b"Client Key")


def keys_of(mechanism: str, salted: bytes) -> ScramKeys:
    """The keys that the broker stores for a salted password."""
    return ScramKeys(
        hashlib.new(_DIGESTS[mechanism], client_key(mechanism, salted)).digest(),
        digest_of(mechanism, salted, b"Server Key"),
    )


def proves(mechanism: str, stored_key: bytes, auth_message: bytes, proof: bytes) -> bool:
    """Whether the proof shows that the client knows the password; compared in constant time."""
    signature = digest_of(mechanism, stored_key, auth_message)
    if len(proof) != len(signature):
        return False
    key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.new(_DIGESTS[mechanism], key).digest(), stored_key)


def digest_of(mechanism: str, key: bytes, message: bytes) -> bytes:
    """The HMAC of the mechanism."""
    return hmac.digest(key, message, _DIGESTS[mechanism])


def new_salt() -> bytes:
    """A random salt, in the format of Kafka's tools."""
    return as_salt(os.urandom(17))


def as_salt(seed: bytes) -> bytes:
    """130 bits of `seed` in base 36, as Kafka's tools make a salt (`ScramFormatter.secureRandomBytes`).

    All salts have the same format, so that one made up for a user that does not exist cannot be recognized.
    """
    number = int.from_bytes(seed[:17]) >> 6
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits.encode()
