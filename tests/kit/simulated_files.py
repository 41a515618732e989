"""A file system in memory that forgets what was not synced, tears writes, and fails where a test says so.

What a crash leaves of what was written and not synced, and of changes of names, is `simulated_disk.py`; here are the
calls that reach it, counted one by one, and the rules by which they fail or the machine stops.

After a failed `fdatasync` the pages count as clean but are lost at the next crash, as on Linux (fsyncgate). A second
sync does not save them; writing them again does. The kernel may lose them before anybody syncs (`write_back`): each
descriptor and each volume that was open then reports it at its next sync, once. One that was opened later reports
nothing: somebody else may have seen it before.

Everything is deterministic: the same calls and the same `random.Random(seed)` give the same disk. One lock per path,
as a process has; `crash` releases them. The clock for `modified_ms` is `now_ms`, moved by hand.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import random as random_module
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from kit.simulated_disk import Change, Directory, Inode, Node, after_crash, contents, files_below, keep_some

from ottla.storage.files.files import Buffer, File, Files, NotOpened, Volume

CHANGING_CALLS = frozenset(
    {
        "open",
        "pwritev",
        "fdatasync",
        "truncate",
        "rename",
        "unlink",
        "make_directory",
        "remove_directory",
        "sync_directory",
        "sync_volume",
    }
)
"""The others only look: a machine that stops at one of them might as well have stopped at the next of these."""


@dataclass
class Failure:
    """Calls that fail: see `SimulatedFiles.fail`."""

    call: str
    pattern: str
    error: int
    skip: int = 0
    times: int | None = 1
    after_bytes: int | None = None
    hits: int = 0

    def matches(self, call: str, path: Path) -> bool:
        return fnmatch.fnmatch(call, self.call) and any(
            fnmatch.fnmatch(str(path), pattern) for pattern in self.pattern.split("|")
        )


class SimulatedLock:
    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimulatedFile(File):
    def __init__(self, files: SimulatedFiles, path: Path, inode: Inode, writable: bool) -> None:
        self.path = path
        self._files = files
        self.inode = inode
        self._writable = writable
        self._open = True
        self._reported = inode.write_errors
        self.was_let_go = False
        """Whether its descriptor was closed, so that its next use opens the file again."""

    @property
    def may_be_let_go(self) -> bool:
        """Whether no write waits for its sync, and none was lost and not reported: else it keeps its descriptor."""
        return not (self.inode.dirty or self.inode.sizes) and self._reported == self.inode.write_errors

    def _open_again(self) -> None:
        if self.was_let_go:
            self._files.need_descriptor(self.path)
            self.was_let_go = False

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        if len(buffers) > 1024:
            raise OSError(errno.EINVAL, "more buffers than IOV_MAX", str(self.path))
        self._open_again()
        data = b"".join(buffers)
        with self._files.call("pwritev", self.path):
            self._check(writable=True)
            room = self._files.room_for(self.path, data, self.inode, position)
            self.inode.write(position, data[:room])
            self.inode.modified_ms = self._files.now_ms
            if self._files.cannot_write_back(self.path):
                self.inode.lose()
                self.inode.write_errors += 1
                self._files.note_write_error(self.path)
            return room

    def pread(self, length: int, position: int) -> bytes:
        self._open_again()
        with self._files.call("pread", self.path):
            self._check()
            return bytes(self.inode.data[position : position + length])

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray | None:
        self._open_again()
        with self._files.call("pread_nowait", self.path):
            self._check()
            if self._files.is_cold(self.path):
                return None
            data = self.inode.data[position : position + length]
            return data if len(data) == length else None

    def map(self, length: int) -> memoryview:
        self._open_again()
        self._files.need_descriptor(self.path)
        with self._files.call("map", self.path):
            self._check()
            if length > len(self.inode.data):
                raise ValueError(f"{self.path} has {len(self.inode.data)} bytes, a map of {length} was asked for")
            return memoryview(bytes(self.inode.data[:length]))

    def resident_view(self, position: int, length: int) -> memoryview | None:
        if self._files.is_cold(self.path) or position + length > len(self.inode.data):
            return None
        try:
            return self.map(position + length)[position:]
        except NotOpened:
            return None

    def size(self) -> int:
        self._open_again()
        with self._files.call("size", self.path):
            self._check()
            return len(self.inode.data)

    def truncate(self, size: int) -> None:
        self._open_again()
        with self._files.call("truncate", self.path):
            self._check(writable=True)
            self.inode.truncate(size)

    def fdatasync(self) -> None:
        self._open_again()
        has_lost_pages = self.inode.write_errors > self._reported
        try:
            with self._files.call("fdatasync", self.path):
                self._check()
                if has_lost_pages:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
                self.inode.sync()
        except NotOpened:
            raise  # it was to be opened again, and no sync was begun
        except OSError:
            if self._open:  # a closed file says nothing of the disk
                self._reported = self.inode.write_errors
                self.inode.lose()
                if not has_lost_pages:
                    self._files.note_write_error(self.path)
            raise

    @property
    def device(self) -> int:
        return self._files.device_of(self.path)

    @property
    def writes(self) -> int:
        return 0  # descriptors are not counted here

    def note_synced(self, writes: int) -> None:
        pass

    def open_again(self) -> None:
        """Take another descriptor, which reports no page that was lost before: for a planted bug."""
        self._reported = self.inode.write_errors

    def close(self) -> None:
        self._open = False
        self._files.forget(self)

    def _check(self, writable: bool = False) -> None:
        if not self._open:
            raise OSError(errno.EBADF, "the file is closed", str(self.path))
        if writable and not self._writable:
            raise OSError(errno.EBADF, "the file is open for reading only", str(self.path))


class SimulatedVolume(Volume):
    """All files of a mount as one, and all names (also on other mounts, which no test distinguishes).

    One that fails has lost the pages of all files, and no `fdatasync` of them reports it: as where the journal failed.
    """

    def __init__(self, files: SimulatedFiles, path: Path) -> None:
        self._files = files
        self._path = path
        self._open = True
        self._reported = self._write_errors

    @property
    def _write_errors(self) -> int:
        return self._files.write_errors[self.device]

    @property
    def device(self) -> int:
        return self._files.device_of(self._path)

    def sync(self) -> None:
        files = self._files
        inodes = [inode for path, inode in files_below(files.root) if files.device_of(Path(path)) == self.device]
        try:
            with self._files.call("sync_volume", self._path):
                if not self._open:
                    raise OSError(errno.EBADF, "the volume is closed", str(self._path))
                if self._write_errors > self._reported:
                    self._reported = self._write_errors
                    raise OSError(errno.EIO, os.strerror(errno.EIO), str(self._path))
                for inode in inodes:
                    inode.sync()
                self.sync_names()
        except OSError:
            for inode in inodes:
                inode.lose()
            raise

    def sync_names(self) -> None:
        """Make all changes of names durable; a planted bug takes it away."""
        self._files.sync_all_names()

    def open_again(self) -> None:
        """Take another descriptor, which reports nothing that was lost before: for a planted bug."""
        self._reported = self._write_errors

    def sync_files(self) -> None:
        """`fdatasync` of every open file: for a planted bug. Raises OSError."""
        for file in self._files.open_files():
            file.fdatasync()

    def close(self) -> None:
        self._open = False


class CrashPoint(BaseException):
    """Raised by the call at which `SimulatedFiles.crash_at` says that the machine stops; not an Exception, so nobody
    catches it.
    """


class SimulatedFiles(Files):
    """See the module. Paths are absolute; `/` exists."""

    def __init__(self) -> None:
        self.root = Directory()
        self.calls = 0
        """Calls that reached the file system; `crash_at` counts them."""
        self.history: list[tuple[str, Path]] = []
        """Every call and its path, for tests that ask what was done in which order."""
        self.crash_at: int | None = None
        self.changes = 0
        """Calls that could change what the disk holds."""
        self.crash_when: Callable[[str, Path], bool] | None = None
        """The machine stops at the first of those calls for which this answers True."""
        self.has_crashed = False
        """Whether the machine or the process has stopped: every call from now on fails."""
        self.doing = ""
        """What those who patch the broker say that it does just now; it is added to the kind of the calls that
        `crash_when` and `crashed_at` get.
        """
        self.crashed_at: tuple[str, Path] = ("", Path())
        """The call at which `crash_when` stopped it; not the last one, where a dead process still tries to tidy up."""
        self.capacity_bytes: int | None = None
        self.volumes: dict[Path, tuple[int, int]] = {}
        self.inodes: dict[Path, tuple[int, int]] = {}
        """(all, free) inodes of the volumes that have a number of them."""
        """(all, free) bytes by directory, for those that say it; what is free is moved by hand."""
        self.has_volume_sync = False
        """Whether `open_volume` gives a volume, which can be synced as a whole."""
        self.is_in_memory = False
        """Whether it says that it is a tmpfs."""
        self.mounts: dict[Path, int] = {}
        """Directories that are other file systems, with their numbers; everything else is number 1."""
        self.write_errors: Counter[int] = Counter()
        """Failed writes to each file system, of any file and of other programs' files."""
        self.now_ms = 0
        self.has_descriptor: Callable[[], bool] = lambda: True
        """Whether the process gets another descriptor now. Else what needs one is NotOpened: an open, a sync of a
        directory, a map, a use of a file that was let go."""
        self.cold: list[str] = []
        """Patterns of paths whose pages are not in memory: `pread_nowait` and `resident_view` answer None."""
        self._changes: list[Change] = []
        self._failures: list[Failure] = []
        self._held: set[Path] = set()
        self.locked_elsewhere: set[Path] = set()
        """What another process has locked, which is only said."""
        self._guard = threading.RLock()
        self._open_files: list[SimulatedFile] = []

    # -- what tests do to it

    def fail(
        self,
        call: str,
        pattern: str = "*",
        error: int = errno.EIO,
        *,
        skip: int = 0,
        times: int | None = 1,
        after_bytes: int | None = None,
    ) -> Failure:
        """Let calls fail whose kind (`pwritev`, `fdatasync`, `rename`, ...; `*` in it too) and path match.

        The first `skip` matching calls pass, the next `times` fail (None: all). With `after_bytes`, matching
        `pwritev` calls take that many bytes in all, the one that reaches it is short, later ones fail. EMFILE and
        ENFILE are NotOpened, whatever the call: its descriptor had been let go. Returns the rule, for `heal`.

        `write_back` is no call: the kernel writes what a matching file has not synced, right after a `pwritev`, and the
        disk does not take it. The pages count as clean and are gone after the next crash; the next sync reports it.
        """
        failure = Failure(call, pattern, error, skip, times, after_bytes)
        self._failures.append(failure)
        return failure

    def fail_elsewhere(self, path: Path = Path("/")) -> None:
        """The kernel could not write a page of another program's file on the volume of `path`."""
        self.note_write_error(path)

    def note_write_error(self, path: Path) -> None:
        """The kernel could not write a page of this file."""
        self.write_errors[self.device_of(path)] += 1

    def heal(self, failure: Failure | None = None) -> None:
        """Take one rule away, or all."""
        self._failures = [each for each in self._failures if failure is not None and each is not failure]

    def crash(self, random: random_module.Random) -> SimulatedFiles:
        """What a reboot finds; this file system is not to be used any more."""
        keep_some(self._changes, random)
        survivor = SimulatedFiles()
        survivor.now_ms = self.now_ms
        survivor.has_volume_sync, survivor.mounts = self.has_volume_sync, self.mounts
        survivor.capacity_bytes = self.capacity_bytes
        survivor.volumes, survivor.inodes = self.volumes, self.inodes
        survivor.root = after_crash(self.root, random)
        return survivor

    def release_locks(self) -> None:
        """The process that held them is gone."""
        self._held.clear()

    def kill(self) -> SimulatedFiles:
        """What the next process finds when this one died: all as written, and nothing more durable than before."""
        self.release_locks()
        self._failures.clear()
        for file in list(self._open_files):
            file.close()
        self.crash_at = self.crash_when = None
        self.has_crashed = False
        self.history.clear()
        return self

    def successor(self) -> SimulatedFiles:
        """The same as `kill`, where something of the dead process is still in memory: its calls raise CrashPoint."""
        successor = SimulatedFiles()
        successor.root, successor._changes = self.root, self._changes
        successor.calls, successor.changes = self.calls, self.changes
        successor.now_ms, successor.cold = self.now_ms, self.cold
        successor.has_volume_sync, successor.mounts = self.has_volume_sync, self.mounts
        successor.capacity_bytes, successor.volumes = self.capacity_bytes, self.volumes
        successor.inodes = self.inodes
        self.has_crashed = True
        return successor

    def written_state(self) -> dict[str, bytes]:
        """Content by path as a process sees it now."""
        return contents(self.root, durable=False)

    def synced_state(self) -> dict[str, bytes]:
        """Content by path that no crash can take away."""
        return contents(self.root, durable=True)

    # -- for its files

    def call(self, kind: str, path: Path) -> AbstractContextManager[object]:
        """Count a call, let it fail or crash if a rule says so; the guard to hold while it runs."""
        with self._guard:
            self.calls += 1
            self.history.append((kind, path))
            if kind in CHANGING_CALLS:
                self.changes += 1
                if self.crash_when is not None and not self.has_crashed and self.crash_when(kind + self.doing, path):
                    self.has_crashed = True
                    self.crashed_at = kind + self.doing, path
            if self.has_crashed or (self.crash_at is not None and self.calls >= self.crash_at):
                raise CrashPoint(f"call {self.calls}: {kind} {path}")
            failure = self._failing(kind, path)
            if failure is not None:
                kind_of_error = NotOpened if failure.error in (errno.EMFILE, errno.ENFILE) else OSError
                raise kind_of_error(failure.error, os.strerror(failure.error), str(path))
            return self._guard

    def need_descriptor(self, path: Path) -> None:
        """Raises NotOpened."""
        if not self.has_descriptor():
            raise NotOpened(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    def cannot_write_back(self, path: Path) -> bool:
        """Whether what was just written to a file does not come to the disk though no call fails."""
        return self._failing("write_back", path) is not None

    def _failing(self, kind: str, path: Path) -> Failure | None:
        for failure in self._failures:
            if failure.after_bytes is not None or not failure.matches(kind, path):
                continue
            failure.hits += 1
            if failure.hits > failure.skip and (failure.times is None or failure.hits <= failure.skip + failure.times):
                return failure
        return None

    def room_for(self, path: Path, data: bytes, inode: Inode, position: int) -> int:
        """How many bytes of a write the disk takes; OSError for none."""
        room = len(data)
        if self.capacity_bytes is not None:
            free = self.capacity_bytes - sum(map(len, self.written_state().values()))
            room = min(room, max(0, free + len(inode.data) - position))
            if data and room <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        for failure in self._failures:
            if failure.after_bytes is not None and failure.matches("pwritev", path):
                if failure.hits >= failure.after_bytes:
                    raise OSError(failure.error, os.strerror(failure.error), str(path))
                room = min(room, failure.after_bytes - failure.hits)
                failure.hits += room
        return room

    def forget(self, file: SimulatedFile) -> None:
        """A file was closed."""
        with self._guard:
            if file in self._open_files:
                self._open_files.remove(file)

    def open_files(self) -> list[SimulatedFile]:
        """What is open."""
        with self._guard:
            return list(self._open_files)

    def is_cold(self, path: Path) -> bool:
        return any(fnmatch.fnmatch(str(path), pattern) for pattern in self.cold)

    # -- Files

    def open(self, path: Path, *, create: bool = False, writable: bool = False, derived: bool = False) -> SimulatedFile:
        self.need_descriptor(path)
        with self.call("open", path):
            parent = self._parent(path)
            node = parent.entries.get(path.name)
            if node is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
                node = self._make_file(parent, path.name)
            if isinstance(node, Directory):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            file = SimulatedFile(self, path, node, writable or create)
            self._open_files.append(file)
            return file

    def read_bytes(self, path: Path) -> bytes:
        self.need_descriptor(path)
        with self.call("read_bytes", path):
            return bytes(self._file(path).data)

    def write_atomically(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        file = self.open(temporary, create=True)
        if file.size():
            file.truncate(0)
        position = 0
        while position < len(data):
            position += file.pwritev([data[position:]], position)
        file.fdatasync()
        file.close()
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        with self.call("rename", old):
            source, target = self._parent(old), self._parent(new)
            if old.name not in source.entries:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(old))
            replaced = target.entries.get(new.name)
            if isinstance(replaced, Directory) and replaced.entries:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(new))
            node = source.entries.pop(old.name)
            target.entries[new.name] = node
            self._changes.append(Change([(source, old.name, None), (target, new.name, node)]))
            if isinstance(node, Inode):
                for file in self._open_files:
                    if file.inode is node:
                        file.path = new
                return
            below = f"{old}/"
            for file in self._open_files:  # compared as text: pathlib takes a hundred times as long
                name = str(file.path)
                if name.startswith(below):
                    file.path = new / name[len(below) :]

    def volume_bytes(self, path: Path) -> tuple[int, int] | None:
        with self.call("volume_bytes", path):
            volume = self.volumes.get(path)
            if volume is None and self.capacity_bytes is not None:
                used = sum(map(len, self.written_state().values()))
                volume = self.capacity_bytes, max(0, self.capacity_bytes - used)
            return volume

    def volume_inodes(self, path: Path) -> tuple[int, int] | None:
        return self.inodes.get(path)

    def unlink(self, path: Path) -> None:
        with self.call("unlink", path):
            self._file(path)
            parent = self._parent(path)
            del parent.entries[path.name]
            self._changes.append(Change([(parent, path.name, None)]))

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        if parents:
            for each in [*reversed(path.parents), path]:
                if not self.exists(each):
                    self.make_directory(each)
                    self.sync_directory(each.parent)
            return
        with self.call("make_directory", path):
            parent = self._parent(path)
            if path.name in parent.entries:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            directory = Directory()
            parent.entries[path.name] = directory
            self._changes.append(Change([(parent, path.name, directory)]))

    def remove_directory(self, path: Path) -> None:
        with self.call("remove_directory", path):
            directory = self._directory(path)
            if directory.entries:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
            parent = self._parent(path)
            del parent.entries[path.name]
            self._changes.append(Change([(parent, path.name, None)]))

    def list_directory(self, path: Path) -> list[str]:
        self.need_descriptor(path)
        with self.call("list_directory", path):
            return sorted(self._directory(path).entries)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._find(path), Directory)

    def size(self, path: Path) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: Path) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        with self.call("set_modified_ms", path):
            self._file(path).modified_ms = modified_ms

    def sync_directory(self, path: Path) -> None:
        self.need_descriptor(path)
        with self.call("sync_directory", path):
            directory = self._directory(path)
            waiting = []
            for change in self._changes:
                # A rename between two directories becomes durable with the sync of either, as in a journal.
                effects = change.effects
                if effects[0][0] is directory or effects[-1][0] is directory:
                    change.apply()
                else:
                    waiting.append(change)
            self._changes = waiting

    def sync_all_names(self) -> None:
        """What a sync of the volume does for names."""
        for change in self._changes:
            change.apply()
        self._changes = []

    def device_of(self, path: Path) -> int:
        """The number of the file system of `path`."""
        return next((number for top, number in self.mounts.items() if path.is_relative_to(top)), 1)

    def open_volume(self, path: Path) -> SimulatedVolume | None:
        self.need_descriptor(path)
        with self.call("open_volume", path):
            self._file(path)
            return SimulatedVolume(self, path) if self.has_volume_sync else None

    def lives_in_memory(self, path: Path) -> bool:
        return self.is_in_memory

    def is_locked_elsewhere(self, path: Path) -> bool:
        return path in self.locked_elsewhere

    def lock(self, path: Path) -> SimulatedLock:
        with self.call("lock", path):
            if path in self._held:
                raise BlockingIOError(errno.EAGAIN, "already locked by this process", str(path))
            parent = self._parent(path)
            if path.name not in parent.entries:
                self._make_file(parent, path.name)
            self._held.add(path)
            return SimulatedLock(self._held, path)

    def _make_file(self, parent: Directory, name: str) -> Inode:
        inode = Inode(self.now_ms)
        parent.entries[name] = inode
        self._changes.append(Change([(parent, name, inode)]))
        return inode

    def _find(self, path: Path) -> Node | None:
        return self._at(path.parts[1:])

    def _at(self, names: tuple[str, ...]) -> Node | None:
        node: Node | None = self.root
        for name in names:
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def _parent(self, path: Path) -> Directory:
        """The directory of a path, found without `path.parent`, which takes longer than the search."""
        node = self._at(path.parts[1:-1])
        return node if isinstance(node, Directory) else self._directory(path.parent)

    def _directory(self, path: Path) -> Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if isinstance(node, Inode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return node

    def _file(self, path: Path) -> Inode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return node


def crash_points(run: Callable[[SimulatedFiles], None], make: Callable[[], SimulatedFiles]) -> int:
    """How many calls `run` makes on a file system from `make`: `crash_at` from the start of it to there covers each."""
    files = make()
    before = files.calls
    run(files)
    return files.calls - before
