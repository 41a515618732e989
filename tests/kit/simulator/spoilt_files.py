"""What happens to files while no broker runs: a log loses its end, a bit of a checkpoint flips.

Only after a stop in good order, or a death of the process: what a power cut leaves is torn as it is, and two faults at
once are promised to nobody. But a power cut may take the recovery points, too: they cost time only. What was lost is
reported to the model, as a person who did it would know.
"""

from __future__ import annotations

import random
from pathlib import Path

from kit.nodes import DATA
from kit.simulated_files import SimulatedFiles
from kit.simulator.model import Model

from ottla.protocol.records.batch import iter_batches
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BrokenFile, read_offsets

LOST_ENDS = 0.3
"""How often a log has lost its end after a stop in good order."""
LOST_RECOVERY_POINTS = 0.15
"""How often a power cut takes `recovery-point-offset-checkpoint`."""
FLIPS_TO_A_NUMBER = 0.5
"""How many flipped bits of log starts make another number of one, so that only its copy contradicts."""
HEADER_LINES = 2
"""Of a checkpoint: its version, and how many rows follow."""
CHECKPOINTS = (
    layout.RECOVERY_POINT_CHECKPOINT_FILE,
    layout.REPLICATION_OFFSET_CHECKPOINT_FILE,
    layout.LOG_START_OFFSET_CHECKPOINT_FILE,
    layout.LOG_START_OFFSET_CHECKPOINT_FILE,
)


def lose_an_end(files: SimulatedFiles, model: Model, chance: random.Random) -> tuple[str, int] | None:
    """Cut, empty or remove the active `.log` of a topic that keeps everything; topic and partition, None where there
    is none.
    """
    places = [
        (topic, index)
        for topic in model.topics.values()
        for index in range(len(topic.partitions))
        if not topic.is_compacted and not topic.expires and topic.name not in model.deleting
    ]
    if not places:
        return None
    topic, index = chance.choice(places)
    directory = DATA / layout.partition_directory_name(topic.name, index)
    if not files.is_directory(directory):
        return None
    path = max(directory / name for name in files.list_directory(directory) if name.endswith(layout.LOG_SUFFIX))
    batches = list(iter_batches(files.read_bytes(path), allow_partial_tail=True))
    if not batches:
        return None
    slot = chance.choice((0, chance.randrange(len(batches)), len(batches) - 1))
    position, first_lost = batches[slot][0], batches[slot][1].base_offset
    if not slot and chance.random() < 0.5:
        for suffix in (layout.LOG_SUFFIX, layout.INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX):
            files.unlink(path.with_suffix(suffix))
        files.sync_directory(directory)
    else:
        file = files.open(path, writable=True)
        file.truncate(position)
        file.fdatasync()
        file.close()
    topic.partitions[index].lose_from(first_lost, batches[-1][1].next_offset)
    return topic.name, index


def flip_a_bit(files: SimulatedFiles, model: Model, chance: random.Random) -> bool:
    """Flip one bit of a checkpoint; whether there was one. Nobody wrote the file: its time stays.

    Not in the row of the metadata log: one that seems to have become shorter refuses the start, and a repair makes
    topics of the partitions' own files, which know no settings (tests/broker/test_lost_end.py, test_repair.py). Nor in
    log starts whose copy a crash has left different: without a witness nobody notices it.
    """
    path: Path = DATA / chance.choice(CHECKPOINTS)
    data = bytearray(files.read_bytes(path)) if files.exists(path) else bytearray()
    if not data or (path.name == layout.LOG_START_OFFSET_CHECKPOINT_FILE and not _has_witness(files, bytes(data))):
        return False
    row = data.find(layout.CLUSTER_METADATA_TOPIC.encode())
    row_end = data.find(b"\n", row) if row >= 0 else row
    flips = _flips_to_a_number(bytes(data)) if path.name == layout.LOG_START_OFFSET_CHECKPOINT_FILE else []
    if flips and chance.random() < FLIPS_TO_A_NUMBER:
        at, bit = chance.choice(flips)
    else:
        at = chance.choice([at for at in range(len(data)) if not row <= at < row_end])
        bit = 1 << chance.randrange(8)
    data[at] ^= bit
    modified_ms = files.modified_ms(path)
    file = files.open(path, writable=True)
    file.pwritev([data], 0)
    file.fdatasync()
    file.close()
    files.set_modified_ms(path, modified_ms)
    model.has_flipped_bit = True
    for topic in model.topics.values():
        for partition in topic.partitions:
            partition.may_have_gap = True
    return True


def was_cleaned(files: SimulatedFiles) -> bool:
    """Whether the cleaner has been in any log, or may have been."""
    try:
        return bool(read_offsets(files, DATA / layout.CLEANER_OFFSET_CHECKPOINT_FILE))
    except BrokenFile:
        return True


def lose_recovery_points(files: SimulatedFiles, chance: random.Random) -> bool:
    """Empty, blank or remove `recovery-point-offset-checkpoint`; whether there was one.

    In `page-cache` only if nothing `was_cleaned`: there a power cut may take whole segments before the last one, and
    without the recovery point what is missing from a log that was cleaned once looks as if the cleaner had removed it.
    """
    path = DATA / layout.RECOVERY_POINT_CHECKPOINT_FILE
    size_bytes = files.size(path) if files.exists(path) else 0
    if not size_bytes:
        return False
    match chance.randrange(3):
        case 0:
            files.unlink(path)
            files.sync_directory(DATA)
        case 1:
            files.write_atomically(path, b"")
        case _:
            files.write_atomically(path, bytes(size_bytes))
    return True


def flip_a_bit_of_the_redo_log(files: SimulatedFiles, chance: random.Random) -> bool:
    """Flip one bit of `ottla-redo.log`; whether there was one. The logs have all that it holds."""
    path = DATA / layout.REDO_LOG_FILE
    size = files.size(path) if files.exists(path) else 0
    if not size:
        return False
    at = chance.choice((chance.randrange(size), chance.randrange(min(size, 200))))
    file = files.open(path, writable=True)
    file.pwritev([bytes([file.pread(1, at)[0] ^ 1 << chance.randrange(8)])], at)
    file.fdatasync()
    file.close()
    return True


def _flips_to_a_number(rows: bytes) -> list[tuple[int, int]]:
    """(position, bit) of each flip that makes another digit of one in the offset of a row."""
    flips = []
    end = 0
    for number, line in enumerate(rows.splitlines(keepends=True)):
        begin, end = end, end + len(line)
        if number < HEADER_LINES:
            continue
        first = rows.rindex(b" ", begin, end) + 1
        flips += [
            (at, 1 << bit)
            for at in range(first, begin + len(line.rstrip()))
            for bit in range(4)
            if rows[at] ^ 1 << bit in b"0123456789"
        ]
    return flips


def _has_witness(files: SimulatedFiles, log_starts: bytes) -> bool:
    """Whether a flipped bit in `log-start-offset-checkpoint` will be noticed; where there is no copy yet there are no
    log starts to be lost.
    """
    copy = DATA / layout.LOG_START_COPY_FILE
    return not files.exists(copy) or files.read_bytes(copy).startswith(log_starts)
