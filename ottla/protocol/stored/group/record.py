"""The base classes of the records of `__consumer_offsets`: keys begin with their type, values with their version."""

from __future__ import annotations

from typing import ClassVar

from ottla.protocol.message import Message


class GroupKey(Message):
    """The key of a record of `__consumer_offsets`. Its ``message_key`` is Kafka's record type; all have version 0."""


class GroupValue(Message):
    """The value of a record of `__consumer_offsets`, which begins with its version."""

    written_version: ClassVar[int] = 0
    """The version that Kafka 4.1 writes."""

    def __init_subclass__(
        cls, *, key: int = -1, versions: str = "none", flexible: str = "none", written: int = 0
    ) -> None:
        super().__init_subclass__(key=key, versions=versions, flexible=flexible)
        cls.written_version = written
