"""The choice of a record's partition. Equal keys go to the same partition, in every client with the same function.

`murmur2` is the hash of Kafka's Java clients (`Utils.murmur2`, Austin Appleby's MurmurHash2 with seed 0x9747b28c), so
that a key goes to the same partition as in Java. `consistent` is librdkafka's CRC-32, for topics shared with it.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

from ottla.client import key_hashes

PartitionerName = Literal[
    "murmur2", "murmur2_random", "consistent", "consistent_random", "random", "roundrobin", "sticky"
]
PartitionerFunction = Callable[[str, bytes | None, int], int]
"""(topic, key, number of partitions) to a partition."""

RULES = ("murmur2", "murmur2_random", "consistent", "consistent_random", "random", "roundrobin", "sticky")

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of Java's `Utils.murmur2`, as an unsigned number."""
    length = len(data)
    hashed = _SEED ^ length
    words = length >> 2
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = word * _MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ mixed
    rest = length & 3
    if rest:
        hashed = (hashed ^ int.from_bytes(data[length - rest :], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


@lru_cache(maxsize=8192)
def positive_murmur2(key: bytes) -> int:
    """Return the hash of a key without its sign bit, as Java's `toPositive`. Keys repeat, so results are cached."""
    return murmur2(key) & 0x7FFFFFFF


def to_rule(given: Any) -> Any:
    """Return a rule by its canonical name (`round-robin` is `roundrobin`), or the given function.

    Raises ValueError for anything else.
    """
    if callable(given):
        return given
    name = given.strip().lower().replace("-", "_") if isinstance(given, str) else ""
    name = "roundrobin" if name == "round_robin" else name
    if name not in RULES:
        raise ValueError(f"must be one of {', '.join(RULES)}, or a function")
    return name


class Partitioner:
    """Chooses partitions by one of the named rules or by a function.

    - `murmur2`: records with a key by its hash, others stick to a partition until their batch is closed (KIP-480).
      This is Java's rule, and librdkafka's `murmur2_random`, which is accepted, too.
    - `sticky`: every record sticks to a partition in this way, whatever its key.
    - `consistent`: by CRC-32 of the key; records without a key, or with an empty one, all go to one partition, as with
      librdkafka's rule of that name. With `consistent_random`, librdkafka's default, those stick instead.
    - `random`, `roundrobin`: as the names say, whatever the key.

    With `ignores_keys` every record is treated as one without a key (Kafka's `partitioner.ignore.keys`).
    """

    def __init__(self, rule: PartitionerName | PartitionerFunction = "murmur2", *, ignores_keys: bool = False) -> None:
        try:
            chosen: PartitionerName | PartitionerFunction = to_rule(rule)
        except ValueError as wrong:
            raise ValueError(f"partitioner {wrong}, not {rule!r}") from None
        self._rule = "murmur2" if chosen == "murmur2_random" else chosen
        self._ignores_keys = ignores_keys and not callable(chosen)
        self._sticks = self._rule in ("murmur2", "consistent_random", "sticky")
        """Whether a record without a key stays with a partition until its batch is closed."""
        self._stuck: dict[str, int] = {}
        self._turns: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, partitions: int) -> int:
        """Return the partition for a record; ValueError if the program's function returns one that does not exist."""
        if self._sticks and (key is None or self._ignores_keys):
            stuck = self._stuck.get(topic)
            if stuck is not None and stuck < partitions:
                return stuck
        rule = self._rule
        if key is not None and not self._ignores_keys:
            if rule == "murmur2":
                return positive_murmur2(key) % partitions
            if rule == "consistent" or (key and rule == "consistent_random"):
                return zlib.crc32(key) % partitions
        if rule == "consistent":
            return 0  # the CRC-32 of nothing
        if rule == "random":
            return random.randrange(partitions)
        if rule == "roundrobin":
            turn = self._turns.get(topic, -1) + 1
            self._turns[topic] = turn
            return turn % partitions
        if callable(rule):
            chosen = rule(topic, key, partitions)
            if not 0 <= chosen < partitions:
                raise ValueError(f"the partitioner chose {chosen} of {partitions} partitions of {topic}")
            return chosen
        stuck = self._stuck.get(topic)  # also for records with a key: the rule "sticky" ignores keys
        if stuck is None or stuck >= partitions:
            stuck = self._stuck[topic] = random.randrange(partitions)
        return stuck

    def choose_many(
        self, topic: str, keys: Sequence[bytes | None] | None, count: int, partitions: int
    ) -> list[int | None] | None:
        """Return the partition of each of `count` records, None for those that stick to one until its batch is closed.

        None instead of a list: all records stick. `keys` None: no record has a key. Raises as `choose`.
        """
        rule = self._rule
        if rule in ("murmur2", "consistent_random", "sticky"):
            if keys is None or self._ignores_keys or rule == "sticky":
                return None
            if rule == "murmur2":
                return _by_murmur2(keys, partitions)
            return [zlib.crc32(key) % partitions if key else None for key in keys]
        if rule == "consistent" and keys is None:
            return [0] * count
        each = [None] * count if keys is None else keys
        return [self.choose(topic, key, partitions) for key in each]

    def on_batch_closed(self, topic: str, partition: int, partitions: int) -> None:
        """Choose another partition for records without a key, since the batch that they filled is closed."""
        if self._stuck.get(topic) != partition:
            return
        if partitions > 1:
            others = random.randrange(partitions - 1)
            self._stuck[topic] = others + (others >= partition)


def _by_murmur2(keys: Sequence[bytes | None], partitions: int) -> list[int | None]:
    present = [key for key in keys if key is not None]
    found = key_hashes.partitions_of(present, partitions)
    if found is None:
        return [None if key is None else positive_murmur2(key) % partitions for key in keys]
    if len(found) == len(keys):
        return [*found]
    each = iter(found)
    return [None if key is None else next(each) for key in keys]
