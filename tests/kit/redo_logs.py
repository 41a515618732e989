"""Logs of one directory that a redo log serves: on disk with a first batch each, then synced by rounds of it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from kit.log_dirs import ONE, ORDERS_ID, World
from kit.logs import stored, sync
from kit.simulated_files import SimulatedFiles

from ottla.storage.directories.manager import LogManager
from ottla.storage.directories.redo_log import RedoLog
from ottla.storage.formats.layout import REDO_LOG_FILE, TopicPartition, partition_directory_name
from ottla.storage.formats.redo_format import (
    RedoEntry,
    RedoRecord,
    head_of,
    pack_entry,
    records_of,
    size_of,
)
from ottla.storage.log.log import Log
from ottla.storage.log.log_state import LogState

REDO_LOG = ONE / REDO_LOG_FILE
FIRST = "0" * 20 + ".log"
"""The name of a log's first segment."""


class RedoWorld(World):
    """A broker's storage with `count` partitions of the topic orders; the rest as `World`.

    Attributes:
        files: simulated ones.
        logs: the partitions, each with one record, synced with all that a new log has to sync.
    """

    files: SimulatedFiles

    def __init__(self, count: int = 2, **settings: object) -> None:
        files = SimulatedFiles()
        super().__init__(files, **settings)  # type: ignore[arg-type]  # none of them is called log_dirs
        self.open([])
        self.logs = [self.create(self.opened, partition) for partition in range(count)]
        for log in self.logs:
            self.append(log, 1)
        files.history.clear()

    def open(self, partitions: Iterable[int]) -> LogManager:
        """Start: open the directory, and these logs of it."""
        self.opened = self.manager()
        self.loaded = self.opened.open_logs([self.wanted(partition) for partition in partitions])
        self.logs = [self.loaded.logs[one] for one in sorted(self.loaded.logs)]
        return self.opened

    @property
    def redo_log(self) -> RedoLog:
        redo_log = self.opened.directories[0].redo_log
        assert redo_log is not None
        return redo_log

    @property
    def records(self) -> list[RedoRecord]:
        """What the redo log has."""
        return list(records_of(self.files.read_bytes(REDO_LOG)))

    @property
    def entries(self) -> list[RedoEntry]:
        return [entry for record in self.records for entry in record.entries]

    @property
    def used_bytes(self) -> int:
        """Where the last record of the redo log ends."""
        return sum(map(size_of, self.records))

    def append_to(self, logs: Sequence[Log], values: int = 1) -> None:
        """Records that nothing has synced."""
        for log in logs:
            self.append(log, values, sync=False)

    def round(self, logs: Sequence[Log]) -> None:
        """Sync what these logs have to sync by the redo log."""
        redo_log = self.redo_log
        parts = redo_log.write(logs)
        assert parts is not None
        assert redo_log.file is not None
        redo_log.file.fdatasync()
        LogState.end_redo(parts)

    def checkpoint(self) -> None:
        """Sync the files of all logs that the redo log is needed for, and make it void."""
        for log in self.redo_log.logs:
            sync(log)
        self.redo_log.void()
        self.redo_log.note_checkpoint()

    def power_cut(self, seed: int) -> None:
        """The machine has no current any more, and starts again."""
        self.files = self.files.crash(random.Random(seed))

    def ends(self) -> list[int]:
        return [log.log_end_offset for log in self.logs]

    def counts(self) -> list[int]:
        """How many records can be read from each log."""
        return [len(stored(log)) for log in self.logs]


def redo_log_with(*records: Sequence[RedoEntry], generation: int = 0) -> bytes:
    """The bytes of a redo log with these records."""
    data = b""
    for sequence, entries in enumerate(records):
        body = b""
        for topic_id, name, base_offset, position, end_offset, content in entries:
            head = pack_entry(topic_id, base_offset, position, end_offset, len(content), len(name))
            body += head + name.encode("ascii") + bytes(content)
        data += head_of(generation, sequence, body) + body
    return data


def entry_of(
    data: bytes,
    *,
    partition: int = 0,
    position: int,
    end_offset: int,
    base_offset: int = 0,
    topic_id: bytes = ORDERS_ID.bytes,
) -> RedoEntry:
    name = partition_directory_name("orders", partition)
    return RedoEntry(topic_id, name, base_offset, position, end_offset, memoryview(data))


def orders(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)
