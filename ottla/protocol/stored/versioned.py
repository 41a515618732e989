"""Records whose key begins with its type and whose value begins with its version, as in most internal topics of Kafka.

Each number is an int16 before the message. Bytes after a message are ignored, as in Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeVar

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.message import Message, decode, encode
from ottla.protocol.stored.unknown import UnknownRecord
from ottla.protocol.types import Buffer

K = TypeVar("K", bound=Message)
V = TypeVar("V", bound=Message)

_NUMBER = struct.Struct(">h")


def encode_numbered(number: int, message: Message, version: int) -> bytes:
    """A key after its type, or a value after its version. Raises UnencodableMessage, ValueError for the version."""
    return _NUMBER.pack(number) + encode(message, version)


def decode_versioned_record(
    topic: str, types: Mapping[int, tuple[type[K], type[V]]], key: Buffer, value: Buffer | None
) -> tuple[K | UnknownRecord, V | None]:
    """The key and the value of a record of `topic`, which has the classes in `types`; no value for a tombstone.

    A record of another type is returned as an `UnknownRecord` and no value.
    Raises MalformedMessage for broken bytes, and for an unknown version of a value.
    """
    record_type = _number(topic, key, "key")
    classes = types.get(record_type)
    if classes is None:
        whole = None if value is None else bytes(value)
        return UnknownRecord(record_type=record_type, key=bytes(key), value=whole), None
    key_class, value_class = classes
    decoded_key = decode(key_class, key, 0, _NUMBER.size)
    if value is None:
        return decoded_key, None
    version = _number(topic, value, "value")
    if version not in value_class.message_versions:
        raise MalformedMessage(f"{value_class.__name__} of unknown version {version}")
    return decoded_key, decode(value_class, value, version, _NUMBER.size)


def _number(topic: str, data: Buffer, what: str) -> int:
    """The type at the beginning of a key, or the version at the beginning of a value."""
    if len(data) < _NUMBER.size:
        raise MalformedMessage(f"a {what} of {len(data)} bytes in {topic} has neither type nor version")
    number: int = _NUMBER.unpack_from(data)[0]
    return number
