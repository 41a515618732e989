"""What is on a disk and what a crash leaves of it: files page by page, names change by change.

Per file it keeps what was written and what was synced; per directory the entries that are there and the entries that
are durable. A crash finds:

- every page changed since the last sync is, independently, as synced or as written; a page that was written as the
  last thing may also be torn at a 512-byte sector;
- the length is any of the lengths that the file had since the sync, the old and the new one the likeliest; what was
  not kept below it is zeros;
- names: each change to a directory (a file made, unlinked, renamed) since its last sync is kept or lost, in any
  combination that is possible: a rename is never half done, and a change of a name is lost when an earlier one of the
  same name is, as journalled file systems promise. A file whose name was lost is gone.

It knows of no calls: `simulated_files.py` has them.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Sequence
from dataclasses import dataclass, field

PAGE_BYTES = 4096
SECTOR_BYTES = 512


class Inode:
    """A file's content: as written, as synced, and what is between."""

    def __init__(self, modified_ms: int = 0) -> None:
        self.data = bytearray()
        self.synced = bytearray()
        self.dirty: dict[int, None] = {}
        self.sizes: list[int] = []
        self.last_pages: set[int] = set()
        self.modified_ms = modified_ms
        self.write_errors = 0
        """How often the kernel could not write its pages: a descriptor that was open reports that at its next sync."""

    def write(self, position: int, data: bytes) -> None:
        if not data:
            return
        end = position + len(data)
        first = position
        if len(self.data) < end:
            self.sizes.append(len(self.data))
            first = min(position, len(self.data))
            self.data.extend(bytes(end - len(self.data)))
        self.data[position:end] = data
        pages = range(first // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1)
        self.last_pages = set(pages)
        self.dirty.update(dict.fromkeys(pages))

    def truncate(self, size: int) -> None:
        before = len(self.data)
        self.sizes.append(before)
        self._set_length(self.data, size)
        self.dirty.update(dict.fromkeys(range(min(size, before) // PAGE_BYTES, max(size, before) // PAGE_BYTES + 1)))

    def sync(self) -> None:
        """All dirty pages and the length reach the disk; what an earlier failed sync lost is not dirty and does not."""
        self._set_length(self.synced, len(self.data))
        for page in self.dirty:
            self._keep_page(self.synced, page)
        self._clean()

    def lose(self) -> None:
        """A write to the disk failed: the pages are called clean and are not on the disk."""
        self._clean()

    def after_crash(self, random: random_module.Random) -> Inode:
        survivor = Inode(self.modified_ms)
        disk = bytearray(self.synced)
        for page in self.dirty:
            fate = random.random()
            if fate < 0.45:
                self._keep_page(disk, page)
            elif fate < 0.55 and page in self.last_pages:
                self._tear_page(disk, page, random)
        if self.sizes:
            size = random.choice([len(self.synced), len(self.data), len(self.data), random.choice(self.sizes)])
            self._set_length(disk, size)
        else:
            self._set_length(disk, len(self.synced))
        survivor.data = disk
        survivor.synced = bytearray(disk)
        return survivor

    def _clean(self) -> None:
        self.dirty.clear()
        self.sizes.clear()
        self.last_pages = set()

    def _keep_page(self, disk: bytearray, page: int) -> None:
        start = page * PAGE_BYTES
        self._overlay(disk, start, self.data[start : start + PAGE_BYTES])

    def _tear_page(self, disk: bytearray, page: int, random: random_module.Random) -> None:
        start = page * PAGE_BYTES
        for sector in range(start, start + PAGE_BYTES, SECTOR_BYTES):
            if random.random() < 0.5:
                self._overlay(disk, sector, self.data[sector : sector + SECTOR_BYTES])

    @staticmethod
    def _overlay(disk: bytearray, start: int, data: bytearray) -> None:
        if data and len(disk) < start + len(data):
            disk.extend(bytes(start + len(data) - len(disk)))
        disk[start : start + len(data)] = data

    @staticmethod
    def _set_length(disk: bytearray, size: int) -> None:
        if len(disk) > size:
            del disk[size:]
        else:
            disk.extend(bytes(size - len(disk)))


class Directory:
    """Names: as they are, and the changes since the last sync in order."""

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}


Node = Inode | Directory


@dataclass
class Change:
    """One change of names that is not durable yet: each (directory, name) gets a node or, with None, loses its name.

    One effect, or the two of a rename.
    """

    effects: list[tuple[Directory, str, Node | None]] = field(default_factory=list)

    def apply(self) -> None:
        for directory, name, node in self.effects:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node


def keep_some(changes: Sequence[Change], random: random_module.Random) -> None:
    """Make durable what a crash keeps of changes that no sync has covered, which are given in their order."""
    lost: set[tuple[int, str]] = set()
    for change in changes:
        names = {(id(directory), name) for directory, name, _ in change.effects}
        if names & lost or random.random() < 0.5:
            lost |= names
        else:
            change.apply()


def after_crash(directory: Directory, random: random_module.Random) -> Directory:
    """The durable names below a directory, each with what a crash leaves of its file."""
    return _survivor(directory, random, {})


def contents(root: Directory, *, durable: bool) -> dict[str, bytes]:
    """Content by path: as it is, or (`durable`) as no crash can take it away."""
    found = files_below(root, durable=durable)
    return {path: bytes(inode.synced if durable else inode.data) for path, inode in found}


def files_below(root: Directory, path: str = "", *, durable: bool = False) -> list[tuple[str, Inode]]:
    """Files with their paths, below a directory that has this one; `durable`: by the names that no crash takes away."""
    found: list[tuple[str, Inode]] = []
    for name, node in sorted((root.durable if durable else root.entries).items()):
        below = f"{path}/{name}"
        found += files_below(node, below, durable=durable) if isinstance(node, Directory) else [(below, node)]
    return found


def _survivor(directory: Directory, random: random_module.Random, seen: dict[int, Node]) -> Directory:
    survivor = Directory()
    for name, node in sorted(directory.durable.items()):
        if id(node) not in seen:
            seen[id(node)] = _survivor(node, random, seen) if isinstance(node, Directory) else node.after_crash(random)
        survivor.entries[name] = survivor.durable[name] = seen[id(node)]
    return survivor
