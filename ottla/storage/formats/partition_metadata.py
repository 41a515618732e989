"""`partition.metadata`: the topic id to which a partition's directory belongs. Kafka's PartitionMetadataFile.

    version: 0
    topic_id: nhB9nTcrtoJr2B01QqQZ1g

A name can be used again after its topic was deleted, an id cannot: a directory with an id other than the catalog's is a
stray.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.storage.files.files import Files
from ottla.storage.formats.checkpoint import BlankFile, BrokenFile, read_text
from ottla.storage.formats.kafka_uuid import ZERO_UUID, uuid_from_text, uuid_to_text
from ottla.storage.formats.layout import PARTITION_METADATA_FILE

logger = logging.getLogger(__name__)

BITS_OF_A_CHARACTER: Final = 6
"""The bits in a character of base64: so many bits of an id may differ when a bit of its text has flipped."""


def read_partition_metadata(files: Files, directory: Path) -> UUID | None:
    """The topic id in a partition's directory; None when there is no file. Raises BrokenFile."""
    path = directory / PARTITION_METADATA_FILE
    try:
        lines = read_text(files, path).splitlines()
    except FileNotFoundError:
        return None
    if not lines or lines[0].split() != ["version:", "0"]:
        raise BrokenFile(path, 1, f"'version: 0' expected, got {lines[0][:80] if lines else ''!r}")
    key, _, text = lines[1].partition(":") if len(lines) > 1 else ("", "", "")
    if key.strip() != "topic_id":
        raise BrokenFile(path, 2, f"'topic_id: <uuid>' expected, got {lines[1][:80] if len(lines) > 1 else ''!r}")
    try:
        topic_id = uuid_from_text(text.strip())
    except ValueError as error:
        raise BrokenFile(path, 2, str(error)) from error
    if topic_id == ZERO_UUID:
        raise BrokenFile(path, 2, "a topic id that is not zero expected")
    return topic_id


def known_topic_id(files: Files, directory: Path, wanted: UUID) -> UUID | None:
    """As `read_partition_metadata`, but also None for a file that must be rewritten with `wanted`.

    That is a blank file, which is treated as if the crash that left it so had come before the file was created (Kafka
    calls it broken), and one with an id that is the wanted one except for a flipped bit. Raises BrokenFile.
    """
    try:
        topic_id = read_partition_metadata(files, directory)
    except BlankFile as error:
        logger.warning("%s: the topic id is taken from the metadata log", error)
        return None
    if topic_id is not None and is_flipped(topic_id, wanted):
        path, stated = directory / PARTITION_METADATA_FILE, uuid_to_text(topic_id)
        logger.warning("%s: %s is %s with a flipped bit, by the metadata log", path, stated, uuid_to_text(wanted))
        return None
    return topic_id


def is_flipped(topic_id: UUID, wanted: UUID) -> bool:
    """Whether one id is the other with one damaged character; the ids of two topics differ in about 60 bits."""
    return 0 < (topic_id.int ^ wanted.int).bit_count() <= BITS_OF_A_CHARACTER


def write_partition_metadata(files: Files, directory: Path, topic_id: UUID) -> None:
    """Write the topic id to the directory; durable when this returns. Raises OSError."""
    files.write_atomically(directory / PARTITION_METADATA_FILE, _encode(topic_id))


def found_partition(files: Files, directory: Path, topic_id: UUID) -> None:
    """The same in a new directory, not durable yet: a crash may leave it blank. Raises OSError."""
    files.write_new(directory / PARTITION_METADATA_FILE, _encode(topic_id))


def _encode(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode("ascii")
