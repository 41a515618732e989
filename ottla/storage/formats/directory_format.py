"""Two small files of a log directory: Ottla's format version, and the mark of a clean stop.

`ottla.format` (Ottla's; Kafka ignores it) has one line, `version=1`. A newer Ottla raises the number when it changes
the files in a way that an older one would misread, and the older one then refuses the directory. A directory without
the file is new or Kafka's; it gets the file when a start has recovered all of its logs.

`.kafka_cleanshutdown` (Kafka's CleanShutdownFileHandler) is written last in a clean stop and removed at the start. So
its presence means that everything was synced and no broker has started since. Its content is
`{"version":0,"brokerEpoch":17}`; an empty file, as written by Kafka before 3.7, counts too.
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
"""The digits that a flipped bit makes of 1 in the file's text. No Ottla ever writes them: the next version is 2."""
NO_BROKER_EPOCH: Final = -1
_MAX_VERSION: Final = (1 << 31) - 1


def read_format(files: Files, directory: Path) -> int | None:
    """Ottla's format version of the directory; None when it has none. Raises BrokenFile."""
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
    """Mark the directory as in the format of this Ottla; durable when this returns."""
    files.write_atomically(directory / FORMAT_FILE, f"version={FORMAT_VERSION}\n".encode("ascii"))


def read_clean_shutdown(files: Files, directory: Path) -> int | None:
    """The broker epoch in the mark of a clean stop (-1 when it has none); None when the stop was not clean."""
    try:
        data = files.read_bytes(directory / CLEAN_SHUTDOWN_FILE)
    except FileNotFoundError:
        return None
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError, RecursionError):  # json is recursive
        # As in Kafka's own reader: the existence of the file is the mark, the epoch is optional.
        return NO_BROKER_EPOCH
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH


def write_clean_shutdown(files: Files, directory: Path, broker_epoch: int) -> None:
    """Mark the stop as clean, as the last write; durable when this returns."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.write_atomically(directory / CLEAN_SHUTDOWN_FILE, text.encode("ascii"))


def remove_clean_shutdown(files: Files, directory: Path) -> None:
    """Remove the mark before anything is changed; durable when this returns."""
    try:
        files.unlink(directory / CLEAN_SHUTDOWN_FILE)
    except FileNotFoundError:
        return
    files.sync_directory(directory)
