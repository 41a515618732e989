"""The room that is kept free on a volume, and who may still write when less than that is left.

A disk that is full to the last byte takes no DeleteTopics, no checkpoint and no cleaned segment: nothing that would
make room. So what grows is refused before:

    free on the volume         level    who may write
    the reserve or more        AMPLE    everybody
    less than the reserve      SHORT    not clients' records; groups (commits, members), and all that frees room
    less than half of it       SCARCE   what frees room: metadata, checkpoints, retention, the cleaner

The way back to the better level begins an eighth of the reserve higher, so that a broker at the edge does not change
its mind with every segment.

`judge` is pure; `directory_status.py` asks the volume, every second and when `budget_bytes` of records were appended
since it last did. The budget is half of what is left above the reserve, and at least `LEAST_BUDGET_BYTES` (a sixteenth
of a smaller reserve), so records go below the reserve by no more than that and what one call of `Log.append` brings;
other writers on the volume may take what they like within a second.

The inodes of a volume are kept free in the same way, by a key of their own: with the last one taken no file can be
made, neither for a topic nor for what makes room. The worse of both levels counts. File systems without a fixed number
of inodes (btrfs, XFS nearly) name none, or many.

    a volume of 100 GiB, -1 configured:   reserve 1 GiB, SHORT below 1 GiB, SCARCE below 512 MiB, AMPLE from 1.125 GiB
    a volume of 6 MiB, -1 configured:     reserve 307 KiB
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ottla.shown import shown_bytes

AUTOMATIC: Final = -1
"""A reserve that follows the volume: one part in `AUTOMATIC_PART`, `AUTOMATIC_MOST_BYTES` at most."""
AUTOMATIC_PART: Final = 20
AUTOMATIC_MOST_BYTES: Final = 1 << 30
"""A segment of the default size, which a cleaning writes before it can remove the ones that it replaces."""
AUTOMATIC_MOST_INODES: Final = 1_000
INODES_OF_A_PARTITION: Final = 6
"""Its directory, a segment with its indexes, and two small files."""
LEAST_BUDGET_BYTES: Final = 1 << 20
UNLIMITED_BYTES: Final = 1 << 62
"""The budget where there is no reserve, or nobody knows how large the volume is."""


class RoomLevel(IntEnum):
    """How much room there is; see the module."""

    AMPLE = 0
    SHORT = 1
    SCARCE = 2


class Room(NamedTuple):
    """What a look at the volume found. `free_bytes` and `free_inodes` are None where the volume does not say."""

    level: RoomLevel
    free_bytes: int | None
    reserve_bytes: int
    budget_bytes: int
    """Bytes that may be appended before the next look; 0 unless AMPLE."""
    byte_level: RoomLevel = RoomLevel.AMPLE
    inode_level: RoomLevel = RoomLevel.AMPLE
    free_inodes: int | None = None
    reserve_inodes: int = 0

    @property
    def room_for_partitions(self) -> int | None:
        """How many partitions may be made before the reserve of inodes is touched; None: any number."""
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
    """The reserve of a volume of `total` bytes, or inodes; `most` bounds one that follows the volume."""
    return min(most, total // AUTOMATIC_PART) if configured == AUTOMATIC else configured


def judge(configured_bytes: int, volume: tuple[int, int] | None, before: RoomLevel) -> Room:
    """What the (total, free) bytes of a volume mean, given the level `before`."""
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
    """What the (total, free) inodes of the volume add, given their level `before`."""
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
