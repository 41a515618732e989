"""The base class of all records of the cluster metadata log: a type, and versions."""

from __future__ import annotations

from ottla.protocol.message import Message


class MetadataRecord(Message):
    """A record of ``__cluster_metadata``. Its ``message_key`` is Kafka's record type."""
