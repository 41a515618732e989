"""Uuids as Kafka writes them in text: base64url of the 16 bytes, without padding, 22 characters.

    9e107d9d-372b-b682-6bd8-1d3542a419d6  <->  nhB9nTcrtoJr2B01QqQZ1g

Follows Kafka's `Uuid`: a random one never begins with `-` (a command line would take it for an option) and is never one
of the hundred smallest, which Kafka reserves for special meanings such as "the directory is unassigned".
"""

from __future__ import annotations

import base64
import re
import uuid
from typing import Final

ZERO_UUID: Final = uuid.UUID(int=0)
_RESERVED: Final = 100
_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]*")


def uuid_to_text(value: uuid.UUID) -> str:
    """The 22 characters of `value`."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> uuid.UUID:
    """The uuid in `text`. ValueError for anything except base64url of 16 bytes."""
    bare = text.rstrip("=")
    if _ALPHABET.fullmatch(bare) is None or len(bare) % 4 == 1:
        raise ValueError(f"{text[:80]!r} is not a uuid in base64url")
    raw = base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text[:80]!r} is not a uuid: {len(raw)} bytes instead of 16")
    return uuid.UUID(bytes=raw)


def random_uuid() -> uuid.UUID:
    """A random uuid that Kafka could make, too."""
    while True:
        value = uuid.uuid4()
        if value.int >= _RESERVED and not uuid_to_text(value).startswith("-"):
            return value
