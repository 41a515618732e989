"""What a death may do to a broker's files, done on purpose while it is down.

`PowerCut` takes from the ends of logs what was never promised to be in their own files: bytes behind `must_reach`, the
offset below which a client was answered, or shown, that records are kept; and bytes that the redo log gives back.
`lose_end` takes what *was* promised: only the audit itself may have done that, and it holds the start to what
docs/durability.md says of it. `SmallFiles` spoils what a
start can make again: indexes, producer snapshots, leader epochs, checkpoints (missing, empty, zeros, garbage, an older
version), and leaves what interrupted writes leave. `.kafka_cleanshutdown` is never made: no crash writes it, and where
it is there, only files that a start looks at all the same are to be touched. Positions and offsets are read from the
files by plain struct, not by the broker's code.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kit.audit.redo_entries import REDO_LOG, RedoEntry, redo_entries

PAGE_BYTES = 4096
CLEAN_MARK = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANED)
EPOCHS = "leader-epoch-checkpoint"
SHORT_LIVED = "brief-"
"""Topics whose names live again: an old checkpoint would speak of another life of theirs."""
_HEADER = struct.Struct(">qi")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_HEADER_BYTES = 61


class Batch(NamedTuple):
    """Where a batch lies, and its offsets."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def batches(log: Path) -> Iterator[Batch]:
    """The batches of a `.log`, up to the first bytes that are none by their length."""
    data = log.read_bytes()
    position = 0
    while position + _HEADER_BYTES <= len(data):
        base_offset, length = _HEADER.unpack_from(data, position)
        if length < _HEADER_BYTES - 12 or position + 12 + length > len(data):
            return
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, position + 23)
        yield Batch(position, 12 + length, base_offset, base_offset + delta)
        position += 12 + length


def segments(partition: Path) -> list[Path]:
    """The `.log` files in order."""
    return sorted(partition.glob("*.log"))


def base_offset(segment: Path) -> int:
    """The offset that a segment's file is named by."""
    return int(segment.name.split(".", 1)[0])


def rows(checkpoint: Path) -> dict[str, int]:
    """`topic-partition` → offset."""
    if not checkpoint.exists():
        return {}
    lines = checkpoint.read_text().splitlines()[2:]
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in map(str.split, lines)}


def partitions(directory: Path) -> list[Path]:
    """The directories of partitions, internal ones too, but not those that are being deleted."""
    return sorted(path for path in directory.iterdir() if path.is_dir() and path.name.rpartition("-")[2].isdecimal())


class LostEnd(NamedTuple):
    """Batches from `first_lost` on are gone for good, and the log, by what a start can read, had come to `reached`."""

    how: str
    first_lost: int
    reached: int


def lose_end(partition: Path, chance: random.Random) -> LostEnd | None:
    """Cut the active `.log` between two batches, empty it, or remove it with its indexes, and sometimes the redo log,
    too. None for an empty log.

    Where the redo log is left, and no clean stop has made it void, the start writes back what it has of a log that was
    cut; it also tells how far the log had come.
    """
    directory = partition.parent
    found = segments(partition)
    last = list(batches(found[-1])) if found else []
    if not last:
        return None
    batch = chance.choice((last[0], last[0], chance.choice(last), last[-1]))
    known = [rows(directory / name).get(partition.name, 0) for name in (RECOVERY_POINTS, HIGH_WATERMARKS)]
    is_removed = batch is last[0] and chance.random() < 0.5
    entries = [] if (directory / CLEAN_MARK).exists() else redo_entries(directory, partition.name)
    how = "removed" if is_removed else "cut"
    if entries and chance.random() < 0.5:
        (directory / REDO_LOG).unlink()
        entries, how = [], f"{how}, and the redo log removed"
    if is_removed:
        for suffix in (".log", ".index", ".timeindex"):
            found[-1].with_suffix(suffix).unlink(missing_ok=True)
        first_lost = batch.base_offset
    else:
        with found[-1].open("r+b") as file:
            file.truncate(batch.position)
        size = _given_back(batch.position, base_offset(found[-1]), known[0], entries)
        first_lost = next((one.base_offset for one in last if one.position >= size), last[-1].last_offset + 1)
        how += ", and given back by the redo log" if size > batch.position else ""
    return LostEnd(how, first_lost, max(first_lost, *known, *(entry.end_offset for entry in entries)))


def _given_back(size: int, segment: int, recovery_point: int, entries: list[RedoEntry]) -> int:
    """The size of a `.log` that was cut to `size`, after a start: an entry that does not join it is left out, and all
    that follow. Entries below the recovery point are not looked at.
    """
    for entry in entries:
        if entry.segment == segment and entry.end_offset > recovery_point:
            if entry.position > size:
                break
            size = max(size, entry.end)
    return size


def look_of(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file: what has changed when two looks differ."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


class PowerCut:
    """What a power cut may take from one log directory."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self._directory = directory
        self._chance = chance
        self._promised = [rows(directory / name) for name in (RECOVERY_POINTS, HIGH_WATERMARKS)]

    def cut(self, partition: Path, must_reach: int) -> int | None:
        """Cut or spoil what is after; the offset from where on records may be gone, None when nothing was done."""
        free_from = self._free_from(partition, must_reach)
        for segment in segments(partition):
            free = next((batch.position for batch in batches(segment) if batch.base_offset >= free_from), None)
            size = segment.stat().st_size
            if free is None or free == size:
                continue
            later = [path for path in segments(partition) if path > segment]
            if self._chance.random() < 0.5:
                with segment.open("r+b") as file:
                    file.truncate(self._chance.randrange(free, size))
                for path in later:
                    self._remove(path)
            else:
                self._overwrite(segment, free, size)
                for path in later:
                    if self._chance.random() < 0.5:
                        self._remove(path)
            return free_from
        return None

    def _free_from(self, partition: Path, must_reach: int) -> int:
        """The offset from which on the log's own file may lose what it has.

        The redo log goes on only behind what was synced in the log's file, whoever was answered. What it holds from
        there on without a hole the start gives back, so the file may lose it, acknowledged or not.
        """
        recovery_point, high_watermark = (rows.get(partition.name, 0) for rows in self._promised)
        joined = reached = 0
        end = None
        for entry in redo_entries(self._directory, partition.name):
            segment = partition / f"{entry.segment:020d}.log"
            if end != (entry.segment, entry.position) and segment.exists():
                behind = (batch.base_offset for batch in batches(segment) if batch.position >= entry.position)
                # An entry without bytes stands at the end of a file whose own sync has covered all of it.
                joined = next(behind, entry.end_offset)
            end, reached = (entry.segment, entry.end), entry.end_offset
        wanted = max(must_reach, high_watermark)
        return max(joined, recovery_point, wanted if reached < wanted else 0)

    def _overwrite(self, segment: Path, free: int, size: int) -> None:
        """Pages that never came to the disk: zeros, or whatever lay there before."""
        pages = range(free - free % PAGE_BYTES, size, PAGE_BYTES)
        with segment.open("r+b") as file:
            for page in self._chance.sample(pages, self._chance.randrange(1, len(pages) + 1)):
                start, end = max(page, free), min(page + PAGE_BYTES, size)
                file.seek(start)
                file.write(bytes(end - start) if self._chance.random() < 0.7 else self._chance.randbytes(end - start))

    @staticmethod
    def _remove(segment: Path) -> None:
        for suffix in (".log", ".index", ".timeindex"):
            segment.with_suffix(suffix).unlink(missing_ok=True)

    def tear(self, partition: Path) -> None:
        """Leave the beginning of a write behind the end of the last segment."""
        logs = segments(partition)
        if not logs:
            return  # a directory that was just being made
        last = logs[-1]
        found = list(batches(last))
        if found and found[-1].position + found[-1].size != last.stat().st_size:
            return  # torn already
        kind = self._chance.randrange(3)
        if kind == 0 or not found:
            tail = bytes(self._chance.randrange(1, 3 * PAGE_BYTES))
        elif kind == 1:
            tail = self._chance.randbytes(self._chance.randrange(1, 3000))
        else:
            batch = found[-1]
            data = bytearray(last.read_bytes()[batch.position : batch.position + batch.size])
            struct.pack_into(">q", data, 0, batch.last_offset + 1)
            tail = bytes(data[: self._chance.randrange(1, len(data))])
        with last.open("ab") as file:
            file.write(tail)


class SmallFiles:
    """What a start can make again, spoilt. Keeps what the files said at earlier deaths."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self._directory = directory
        self._chance = chance
        self._earlier: dict[Path, list[bytes]] = {}

    def remember(self) -> None:
        """The broker is down: keep what its checkpoints say, to be put back some day."""
        for path in (*(self._directory / name for name in CHECKPOINTS), *self._directory.glob(f"*-*/{EPOCHS}")):
            if path.exists():
                self._earlier.setdefault(path, []).append(path.read_bytes())

    def spoil_derived(self, kind: str) -> str | None:
        """Spoil an index (`index`), a time index (`timeindex`) or a producer snapshot (`snapshot`), somewhere."""
        path = self._one(f"*-*/*.{kind}")
        return (
            None
            if path is None
            else self._spoil(path, (self._remove, self._empty, self._zeros, self._garbage, self._shorten))
        )

    def spoil_checkpoint(self, name: str) -> str | None:
        """Spoil one of `CHECKPOINTS`; how."""
        path = self._directory / name
        return self._spoil(path, (self._remove, self._empty, self._zeros, self._garbage, self._older, self._older))

    def spoil_epochs(self) -> str | None:
        """Spoil a `leader-epoch-checkpoint`."""
        path = self._one(f"*-*/{EPOCHS}", internal=False)
        return (
            None
            if path is None
            else self._spoil(path, (self._remove, self._empty, self._zeros, self._garbage, self._older))
        )

    def leave(self) -> str:
        """Leave files of writes that were interrupted."""
        partition = self._chance.choice(partitions(self._directory))
        name = self._chance.choice(
            (
                partition / f"{self._chance.randrange(10**6):020d}.log.cleaned",
                partition / f"{self._chance.randrange(10**6):020d}.log.deleted",
                partition / f"{EPOCHS}.tmp",
                self._directory / f"{RECOVERY_POINTS}.tmp",
                self._directory / "meta.properties.tmp",
            )
        )
        name.write_bytes(self._chance.randbytes(self._chance.randrange(500)))
        return "left over"

    def _one(self, pattern: str, *, internal: bool = True) -> Path | None:
        found = sorted(
            path for path in self._directory.glob(pattern) if internal or not path.parent.name.startswith("__")
        )
        return self._chance.choice(found) if found else None

    def _spoil(self, path: Path, ways: tuple[Callable[[Path], str | None], ...]) -> str | None:
        return self._chance.choice(ways)(path) if path.exists() else None

    def _remove(self, path: Path) -> str:
        path.unlink()
        return "missing"

    def _empty(self, path: Path) -> str | None:
        if not path.stat().st_size:
            return None
        path.write_bytes(b"")
        return "empty"

    def _zeros(self, path: Path) -> str | None:
        size = path.stat().st_size
        if not size:
            return None
        path.write_bytes(bytes(size))
        return "zeros"

    def _garbage(self, path: Path) -> str | None:
        size = path.stat().st_size
        if not size:
            return None
        path.write_bytes(self._chance.randbytes(size))
        return "garbage"

    def _shorten(self, path: Path) -> str | None:
        size = path.stat().st_size
        if not size:
            return None
        path.write_bytes(path.read_bytes()[: self._chance.randrange(size)])
        return "short"

    def _older(self, path: Path) -> str | None:
        earlier = self._earlier.get(path)
        if not earlier:
            return None
        data = self._chance.choice(earlier)
        if path.name in CHECKPOINTS:
            version, _, *lines = data.decode().splitlines()
            lines = [line for line in lines if not line.startswith(SHORT_LIVED)]
            data = "\n".join([version, str(len(lines)), *lines, ""]).encode()
        path.write_bytes(data)
        return "older"
