"""Leader epochs at a start: those of the checkpoint, and those in batches that it may lack.

Records after the recovery point may have an epoch that the checkpoint does not have yet. If the checkpoint is lost, all
epochs are taken from the batches.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from ottla.protocol.records.batch import CorruptBatch
from ottla.storage.files.disk_errors import is_full
from ottla.storage.files.files import Files
from ottla.storage.formats.checkpoint import BlankFile, BrokenFile
from ottla.storage.formats.leader_epoch_checkpoint import EpochEntry, read_leader_epochs
from ottla.storage.log.epoch_runs import EpochRuns
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)


def load_epochs(
    files: Files,
    directory: Path,
    segments: Sequence[Segment],
    scanned: Sequence[EpochEntry],
    log_start_offset: int,
    end_offset: int,
    *,
    is_founded: bool,
) -> LeaderEpochs:
    """The checkpoint's epochs and those found in scanned batches, up to the log end.

    `is_founded`: the partition was once synced. Otherwise its first checkpoint may be in the page cache only, from
    which it was read: it is written again.
    """
    try:
        entries = read_leader_epochs(files, directory)
    except BrokenFile as error:
        if not isinstance(error, BlankFile) or any(segment.size_bytes for segment in segments):
            logger.warning("%s; the epochs are taken from the batches", error)
        entries = []
        scanned = _epochs_of_batches(segments)
    epochs = LeaderEpochs(files, directory, entries if is_founded else [])
    for entry in () if is_founded else entries:
        epochs.note(entry.epoch, entry.start_offset)
    epochs.forget_from(end_offset + 1)
    for entry in scanned:
        epochs.note(entry.epoch, entry.start_offset)
    # As when the log start moves: an epoch that could not be written yet counts from there, and not from the segment's
    # first batch. So the recovery point need not be lowered, for which the disk may be too full, either.
    epochs.truncate_from_start(log_start_offset)
    if not is_founded and not end_offset:
        return epochs  # written with its first records
    try:
        epochs.write()
    except OSError as error:
        if not is_full(error):  # with a full disk a broker must start, so that clients can delete records
            raise
        logger.warning("%s: the leader epochs are written later: %s", directory, error)
    return epochs


def _epochs_of_batches(segments: Sequence[Segment]) -> list[EpochEntry]:
    runs = EpochRuns()
    for segment in segments:
        try:
            for _, header in walk(segment.file.pread, 0, segment.size_bytes, SEQUENTIAL_CHUNK_BYTES):
                runs.note(header)
        except CorruptBatch as error:
            logger.warning("%s: %s: its leader epochs are taken from the batches before that", segment.path, error)
    return runs.entries()
