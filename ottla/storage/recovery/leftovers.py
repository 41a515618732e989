"""Files of interrupted operations in a partition's directory, and their removal or completion before a log is opened.

- `.deleted` files waited to be unlinked, `.cleaned` and `.tmp` files were never finished: they are unlinked.
- A `.txnindex.deleted` file of a segment whose `.log` has its normal name, without a `.log.deleted`: retention had
  renamed both, and a power cut has kept the rename of the index alone. It stays until the batches have been searched
  for aborted transactions: otherwise readers of committed records would get records of those.
- `.swap` files are complete and about to replace the segments whose offsets they cover: the replacement is finished,
  unless a `.cleaned` file at the same offset or before shows that the set of them was not complete (Kafka's
  LogLoader).
- The `.swap` file of an index without that of its `.log` is from a set of which a power cut has kept some names only.
  If the old index exists, the names had not become durable, and the `.log` is the old one: the `.swap` file is
  unlinked. If it does not, the swap was nearly done, and is finished.
- Index files without their `.log` have no use: they are unlinked.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ottla.plain import Plain, field
from ottla.protocol.records.batch import CorruptBatch
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk

logger = logging.getLogger(__name__)

_SEGMENT_SUFFIXES = (layout.LOG_SUFFIX, layout.INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX, layout.TXN_INDEX_SUFFIX)
_UNDER_WAY = (layout.DELETED_SUFFIX, layout.CLEANED_SUFFIX, layout.SWAP_SUFFIX, layout.TEMPORARY_SUFFIX)


class Contents(Plain):
    """The content of a partition's directory: base offsets of its segments and of those with a `.txnindex`, offsets of
    its snapshots, ascending.

    `has_changed`: `tidy` has changed names, which are not durable yet. `lost_transaction_indexes`: `.txnindex` files
    that have lost their normal names although their segments exist; they are unlinked when the indexes are written
    again.
    """

    bases: list[int] = field(factory=list)
    snapshots: list[int] = field(factory=list)
    transaction_indexes: list[int] = field(factory=list)
    lost_transaction_indexes: list[Path] = field(factory=list)
    has_changed: bool = False


def tidy(files: Files, directory: Path) -> Contents:
    """Finish or undo interrupted operations; returns the content afterwards. Raises OSError."""
    names = files.list_directory(directory)
    contents = Contents()
    if any(name.endswith(_UNDER_WAY) for name in names):
        contents.has_changed = True
        lost = [name for name in names if _has_lost_its_name(name, names)]
        contents.lost_transaction_indexes = [directory / name for name in lost]
        unfinished = _unlink_unfinished(files, directory, [name for name in names if name not in lost])
        _finish_swaps(files, directory, unfinished)
        names = files.list_directory(directory)
    parsed = [(name, found) for name in names if (found := layout.parse_offset_file(name)) is not None]
    contents.bases = sorted(found.offset for _, found in parsed if found.suffix == layout.LOG_SUFFIX)
    contents.snapshots = sorted(found.offset for _, found in parsed if found.suffix == layout.SNAPSHOT_SUFFIX)
    logs = set(contents.bases)
    for name, found in parsed:
        if found.suffix in _SEGMENT_SUFFIXES and found.offset not in logs:
            logger.warning("%s/%s: an index without its log, removed", directory, name)
            files.unlink(directory / name)
            contents.has_changed = True
        elif found.suffix == layout.TXN_INDEX_SUFFIX:
            contents.transaction_indexes.append(found.offset)
    contents.transaction_indexes.sort()
    return contents


def _has_lost_its_name(name: str, names: list[str]) -> bool:
    """Whether it is the `.txnindex.deleted` of a segment that exists."""
    if not name.endswith(layout.TXN_INDEX_SUFFIX + layout.DELETED_SUFFIX):
        return False
    log = name.removesuffix(layout.TXN_INDEX_SUFFIX + layout.DELETED_SUFFIX) + layout.LOG_SUFFIX
    return log in names and log + layout.DELETED_SUFFIX not in names


def _unlink_unfinished(files: Files, directory: Path, names: list[str]) -> int | None:
    """Unlink files that waited to be unlinked or were never finished; returns the lowest offset of a `.cleaned`
    file.
    """
    lowest: int | None = None
    for name in names:
        if name.endswith(layout.CLEANED_SUFFIX):
            found = layout.parse_offset_file(name)
            if found is not None:
                lowest = found.offset if lowest is None else min(lowest, found.offset)
        if name.endswith((layout.DELETED_SUFFIX, layout.CLEANED_SUFFIX, layout.TEMPORARY_SUFFIX)):
            path = directory / name
            if not files.is_directory(path):  # else a person's
                files.unlink(path)
    return lowest


def _finish_swaps(files: Files, directory: Path, unfinished: int | None) -> None:
    swaps: dict[int, list[str]] = {}
    for name in files.list_directory(directory):
        found = layout.parse_offset_file(name)
        if found is None or not name.endswith(layout.SWAP_SUFFIX):
            continue
        if unfinished is not None and found.offset >= unfinished:
            files.unlink(directory / name)
        else:
            swaps.setdefault(found.offset, []).append(name)
    for base_offset, names in sorted(swaps.items()):
        has_log = layout.offset_file_name(base_offset, layout.LOG_SUFFIX + layout.SWAP_SUFFIX) in names
        if has_log:
            _remove_replaced(files, directory, base_offset)
            # Without it, a crash may keep the renames and lose the unlinks: segments would overlap.
            files.sync_directory(directory)
        for name in names:
            own = directory / name.removesuffix(layout.SWAP_SUFFIX)
            if not has_log and files.exists(own):
                files.unlink(directory / name)
            else:
                files.rename(directory / name, own)


def _remove_replaced(files: Files, directory: Path, base_offset: int) -> None:
    """Unlink the segments whose offsets the swap file at `base_offset` covers."""
    last_offset = base_offset
    file = files.open(layout.log_file(directory, base_offset, layout.SWAP_SUFFIX))
    try:
        for _, header in walk(file.pread, 0, file.size(), SEQUENTIAL_CHUNK_BYTES):
            last_offset = header.last_offset
    except CorruptBatch as error:
        logger.warning("%s: %s", file.path, error)
    finally:
        file.close()
    for name in files.list_directory(directory):
        found = layout.parse_offset_file(name)
        if found is not None and found.suffix in _SEGMENT_SUFFIXES and base_offset <= found.offset <= last_offset:
            files.unlink(directory / name)
