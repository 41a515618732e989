"""What can be wrong with a record batch that came from outside.

Both are `ValueError`: the bytes are at fault, not the program. The broker turns them into CORRUPT_MESSAGE or
INVALID_RECORD, the client refuses the batch.
"""

from __future__ import annotations


class CorruptBatch(ValueError):
    """The bytes are not a sound record batch: a length, count, varint, checksum or compressed block is impossible."""


class DecompressedTooLarge(CorruptBatch):
    """The compressed records would expand beyond the limit that the caller set."""
