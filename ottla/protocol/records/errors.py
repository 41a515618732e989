"""The errors of a record batch from outside.

Both are `ValueError`: the bytes are wrong, not the program. The broker turns them into CORRUPT_MESSAGE or
INVALID_RECORD, the client refuses the batch.
"""

from __future__ import annotations


class CorruptBatch(ValueError):
    """The bytes are not a valid record batch: a length, count, varint, checksum or compressed block is impossible."""


class DecompressedTooLarge(CorruptBatch):
    """The compressed records would expand beyond the limit that the caller set."""
