"""Many varints at the same time: numpy reads the zigzag numbers of record batches at arbitrary byte positions.

`ottla.protocol.records` reads one varint after the other; a loop over that would cost more than the rest of a scan.

A buffer of bytes is treated as an array of overlapping 64-bit words, one starting at every byte (`words_over`), so
a gather by position loads the eight bytes that follow each position in one step. In such a word the first byte
without its top bit ends the varint: isolate that bit, mask the bits above it, join the groups of seven bits,
undo zigzag. Worked example: bytes `96 01 ...` are the word 0x...0196; its lowest clear top bit is bit 15,
so the varint has 2 bytes, the payload is 0x16 | 0x01 << 7 = 150, and zigzag makes it 75.

Invariant: the buffer ends with PADDING_BYTES that are not data, so that a read at any position of the data stays
inside; the caller must then compare the returned positions with the end of its data.
Source: KIP-98's record format; the encoding is Protocol Buffers' sint32 and sint64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ottla.protocol.records.errors import CorruptBatch

if TYPE_CHECKING:
    import numpy.typing as npt

    from ottla.protocol.types import Buffer

    Words = npt.NDArray[np.uint64]
    Positions = npt.NDArray[np.int64]

PADDING_BYTES = 32
"""How far a read may go beyond the last position: ten bytes of varint, and the word at the last of them."""

INT32_VARINT_BYTES = 5
INT64_VARINT_BYTES = 10


def words_over(buffer: Buffer) -> Words:
    """Return the little-endian 64-bit words that start at every byte of `buffer` but the last seven, without a copy."""
    size = memoryview(buffer).nbytes
    return np.ndarray(shape=(max(0, size - 7),), dtype="<u8", buffer=buffer, strides=(1,))


def read_varints(
    words: Words, positions: Positions, max_bytes: int = INT32_VARINT_BYTES
) -> tuple[Positions, Positions]:
    """Read one zigzag varint at each of `positions`; return the values and the positions after them.

    `max_bytes` is 5 for Kafka's VARINT and 10 for VARLONG. Raises CorruptBatch when one is longer.
    """
    if not len(positions):
        return positions, positions
    word = words[positions]
    stops = ~word & _TOP_BITS
    last = stops & (~stops + _ONE)
    sizes = ((last >> _SEVEN) * _SIZE_BY_BYTE) >> _FIFTY_SIX
    widest = int(sizes.max())
    if widest > max_bytes or not sizes.all():
        return _read_long_varints(words, positions, max_bytes)
    payload = _squeeze(word & (last - _ONE), widest)
    return _unzigzag(payload), positions + sizes.view(np.int64)


_TOP_BITS = np.uint64(0x8080808080808080)
_ONE, _SEVEN, _EIGHT, _FIFTY_SIX = (np.uint64(number) for number in (1, 7, 8, 56))
_SIZE_BY_BYTE = np.uint64(0x0102030405060708)
"""Multiplied by 1 << 8k, the top byte becomes k + 1: the size of a varint whose last byte is the k-th."""


def _squeeze(payload: Words, widest: int) -> Words:
    """Join the groups of seven bits in the bytes of each word; `widest` is the most bytes that any word uses."""
    if widest == 1:
        return payload
    if widest == 2:
        return (payload & np.uint64(0x7F)) | ((payload >> _ONE) & np.uint64(0x3F80))
    pairs = (payload & np.uint64(0x007F007F007F007F)) | ((payload & np.uint64(0x7F007F007F007F00)) >> _ONE)
    fours = (pairs & np.uint64(0x00003FFF00003FFF)) | ((pairs & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
    return (fours & np.uint64(0x0FFFFFFF)) | ((fours & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))


def _unzigzag(payload: Words) -> Positions:
    return ((payload >> _ONE) ^ (np.uint64(0) - (payload & _ONE))).view(np.int64)


def _read_long_varints(words: Words, positions: Positions, max_bytes: int) -> tuple[Positions, Positions]:
    """Read varints of which some take nine or ten bytes: only timestamps far from that of their batch do."""
    if max_bytes < INT64_VARINT_BYTES:
        raise CorruptBatch(f"a varint is longer than {max_bytes} bytes")
    payload = np.zeros(len(positions), np.uint64)
    sizes = np.zeros(len(positions), np.int64)
    open_ended = np.ones(len(positions), np.bool_)
    for place in range(INT64_VARINT_BYTES):
        byte = words[positions + place] & np.uint64(0xFF)
        if place == INT64_VARINT_BYTES - 1 and (open_ended & (byte > _ONE)).any():
            raise CorruptBatch(f"a varint is longer than {max_bytes} bytes or above 64 bits")
        payload |= np.where(open_ended, (byte & np.uint64(0x7F)) << np.uint64(7 * place), np.uint64(0))
        sizes += open_ended
        open_ended &= byte >= np.uint64(0x80)
    return _unzigzag(payload), positions + sizes
