"""Single bits of a log directory, chosen and flipped, by what they belong to; and larger damage to closed segments.

kind        where
past        a batch past the recovery point, but for its leader epoch, which no checksum covers
body        a batch below it: what its checksum covers (from its attributes on)
checksum    a batch below it: the checksum itself
header      a batch below it: base offset, length, magic
epoch       the leader epoch of a batch, below or past it
page        a page of zeros (of the file: aligned) within batches below it
short       a closed segment below it has lost its last bytes
index, timeindex, snapshot, epochs      files of a partition: `epochs` is its `leader-epoch-checkpoint`
identity    `partition.metadata`
small       a small file of the directory: checkpoints, `meta.properties`, `ottla.format`, `ottla.clock`
metadata    `__cluster_metadata-0`: batches, `quorum-state`, snapshots
commits     `__consumer_offsets-0`: batches
"""

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kit.audit import damage
from kit.audit.damage import Batch
from kit.audit.ledger import Place
from kit.audit.specimen import Specimen

OF_A_LOG = ("past", "body", "checksum", "header", "epoch", "page", "short")
LOST = ("page", "short")
"""Damage of more than a bit."""
MOST_CUT_BYTES = 300
OF_A_PARTITION = (*OF_A_LOG, "index", "timeindex", "snapshot", "epochs")
OF_A_DIRECTORY = ("small", "metadata", "commits")
SMALL_FILES = (*damage.CHECKPOINTS, "ottla-log-start-offset-copy", "meta.properties", "ottla.format", "ottla.clock")
_RANGES = {"header": (range(12), range(16, 17)), "epoch": (range(12, 16),), "checksum": (range(17, 21),)}
"""Bytes of a batch's header by kind."""
_WEIGHTS = {"past": 5, "body": 4, "header": 3, "index": 2, "timeindex": 2, "page": 3, "short": 2}


class Flip(NamedTuple):
    """One bit, and what it belongs to; `batch` of the kinds `OF_A_LOG`. Of those in `LOST`, `position` is where the
    zeros begin, or the file ends, and `batch` the first one that they spoil.
    """

    kind: str
    path: Path
    position: int
    bit: int
    place: Place | None = None
    batch: Batch | None = None

    def __str__(self) -> str:
        if self.kind in LOST:
            return f"{self.kind}: from byte {self.position} of {self.path}"
        return f"{self.kind}: bit {self.bit} of byte {self.position} of {self.path}"

    def do(self, directory: Path) -> None:
        """Flip it in the file below `directory`, whose time stays: nobody has written it."""
        path = directory / self.path
        before = path.stat()
        with path.open("r+b") as file:
            if self.kind == "short":
                file.truncate(self.position)
                return
            if self.kind == "page":
                file.seek(self.position)
                file.write(bytes(damage.PAGE_BYTES))
                return
            file.seek(self.position)
            (byte,) = file.read(1)
            file.seek(self.position)
            file.write(bytes([byte ^ (1 << self.bit)]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def choose(specimen: Specimen, place: Place, chance: random.Random) -> Flip | None:
    """A bit of a partition; None when it has none of the kind that was drawn."""
    kind = chance.choices(OF_A_PARTITION, [_WEIGHTS.get(kind, 1) for kind in OF_A_PARTITION])[0]
    return choose_kind(specimen, place, kind, chance)


def choose_kind(specimen: Specimen, place: Place, kind: str, chance: random.Random) -> Flip | None:
    """A bit of one kind of a partition."""
    partition = specimen.directory / f"{place[0]}-{place[1]}"
    if kind not in OF_A_LOG:
        pattern = {"epochs": damage.EPOCHS, "identity": "partition.metadata"}.get(kind, f"*.{kind}")
        return _in_file(specimen, sorted(partition.glob(pattern)), kind, chance, place)
    point = specimen.recovery_points[partition.name]
    if kind in LOST:
        return _lose(specimen, place, kind, point, chance)
    found = [
        (segment, batch)
        for segment in damage.segments(partition)
        for batch in damage.batches(segment)
        if kind == "epoch" or (batch.base_offset >= point) == (kind == "past")
    ]
    if not found:
        return None
    segment, batch = chance.choice(found)
    if kind == "past":
        ranges: tuple[range, ...] = (range(12), range(16, batch.size))
    else:
        ranges = _RANGES.get(kind, (range(21, batch.size),))
    at = chance.choice([at for one in ranges for at in one])
    path = segment.relative_to(specimen.directory)
    return Flip(kind, path, batch.position + at, chance.randrange(8), place, batch)


def _lose(specimen: Specimen, place: Place, kind: str, point: int, chance: random.Random) -> Flip | None:
    """Damage of more than a bit in a closed segment that ends below the recovery point."""
    paths = damage.segments(specimen.directory / f"{place[0]}-{place[1]}")
    closed = [path for path, following in pairwise(paths) if damage.base_offset(following) <= point]
    if not closed:
        return None
    path = chance.choice(closed)
    size = path.stat().st_size
    if kind == "page":
        pages = size // damage.PAGE_BYTES
        if not pages:
            return None
        position = damage.PAGE_BYTES * chance.randrange(pages)
    else:
        position = size - chance.randrange(1, min(MOST_CUT_BYTES, size))
    batch = next(one for one in damage.batches(path) if one.position + one.size > position)
    if kind == "short" and batch.position == position:
        return None  # whole batches are gone, and only their offsets are missing
    return Flip(kind, path.relative_to(specimen.directory), position, 0, place, batch)


def choose_of_directory(specimen: Specimen, kind: str, chance: random.Random) -> Flip | None:
    """A bit outside of the partitions of topics."""
    root = specimen.directory
    if kind == "small":
        paths = [root / name for name in SMALL_FILES]
    elif kind == "metadata":
        home = root / "__cluster_metadata-0"
        paths = [*home.glob("*.log"), home / "quorum-state", *home.glob("*.checkpoint")]
    else:
        paths = [*(root / "__consumer_offsets-0").glob("*.log")]
    return _in_file(specimen, sorted(paths), kind, chance, None)


def _in_file(
    specimen: Specimen, paths: list[Path], kind: str, chance: random.Random, place: Place | None
) -> Flip | None:
    sizes = [(path, path.stat().st_size) for path in paths if path.exists() and path.stat().st_size]
    if not sizes:
        return None
    path, size = chance.choice(sizes)
    return Flip(kind, path.relative_to(specimen.directory), chance.randrange(size), chance.randrange(8), place)
