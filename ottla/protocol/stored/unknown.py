"""A record of an internal topic whose type is not known here: a newer Kafka has written it, and it stays in the log."""

from __future__ import annotations

from ottla.protocol.message import Struct
from ottla.protocol.types import Bytes, Int16, NullableBytes


class UnknownRecord(Struct):
    """Such as those of share groups in `__consumer_offsets`; kept as its bytes."""

    record_type: Int16
    key: Bytes
    value: NullableBytes
