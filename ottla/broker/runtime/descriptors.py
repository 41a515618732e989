"""How many files this process may open (RLIMIT_NOFILE), and how connections, logs and everything else share them.

    limit      else   logs   connections
    64         24     20     20              the least with which a broker starts
    120        30     45     45
    1,024      64     480    480
    1,048,576  64     2,048  the rest        (ottla.log.max.open.segments=1024, each open and mapped)

The share of logs bounds the files that they keep open, so that an accept finds a descriptor. The bound is soft: a log
with unsynced records keeps its file open, and a call that finds no descriptor closes what it can
(`storage/files/files.py`).
"""

from __future__ import annotations

import logging
import resource
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.declare import INT_MAX

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

LOG = logging.getLogger("ottla.server")

LEAST_DESCRIPTORS: Final = 64
FEW_CONNECTIONS: Final = 256
"""With room for fewer connections, a start logs a warning."""
MOST_OTHERS: Final = 64
"""Descriptors besides connections and segments: locks, listeners, the loop's, checkpoints that are being written."""
LEAST_OTHERS: Final = 24
RAISED_BY: Final = (
    "`ulimit -n` before it starts, LimitNOFILE= in a unit of systemd or --ulimit nofile= of a container raises that"
)
MAX_OPEN_FILES: Final = 1 << 20
"""The soft limit of open files is raised to the hard limit, but not beyond this."""
FILES_OF_MACOS: Final = 10_240
"""macOS reports no hard limit, but refuses a soft one above its kernel's limit, which is at least this (OPEN_MAX)."""


class Shares(NamedTuple):
    """Descriptors for connections, and for the files and maps of logs."""

    connections: int
    logs: int


def descriptor_limit() -> int | None:
    """How many files this process may open; None: no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def shares_of(config: BrokerConfig, limit: int | None) -> Shares:
    """How `limit` descriptors are shared; see the module."""
    most = 2 * config.ottla_log_max_open_segments
    if limit is None:
        return Shares(INT_MAX, most)
    others = min(MOST_OTHERS, max(LEAST_OTHERS, limit // 4))
    logs = max(1, min(most, (limit - others) // 2))
    return Shares(max(1, limit - others - logs), logs)


def shortage(config: BrokerConfig, limit: int | None) -> str | None:
    """The warning for a start with so few descriptors, None where they are enough."""
    room = shares_of(config, limit)
    if limit is None or room.connections >= min(FEW_CONNECTIONS, config.max_connections):
        return None
    return (
        f"RLIMIT_NOFILE={limit} leaves room for {room.connections} connections beside {room.logs} files of logs;"
        f" {RAISED_BY}"
    )


def raise_file_limit() -> None:
    """Raise the soft limit of open files: each connection, segment and index is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES_OF_MACOS), hard))
        except (OSError, ValueError):
            LOG.warning("the limit of open files stays at %d: %s", soft, error)
