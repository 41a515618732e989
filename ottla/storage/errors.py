"""The one error that says a broker cannot start on its log directories, or serve a partition, as they are."""

from __future__ import annotations


class StorageError(Exception):
    """The log directories cannot be used as they are; the message is one line for people."""
