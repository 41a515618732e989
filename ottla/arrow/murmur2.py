"""Kafka's hash of keys, for a whole column of keys: the partition that Java's producer chooses for each.

It is MurmurHash2 in 32 bits, as `Utils.murmur2` of Kafka's Java clients: the hash starts as seed xor length, takes in
four bytes at a time, little-endian, then the one to three that are left, and is mixed at the end. All keys are hashed
together; step j is for the keys with more than j whole words. Worked example: the key `21` (two bytes) hashes to
-973932308 in Java, here 3321034988, and goes to partition 0 of 6.

The client has another implementation (ottla.client.partitioner), a loop over one key. That one is fast for one key and
far too slow for a million; this one is the opposite. tests/arrow/test_encoder.py checks that both are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    Hashes = npt.NDArray[np.uint32]
    Positions = npt.NDArray[np.int64]

_SEED = np.uint32(0x9747B28C)
_MULTIPLIER = np.uint32(0x5BD1E995)
_THIRTEEN, _FIFTEEN, _TWENTY_FOUR = np.uint32(13), np.uint32(15), np.uint32(24)
_WORD_BYTES = 4


def hash_keys(keys: pa.Array) -> Hashes:
    """Return Java's murmur2 of every key of a `large_binary` array without nulls, as unsigned numbers."""
    _, edges_buffer, data_buffer = keys.buffers()
    edges = np.frombuffer(edges_buffer, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    return _hash(data, edges[:-1], np.diff(edges))


def _hash(data: npt.NDArray[np.uint8], starts: Positions, lengths: Positions) -> Hashes:
    """Hash the keys in `data`, `lengths` bytes each from `starts` on."""
    hashes = lengths.astype(np.uint32) ^ _SEED
    if not len(data):
        return _finish(hashes)
    # A word at every byte; the last three bytes begin no whole word and are never read.
    words = np.ndarray(shape=(max(0, len(data) - 3),), dtype="<u4", buffer=data, strides=(1,))
    word_counts = lengths // _WORD_BYTES
    for step in range(int(word_counts.max(initial=0))):
        lanes = np.flatnonzero(word_counts > step)
        word = words[starts[lanes] + step * _WORD_BYTES] * _MULTIPLIER
        word = (word ^ (word >> _TWENTY_FOUR)) * _MULTIPLIER
        hashes[lanes] = hashes[lanes] * _MULTIPLIER ^ word
    rest = lengths % _WORD_BYTES
    tails = starts + word_counts * _WORD_BYTES
    for place in (2, 1, 0):
        lanes = np.flatnonzero(rest > place)
        hashes[lanes] ^= data[tails[lanes] + place].astype(np.uint32) << np.uint32(8 * place)
    lanes = np.flatnonzero(rest)
    hashes[lanes] *= _MULTIPLIER
    return _finish(hashes)


def partitions_of(keys: pa.Array, partition_count: int) -> npt.NDArray[np.int64]:
    """Return the partition of each key: its hash without the sign bit, modulo the number of partitions."""
    return _partitions(hash_keys(keys), partition_count)


def partitions_of_bytes(keys: Sequence[bytes], partition_count: int) -> list[int]:
    """As `partitions_of`, for Python's bytes, and returns Python's numbers."""
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    data = np.frombuffer(b"".join(keys), np.uint8)
    found: list[int] = _partitions(_hash(data, np.cumsum(lengths) - lengths, lengths), partition_count).tolist()
    return found


def _partitions(hashes: Hashes, partition_count: int) -> Positions:
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partition_count


def _finish(hashes: Hashes) -> Hashes:
    hashes ^= hashes >> _THIRTEEN
    hashes *= _MULTIPLIER
    hashes ^= hashes >> _FIFTEEN
    return hashes
