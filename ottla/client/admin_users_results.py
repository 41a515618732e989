"""Arguments and results of an Admin about users: their SCRAM credentials. Results contain no secrets."""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT_ITERATIONS = 4096
"""The default of Kafka's tools."""


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """`mechanism` is `SCRAM-SHA-256` or `SCRAM-SHA-512`; `UNKNOWN(n)` for one that this client does not know."""

    mechanism: str
    iterations: int = DEFAULT_ITERATIONS


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """Set a user's credential. The client salts the password and never sends it. `salt` None: a random one."""

    user: str
    info: ScramCredentialInfo
    password: str = field(repr=False)
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """Remove a user's credential of one mechanism."""

    user: str
    mechanism: str
