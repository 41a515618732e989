"""SCRAM users of a new data directory, in the syntax of `kafka-storage format --add-scram`.

    SCRAM-SHA-256=[name=alice,password=secret]
    SCRAM-SHA-512=[name="bob",iterations=8192,salt="BASE64",saltedpassword="BASE64"]

The rules are those of Kafka's `ScramParser`: values may be in double quotes and have no commas; `salt` and `iterations`
have defaults (a random one, 4096); one of `password` and `saltedpassword` is needed, the latter with its salt. Errors
never show the given text.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from ottla.scram import LEAST_ITERATIONS, MOST_ITERATIONS, NUMBERS, new_salt, salted_password

_BETWEEN = re.compile(r"(?<=\])[\s;,]+(?=SCRAM-)")
_FORM = "must be SCRAM-SHA-256=[name=NAME,password=PASSWORD] or the like"
_PARTS = ("name", "password", "salt", "iterations", "saltedpassword")


class ScramUser(NamedTuple):
    """A user with the salted password that is stored."""

    name: str
    mechanism: str
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"ScramUser({self.name!r}, {self.mechanism})"


def parse_scram_users(text: str) -> list[ScramUser]:
    """The users of some entries, with blanks, commas or semicolons between them. Raises ValueError with what is wrong.

    Takes some milliseconds for each password.
    """
    return [_user(*entry) for entry in _entries(text)]


def check_scram_users(text: str) -> str:
    """The same text, if it can be parsed; no password is salted. Raises ValueError."""
    for entry in _entries(text):
        _check(*entry)
    return text


def _entries(text: str) -> list[tuple[str, dict[str, str]]]:
    return [_entry(one) for one in _BETWEEN.split(text.strip()) if one]


def _entry(text: str) -> tuple[str, dict[str, str]]:
    mechanism, equals, rest = text.partition("=")
    if not equals or not rest.startswith("[") or not rest.endswith("]"):
        raise ValueError(_FORM)
    if mechanism not in NUMBERS:
        raise ValueError(f"must name {' or '.join(NUMBERS)} before each =[")
    values: dict[str, str] = {}
    for part in rest[1:-1].split(","):
        name, equals, value = part.partition("=")
        if not equals or name not in _PARTS:
            raise ValueError(f"has a part that is none of {', '.join(_PARTS)}, each with =")
        if len(value) >= 2 and value.startswith('"') and value.endswith('"'):
            value = value[1:-1]
        values[name] = value
    return mechanism, values


def _check(mechanism: str, values: dict[str, str]) -> int:
    """The iterations, after all values are checked."""
    if not values.get("name"):
        raise ValueError("must have a name")
    if "password" not in values and "saltedpassword" not in values:
        raise ValueError("must have one of password and saltedpassword")
    if "password" not in values and "salt" not in values:
        raise ValueError("must have the salt of its saltedpassword")
    if not values.get("password", values.get("saltedpassword")):
        raise ValueError("must not have an empty password")
    for part in ("salt", "saltedpassword"):
        _decoded(values, part)
    text = values.get("iterations", str(LEAST_ITERATIONS))
    if not (text.isascii() and text.isdigit() and LEAST_ITERATIONS <= int(text[:9]) <= MOST_ITERATIONS):
        raise ValueError(f"must have from {LEAST_ITERATIONS} to {MOST_ITERATIONS} iterations")
    return int(text)


def _user(mechanism: str, values: dict[str, str]) -> ScramUser:
    iterations = _check(mechanism, values)
    salt = _decoded(values, "salt") or new_salt()
    if "password" in values:
        salted = salted_password(mechanism, values["password"], salt, iterations)
    else:
        salted = _decoded(values, "saltedpassword")
    return ScramUser(values["name"], mechanism, iterations, salt, salted)


def _decoded(values: dict[str, str], part: str) -> bytes:
    try:
        return base64.b64decode(values.get(part, ""), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"has a {part} that is not base64") from None
