"""A record of an internal topic with a type that Ottla does not know: a newer Kafka wrote it, and it stays in the
log."""

from __future__ import annotations

from ottla.protocol.message import Struct
from ottla.protocol.types import Bytes, Int16, NullableBytes


class UnknownRecord(Struct):
    """A record of unknown type, for example of share groups in `__consumer_offsets`; its bytes are kept."""

    record_type: Int16
    key: Bytes
    value: NullableBytes
