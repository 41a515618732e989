"""`ottla.clock`, a file of Ottla's in each log directory: the newest wall time that was trusted (`clock_trust.py`).

    version=1
    wall_ms=1795364703123         the wall time that was trusted
    boot_ms=86400000              the boot clock at that time
    boot_id=0f6e2b1c-...          the boot of the machine; empty if the machine has no such id
    waited_ms=0                   for how long a clock that is not trusted has run
    behind=0 0 0                  a stretch of wall time shown by a clock that was behind, in ms, and by how much
    crc=5d3b1c0a                  CRC-32C of all lines before, in hexadecimal digits

All directories have nearly the same content, and the newest of them counts. If a file is missing or invalid, nothing on
the disk is lost: the newest time at which one of the directory's own files was written is used instead, as in a
directory that Apache Kafka has left. Kafka does not read the file.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.protocol.records.checksum import crc32c
from ottla.storage.files.clock_trust import LAST_MS, BehindTime, KnownTime
from ottla.storage.formats.checkpoint import BrokenFile, parse_int, read_text
from ottla.storage.formats.layout import CLOCK_FILE, LOCK_FILE

if TYPE_CHECKING:
    from ottla.storage.files.files import Files

logger = logging.getLogger(__name__)

_VERSION: Final = "version=1"
_NUMBERS: Final = ("wall_ms", "boot_ms", "waited_ms")
_LINES: Final = ("wall_ms", "boot_ms", "boot_id", "waited_ms", "behind", "crc")
_MOST: Final = LAST_MS


def encode_known_time(known: KnownTime) -> bytes:
    """The bytes of an `ottla.clock`."""
    wall_ms = min(max(0, known.wall_ms), _MOST)
    text = f"{_VERSION}\nwall_ms={wall_ms}\nboot_ms={known.boot_ms}\nboot_id={known.boot_id}\n"
    text += f"waited_ms={known.waited_ms}\nbehind={' '.join(map(str, known.behind))}\n"
    return f"{text}crc={crc32c(text.encode('ascii')):08x}\n".encode("ascii")


def read_known_time(files: Files, directory: Path) -> KnownTime | None:
    """The content of a directory's `ottla.clock`; None when it has none. Raises BrokenFile."""
    path = directory / CLOCK_FILE
    try:
        text = read_text(files, path)
    except FileNotFoundError:
        return None
    before, found, crc = text.rpartition("crc=")
    if not found or crc.strip() != f"{crc32c(before.encode()):08x}":
        raise BrokenFile(path, 7, "the checksum of the lines before expected")
    version, *lines = text.splitlines()
    fields = dict(line.partition("=")[::2] for line in lines)
    if version != _VERSION or tuple(fields) != _LINES:
        raise BrokenFile(path, 1, f"'{_VERSION}' and {', '.join(_LINES)} expected")
    numbers = {name: parse_int(path, 2, f"{name}=<number>", fields[name], 0, _MOST) for name in _NUMBERS}
    behind = [parse_int(path, 6, "three numbers", number, 0, _MOST) for number in fields["behind"].split()]
    if len(behind) != len(BehindTime._fields):
        raise BrokenFile(path, 6, "behind=<number> <number> <number> expected")
    return KnownTime(boot_id=fields["boot_id"], behind=BehindTime(*behind), **numbers)


def known_time_of(files: Files, directory: Path) -> tuple[KnownTime | None, bool]:
    """The newest known time of a log directory (None if nothing was ever written in it), and whether it is from
    `ottla.clock`. To be called before a start writes there. Raises OSError.
    """
    try:
        known = read_known_time(files, directory)
    except BrokenFile as error:
        logger.warning("%s; the time when this directory was last written is used", error)
        known = None
    return (known, True) if known is not None else (_last_written(files, directory), False)


def write_known_time(files: Files, directory: Path, known: KnownTime) -> None:
    """Replace the file; durable when this returns. Raises OSError."""
    files.write_atomically(directory / CLOCK_FILE, encode_known_time(known))


def _last_written(files: Files, directory: Path) -> KnownTime | None:
    """The time when the newest of a log directory's own files was written; every Kafka replaces the checkpoints each
    minute.
    """
    newest_ms = 0
    for name in files.list_directory(directory):
        path = directory / name
        # Every start touches the lock, and the writer of a broken file is unknown.
        if name not in (LOCK_FILE, CLOCK_FILE) and not files.is_directory(path):
            with suppress(FileNotFoundError):  # a link to nothing, or removed by a person
                newest_ms = max(newest_ms, files.modified_ms(path))
    return KnownTime(min(newest_ms, _MOST)) if newest_ms else None
