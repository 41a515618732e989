"""The three look-ups that the articles Ottla grew from work through, as directories that a test can make.

Their index entries are made by hand and lie where the articles say, not where the broker's interval would put them. In
each, one record is one batch, so that an entry means the same under the articles' reading (this record starts there)
and Kafka's (the batch that ends with this offset starts there).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.records.batch import Record, encode_batch
from ottla.storage.formats import layout

TIMESTAMP_MS = 1_700_000_000_000


class SeedExample(NamedTuple):
    """Segments by base offset, the segment looked into, and what the look-up must see."""

    name: str
    base_offsets: tuple[int, ...]
    segment: int
    first_offset: int
    last_offset: int
    positions: tuple[tuple[int, int], ...]
    """(offset, position): where these records must start in the segment."""
    entries: tuple[tuple[int, int], ...]
    """(relative offset, position), the index by hand."""
    offset: int
    floor: tuple[int, int]
    """The entry that must be found: (relative offset, position)."""


SEED_EXAMPLES = (
    # Files named by the first offset. 15 is in segment 10; the floor in its index is 14 -> 340.
    SeedExample("s0", (0, 10, 20), 10, 10, 19, ((14, 340),), ((2, 170), (4, 340), (8, 700)), 15, (4, 340)),
    # 170418 is the 8th of segment 170410, and its index holds exactly that: [8, 1325].
    SeedExample(
        "s2",
        (0, 170410, 239430),
        170410,
        170411,
        170420,
        ((170418, 1325),),
        ((1, 0), (3, 400), (6, 900), (8, 1325)),
        170418,
        (8, 1325),
    ),
    # 368776 is the 7th of segment 368769; the floor of 7 among 1 -> 0 and 3 -> 497 is 3 -> 497.
    SeedExample(
        "s1", (0, 368769, 737337), 368769, 368770, 368780, ((368772, 497),), ((1, 0), (3, 497)), 368776, (3, 497)
    ),
)


def make_seed_example(log_directory: Path, example: SeedExample, topic: str = "seed") -> Path:
    """Write the example's partition directory; returns it."""
    directory = log_directory / layout.partition_directory_name(topic, 0)
    directory.mkdir(parents=True)
    places = dict(example.positions) | {
        example.segment + relative: position for relative, position in example.entries if position
    }
    for base_offset in example.base_offsets:
        if base_offset == example.segment:
            offsets = range(example.first_offset, example.last_offset + 1)
            log = _batches_at(offsets, places)
            index = b"".join(struct.pack(">ii", *entry) for entry in example.entries)
        else:
            log, index = _batch(base_offset, 0), b""
        layout.log_file(directory, base_offset).write_bytes(log)
        layout.offset_index_file(directory, base_offset).write_bytes(index)
        layout.time_index_file(directory, base_offset).write_bytes(b"")
    return directory


def _batches_at(offsets: Sequence[int], places: dict[int, int]) -> bytes:
    """One batch per offset; those in `places` start at that byte, the ones between share the room evenly."""
    log = b""
    for offset in offsets:
        following = min((place for place in places if place > offset), default=None)
        if following is None:
            size = 100
        else:
            size = (places[following] - len(log)) // (following - offset)
        log += _batch(offset, size)
    return log


def _batch(offset: int, size: int) -> bytes:
    """One record, padded to a batch of `size` bytes (0: as it comes)."""
    value = b"v%d" % offset
    while True:
        record = Record(offset, TIMESTAMP_MS + offset, b"k", value, ())
        made = bytes(encode_batch([record], base_offset=offset))
        if not size or len(made) == size:
            return made
        assert len(made) < size, f"no batch of one record has {size} bytes"
        value += b"."
