"""What a program's own code makes of a record before it goes into a batch: interceptors first, then serializers.

Needs no loop: the blocking producer prepares records in the thread that sends.
"""

from __future__ import annotations

from ottla.client.interceptors import before_sending, tell_acknowledgement
from ottla.client.producer_options import ProducerOptions
from ottla.client.structs import ProducerRecord, RecordMetadata


class RecordPreparation:
    """See the module. `is_plain`: there is no such code, and records may go as they are."""

    def __init__(self, options: ProducerOptions) -> None:
        self._interceptors = options.interceptors
        self._key_serializer = options.key_serializer
        self._value_serializer = options.value_serializer
        self.is_plain = not (self._interceptors or self._key_serializer or self._value_serializer)

    def prepare(self, record: ProducerRecord) -> ProducerRecord:
        """Let interceptors and serializers have the record; key and value are bytes or None afterwards.

        Raises what a serializer raises, TypeError for what is not bytes; the interceptors have heard of it then.
        """
        record = before_sending(self._interceptors, record)
        try:
            value, key = record.value, record.key
            if self._value_serializer is not None and value is not None:
                value = self._value_serializer(value)
            if self._key_serializer is not None and key is not None:
                key = self._key_serializer(key)
            return record._replace(value=to_bytes(value, "value"), key=to_bytes(key, "key"))
        except Exception as failed:  # whatever a program's own code raises
            self.tell_refused(record, failed)
            raise

    def tell_refused(self, record: ProducerRecord, failed: Exception) -> None:
        """Let interceptors hear that a record they have seen is not sent."""
        partition = -1 if record.partition is None else record.partition
        timestamp_ms = -1 if record.timestamp_ms is None else record.timestamp_ms
        tell_acknowledgement(self._interceptors, RecordMetadata(record.topic, partition, -1, timestamp_ms), failed)


def to_bytes(data: object, name: str) -> bytes | None:
    """Return a key or a value, as `name` says, as bytes. Raises TypeError for what is none."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"the {name} must be bytes or None, not {type(data).__name__}")
