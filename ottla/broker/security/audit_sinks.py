"""The destinations of the audit log: a file that other programs rotate, or a topic.

The file is opened for each write: after it is renamed (logrotate) the next write creates a new one, without a signal.
Only its owner and group can read it. A missing topic is created with the broker's defaults, and written as any producer
writes; ACLs decide which clients may read or delete it.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.storage.log.append import AppendEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.metadata.change_requests import TopicResult
    from ottla.broker.security.audit import Event
    from ottla.storage.log.append import AppendResult

LOG = logging.getLogger("ottla.audit")

FILE_MODE = 0o640
PRODUCE_VERSION = 12
MOST_WAITING_BATCHES = 10
"""The most batches that are kept while the topic is created."""


class FileSink:
    """Appends lines to a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self) -> None:
        """Create the file if it is missing. Raises OSError."""
        os.close(self._open())

    def prepare(self, events: Sequence[Event]) -> object:
        """Append them. Raises OSError."""
        text = b"".join(line_of(event) + b"\n" for event in events)
        fd = self._open()
        try:
            while text:
                text = text[os.write(fd, text) :]
        finally:
            os.close(fd)
        return None

    def deliver(self, prepared: object) -> None:
        """Do nothing: `prepare` has written the events."""

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)


class TopicSink:
    """Appends records to the first partition of a topic."""

    def __init__(self, topic: str, catalog: Catalog) -> None:
        self._topic = topic
        self._catalog = catalog
        self._is_asked_for = False
        self._waiting: list[memoryview] = []

    def open(self) -> None:
        """Do nothing: the topic is created with the first event."""

    def prepare(self, events: Sequence[Event]) -> object:
        """Encode the events as a batch."""
        return encode_batch(
            [Record(index, event["time"], None, line_of(event), ()) for index, event in enumerate(events)]
        )

    def deliver(self, prepared: object) -> None:
        """Append the batch, now or when the topic exists. Raises OSError."""
        batch = memoryview(cast("bytearray", prepared))
        partition = self._catalog.partition(self._topic, 0)
        if partition is not None and not partition.is_closed:
            partition.gather(AppendEntry(batch, PRODUCE_VERSION), self, 0)
        elif self._topic in self._catalog.topics:
            raise OSError(f"topic {self._topic} is offline")
        elif len(self._waiting) >= MOST_WAITING_BATCHES:
            raise OSError(f"topic {self._topic} is not there")
        else:
            self._waiting.append(batch)
            if not self._is_asked_for:
                self._is_asked_for = True
                self._catalog.auto_create([self._topic], self._created)

    def appended(self, index: int, result: AppendResult) -> None:
        """Log the error of a batch that was refused."""
        if result.error_code is not ErrorCode.NONE:
            LOG.error("topic %s refuses the audit log: %s", self._topic, result.error_message or result.error_code.name)

    def _created(self, results: Sequence[TopicResult]) -> None:
        self._is_asked_for = False
        waiting, self._waiting = self._waiting, []
        for result in results:
            if result.failed:
                LOG.error("topic %s cannot be made for the audit log: %s", self._topic, result.error_message)
                return
        for batch in waiting:
            self.deliver(batch.obj)


def sink_of(target: str, catalog: Catalog) -> FileSink | TopicSink:
    """The sink that `ottla.audit.log` asks for."""
    kind, colon, name = target.partition(":")
    return TopicSink(name, catalog) if colon and kind == "topic" else FileSink(target)


def line_of(event: Event) -> bytes:
    """The JSON of an event, with its time as text."""
    moment = datetime.fromtimestamp(event["time"] / 1000, UTC).isoformat(timespec="milliseconds")
    return json.dumps({**event, "time": moment.replace("+00:00", "Z")}, separators=(", ", ": ")).encode()
