"""The reserve of free space on a volume, and the writes that are still accepted when less than that is left.

A disk that is completely full accepts no DeleteTopics, no checkpoint and no cleaned segment: nothing that would free
space. So writes that need more space are refused before:

    free on the volume         level    accepted writes
    the reserve or more        AMPLE    all
    less than the reserve      SHORT    no clients' records; groups (commits, members), and all that frees space
    less than half of it       SCARCE   those that free space: metadata, checkpoints, retention, the cleaner

The return to the better level needs an eighth of the reserve more, so that a broker at the limit does not switch with
every segment.

`judge` is pure. `directory_status.py` queries the volume every second, and when `budget_bytes` of records were appended
since the last query. The budget is half of the space above the reserve, and at least `LEAST_BUDGET_BYTES` (a sixteenth
of a smaller reserve). So records use at most that much of the reserve, plus the size of one call of `Log.append`; other
programs on the volume may use any amount within a second.

Free inodes are reserved in the same way, with a separate key: without an inode no file can be created, neither for a
topic nor to free space. The worse of both levels counts. File systems without a fixed number of inodes (btrfs, nearly
XFS) report none, or many.

    a volume of 100 GiB, -1 configured:   reserve 1 GiB, SHORT below 1 GiB, SCARCE below 512 MiB, AMPLE from 1.125 GiB
    a volume of 6 MiB, -1 configured:     reserve 307 KiB
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ottla.shown import shown_bytes

AUTOMATIC: Final = -1
"""The automatic reserve: one part in `AUTOMATIC_PART` of the volume, at most `AUTOMATIC_MOST_BYTES`."""
AUTOMATIC_PART: Final = 20
AUTOMATIC_MOST_BYTES: Final = 1 << 30
"""The default size of a segment: a cleaning writes one before it can remove those that it replaces."""
AUTOMATIC_MOST_INODES: Final = 1_000
INODES_OF_A_PARTITION: Final = 6
"""The directory of a partition, a segment with its indexes, and two small files."""
LEAST_BUDGET_BYTES: Final = 1 << 20
UNLIMITED_BYTES: Final = 1 << 62
"""The budget without a reserve, or if the size of the volume is unknown."""


class RoomLevel(IntEnum):
    """The levels of free space; see the module."""

    AMPLE = 0
    SHORT = 1
    SCARCE = 2


class Room(NamedTuple):
    """The result of a query of the volume. `free_bytes` and `free_inodes` are None if it does not report them."""

    level: RoomLevel
    free_bytes: int | None
    reserve_bytes: int
    budget_bytes: int
    """Bytes that may be appended before the next query; 0 unless AMPLE."""
    byte_level: RoomLevel = RoomLevel.AMPLE
    inode_level: RoomLevel = RoomLevel.AMPLE
    free_inodes: int | None = None
    reserve_inodes: int = 0

    @property
    def room_for_partitions(self) -> int | None:
        """The number of partitions that may be created before the reserve of inodes is used; None: any number."""
        if self.free_inodes is None or not self.reserve_inodes:
            return None
        return max(0, self.free_inodes - self.reserve_inodes) // INODES_OF_A_PARTITION

    def __str__(self) -> str:
        if self.inode_level > self.byte_level:
            kept = f"ottla.log.dir.reserve.inodes keeps {self.reserve_inodes:,}"
            return f"{self.free_inodes:,} inodes free, {kept}"
        if self.free_bytes is None:
            return "how much is free is not known"
        free, kept = shown_bytes(self.free_bytes), shown_bytes(self.reserve_bytes)
        return f"{free} free, ottla.log.dir.reserve.bytes keeps {kept}"


UNKNOWN_ROOM: Final = Room(RoomLevel.AMPLE, None, 0, UNLIMITED_BYTES)


def reserve_of(configured: int, total: int, most: int = AUTOMATIC_MOST_BYTES) -> int:
    """The reserve of a volume of `total` bytes, or inodes; `most` limits an automatic one."""
    return min(most, total // AUTOMATIC_PART) if configured == AUTOMATIC else configured


def judge(configured_bytes: int, volume: tuple[int, int] | None, before: RoomLevel) -> Room:
    """The room of a volume with these (total, free) bytes, given the level `before`."""
    if volume is None or volume[0] <= 0:
        return UNKNOWN_ROOM
    total_bytes, free_bytes = volume
    reserve_bytes = reserve_of(configured_bytes, total_bytes)
    if reserve_bytes <= 0:
        return Room(RoomLevel.AMPLE, free_bytes, 0, UNLIMITED_BYTES)
    level = _level(reserve_bytes, free_bytes, before)
    if level is not RoomLevel.AMPLE:
        return Room(level, free_bytes, reserve_bytes, 0, byte_level=level)
    least_bytes = max(1, min(LEAST_BUDGET_BYTES, reserve_bytes // 16))
    return Room(level, free_bytes, reserve_bytes, max(least_bytes, (free_bytes - reserve_bytes) // 2))


def with_inodes(room: Room, configured: int, inodes: tuple[int, int] | None, before: RoomLevel) -> Room:
    """The room with the (total, free) inodes of the volume added, given their level `before`."""
    if inodes is None or inodes[0] <= 0:
        return room
    total, free = inodes
    reserve = reserve_of(configured, total, AUTOMATIC_MOST_INODES)
    level = _level(reserve, free, before) if reserve > 0 else RoomLevel.AMPLE
    return room._replace(
        level=max(room.byte_level, level),
        budget_bytes=0 if level is not RoomLevel.AMPLE else room.budget_bytes,
        inode_level=level,
        free_inodes=free,
        reserve_inodes=reserve,
    )


def _level(reserve: int, free: int, before: RoomLevel) -> RoomLevel:
    margin = reserve // 8
    if free < reserve // 2 + (margin if before is RoomLevel.SCARCE else 0):
        return RoomLevel.SCARCE
    if free < reserve + (0 if before is RoomLevel.AMPLE else margin):
        return RoomLevel.SHORT
    return RoomLevel.AMPLE
