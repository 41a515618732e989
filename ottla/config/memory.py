"""The memory limit of this process, and the smaller defaults that follow from a low limit.

In a container (cgroup v1 or v2) or under `ulimit -d` the memory is less than the machine's, and a process that takes
more is killed. Keys that bound what clients make the broker hold are then smaller unless they are set. docs/limits.md
has the resulting values, and the smallest container.

    ottla.connections.max.unsent.bytes   a quarter of the memory
    queued.max.request.bytes             an eighth
    socket.request.max.bytes             a sixteenth, but never less than two batches of message.max.bytes
    ottla.batch.max.decompressed.bytes   a sixteenth
    log.cleaner.dedupe.buffer.size       a sixteenth
    socket.send.buffer.bytes             below 1 GiB a 1024th, for each connection: cgroup v2 counts it, and the kernel
                                         would let it grow to 4 MiB each
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

LEAST_BYTES: Final = 2 << 20
"""The smallest of these defaults, except that of send buffers."""
LEAST_SEND_BUFFER_BYTES: Final = 64 << 10
FREE_SEND_BUFFERS_FROM: Final = 1 << 30
"""With this much memory the kernel chooses the size of send buffers."""
_V1_MOUNT: Final = "sys/fs/cgroup/memory"
_V2_MOUNTS: Final = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
_UNLIMITED_FROM: Final = 1 << 60
"""A limit of cgroup v1 of this size or more means no limit: it is then the largest number of whole pages."""


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes of memory that this process may have, None without a limit. `root` is where /proc and /sys are.

    It is the smallest of the limits of its cgroup and of those above it (`memory.max`, or `memory.limit_in_bytes` of
    version 1), and of RLIMIT_DATA.
    """
    limits = [limit for directory, name in _cgroups(root) for limit in _read_limits(directory, name)]
    if root == Path("/") and (data_limit := _data_limit()) is not None:
        limits.append(data_limit)
    return min(limits, default=None)


def defaults_for(memory_bytes: int, message_max_bytes: int, request_max_bytes: int | None) -> dict[str, int]:
    """The largest values that keys which are not set should have, by key.

    `message_max_bytes` is `message.max.bytes`; `request_max_bytes` is `socket.request.max.bytes` if that is set.
    """
    send_buffer_bytes = max(memory_bytes // 1024, LEAST_SEND_BUFFER_BYTES)
    fitting = max(memory_bytes // 16, LEAST_BYTES, 2 * message_max_bytes)
    return {
        "ottla.connections.max.unsent.bytes": max(memory_bytes // 4, LEAST_BYTES),
        "socket.request.max.bytes": fitting,
        "queued.max.request.bytes": max(memory_bytes // 8, request_max_bytes or fitting),
        "ottla.batch.max.decompressed.bytes": max(memory_bytes // 16, LEAST_BYTES),
        "log.cleaner.dedupe.buffer.size": max(memory_bytes // 16, LEAST_BYTES),
        "socket.send.buffer.bytes": send_buffer_bytes if memory_bytes < FREE_SEND_BUFFERS_FROM else -1,
    }


def _cgroups(root: Path) -> Iterator[tuple[Path, str]]:
    """The directories of this process's cgroups and of those above them, each with the name of its limit file."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found = [(root / mount, "memory.max") for mount in _V2_MOUNTS]
        elif "memory" in controllers.split(","):
            found = [(root / _V1_MOUNT, "memory.limit_in_bytes")]
        else:
            continue
        # In a container the path may be the host's, and not exist; the directories above its parts do.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for mount, name in found:
            for count in range(len(parts), -1, -1):
                yield mount.joinpath(*parts[:count]), name


def _read_limits(directory: Path, name: str) -> Iterator[int]:
    text = _text(directory / name).strip()
    if text.isdecimal() and int(text) < _UNLIMITED_FROM:
        yield int(text)


def _text(path: Path) -> str:
    """The content of a small file; an empty text where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _data_limit() -> int | None:
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY or soft >= _UNLIMITED_FROM else soft
