"""The meaning of a checkpoint of a log directory that exists and is blank, and what a start does about it.

Kafka creates its checkpoints empty at its start, writes them a minute later, and reads an empty one as one without
rows. Ottla writes them whole (`Files.write_atomically`). So an empty checkpoint of Ottla's, or one of zeros, Kafka's
too, means that the disk has lost what it had confirmed. `ottla.format` shows that the directory is Ottla's. Before that
file, `log-start-offset-checkpoint` is written, possibly without rows, so that a Kafka that uses Ottla's directory
creates none.

    file                              lost                                     a start
    recovery-point-offset-checkpoint  up to where logs are surely on disk      checks every log from its first batch
    replication-offset-checkpoint     what consumers had seen                  continues; takes a shorter log for one
                                                                               with a torn tail
    cleaner-offset-checkpoint         where offsets may be missing             takes missing offsets for cleaned ones
    log-start-offset-checkpoint       which records were deleted               refuses: they would be visible again
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
    REPLICATION_OFFSET_CHECKPOINT_FILE: "records after a torn batch may have been acknowledged or not",
    CLEANER_OFFSET_CHECKPOINT_FILE: "missing offsets are taken for cleaned ones in all logs",
    LOG_START_OFFSET_CHECKPOINT_FILE: "deleted records would be visible again",
}
"""The consequence of the loss of each."""


STARTS_LOST: Final = (
    "records that DeleteRecords had deleted are visible again, unless their segment was removed; put the file back to"
    " have them deleted"
)
"""The consequence where `log-start-offset-checkpoint` existed once and is missing now. A start continues nevertheless,
since its content is unknown."""


class Blank(Enum):
    """The meaning of a checkpoint without content."""

    NEVER_WRITTEN = auto()
    """Kafka has created it and written nothing: there are no rows."""
    LOST = auto()
    """It had rows; a start can do without them."""
    REFUSED = auto()
    """It had rows that nothing can replace."""


def meaning_of(name: str, *, has_zeros: bool, is_ours: bool) -> Blank:
    """The meaning of a blank checkpoint `name`. `is_ours`: the directory has an `ottla.format`."""
    if not has_zeros and not is_ours:
        return Blank.NEVER_WRITTEN
    return Blank.REFUSED if name == LOG_START_OFFSET_CHECKPOINT_FILE else Blank.LOST
