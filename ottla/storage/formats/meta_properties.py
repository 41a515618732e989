"""`meta.properties`: the owner of a log directory: cluster, node, and the directory's own id. Kafka's MetaProperties.

Version 1 (KRaft; Ottla writes it) and 0 (Kafka with ZooKeeper; Ottla reads it), in the syntax of Java's property files:

    version=1                                   version=0
    cluster.id=nhB9nTcrtoJr2B01QqQZ1g           cluster.id=nhB9nTcrtoJr2B01QqQZ1g
    node.id=1                                   broker.id=1
    directory.id=4kCDYg5FQ4Cl4NjE0pOq6w

Kafka before 0.10.1 had no `cluster.id`: it is empty here. Unknown keys are kept when the file is written again.

Kafka and Ottla write plain lines, which are read and written here. Only a file with more of Java's syntax (escapes,
other separators, continued lines) is parsed by `javaproperties`, which imports xml, http and more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from ottla.storage.files.files import Files
from ottla.storage.formats.checkpoint import BrokenFile, parse_int, read_text
from ottla.storage.formats.kafka_uuid import uuid_from_text, uuid_to_text
from ottla.storage.formats.layout import META_PROPERTIES_FILE

MAX_NODE_ID: Final = (1 << 31) - 1
_PLAIN_LINE: Final = re.compile(r"([A-Za-z0-9._-]+)=([A-Za-z0-9._+/-][A-Za-z0-9._+/ -]*|)")
"""A line that means the same with and without Java's rules: no escape, no other separator, no blank before a value."""
_KNOWN: Final = frozenset({"version", "cluster.id", "node.id", "broker.id", "directory.id"})


class MetaProperties(NamedTuple):
    """The content of the file. A directory written before Kafka 3.7 has no `directory_id`, before 0.10.1 an empty
    `cluster_id`.
    """

    cluster_id: str
    node_id: int
    directory_id: UUID | None
    version: int = 1
    others: Mapping[str, str] = MappingProxyType({})


def read_meta_properties(files: Files, directory: Path) -> MetaProperties | None:
    """The file of a log directory; None when there is none. Raises BrokenFile."""
    path = directory / META_PROPERTIES_FILE
    try:
        text = read_text(files, path)
    except FileNotFoundError:
        return None
    try:
        values = _parse(text)
    except ValueError as error:
        raise BrokenFile(path, 1, f"a property file expected: {error}") from error
    is_of_old_kafka = "broker.id" in values and "node.id" not in values
    version = 0 if is_of_old_kafka and "version" not in values else _number(path, text, values, "version", 1)
    node_id = _number(path, text, values, "node.id" if version else "broker.id", MAX_NODE_ID)
    cluster_id = values.get("cluster.id", "")
    if not cluster_id and version:
        raise BrokenFile(path, _line_of(text, "cluster.id"), "'cluster.id=<id>' expected")
    directory_id = None
    if "directory.id" in values:
        try:
            directory_id = uuid_from_text(values["directory.id"])
        except ValueError as error:
            raise BrokenFile(path, _line_of(text, "directory.id"), str(error)) from error
    others = {key: value for key, value in values.items() if key not in _KNOWN}
    return MetaProperties(cluster_id, node_id, directory_id, version, others)


def write_meta_properties(files: Files, directory: Path, properties: MetaProperties) -> None:
    """Write the file in version 1; durable when this returns. Raises OSError."""
    values = {
        "version": "1",
        "cluster.id": properties.cluster_id,
        "node.id": str(properties.node_id),
        **({"directory.id": uuid_to_text(properties.directory_id)} if properties.directory_id else {}),
        **properties.others,
    }
    files.write_atomically(directory / META_PROPERTIES_FILE, _format(values).encode("utf-8"))


def _parse(text: str) -> dict[str, str]:
    """The keys and values of a property file. Raises ValueError."""
    values = {}
    if "\r" in text:
        return _parse_java(text)
    for line in text.split("\n"):
        if not line or line[0] in "#!":
            continue
        plain = _PLAIN_LINE.fullmatch(line)
        if plain is None:
            return _parse_java(text)
        values[plain[1]] = plain[2]
    return values


def _parse_java(text: str) -> dict[str, str]:
    import javaproperties

    values: dict[str, str] = javaproperties.loads(text)
    return values


def _format(values: Mapping[str, str]) -> str:
    lines = [f"{key}={value}" for key, value in values.items()]
    if all(map(_PLAIN_LINE.fullmatch, lines)):
        return "\n".join([*lines, ""])
    import javaproperties

    text: str = javaproperties.dumps(values, timestamp=False)
    return text


def _number(path: Path, text: str, values: Mapping[str, str], key: str, most: int) -> int:
    return parse_int(path, _line_of(text, key), f"'{key}=<number>'", values.get(key, ""), 0, most)


def _line_of(text: str, key: str) -> int:
    """The line of a key, for an error message; the last line when it is missing."""
    lines = text.splitlines()
    return next((number for number, line in enumerate(lines, 1) if line.lstrip().startswith(key)), max(1, len(lines)))
