"""The values of options: numbers, booleans, addresses, and the JSON maps by topic and partition.

Each function takes the option's name for its message, and raises OptionError, in one line, for a value of another form.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.address import host_and_port, parse_server
from ottla.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

_LARGEST_INT32 = 2**31 - 1
_MOST_DIGITS = len(str(_LARGEST_INT32))
_LARGEST_INT64 = 2**63 - 1
_SHOWN_CHARACTERS = 80


class Address(NamedTuple):
    """A host name or IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_and_port(self.host, self.port)


def integer(option: str, value: str, smallest: int, largest: int = _LARGEST_INT64) -> int:
    """Return a whole number between the bounds, both included."""
    try:
        number = int(value.strip())
    except ValueError:
        raise OptionError(f"{option}: {shown(value)} is not a whole number") from None
    if not smallest <= number <= largest:
        raise OptionError(f"{option}: {number} is not between {smallest} and {largest}")
    return number


_DURATION = re.compile(r"(\d{1,15})\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(option: str, value: str) -> int:
    """Return the milliseconds of a time as Spark writes it: `500ms`, `30s`, `15m`, `2h`, `1d`; a bare number is ms."""
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise OptionError(f"{option}: {shown(value)} is no time such as 500ms, 30s, 15m or 2h")
    return int(found[1]) * _UNIT_MS[(found[2] or "ms").lower()]


def boolean(option: str, value: str) -> bool:
    """Return the value of `true` or `false`, in any case."""
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"{option}: {shown(value)} is neither true nor false")
    return word == "true"


def addresses(option: str, value: str) -> tuple[Address, ...]:
    """Return the addresses of a list `host:port,[ipv6]:port`."""
    found = []
    for item in value.split(","):
        if not item.strip():
            continue
        try:
            found.append(Address(*parse_server(item, default_port="")))
        except ValueError:
            raise OptionError(f"{option}: {shown(item)} is not host:port") from None
    if not found:
        raise OptionError(f"{option}: no address is given")
    return tuple(found)


def json_partition_lists(option: str, value: str) -> dict[str, tuple[int, ...]]:
    """Return the partitions by topic of `{"topicA": [0, 1], "topicB": [2]}`."""
    found: dict[str, tuple[int, ...]] = {}
    example = '{"topicA":[0,1]}'
    for topic, partitions in _json_object(option, value, example).items():
        if not isinstance(partitions, list) or not partitions or not all(_is_partition(item) for item in partitions):
            raise OptionError(f"{option}: topic {topic} needs a list of partition numbers, as in {example}")
        found[topic] = tuple(sorted(set(partitions)))
    return found


def json_partition_numbers(option: str, value: str, *, smallest: int) -> dict[tuple[str, int], int]:
    """Return the number of each topic-partition of `{"topicA": {"0": 23, "1": -2}}`, each at least `smallest`."""
    found: dict[tuple[str, int], int] = {}
    example = '{"topicA":{"0":23,"1":42}}'
    for topic, by_partition in _json_object(option, value, example).items():
        if not isinstance(by_partition, dict):
            raise OptionError(f"{option}: topic {topic} needs a number for each partition, as in {example}")
        for partition, number in by_partition.items():
            is_number = partition.isascii() and partition.isdecimal() and len(partition) <= _MOST_DIGITS
            if not is_number or not _is_partition(int(partition)):
                raise OptionError(f"{option}: {shown(partition)} is no partition of topic {topic}; write {example}")
            if not _is_integer(number) or not smallest <= number <= _LARGEST_INT64:
                raise OptionError(
                    f"{option}: {shown(json.dumps(number))} for {topic}-{partition} is not a whole number >= {smallest}"
                )
            found[topic, int(partition)] = number
    return found


def shown(value: str) -> str:
    """Return a value from outside, quoted, on one line and not too long."""
    quoted = repr(value)
    return quoted if len(quoted) <= _SHOWN_CHARACTERS else f"{quoted[: _SHOWN_CHARACTERS - 3]}..."


def _json_object(option: str, value: str, example: str) -> Mapping[str, Any]:
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        raise OptionError(f"{option}: {shown(value)} is not JSON; write {example}") from None
    if not isinstance(document, dict) or not document:
        raise OptionError(f"{option}: {shown(value)} is not a JSON object by topic; write {example}")
    return document


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_partition(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_INT32
