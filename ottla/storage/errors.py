"""The error for log directories on which a broker cannot start, or partitions that it cannot serve."""

from __future__ import annotations


class StorageError(Exception):
    """The log directories cannot be used in their current state; the message is one line."""
