"""The topics of `ottla.create.topics`: their syntax, and what can be checked without a broker.

    orders:3,users:1:1:compact,events:6:1:retention.ms=60000:segment.bytes=1048576
    users:1:1:compact,delete;orders:3

An entry is `name[:partitions[:replicas[:setting...]]]`, as in `KAFKA_CREATE_TOPICS` of wurstmeister's image. A setting
is `key=value` of a topic's configuration; one without `=` is the cleanup policy. Commas separate entries, and so do the
ends of lines; if there is a semicolon, semicolons do, and commas belong to values. The settings are checked by
`created_topic_settings.py`. What a start has to refuse as well, such as too many partitions, is checked by the path of
CreateTopics.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.config.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, topic_name_problem

ENTRY_SYNTAX = "name[:partitions[:replicas[:cleanup.policy or key=value]...]]"
BROKER_DEFAULT = -1
"""The number of partitions of an entry that names none: `num.partitions`."""
_MOST = (1 << 31) - 1
_POLICY, _POLICIES = "cleanup.policy", ("compact", "delete")


class CreatedTopic(NamedTuple):
    """A topic to be created at a start. `entry` is its text in the configuration; `partitions` may be
    `BROKER_DEFAULT`.
    """

    entry: str
    name: str
    partitions: int
    replicas: int
    configs: tuple[tuple[str, str], ...]


def parse_created_topics(text: str) -> tuple[CreatedTopic, ...]:
    """The topics of the key's value. Raises ValueError with the entry that is wrong, and what is."""
    separators = r";" if ";" in text else r"[,\n]"
    entries = [entry for entry in (part.strip() for part in re.split(separators, text)) if entry]
    if "," in separators and (lost := [entry for entry in entries[1:] if entry in _POLICIES]):
        raise ValueError(f"{lost[0]}: is a cleanup policy; with a semicolon after each entry, commas belong to values")
    topics = tuple(_topic(entry) for entry in entries)
    for name, times in Counter(topic.name for topic in topics).items():
        if times > 1:
            raise ValueError(f"names the topic {name} more than once")
    return topics


def show_created_topics(topics: object) -> str:
    """The inverse of `parse_created_topics`."""
    entries = [topic.entry for topic in topics] if isinstance(topics, tuple) else []
    if any("," in entry for entry in entries):
        return ";".join(entries) + ";"
    return ",".join(entries)


def _topic(entry: str) -> CreatedTopic:
    name, *rest = [part.strip() for part in entry.split(":")]
    problem = topic_name_problem(name)
    if problem is not None:
        raise ValueError(f"{entry}: {problem}; an entry is {ENTRY_SYNTAX}")
    if name == CLUSTER_METADATA_TOPIC or name in INTERNAL_TOPICS:
        raise ValueError(f"{entry}: {name} is the broker's own, which it creates itself")
    partitions = _number(entry, "partitions", rest[0]) if rest else BROKER_DEFAULT
    replicas = _number(entry, "replicas", rest[1]) if len(rest) > 1 else 1
    configs = tuple(_configs(entry, rest[2:]))
    return CreatedTopic(entry, name, partitions, replicas, configs)


def _number(entry: str, what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:11]) <= _MOST):
        raise ValueError(f"{entry}: the number of {what} must be at least 1, not {text!r}; an entry is {ENTRY_SYNTAX}")
    return int(text)


def _configs(entry: str, parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    seen = set()
    for part in parts:
        if not part:
            continue  # `orders:1:1:` of a variable that is empty
        key, value = part.split("=", 1) if "=" in part else (_POLICY, part)
        key = key.strip()
        if key in seen:
            raise ValueError(f"{entry}: {key} is set more than once")
        seen.add(key)
        yield key, value.strip()
