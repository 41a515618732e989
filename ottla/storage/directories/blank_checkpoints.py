"""What it means that a checkpoint of a log directory is there and holds nothing, and what a start does about it.

Kafka makes its checkpoints empty at its start, writes them a minute later, and reads an empty one as one without rows.
We write them whole (`Files.write_atomically`), so an empty one of ours, or zeros in anybody's, are a disk that has lost
what it said was there. `ottla.format` shows whose they are; `log-start-offset-checkpoint` is written, if only without
rows, before that file is, so that a Kafka that works in our directory finds nothing to make.

    file                              lost                                     a start
    recovery-point-offset-checkpoint  up to where logs are surely on disk      looks at every log from its first batch
    replication-offset-checkpoint     what consumers had seen                  continues; takes a shorter log for one
                                                                               with a torn tail
    cleaner-offset-checkpoint         where offsets may be missing             takes missing offsets for cleaned ones
    log-start-offset-checkpoint       which records were deleted               refuses: they would be there again
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from ottla.storage.formats.layout import (
    CLEANER_OFFSET_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
)

CONSEQUENCES: Final = {
    RECOVERY_POINT_CHECKPOINT_FILE: "every log is checked from its first batch",
    REPLICATION_OFFSET_CHECKPOINT_FILE: "what follows a torn batch may have been acknowledged or not",
    CLEANER_OFFSET_CHECKPOINT_FILE: "missing offsets are taken for cleaned ones in all logs",
    LOG_START_OFFSET_CHECKPOINT_FILE: "records that were deleted would be there again",
}
"""What follows from the loss of each."""


STARTS_LOST: Final = (
    "what DeleteRecords had deleted and no segment was removed for is there again; put the file back to have it deleted"
)
"""What follows where `log-start-offset-checkpoint` was there once and is not any more: a start goes on all the same,
since its content is unknown."""


class Blank(Enum):
    """What a checkpoint without content means."""

    NEVER_WRITTEN = auto()
    """Kafka has made it and written nothing: there are no rows."""
    LOST = auto()
    """It had rows; a start can do without them."""
    REFUSED = auto()
    """It had rows that nothing can stand for."""


def meaning_of(name: str, *, has_zeros: bool, is_ours: bool) -> Blank:
    """What a blank checkpoint `name` means. `is_ours`: the directory has an `ottla.format`."""
    if not has_zeros and not is_ours:
        return Blank.NEVER_WRITTEN
    return Blank.REFUSED if name == LOG_START_OFFSET_CHECKPOINT_FILE else Blank.LOST
