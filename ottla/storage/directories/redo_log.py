"""The redo log of one log directory: `ottla-redo.log`, which a round writes and syncs instead of syncing many logs.

A round of small appends to several logs is also written to this one file, and the file is synced; the logs' own files
are synced later, all together (docs/decisions/a-redo-log-for-small-rounds.md). A start after a crash writes the content
of the file into the logs before it opens them (`ottla.storage.recovery.redo`).

Invariants:

- A log in `logs` has bytes that are certain to be on disk in this file only. Its recovery point is before them.
- A part that an append has staged is used only while its log's `is_staged` is true, and only by a round of that log.
- A *checkpoint* syncs the files of all these logs, then voids the redo log: its next record is the first one of a new
  generation, at the beginning of the file. It is due when the file is full, when too many logs are in it, and some
  seconds after the first of them was added.
- The file grows by `GROWTH_BYTES` at a time and is reused from its beginning, so a sync of it rarely has to write a new
  length. If it does, ext4 commits its journal, and that waits for the appends to all other files.
- Not in it: `__cluster_metadata`, which a start reads before anything else; a log with something else to sync (for
  example the name of a new segment), until that is done; bytes that are not in memory any more; and large rounds, for
  which writing everything twice costs more than the syncs.

`write` is called on the broker's thread, `void` in any thread while no round runs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.storage.files.files import write_all
from ottla.storage.formats.kafka_uuid import random_uuid
from ottla.storage.formats.layout import CLUSTER_METADATA_TOPIC, REDO_LOG_FILE
from ottla.storage.formats.redo_format import HEAD_BYTES, head_of, pack_entry
from ottla.storage.log.log_writer import short_write

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from ottla.storage.files.files import Buffer, File, Files
    from ottla.storage.files.health import DirectoryHealth
    from ottla.storage.log.log import Log
    from ottla.storage.log.log_state import RedoPart

logger = logging.getLogger(__name__)

MOST_ROUND_BYTES: Final = 512 << 10
MOST_ALONE_BYTES: Final = 16 << 10
"""The largest rounds that are written here: of several logs, and of one. A sync of the redo log takes a third less time
than one of a log, whose file grows; for larger rounds, writing everything twice takes longer."""
MOST_BYTES: Final = 16 << 20
"""The approximate size of the file: a checkpoint is due when the next round might not fit."""
GUESSED_BITS: Final = 67
"""Bits of a uuid that a first generation leaves out: it is an int64, and later generations count up from it."""
GROWTH_BYTES: Final = 512 << 10
MOST_GENERATION: Final = 1 << 62
"""No Ottla writes a generation from here on, or below 1: for such a file, counting begins again."""
MOST_LOGS: Final = 1_000
MOST_LOGS_ALONE: Final = 100
"""The number of logs at which a checkpoint is due, which delays the round that starts it: where one sync of the volume
serves all of them, and where each file is synced alone. Each log keeps a descriptor open, too."""
DUE_AFTER_MS: Final = 10_000
"""The time after the first log was added at which a checkpoint is due."""


def _first_generation() -> int:
    """A generation that no client can guess. The bytes after the last record are clients' data: a client could put redo
    records into its values, and with the right generation they would be read after a crash.
    """
    return random_uuid().int >> GUESSED_BITS


_Name = tuple[bytes, bytes, int]
"""The topic's id, and the name of the partition's directory with its length."""


def _name_of(log: Log) -> _Name:
    directory = log.directory.name.encode("ascii")
    return log.topic_id.bytes, directory, len(directory)


class RedoLog:
    """See the module.

    Attributes:
        file: the file to sync after `write`; None while the redo log is not in use.
        logs: logs with bytes that are certain to be on disk in this file only, since the last checkpoint; with what
            their entries begin and end with.
        is_due: whether the next round must be a checkpoint.
        most_logs: the number of logs at which a checkpoint is due.
    """

    __slots__ = (
        "_files",
        "_generation",
        "_health",
        "_path",
        "_position",
        "_sequence",
        "_size_bytes",
        "file",
        "is_due",
        "logs",
        "most_logs",
    )

    def __init__(self, files: Files, directory: Path, health: DirectoryHealth) -> None:
        self._files = files
        self._health = health
        self._path = directory / REDO_LOG_FILE
        self._generation = 0
        self._sequence = 0
        self._position = 0
        self._size_bytes = 0
        self.file: File | None = None
        self.logs: dict[Log, _Name] = {}
        self.is_due = False
        self.most_logs = MOST_LOGS_ALONE

    def make(self, generation: int) -> None:
        """Create the file if it is missing; the next sync of the directory makes its name durable. `generation`: the
        one of its content, which is valid until `begin`. Raises OSError.
        """
        self._files.open(self._path, create=True).close()
        self._generation = generation if 0 < generation < MOST_GENERATION else 0

    def begin(self) -> None:
        """Use the file from now on; its content is in the logs, and on disk there. Raises OSError."""
        file = self._files.open(self._path, writable=True)
        self._size_bytes = file.size()
        if self._size_bytes:
            if not self._generation:  # the content cannot be read, and could later look newer than it is
                file.truncate(0)
                self._size_bytes = 0
                self._generation = _first_generation()
            self._void(file)
        else:
            self._generation = _first_generation()
        self.file = file

    def end(self) -> None:
        """Remove it: all logs are on disk. The caller syncs the directory. Raises OSError."""
        self.close()
        if self._files.exists(self._path):
            self._files.unlink(self._path)

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def write(self, logs: Collection[Log]) -> list[RedoPart[Log]] | None:
        """Write the bytes that these logs have to sync. The caller then syncs `file`, and passes the returned parts to
        `LogState.end_redo`, or to `take_back` if the sync could not begin. None: the round does not fit the redo log,
        and the logs' files have to be synced.

        Appends have staged most parts, in memory. If a log lacks one, all of its bytes are read from its file.
        """
        health = self._health
        staged, health.redo_parts = health.redo_parts, []
        parts, position = None, self._position
        if self.file is not None and not self.is_due and logs:
            try:
                parts = self._write(logs, staged)
            except OSError as error:
                # Mostly a full disk. The syncs of the logs' own files report their own errors.
                logger.debug("%s is not written: %s", self._path, error)
            except MemoryError:
                for log in logs:  # some may stage already what follows a part that is not counted
                    log.unsynced.is_staged = False
                if self._position != position:
                    # The record is there, and its logs may not be among the known ones: a checkpoint voids it.
                    self.is_due = True
        if parts is None:
            self.take_back(staged)
            health.redo_room_bytes = 0  # the next rounds are probably like this one
        else:
            health.redo_room_bytes = MOST_ROUND_BYTES
        return parts

    def _write(self, logs: Collection[Log], staged: list[RedoPart[Log]]) -> list[RedoPart[Log]] | None:
        """Write a record with the parts of these logs, and note the logs. Raises OSError."""
        room_bytes = MOST_ROUND_BYTES if len(logs) > 1 else MOST_ALONE_BYTES
        parts = staged
        unstaged = [log for log in logs if not log.unsynced.is_staged]
        if unstaged:
            parts = [part for part in staged if part[0].unsynced.is_staged]
            unread_bytes = room_bytes
            for log in unstaged:
                read = log.begin_redo(unread_bytes)
                if read is None:
                    return None
                unread_bytes -= len(read[-1])
                parts.append(read)
        known, pack = self.logs, pack_entry
        names: dict[Log, _Name] = {}
        buffers: list[Buffer] = []
        others: list[RedoPart[Log]] = []
        for part in parts:
            log, segment, position, end, _, data = part
            if log not in logs:
                others.append(part)
                continue
            try:
                topic_id, name, name_bytes = known[log]
            except KeyError:
                if log.topic == CLUSTER_METADATA_TOPIC:
                    return None
                names[log] = topic_id, name, name_bytes = _name_of(log)
            length = len(data)
            room_bytes -= length
            buffers += (pack(topic_id, segment.base_offset, position, end[0], length, name_bytes), name, data)
        if room_bytes < 0:
            return None
        self._write_record(buffers)
        for log in unstaged:
            log.begin_staging()
        if others:  # without a request: they wait for one
            self.take_back(others)
            parts = [part for part in parts if part[0] in logs]
        if names:
            known.update(names)
        if self._position > MOST_BYTES - MOST_ROUND_BYTES or len(known) >= self.most_logs:
            self.is_due = True
        return parts

    def _write_record(self, buffers: Sequence[Buffer]) -> None:
        """Write the next record. Raises OSError."""
        assert self.file is not None
        body = b"".join(buffers)
        record_bytes = HEAD_BYTES + len(body)
        end = self._position + record_bytes
        head = head_of(self._generation, self._sequence, body)
        next_sequence = self._sequence + 1  # now: after the write there may be no memory for a number
        if end <= self._size_bytes:
            # `write_all` would continue after a short write. Here the logs' own files are synced instead.
            if self.file.pwritev((head, body), self._position) != record_bytes:
                raise short_write(self.file)
        else:
            size_bytes = -(-end // GROWTH_BYTES) * GROWTH_BYTES
            write_all(self.file, (head, body, bytes(size_bytes - end)), self._position)
            self._size_bytes = size_bytes
        self._sequence = next_sequence
        self._position = end

    @staticmethod
    def take_back(parts: Iterable[RedoPart[Log]]) -> None:
        """Note that these parts are not in the redo log, or not durably: their bytes are read for a later round."""
        for part in parts:
            part[0].unsynced.is_staged = False

    def void(self) -> None:
        """Void all records, durably: their content is on disk in the logs' own files.

        After an error the records after the first one cannot be found any more, so nothing is written before another
        call has succeeded. Raises NotOpened and PartialWrite, after which it may be tried again, and OSError of the
        sync, after which it must not.
        """
        assert self.file is not None
        self.is_due = True
        self._void(self.file)

    def _void(self, file: File) -> None:
        write_all(file, [head_of(self._generation + 1, 0, b"")], 0)
        file.fdatasync()
        self._generation += 1
        self._sequence = 1
        self._position = HEAD_BYTES

    def note_checkpoint(self) -> None:
        """Note that a checkpoint has ended: `void` has succeeded, and no log has been written here since it began."""
        self.logs.clear()
        self.is_due = False

    def forget(self, log: Log) -> None:
        """Drop a log that is about to be closed permanently (its topic was deleted)."""
        self.logs.pop(log, None)
