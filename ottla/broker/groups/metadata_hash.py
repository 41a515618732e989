"""The hash by which a group detects that its topics changed: XXH3 of each topic, and of those by name (KIP-1101).

It is stored in the group's epoch record, so its input is byte for byte Kafka's. A topic is: a version byte 0, the two
halves of its id, its name, its number of partitions, and each partition's number (with the racks of its replicas,
sorted, where brokers have racks). Numbers are little-endian; a text is its UTF-16 units followed by their number. No
topics hash to 0.

    topic with id 0 (no real topic has it), name "a", one partition:
    00  00*8  00*8  61 00 01 00 00 00  01 00 00 00  00 00 00 00

Source: Kafka 4.1's group-coordinator `Utils.computeTopicHash` and `computeGroupHash`, and the byte order of hash4j.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from uuid import UUID

import xxhash

TOPIC_HASH_VERSION = b"\x00"
_SIGN = 1 << 63
_WRAP = 1 << 64


def hash_of_topic(topic_id: UUID, name: str, partition_count: int, racks: tuple[str, ...] = ()) -> int:
    """The hash of one topic, unsigned. `racks` are those of every partition's replicas: there is one broker."""
    hasher = xxhash.xxh3_64(TOPIC_HASH_VERSION)
    hasher.update(struct.pack("<QQ", topic_id.int >> 64, topic_id.int & (_WRAP - 1)))
    hasher.update(_text(name))
    hasher.update(struct.pack("<i", partition_count))
    hasher.update(_partitions(partition_count, sorted(racks)))
    return hasher.intdigest()


def hash_of_topics(hash_by_name: Iterable[tuple[str, int]]) -> int:
    """The hash of all topics of a group, signed as records have it; 0 without any."""
    in_order = sorted(hash_by_name, key=lambda entry: _units_key(entry[0]))
    if not in_order:
        return 0
    digest = xxhash.xxh3_64(b"".join(struct.pack("<Q", topic_hash) for _, topic_hash in in_order)).intdigest()
    return digest - _WRAP if digest & _SIGN else digest


def _partitions(count: int, racks: list[str]) -> bytes:
    if not racks:
        return struct.pack(f"<{count}i", *range(count))
    of_each = b"".join(struct.pack("<i", len(_units(rack)) // 2) + _text(rack) for rack in racks)
    return b"".join(struct.pack("<i", index) + of_each for index in range(count))


def _units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _text(text: str) -> bytes:
    units = _units(text)
    return units + struct.pack("<i", len(units) // 2)


def _units_key(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
