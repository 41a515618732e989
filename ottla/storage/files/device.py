"""The properties of each mounted file system: whether it can read without waiting, and whether it is in memory.

Some file systems refuse `RWF_NOWAIT` (EOPNOTSUPP). That is remembered per device and is no error: files in memory
(tmpfs, ramfs) are then read directly, all others by a thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
"""The flag with which `preadv` does not wait; 0 if the system has none, and then a thread reads everything."""
_MEMORY_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
_MOUNTS: Final = "/proc/self/mountinfo"


class Device:
    """The properties of one mounted file system."""

    def __init__(self, device: int) -> None:
        self.number = device
        """Its `st_dev`."""
        self.takes_nowait = bool(NOWAIT)
        self.lives_in_memory = lives_in_memory(device)


def lives_in_memory(device: int) -> bool:
    """Whether the mounted file system with this `st_dev` has no disk."""
    return file_system_type(device) in _MEMORY_FILE_SYSTEMS


def file_system_type(device: int) -> str:
    """The type of the mounted file system with this `st_dev` (`ext4`, `tmpfs`), from the kernel's list; empty if it is
    not listed.
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path(_MOUNTS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in mounts.splitlines():
        # 36 35 98:0 /root /mount options shared:1 - ext4 /dev/root rw    (proc_pid_mountinfo(5))
        mount, _, file_system = line.partition(" - ")
        if mount.split()[2:3] == [wanted]:
            return file_system.split(" ", 1)[0]
    return ""
