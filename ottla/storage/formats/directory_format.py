"""Two small files of a log directory: our own format version, and the mark of a clean stop.

`ottla.format` (ours; Kafka ignores it) holds one line, `version=1`. A newer Ottla that changes what is on disk in a
way that an older one would misread raises the number, and the older one refuses the directory in one line. A
directory without the file is a new one or Kafka's, which gets it when a start has recovered all of its logs.

`.kafka_cleanshutdown` (Kafka's CleanShutdownFileHandler) is written last on a clean stop and removed at the start, so
that its presence means: everything was synced and nobody has been here since. It holds
`{"version":0,"brokerEpoch":17}`; an empty one, as Kafka before 3.7 leaves, counts too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from ottla.storage.files.files import Files
from ottla.storage.formats.checkpoint import BrokenFile, parse_int, read_text
from ottla.storage.formats.layout import CLEAN_SHUTDOWN_FILE, FORMAT_FILE

FORMAT_VERSION: Final = 1
FLIPPED_VERSIONS: Final = frozenset({3, 5, 9})
"""What a flipped bit makes of 1 in the file's text. No Ottla ever writes them: the next version is 2."""
NO_BROKER_EPOCH: Final = -1
_MAX_VERSION: Final = (1 << 31) - 1


def read_format(files: Files, directory: Path) -> int | None:
    """Our format version of the directory; None when it has none. Raises BrokenFile."""
    path = directory / FORMAT_FILE
    try:
        text = read_text(files, path)
    except FileNotFoundError:
        return None
    key, _, value = text.strip().partition("=")
    if key.strip() != "version":
        raise BrokenFile(path, 1, f"'version=<number>' expected, got {text[:80]!r}")
    version = parse_int(path, 1, "'version=<number>'", value.strip(), 1, _MAX_VERSION)
    if version in FLIPPED_VERSIONS:
        raise BrokenFile(path, 1, f"version {version}, which no Ottla writes: a bit has flipped in {FORMAT_VERSION}")
    return version


def write_format(files: Files, directory: Path) -> None:
    """Say that the directory is in the format that this Ottla writes; durable when this returns."""
    files.write_atomically(directory / FORMAT_FILE, f"version={FORMAT_VERSION}\n".encode("ascii"))


def read_clean_shutdown(files: Files, directory: Path) -> int | None:
    """The broker epoch in the mark of a clean stop (-1 when it names none); None when the stop was not clean."""
    try:
        data = files.read_bytes(directory / CLEAN_SHUTDOWN_FILE)
    except FileNotFoundError:
        return None
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError, RecursionError):  # json recurses into what is nested
        # Kafka's own reader does the same: the mark is that the file is there, the epoch is extra.
        return NO_BROKER_EPOCH
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH


def write_clean_shutdown(files: Files, directory: Path, broker_epoch: int) -> None:
    """Mark the stop as clean, as the last thing that is written; durable when this returns."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.write_atomically(directory / CLEAN_SHUTDOWN_FILE, text.encode("ascii"))


def remove_clean_shutdown(files: Files, directory: Path) -> None:
    """Take the mark away before anything is changed; durable when this returns."""
    try:
        files.unlink(directory / CLEAN_SHUTDOWN_FILE)
    except FileNotFoundError:
        return
    files.sync_directory(directory)
