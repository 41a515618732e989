"""The offset of the newest record of each key in the dirty part of a log: the cleaner's basis for its decisions.

Keys themselves are not kept, only 128 bits of each: two 64-bit SipHashes with the process's secret, as unlikely to
collide as the MD5 that Kafka uses (SkimpyOffsetMap), and several times cheaper. If Python uses another hash, BLAKE2b is
used instead. An entry has 24 bytes, as in Kafka: 16 of hash, 8 of offset; `log.cleaner.dedupe.buffer.size` limits their
total size, `log.cleaner.io.buffer.load.factor` the fill level.

Open addressing, in shards that are created when they are first needed: a few keys take little memory, and no single
step takes long. One thread uses a map.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Callable
from typing import Final

ENTRY_BYTES: Final = 24
SHARD_SLOTS: Final = 1 << 14
LEAST_LOAD_FACTOR: Final = 0.01
"""Below this, the configured one would take more memory than it is worth, or for 0 all of it."""
_HALVES: Final = struct.Struct("qq")

_Hash = Callable[[bytes], tuple[int, int]]


def sip_hash(key: bytes) -> tuple[int, int]:
    """Two of Python's own hashes, if those are SipHash."""
    return hash(key), hash(b"\0" + key)


def blake_hash(key: bytes) -> tuple[int, int]:
    """128 bits of BLAKE2b, if Python uses another hash."""
    from hashlib import blake2b  # loads OpenSSL's hashes, which nothing else here needs

    first, second = _HALVES.unpack(blake2b(key, digest_size=16).digest())
    return first, second


HASH_OF: Final[_Hash] = (
    sip_hash if sys.hash_info.width >= 64 and sys.hash_info.algorithm.startswith("siphash") else blake_hash
)


class _Shard:
    """Slots of three columns; an offset of -1 marks a free one."""

    __slots__ = ("count", "firsts", "offsets", "seconds")

    def __init__(self, slots: int) -> None:
        self.count = 0
        self.firsts = array("q", bytes(8 * slots))
        self.seconds = array("q", bytes(8 * slots))
        self.offsets = array("q", b"\xff" * (8 * slots))


class OffsetMap:
    """See the module.

    Attributes:
        latest_offset: everything up to here was put into the map; -1 at first. Set by the caller that fills it.
        capacity: the approximate number of keys that fit.
    """

    def __init__(self, max_bytes: int, load_factor: float, expected_keys: int, hash_of: _Hash = HASH_OF) -> None:
        """Args: `max_bytes` for all entries; `expected_keys`: the most keys that will be put: if `max_bytes` allows it,
        all of them fit, and not much more memory is used.
        """
        self._hash_of = hash_of
        most_slots = max(2, max_bytes // ENTRY_BYTES)
        # Twice what they need, since the next line halves it at worst, and shards are not filled evenly.
        needed = math.ceil((expected_keys + 1) / max(load_factor, LEAST_LOAD_FACTOR))
        wanted = min(most_slots, max(16, 2 * needed))
        self._slots = min(SHARD_SLOTS, 1 << (wanted.bit_length() - 1))
        self._shards: list[_Shard | None] = [None] * max(1, wanted // self._slots)
        self._shard_limit = min(self._slots - 1, max(1, math.floor(self._slots * load_factor)))
        self.latest_offset = -1
        self.capacity = self._shard_limit * len(self._shards)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        """The fill level, relative to all slots that the configuration allows."""
        return self._count / (self._slots * len(self._shards))

    def put(self, key: bytes, offset: int) -> bool:
        """Record that the newest record of `key` is at `offset`; False when the map is full and the key is new."""
        first, second = self._hash_of(key)
        number = first % len(self._shards)
        shard = self._shards[number]
        if shard is None:
            shard = self._shards[number] = _Shard(self._slots)
        mask = self._slots - 1
        firsts, seconds, offsets = shard.firsts, shard.seconds, shard.offsets
        slot, step = second & mask, first >> 20 | 1
        while offsets[slot] >= 0:
            if firsts[slot] == first and seconds[slot] == second:
                offsets[slot] = offset
                return True
            slot = slot + step & mask
        if shard.count >= self._shard_limit:
            return False
        firsts[slot], seconds[slot], offsets[slot] = first, second, offset
        shard.count += 1
        self._count += 1
        return True

    def get(self, key: bytes) -> int:
        """The offset of the newest record of `key`, -1 when it was not put."""
        first, second = self._hash_of(key)
        shard = self._shards[first % len(self._shards)]
        if shard is None:
            return -1
        mask = self._slots - 1
        firsts, seconds, offsets = shard.firsts, shard.seconds, shard.offsets
        slot, step = second & mask, first >> 20 | 1
        while (offset := offsets[slot]) >= 0:
            if firsts[slot] == first and seconds[slot] == second:
                return offset
            slot = slot + step & mask
        return -1
